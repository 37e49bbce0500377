"""Give each claim of an answer a verdict with its evidence: the door of the hallucination check.

answer       what a checker is given and gives back
structure    citations exist, quotes are real, claims carry citations
lexical      the words of a claim stand together in a source: ``features`` measures, ``model`` judges, ``conflicts``
             says what the source has instead
local        a model of the operator's own reads what the words leave open; ``blend`` weighs its word against theirs
calibration  what a model's score means as a probability
attribution  how well citations carry a claim
fusion       one verdict of all layers, and the scores of the whole answer
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from schemas.generation import CheckerName
from schemas.grounding import Claim, Grounding, Verdict
from schemas.job import JobRequest
from tasks.answers.render import strip_markers
from tasks.checkers.answer import CheckedClaim, Checker, CheckInput, ClaimFinding
from tasks.checkers.fusion import attributions, fuse, summed_up
from tasks.checkers.lexical import Lexical
from tasks.checkers.local import Local
from tasks.checkers.model import Calibration, shipped
from tasks.checkers.structure import Structure
from tasks.ports.scorer import ClaimScorer
from tasks.postprocess import Processed
from tasks.text.sentences import Span
from tasks.text.statements import Statement, why_not_checkable

__all__ = ["CheckInput", "CheckedClaim", "Checker", "ClaimFinding", "ground", "use_calibration", "use_local_model"]

logger = logging.getLogger(__name__)

CHECKERS: dict[CheckerName, Checker] = {CheckerName.STRUCTURE: Structure(), CheckerName.LEXICAL: Lexical()}
"""The layers that exist; ``use_local_model`` adds one."""

MISSING = {
    CheckerName.LOCAL: "no local model on this worker: set NIGHTDESK_LOCAL_MODEL where answers are checked, or leave"
    " 'local' out of the job's checkers"
}
"""What to do about a layer that a process has not got."""

MOST_CLAIMS = 500
"""Claims checked of one answer; those beyond stay unchecked. Far more than an answer has: it bounds the work of one job."""


def use_calibration(calibration: Calibration | None) -> None:
    """Let this process's lexical layer judge by someone's own calibration; None: by the shipped one.

    Called once, when a process is wired. Raises ``ConfigurationError`` if it was made for another model.
    """
    model = shipped()
    CHECKERS[CheckerName.LEXICAL] = Lexical(model.calibrated(calibration) if calibration else model)


def use_local_model(scorer: ClaimScorer | None, calibration: Calibration | None = None) -> None:
    """Let this process check by a model of the operator's own; None: it has none.

    Called once, when a process is wired, after ``use_calibration``. Raises ``ConfigurationError`` if the calibration's
    part for local models was made for another one.
    """
    CHECKERS.pop(CheckerName.LOCAL, None)
    if scorer is not None:
        model = shipped()
        CHECKERS[CheckerName.LOCAL] = Local(
            scorer, model.calibrated(calibration) if calibration else model, calibration
        )


def ground(request: JobRequest, processed: Processed, checkers: Mapping[CheckerName, Checker] = CHECKERS) -> Grounding:
    """Check an answer with the layers its config names.

    A layer that does not exist, or that raises, is named in ``failed_checkers`` with the reason and changes no
    verdict; a claim that no layer gave a verdict stays ``unchecked``, never supported.
    """
    bare = strip_markers(processed.response, processed.markers)
    reasons = [why_not_checkable(bare[statement.start : statement.end]) for statement in processed.statements]
    checkable = tuple(
        _checked_claim(statement, bare, processed)
        for statement, reason in zip(processed.statements, reasons, strict=True)
        if reason is None
    )[:MOST_CLAIMS]
    findings, failed = _run(request.config.checkers, checkers, CheckInput(request, checkable))
    versions = {name.value: checkers[name].version for name in findings}
    claims: list[Claim] = []
    position = 0
    for statement, reason in zip(processed.statements, reasons, strict=True):
        text = processed.response[statement.start : statement.end]
        if reason is not None:
            claims.append(_not_checkable(text, statement, reason))
            continue
        mine = {name: found[position] for name, found in findings.items()} if position < len(checkable) else {}
        claims.append(fuse(text, Span(statement.start, statement.end), mine))
        position += 1
    return summed_up(claims, versions, failed, attributions(findings))


def _checked_claim(statement: Statement, bare: str, processed: Processed) -> CheckedClaim:
    return CheckedClaim(
        text=bare[statement.start : statement.end],
        span=Span(statement.start, statement.end),
        citations=tuple(processed.citations[position] for position in statement.citations),
        unknown=statement.unknown,
    )


def _run(
    wanted: Sequence[CheckerName], checkers: Mapping[CheckerName, Checker], answer: CheckInput
) -> tuple[dict[CheckerName, Sequence[ClaimFinding]], dict[str, str]]:
    findings: dict[CheckerName, Sequence[ClaimFinding]] = {}
    failed: dict[str, str] = {}
    # In the order of the names, whatever the config's: the later layers read what the earlier ones found.
    for name in (name for name in CheckerName if name in wanted):
        checker = checkers.get(name)
        if checker is None:
            failed[name.value] = MISSING.get(name, "not available in this version")
            continue
        try:
            found = checker.check(replace(answer, found=findings))
            if len(found) != len(answer.claims):
                raise ValueError(f"{len(found)} findings for {len(answer.claims)} claims")  # noqa: TRY301 - one policy
        except Exception as error:
            # The policy: a paid answer is not thrown away because its check broke; the record says which layer did.
            logger.exception("checker %s failed", name.value)
            failed[name.value] = f"{type(error).__name__}: {error}"
            continue
        findings[name] = found
    return findings, failed


def _not_checkable(text: str, statement: Statement, reason: str) -> Claim:
    return Claim(
        text=text, start_pos=statement.start, end_pos=statement.end, verdict=Verdict.NOT_CHECKABLE, reason=reason
    )
