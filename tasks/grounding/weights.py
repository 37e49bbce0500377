"""Weighs a second opinion (a judge's verdict, a local model's score) against the lexical score.

All terms are log-odds and add up. The factors are 0 or more, so neither a better lexical score nor a better opinion ever
lowers the probability. The result stays within measured shares: where every layer is sure, it is as sure as they were
right.
"""

import math

from pydantic import Field

from schemas.base import Contract
from schemas.grounding import Verdict

EDGE = 1e-4
"""Least distance of a probability from 0 and 1, so that its log-odds are finite."""


def log_odds(probability: float) -> float:
    """Log-odds of a probability in [0, 1]; finite at both ends."""
    bounded = min(1 - EDGE, max(EDGE, probability))
    return math.log(bounded / (1 - bounded))


def sigmoid(odds: float) -> float:
    """Probability of log-odds, in [0, 1]; never overflows."""
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))


class FusionWeights(Contract):
    """Worth of one source of opinions beside the lexical score; the defaults hold for an unknown source."""

    source: str = Field(default="", description="judge as provider:model, or local model as name-version")
    lexical: float = Field(
        default=0.7, ge=0, description="factor of the lexical log-odds: both layers see some things alike"
    )
    bias: float = Field(default=0.0, description="log-odds added always")
    floor: float = Field(default=0.05, ge=0, le=1, description="least probability")
    ceiling: float = Field(default=0.95, ge=0, le=1, description="greatest probability")
    labels: int = Field(default=0, ge=0, description="labelled rows of the fit; 0: the defaults")

    def combine(self, lexical: float | None, opinion: float) -> float:
        """Probability that a claim is supported.

        Args:
            lexical: calibrated lexical probability; None: that layer did not run.
            opinion: log-odds of the opinion, weighted.
        """
        return self.clamp(self.odds(lexical, opinion))

    def odds(self, lexical: float | None, opinion: float) -> float:
        """Log-odds of ``combine``, without floor and ceiling."""
        return self.bias + opinion + (0.0 if lexical is None else self.lexical * log_odds(lexical))

    def clamp(self, odds: float) -> float:
        """Probability of log-odds, within floor and ceiling."""
        return min(self.ceiling, max(self.floor, sigmoid(odds)))


class LocalWeights(FusionWeights):
    """Worth of a local model's score; the defaults hold for a model that is unknown on the data at hand.

    The model's log-odds are bounded by ``sure`` first: the certainty a model claims says little about how often it is
    right on other data than its own.

    With the defaults the model alone says 0.15 to 0.85 at most, and both layers count by 0.7, as they see some things
    alike.
    """

    slope: float = Field(default=1.0, ge=0)
    shift: float = 0.0
    sure: float = Field(default=1.73, gt=0, description="bound of the model's own log-odds, either way")
    local: float = Field(default=0.7, ge=0, description="factor of the model's log-odds")
    supported_at: float | None = Field(
        default=None, ge=0, le=1, description="least probability of a supported claim; none: see threshold"
    )

    def alone(self, logit: float) -> float:
        """Probability by the model alone for its log-odds, in [0, 1]."""
        return sigmoid(self._bounded(logit))

    def probability(self, lexical: float | None, logit: float) -> float:
        """Probability by both layers.

        Args:
            lexical: calibrated lexical probability; None: that layer did not run.
            logit: the model's log-odds.
        """
        if lexical is None:
            return self.clamp(self._bounded(logit))
        return self.combine(lexical, self.local * self._bounded(logit))

    def threshold(self, lexical: float | None) -> float:
        """Least probability of a supported claim.

        Unless one was fitted, it is the lexical threshold beside a model that says neither yes nor no, so that such a
        model changes no verdict; one half without the lexical layer.
        """
        if lexical is None:
            return 0.5
        if self.supported_at is not None:
            return self.supported_at
        return self.clamp(self.bias + self.lexical * log_odds(lexical))

    def _bounded(self, logit: float) -> float:
        return max(-self.sure, min(self.sure, self.slope * logit + self.shift))


class JudgeWeights(FusionWeights):
    """Worth of a judge's verdict: a fixed shift of the log-odds for "supported", and another for "not supported".

    A probability shifts them by its log-odds times a factor, within the two: the certainty a judge claims says little
    about how often it is right.
    """

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
        verdict: the judge's; None: it has none, and the lexical probability stays as it is.
        weights: of this judge.
        probability: the judge's own, if it gives one; it counts in the place of the verdict.

    Returns: None when neither layer has an opinion.
    """
    if verdict is None:
        return lexical
    return weights.combine(lexical, weights.opinion(verdict, probability))
