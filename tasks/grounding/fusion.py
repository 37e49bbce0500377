"""Fuses the findings of all layers: one verdict per claim, and the scores of the whole answer."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from schemas.generation import CheckerName
from schemas.grounding import Claim, Grounding, Verdict
from tasks.grounding.findings import Attribution, ClaimFinding, citation_scores
from tasks.text.sentences import Span

SHARPEST = 0.95
"""Dependence from which the lowest probability counts; the power of the copula would be 20 and more."""
_STEPS = 20
_PRIOR_SPREAD = 0.2
"""One standard deviation of an operator's own dependence around the shipped one."""
_LEAST = 1e-3
"""Least likelihood of a label: one surprise must not decide a fit."""


class Answer(NamedTuple):
    """A labelled answer: the probabilities of its claims, a person's label (all supported), and its weight."""

    claims: Sequence[float]
    supported: bool
    weight: float = 1.0


def joint_probability(claims: Sequence[float], dependence: float) -> float:
    """Probability that all claims of an answer are supported.

    Claims of one answer fare alike: they are about the same sources, and were written by the same writer. So the truth
    lies between the lowest probability (they stand and fall together) and the product (each for itself). The Gumbel
    copula (Gumbel 1960; Nelsen, An Introduction to Copulas, 2006, section 4.2) is between both by one parameter, however
    many the claims are; one claim keeps its own probability, and a higher one never lowers the answer's.

    Args:
        claims: the probability of each, in [0, 1]; at least one.
        dependence: Kendall's tau between two claims of an answer, in [0, 1]: 0 multiplies, 1 takes the lowest.
    """
    lowest = min(claims)
    if dependence >= SHARPEST or len(claims) == 1 or lowest <= 0.0:
        return lowest
    power = 1 / (1 - dependence)
    # Scaled by the largest, so that no power of a small number underflows.
    largest = -math.log(lowest)
    if largest <= 0.0:
        return lowest
    total = math.fsum((-math.log(claim) / largest) ** power for claim in claims) ** (1 - dependence)
    # Rounding may put it a hair above.
    return min(lowest, math.exp(-largest * total))


def fit_dependence(answers: Sequence[Answer], expected: float | None = None) -> float | None:
    """Fits the dependence under which the labels of answers are likeliest, in steps of a twentieth.

    Args:
        answers: labelled answers; those with one claim do not count.
        expected: centre of the prior, which counts where labels are few; None: no prior.

    Returns: None when no answer has several claims.
    """
    several = [answer for answer in answers if len(answer.claims) > 1]
    if not several:
        return None

    def likelihood(dependence: float) -> float:
        penalty = 0.0 if expected is None else ((dependence - expected) / _PRIOR_SPREAD) ** 2 / 2
        return math.fsum(answer.weight * _likelihood(answer, dependence) for answer in several) - penalty

    return max((step / _STEPS for step in range(_STEPS + 1)), key=likelihood)


def _likelihood(answer: Answer, dependence: float) -> float:
    probability = joint_probability(answer.claims, dependence)
    return math.log(max(_LEAST, probability if answer.supported else 1 - probability))


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
