"""Weights of a local model's score beside the lexical score.

The model's log-odds are bounded by ``sure`` first: the certainty a model claims says little about how often it is right on
other data than its own.
"""

from pydantic import Field

from tasks.grounding.odds import log_odds, sigmoid
from tasks.grounding.weights import FusionWeights


class LocalWeights(FusionWeights):
    """Worth of a local model's score; the defaults hold for a model that is unknown on the data at hand.

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
