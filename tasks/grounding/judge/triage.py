"""Chooses the claims that a judge is asked about: those the other layers leave open, and near copies that differ."""

from collections.abc import Sequence

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.grounding.checkers import CheckedClaim, ClaimFinding
from tasks.grounding.local import SURELY_SUPPORTED, is_sure, open_claims
from tasks.text.sentences import words
from tasks.text.wording import content_words

LEAST_COPIED = 3
"""Words of content from which a claim that stands word for word in a source needs no judge: fewer are chance."""


def claims_to_judge(
    request: JobRequest, claims: Sequence[CheckedClaim], findings: Sequence[ClaimFinding] | None
) -> list[int]:
    """Positions of the claims for a judge, in order.

    A high score means that nearly all words of a claim are in one place of a source. So it is highest for a copy with
    another number in it, or a "not". No words are sure of such a claim: only a copy without any difference is not asked
    about. One that words call contradicted is, whatever its score.

    Args:
        request: the job, with its sources.
        claims: the checkable claims of the answer.
        findings: of the other layers, by claim; None: none ran.
    """
    if findings is None:
        return open_claims(claims, None)
    return [
        position
        for position, (claim, finding) in enumerate(zip(claims, findings, strict=True))
        if _needs_judge(request, claim, finding)
    ]


def _needs_judge(request: JobRequest, claim: CheckedClaim, finding: ClaimFinding) -> bool:
    if finding.verdict is Verdict.SUPPORTED:
        # Also where its citations lead nowhere: words support it by other sources.
        return not is_sure(finding.score) or is_near_copy(request, claim, finding)
    return finding.verdict is Verdict.CONTRADICTED or bool(open_claims([claim], [finding]))


def is_near_copy(request: JobRequest, claim: CheckedClaim, finding: ClaimFinding) -> bool:
    """Tells whether words are sure of a claim that stands word for word in none of its evidence."""
    if finding.score is None or finding.score < SURELY_SUPPORTED:
        return False
    tokens = words(claim.text)
    if len(content_words(tokens)) < LEAST_COPIED:
        return True
    copy = f" {' '.join(tokens)} "
    return not any(
        copy in f" {' '.join(words(request.context[place.source_index].content[place.start : place.end]))} "
        for place in finding.evidence
    )


def by_weight(positions: Sequence[int], findings: Sequence[ClaimFinding]) -> tuple[int, ...]:
    """Positions in the order in which a judge is worth its price.

    Near copies come first: words are surest of them, and as sure when they are wrong. Then what words call supported,
    the doubtful first, because a reader would believe it. Last what they call unsupported, the doubtful first.
    """
    return tuple(sorted(positions, key=lambda position: _rank(findings[position])))


def _rank(finding: ClaimFinding) -> tuple[int, float]:
    score = finding.score or 0.0
    if score >= SURELY_SUPPORTED:
        return 0, 0.0
    return (1, score) if finding.verdict is Verdict.SUPPORTED else (2, -score)
