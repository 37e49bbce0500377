"""A finding of the doctor with its remedy, and the report of an examination."""

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


def note(check: str, what: str, remedy: str) -> Finding:
    """A finding that nothing is wrong with."""
    return Finding(check, Severity.NOTE, what, remedy)


def warning(check: str, what: str, remedy: str) -> Finding:
    """A finding that waits for a person, or that lets things work less well."""
    return Finding(check, Severity.WARNING, what, remedy)


def problem(check: str, what: str, remedy: str) -> Finding:
    """A finding that keeps something from working."""
    return Finding(check, Severity.PROBLEM, what, remedy)


def unreachable(check: str, what: str, remedy: str) -> Finding:
    """A finding that a service can't be reached."""
    return Finding(check, Severity.UNREACHABLE, what, remedy)


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
