"""Weigh a second opinion (a judge's verdict, a local model's score) against the lexical score.

All terms are log-odds and add up. The factors are 0 or more, so neither a better lexical score nor a better opinion ever
lowers the probability. The result stays within measured shares: where every layer is sure, it is as sure as they were
right.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from schemas.base import Contract
from tasks.grounding.odds import log_odds, sigmoid

TAIL = 0.1
"""Share of the rows, at either end, over which the precision of the surest is measured."""


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
        words = 0.0 if lexical is None else self.lexical * log_odds(lexical)
        return self.clamp(self.bias + opinion + words)

    def clamp(self, odds: float) -> float:
        """Probability of log-odds, within floor and ceiling."""
        return min(self.ceiling, max(self.floor, sigmoid(odds)))


class TailShares(NamedTuple):
    """Shares of supported rows among the surest at both ends."""

    floor: float
    ceiling: float


def tail_shares(rows: Sequence[tuple[float, bool]], least: int) -> TailShares:
    """Measure how often the surest rows are right, with one imagined exception each so that neither share is 0 or 1.

    Args:
        rows: (log-odds, supported).
        least: rows of a tail at least.
    """
    ranked = sorted(rows, key=lambda row: row[0])
    size = max(least, round(TAIL * len(ranked)))
    low, high = ranked[:size], ranked[-size:]
    shares = [(sum(supported for _, supported in tail) + 1) / (len(tail) + 2) for tail in (low, high)]
    return TailShares(min(shares), max(shares))
