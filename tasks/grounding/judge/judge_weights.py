"""Weights of a judge's verdict beside the lexical score, and their fit on labelled claims.

A verdict shifts the lexical log-odds by a fixed amount for "supported" and by another for "not supported". A judge that
gives a probability shifts them by its log-odds times a factor, within the shifts of the two verdicts: the certainty a
judge claims says little about how often it is right.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from schemas.grounding import Verdict
from tasks.grounding.calibration import LabelledScore, shift_threshold
from tasks.grounding.odds import log_odds, sigmoid
from tasks.grounding.regression import monotone_regression
from tasks.grounding.weights import FusionWeights, tail_shares

_LARGEST_LOGIT = 4.6
"""Log-odds of 0.99: a probability beyond is fitted, and counts, as this."""
LEAST_LABELS = 30
"""Labelled claims that a fit needs; with fewer the defaults are better."""


class JudgeWeights(FusionWeights):
    """Worth of a judge's verdict."""

    source: str = Field(default="default", description="judge as provider:model")
    supported: float = Field(default=1.11, ge=0, description='log-odds added by "supported"')
    not_supported: float = Field(default=-1.14, le=0, description='log-odds added by "contradicted" or "unsupported"')
    graded: float = Field(
        default=1.0, ge=0, description="factor of the log-odds of the judge's probability, where it gives one"
    )
    supported_at: float = Field(default=0.5, ge=0, le=1, description="least probability of a supported claim")

    def opinion(self, verdict: Verdict, probability: float | None = None) -> float:
        """Log-odds that a verdict adds; a judge's probability counts in the place of its verdict."""
        if probability is None:
            return self.supported if verdict is Verdict.SUPPORTED else self.not_supported
        return min(self.supported, max(self.not_supported, self.graded * log_odds(probability)))


DEFAULT = JudgeWeights()
"""Weights of an unknown judge: right on 76 of 100 supported and 75 of 100 unsupported claims, as published for GPT-4-class
judges (balanced accuracy 75-77 on LLM-AggreFact, Tang et al. 2024): log(0.76 / 0.25) and log(0.24 / 0.75)."""


def weigh(
    lexical: float | None, verdict: Verdict | None, weights: JudgeWeights = DEFAULT, *, probability: float | None = None
) -> float | None:
    """Probability that a claim is supported.

    Args:
        lexical: calibrated lexical probability; None: that layer did not run.
        verdict: the judge's; None: it has none, and the lexical probability stands as it is.
        weights: of this judge.
        probability: the judge's own, if it gives one; it counts in the place of the verdict.

    Returns: None when neither layer has an opinion.
    """
    if verdict is None:
        return lexical
    return weights.combine(lexical, weights.opinion(verdict, probability))


class LabelledVerdict(NamedTuple):
    """A labelled claim that a judge decided: lexical probability, the judge's verdict, and the label."""

    lexical: float | None
    verdict: Verdict
    supported: bool
    probability: float | None = None


def fit(source: str, rows: Sequence[LabelledVerdict], *, least: int = LEAST_LABELS) -> JudgeWeights:
    """Fit the weights of a judge on labelled claims: all with its probability, or all with its verdict alone.

    Raises: ValueError for fewer than ``least`` rows, rows of one label only, or rows of both forms.
    """
    labels = [row.supported for row in rows]
    if len(rows) < least or all(labels) or not any(labels):
        raise ValueError(f"{len(rows)} labelled claims are too few, or all alike: at least {least} of both kinds")
    graded = {row.probability is not None for row in rows}
    if len(graded) > 1:
        raise ValueError("some claims have a probability and some have none: a judge gives one or the other")
    weights = _fit_probabilities(source, rows) if graded == {True} else _fit_verdicts(source, rows)
    scores = [(_odds(row, weights), row.supported) for row in rows]
    floor, ceiling = tail_shares(scores, LEAST_LABELS // 3)
    threshold = shift_threshold([LabelledScore(odds, supported) for odds, supported in scores], 0.0)
    return weights.model_copy(
        update={
            "floor": floor,
            "ceiling": ceiling,
            "labels": len(rows),
            "supported_at": min(ceiling, max(floor, sigmoid(threshold))),
        }
    )


def _fit_verdicts(source: str, rows: Sequence[LabelledVerdict]) -> JudgeWeights:
    features = [
        [
            log_odds(row.lexical) if row.lexical is not None else 0.0,
            1.0 if row.verdict is Verdict.SUPPORTED else 0.0,
            0.0 if row.verdict is Verdict.SUPPORTED else -1.0,
        ]
        for row in rows
    ]
    prior = [DEFAULT.lexical, DEFAULT.supported, -DEFAULT.not_supported]
    lexical, supported, opposed = _coefficients(features, rows, prior, monotone=3)
    return JudgeWeights(source=source, lexical=lexical, supported=supported, not_supported=-opposed)


def _fit_probabilities(source: str, rows: Sequence[LabelledVerdict]) -> JudgeWeights:
    """Fit with a constant, which the two verdicts imply: a judge may be too strict or too kind."""
    features = [
        [log_odds(row.lexical) if row.lexical is not None else 0.0, _bounded(row.probability or 0.0), 1.0]
        for row in rows
    ]
    lexical, graded, bias = _coefficients(features, rows, [DEFAULT.lexical, DEFAULT.graded, 0.0], monotone=2)
    largest = graded * _LARGEST_LOGIT
    return JudgeWeights(
        source=source, lexical=lexical, supported=largest, not_supported=-largest, bias=bias, graded=graded
    )


def _bounded(probability: float) -> float:
    return max(-_LARGEST_LOGIT, min(_LARGEST_LOGIT, log_odds(probability)))


def _coefficients(
    features: Sequence[Sequence[float]], rows: Sequence[LabelledVerdict], prior: Sequence[float], *, monotone: int
) -> list[float]:
    return monotone_regression(features, [row.supported for row in rows], prior, monotone=monotone)


def _odds(row: LabelledVerdict, weights: JudgeWeights) -> float:
    opinion = weights.opinion(row.verdict, row.probability)
    return weights.bias + opinion + (0.0 if row.lexical is None else weights.lexical * log_odds(row.lexical))
