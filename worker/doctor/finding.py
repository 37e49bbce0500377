"""A finding of the doctor with its remedy, and the report of an examination."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """The severity of a finding, from least to worst."""

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


def _maker(severity: Severity) -> Callable[[str, str, str], Finding]:
    """Makes findings of one severity from the name of the check, the finding itself and its remedy."""
    return lambda check, what, remedy: Finding(check, severity, what, remedy)


note = _maker(Severity.NOTE)
warning = _maker(Severity.WARNING)
problem = _maker(Severity.PROBLEM)
unreachable = _maker(Severity.UNREACHABLE)


@dataclass(slots=True)
class Report:
    """The parts that were examined, and the findings."""

    checked: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, part: str, *findings: Finding) -> None:
        """Notes a part as examined, with its findings."""
        self.checked.append(part)
        self.findings.extend(findings)

    @property
    def worst(self) -> Severity | None:
        """The worst severity; None without findings."""
        order = list(Severity)
        return max((finding.severity for finding in self.findings), key=order.index, default=None)
