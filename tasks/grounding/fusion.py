"""Fuses the findings of all layers: one verdict per claim, and the scores of the whole answer."""

from collections import Counter
from collections.abc import Mapping, Sequence

from schemas.generation import CheckerName
from schemas.grounding import Claim, Grounding, Verdict
from tasks.grounding.attribution import Attribution, citation_scores
from tasks.grounding.findings import ClaimFinding
from tasks.grounding.joint import joint_probability
from tasks.text.sentences import Span

DECIDING = (CheckerName.JUDGE, CheckerName.LOCAL, CheckerName.LEXICAL, CheckerName.STRUCTURE)
"""Layers by precedence: judge and local model, whose verdicts include the lexical score, then the lexical layer, then the
layer that reads only the form of citations."""

CALIBRATED = frozenset({CheckerName.LEXICAL.value, CheckerName.LOCAL.value, CheckerName.JUDGE.value})
"""Layers whose score is a calibrated probability."""


def attributions(
    findings: Mapping[CheckerName, Sequence[ClaimFinding]],
) -> list[Attribution]:
    """Attributions of each claim, from the first layer in ``DECIDING`` that has any."""
    for name in DECIDING:
        attributed = [finding.attribution for finding in findings.get(name, ()) if finding.attribution is not None]
        if attributed:
            return attributed
    return []


def fuse(text: str, span: Span, findings: Mapping[CheckerName, ClaimFinding]) -> Claim:
    """Fuses the findings on one claim: verdict of the first layer in ``DECIDING`` that has one, remarks of all layers.

    Args:
        text: the claim's words as they stand in the response.
        span: its place there.
        findings: by layer; empty: the claim was not checked.
    """
    decider = next((name for name in DECIDING if name in findings and findings[name].verdict is not None), None)
    decided = findings[decider] if decider else ClaimFinding()
    judged = decider is CheckerName.JUDGE and decided.verdict is not Verdict.UNCHECKED
    # A word that the lexical layer misses is no remark where a judge has read the text.
    remaining = [name for name in findings if name is not decider and not (judged and name is CheckerName.LEXICAL)]
    remarks = [decided.reason, *(findings[name].reason for name in remaining)]
    if decider is None:
        remarks.insert(0, "no checker gave a verdict")
    return Claim(
        text=text,
        start_pos=span.start,
        end_pos=span.end,
        verdict=decided.verdict or Verdict.UNCHECKED,
        score=decided.score,
        miscited=decided.miscited,
        evidence=decided.evidence,
        checker=decider.value if decider and decided.verdict is not Verdict.UNCHECKED else None,
        judge=findings[CheckerName.JUDGE].judge if CheckerName.JUDGE in findings else None,
        reason="; ".join(remark for remark in remarks if remark),
        reused_from=decided.reused_from,
    )


def summed_up(
    claims: Sequence[Claim],
    versions: dict[str, str],
    failed: dict[str, str],
    attributions: Sequence[Attribution],
    dependence: float,
) -> Grounding:
    """Computes the scores of the whole answer.

    Args:
        claims: all of them, in order.
        versions: of the checkers that ran.
        failed: reasons of the checkers that gave no verdict.
        attributions: of the claims that a layer attributed.
        dependence: between the claims of an answer, in [0, 1]: see ``joint_probability``.
    """
    counts = Counter(claim.verdict for claim in claims)
    checkable = len(claims) - counts[Verdict.NOT_CHECKABLE]
    weakest = _weakest(claims)
    citation_recall, citation_precision = citation_scores(attributions)
    return Grounding(
        grounding_score=counts[Verdict.SUPPORTED] / checkable if checkable else None,
        confidence=_confidence(claims, dependence),
        weakest=weakest,
        citation_recall=citation_recall,
        citation_precision=citation_precision,
        claims=tuple(claims),
        checkers=versions,
        failed_checkers=failed,
        counts={verdict: counts[verdict] for verdict in Verdict if counts[verdict]},
    )


_WORST_FIRST = {Verdict.CONTRADICTED: 0, Verdict.UNSUPPORTED: 1, Verdict.UNCHECKED: 2, Verdict.SUPPORTED: 3}


def _weakest(claims: Sequence[Claim]) -> int | None:
    checkable = [index for index, claim in enumerate(claims) if claim.verdict is not Verdict.NOT_CHECKABLE]
    return min(
        checkable,
        key=lambda index: (
            _WORST_FIRST[claims[index].verdict],
            1.0 if claims[index].score is None else claims[index].score,
        ),
        default=None,
    )


def _confidence(claims: Sequence[Claim], dependence: float) -> float | None:
    """Probability that no claim is unsupported; None when a checkable claim has no calibrated score."""
    scores = [
        claim.score if claim.checker in CALIBRATED else None
        for claim in claims
        if claim.verdict is not Verdict.NOT_CHECKABLE
    ]
    calibrated = [score for score in scores if score is not None]
    if not calibrated or len(calibrated) < len(scores):
        return None
    return round(joint_probability(calibrated, dependence), 4)
