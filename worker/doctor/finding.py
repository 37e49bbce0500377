"""What the doctor says: one finding with its remedy."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    NOTE = "note"
    """Worth knowing; nothing is wrong."""
    WARNING = "warning"
    """It works, but not as it should, or something waits for a person."""
    PROBLEM = "problem"
    """Something does not work."""
    UNREACHABLE = "unreachable"
    """A service that is needed can't be reached."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    check: str
    """Name of the check that found it, stable for programs."""
    severity: Severity
    what: str
    remedy: str
    """What to do about it."""
