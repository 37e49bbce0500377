"""Blend what a local model says of a claim with what its words say: one probability that it is supported.

Both are put on the scale of log-odds and added up by weights of 0 or more, so that neither a better word score nor a
better model score ever lowers the probability. The model's log-odds are held within ``sure`` first: how sure a model
sounds says little about how often it is right on other data than its own.
"""

import math

from pydantic import Field

from schemas.base import Contract

_EDGE = 1e-4


class Blend(Contract):
    """What a local model's word is worth; the defaults are for a model that nothing is known of on the data at hand.

    With them the model alone says 0.15 to 0.85, whatever it sounds like, and both layers count for 0.7, as they see
    some things alike (the factor that ``judge.weighing`` has for the words).
    """

    scorer: str = Field(default="", description="name and version of the model that it was fitted for")
    slope: float = Field(default=1.0, ge=0)
    shift: float = 0.0
    sure: float = Field(default=1.73, gt=0, description="most log-odds of the model alone, either way")
    lexical: float = Field(default=0.7, ge=0, description="factor of the words' log-odds")
    local: float = Field(default=0.7, ge=0, description="factor of the model's")
    bias: float = 0.0
    floor: float = Field(default=0.05, ge=0, le=1, description="least probability")
    ceiling: float = Field(default=0.95, ge=0, le=1, description="greatest probability")
    supported_at: float | None = Field(
        default=None, ge=0, le=1, description="least probability of a supported claim; none: see threshold"
    )
    labels: int = Field(default=0, ge=0, description="labelled rows it was fitted on; 0: the defaults")

    def alone(self, logit: float) -> float:
        """The probability that the model alone gives for its log-odds, in [0, 1]."""
        return chance(self._own(logit))

    def together(self, lexical: float | None, logit: float) -> float:
        """The probability of both.

        Args:
            lexical: the calibrated probability by words; None: that layer did not run.
            logit: the model's log-odds.
        """
        if lexical is None:
            return self._held(self._own(logit))
        return self._held(self.bias + self.lexical * log_odds(lexical) + self.local * self._own(logit))

    def threshold(self, lexical: float | None) -> float:
        """The probability from which a claim is supported.

        Unless one was fitted: what the words' own threshold becomes beside a model that says neither yes nor no, so
        that such a model changes no verdict; one half without the words.
        """
        if lexical is None:
            return 0.5
        if self.supported_at is not None:
            return self.supported_at
        return self._held(self.bias + self.lexical * log_odds(lexical))

    def _own(self, logit: float) -> float:
        return max(-self.sure, min(self.sure, self.slope * logit + self.shift))

    def _held(self, odds: float) -> float:
        return min(self.ceiling, max(self.floor, chance(odds)))


def log_odds(probability: float) -> float:
    """The log-odds of a probability, finite at 0 and 1."""
    held = min(1 - _EDGE, max(_EDGE, probability))
    return math.log(held / (1 - held))


def chance(odds: float) -> float:
    """The probability of log-odds."""
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))
