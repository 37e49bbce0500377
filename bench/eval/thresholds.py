"""Fits the curve of a shipped model and chooses its threshold; pure Python, without the libraries of the fit."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tasks.calibration.curves import LabelledScore
from tasks.grounding.model import Knots

BINS = 15
"""Bins of equal weight of a calibration curve; some 500 rows each with the shipped labels."""


def best_threshold(rows: Sequence[LabelledScore]) -> float:
    """Chooses the score from which rows count as supported, for the best balanced accuracy by the rows' weights.

    Returns the middle of the scores within half a point of the best, because the best point alone is chance.
    """
    ordered = sorted(rows)
    positive, negative = label_weights(ordered)
    hits, correct = positive, 0.0
    candidates: list[tuple[float, float, float]] = []
    below = ordered[0].score - 1.0
    for row in ordered:
        if row.score > below:
            candidates.append(((hits / positive + correct / negative) / 2, below, row.score))
        hits -= row.weight * row.supported
        correct += row.weight * (not row.supported)
        below = row.score
    best = max(accuracy for accuracy, _, _ in candidates)
    near = [(low, high) for accuracy, low, high in candidates if accuracy >= best - 0.005]
    return (max(near[0][0], ordered[0].score) + near[-1][1]) / 2


def label_weights(rows: Sequence[LabelledScore]) -> tuple[float, float]:
    """Total weights of the supported and the unsupported rows; raises ``ValueError`` without one of these."""
    positive = math.fsum(row.weight for row in rows if row.supported)
    negative = math.fsum(row.weight for row in rows if not row.supported)
    if not positive or not negative:
        raise ValueError("a threshold needs both supported and unsupported rows")
    return positive, negative


def isotonic(rows: Sequence[LabelledScore], bins: int = BINS) -> Knots:
    """Fits a calibration curve: rows in bins of equal weight, neighbours pooled until the share of supported rows rises.

    Each pool becomes one knot at its mean score: the curve rises strictly, and its ends are measured shares.
    Pool-adjacent-violators after Ayer et al. 1955.
    """
    pools: list[_Pool] = []
    for pool in _bins(rows, bins):
        pools.append(pool)
        while len(pools) > 1 and pools[-2].share >= pools[-1].share:
            last = pools.pop()
            pools[-1] = pools[-1].merge(last)
    return tuple((round(pool.score, 4), round(pool.share, 4)) for pool in pools)


class _Pool(NamedTuple):
    weight: float
    scores: float
    supported: float

    @property
    def score(self) -> float:
        return self.scores / self.weight

    @property
    def share(self) -> float:
        return self.supported / self.weight

    def merge(self, other: "_Pool") -> "_Pool":
        return _Pool(self.weight + other.weight, self.scores + other.scores, self.supported + other.supported)


def _bins(rows: Sequence[LabelledScore], bins: int) -> list[_Pool]:
    total = math.fsum(row.weight for row in rows)
    pools: list[_Pool] = []
    pool = _Pool(0.0, 0.0, 0.0)
    weight = 0.0
    previous = -math.inf
    for row in sorted(rows):
        # Rows of the same score stay together, else the curve would depend on how ties are ordered.
        if pool.weight and row.score > previous and weight >= total * (len(pools) + 1) / bins:
            pools.append(pool)
            pool = _Pool(0.0, 0.0, 0.0)
        pool = pool.merge(_Pool(row.weight, row.weight * row.score, row.weight * row.supported))
        weight += row.weight
        previous = row.score
    return [*pools, pool]
