"""Weighs a local model's score against the lexical score, and says how often the words are right.

All terms are log-odds and add up. The factors are 0 or more, so neither a better lexical score nor a better opinion ever
lowers the probability. No result is surer than 0.95.
"""

import math

from pydantic import Field

from schemas.base import Contract

EDGE = 1e-4
"""Least distance of a probability from 0 and 1, so that its log-odds are finite."""


def log_odds(probability: float) -> float:
    """Log-odds of a probability in [0, 1]; finite at both ends."""
    bounded = min(1 - EDGE, max(EDGE, probability))
    return math.log(bounded / (1 - bounded))


def sigmoid(odds: float) -> float:
    """Probability of log-odds, in [0, 1]; never overflows."""
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))


def _clamp(odds: float) -> float:
    """The probability by both layers, at least 0.05 and at most 0.95."""
    return min(0.95, max(0.05, sigmoid(odds)))


class RightShares(Contract):
    """The shares of right verdicts among those of the words, as measured on labelled claims."""

    supported: float = Field(ge=0, le=1)
    contradicted: float = Field(ge=0, le=1)


class LocalWeights(Contract):
    """Worth of a local model's score beside the lexical one; the defaults hold for a model unknown on the data at hand.

    The model's log-odds are bounded by ``sure`` first: the certainty a model claims says little about how often it is
    right on other data than its own.

    With the defaults the model alone says 0.15 to 0.85 at most, and both layers count by 0.7, as they see some things
    alike.
    """

    source: str = Field(default="", description="local model as name-version")
    lexical: float = Field(
        default=0.7, ge=0, description="factor of the lexical log-odds: both layers see some things alike"
    )
    bias: float = Field(default=0.0, description="log-odds added always")
    labels: int = Field(default=0, ge=0, description="labelled rows of the fit; 0: the defaults")
    sure: float = Field(default=1.73, gt=0, description="bound of the model's own log-odds, either way")
    local: float = Field(default=0.7, ge=0, description="factor of the model's log-odds")

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
            return _clamp(self._bounded(logit))
        return _clamp(self.bias + self.local * self._bounded(logit) + self.lexical * log_odds(lexical))

    def threshold(self, lexical: float | None) -> float:
        """Least probability of a supported claim.

        It is the lexical threshold beside a model that says neither yes nor no, so that such a model changes no verdict;
        one half without the lexical layer.
        """
        if lexical is None:
            return 0.5
        return _clamp(self.bias + self.lexical * log_odds(lexical))

    def _bounded(self, logit: float) -> float:
        return max(-self.sure, min(self.sure, logit))
