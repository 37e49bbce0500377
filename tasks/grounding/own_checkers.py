"""Runs the checkers of the installation's own; one that breaks costs only its own verdicts, and is named."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.grounding.checkers import CheckInput, ClaimFinding
from tasks.masking import words_of
from tasks.text.time_limit import OutOfTime, ensure_time

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OwnChecker:
    """A checker of the installation's own: ``checker`` has ``check`` and ``version``; ``package`` is its origin."""

    name: str
    checker: Any
    package: str

    @property
    def version(self) -> str:
        """The version of the checker and its package, as records name it."""
        return f"{self.checker.version} ({self.package})"


@dataclass(frozen=True, slots=True)
class OwnFindings:
    """The findings by checker, in the order of the settings; the reasons of those without; and the versions."""

    findings: dict[str, Sequence[ClaimFinding]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


OWN_CHECKERS: dict[str, OwnChecker] = {}
"""Those of this process, in the order of the settings: the first with a verdict decides."""


def use_own_checkers(checkers: Iterable[OwnChecker]) -> None:
    """Makes this process check with these, and no others. Called once, when a process is wired."""
    OWN_CHECKERS.clear()
    OWN_CHECKERS.update({checker.name: checker for checker in checkers})


def run_own(names: Sequence[str], answer: CheckInput) -> OwnFindings:
    """Runs the checkers that a job names."""
    result = OwnFindings()
    for name in names:
        if name not in OWN_CHECKERS:
            result.failed[name] = "not in NIGHTDESK_CHECKERS of this worker: set it for all workers, then recheck"
    for own in OWN_CHECKERS.values():
        if own.name not in names:
            continue
        try:
            ensure_time()
            findings = own.checker.check(answer)
            _validate(findings, answer)
        except OutOfTime as error:
            result.failed[own.name] = str(error)
        except (Exception, SystemExit) as error:
            # As for a layer of ours: a paid answer is not thrown away because its check broke.
            logger.exception("checker %s of %s failed", own.name, own.package)
            result.failed[own.name] = f"{words_of(error)} ({own.package})"
        else:
            result.findings[own.name] = findings
            result.versions[own.name] = own.version
    return result


def _validate(findings: Sequence[ClaimFinding], answer: CheckInput) -> None:
    """Raises ``TypeError`` or ``ValueError`` for what is no finding on each claim with evidence that exists."""
    if len(findings) != len(answer.claims):
        raise ValueError(f"{len(findings)} findings for {len(answer.claims)} claims")
    for finding in findings:
        if not isinstance(finding, ClaimFinding):
            raise TypeError(f"a finding is a {type(finding).__name__}, not a ClaimFinding")
        for evidence in finding.evidence:
            if not any(
                index == evidence.source_index and 0 <= evidence.start < evidence.end <= len(source.content)
                for index, source in enumerate(answer.request.context)
            ):
                raise ValueError(
                    f"evidence at {evidence.start}-{evidence.end} of source {evidence.source_index} does not exist"
                )
