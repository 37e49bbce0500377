"""Looks up what an answer denies: "there is no evidence that X" is false when a source says X."""

from collections.abc import Mapping, Sequence

from schemas.generation import CheckerName
from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.grounding.checkers import CheckedClaim, Checker, CheckInput, ClaimFinding
from tasks.text.sentences import Span, words
from tasks.text.statements import Reading
from tasks.text.wording import NEGATION, stems_of

FOUND_AT = 0.6
"""Probability from which a source says what an answer denies. Higher than for a claim: an honest refusal must stay one."""


def false_denials(
    request: JobRequest, readings: Sequence[Reading], checkers: Mapping[CheckerName, Checker]
) -> dict[int, ClaimFinding]:
    """The findings on denials of what a source says, by the places of their readings."""
    places = [place for place, reading in enumerate(readings) if reading.denied]
    if not places or not request.context:
        return {}
    claims = tuple(CheckedClaim(readings[place].denied, Span(0, 0)) for place in places)
    findings = checkers[CheckerName.LEXICAL].check(CheckInput(request, claims))
    return {
        place: ClaimFinding(
            verdict=Verdict.CONTRADICTED,
            score=round(1 - (finding.score or 0), 4),
            evidence=finding.evidence,
            reason="it denies what a source says",
        )
        for place, finding in zip(places, findings, strict=True)
        if _is_said(request, finding)
    }


def _is_said(request: JobRequest, finding: ClaimFinding) -> bool:
    if finding.verdict is Verdict.CONTRADICTED or finding.score is None or finding.score < FOUND_AT:
        return False
    # A source that denies it, too, agrees with the answer.
    return not any(
        NEGATION in stems_of(words(request.context[place.source_index].content[place.start : place.end]))
        for place in finding.evidence
    )
