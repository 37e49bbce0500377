"""Turn a model's scores into probabilities, and choose where to cut: monotone, and never surer than was measured.

Pure Python, because recalibrating on one's own labels must run where Nightdesk runs.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

Knots = tuple[tuple[float, float], ...]
"""(score, probability), both rising; between two knots the probability is interpolated, beyond the ends it is flat."""

BINS = 15
"""Bins of equal weight from which a calibration curve is made; some 500 rows each with the labels it was made for."""


class Labelled(NamedTuple):
    """A scored row: the model's log-odds, whether a person called it supported, and how much the row counts."""

    score: float
    supported: bool
    weight: float = 1.0


def probability(knots: Knots, score: float) -> float:
    """The calibrated probability of a score, in [0, 1]."""
    position = bisect_right(knots, score, key=_first)
    if position == 0:
        return knots[0][1]
    if position == len(knots):
        return knots[-1][1]
    (left, low), (right, high) = knots[position - 1], knots[position]
    return low + (high - low) * (score - left) / (right - left)


def score_at(knots: Knots, wanted: float) -> float:
    """The least score whose probability is at least ``wanted``; infinity if none is."""
    if knots[0][1] >= wanted:
        return -math.inf
    for (left, low), (right, high) in pairwise(knots):
        if high >= wanted:
            return left + (right - left) * (wanted - low) / (high - low)
    return math.inf


def _first(knot: tuple[float, float]) -> float:
    return knot[0]


def isotonic(rows: Sequence[Labelled], bins: int = BINS) -> Knots:
    """A calibration curve: rows in bins of equal weight, neighbours pooled until the share of supported rows rises.

    One knot a pool, at its mean score: so the curve rises strictly, and its ends are shares that were measured.
    Pool-adjacent-violators after Ayer et al. 1955.
    """
    pools: list[_Pool] = []
    for pool in _bins(rows, bins):
        pools.append(pool)
        while len(pools) > 1 and pools[-2].share >= pools[-1].share:
            last = pools.pop()
            pools[-1] = pools[-1].joined(last)
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

    def joined(self, other: "_Pool") -> "_Pool":
        return _Pool(self.weight + other.weight, self.scores + other.scores, self.supported + other.supported)


def _bins(rows: Sequence[Labelled], bins: int) -> list[_Pool]:
    total = math.fsum(row.weight for row in rows)
    pools: list[_Pool] = []
    pool = _Pool(0.0, 0.0, 0.0)
    seen = 0.0
    previous = -math.inf
    for row in sorted(rows):
        # Rows of the same score stay together, else the curve would depend on how ties are ordered.
        if pool.weight and row.score > previous and seen >= total * (len(pools) + 1) / bins:
            pools.append(pool)
            pool = _Pool(0.0, 0.0, 0.0)
        pool = pool.joined(_Pool(row.weight, row.weight * row.score, row.weight * row.supported))
        seen += row.weight
        previous = row.score
    return [*pools, pool]


_LEAST_SLOPE = 0.05
_PRIOR_ROWS = 20.0
"""How many rows the old curve counts as when it is bent to new labels: with 50 labels the data lead."""


def bent(knots: Knots, rows: Sequence[Labelled]) -> Knots:
    """The curve moved and stretched (two parameters, in log-odds) to fit new labels: what some 50 labels can carry.

    Platt's sigmoid (1999) on the log-odds of the old probability, drawn towards "no change" by a prior.
    """
    points = [(_log_odds(probability(knots, row.score)), float(row.supported), row.weight) for row in rows]
    slope, shift = 1.0, 0.0
    pull = _PRIOR_ROWS / 4
    for _ in range(50):
        gradient_slope, gradient_shift = pull * (slope - 1.0), pull * 0.1 * shift
        curve_slope, curve_shift, curve_both = pull, pull * 0.1, 0.0
        for odds, label, weight in points:
            fitted = _sigmoid(slope * odds + shift)
            error, bend = weight * (fitted - label), weight * fitted * (1 - fitted)
            gradient_slope += error * odds
            gradient_shift += error
            curve_slope += bend * odds * odds
            curve_shift += bend
            curve_both += bend * odds
        determinant = curve_slope * curve_shift - curve_both**2
        step_slope = (curve_shift * gradient_slope - curve_both * gradient_shift) / determinant
        step_shift = (curve_slope * gradient_shift - curve_both * gradient_slope) / determinant
        slope, shift = max(_LEAST_SLOPE, slope - step_slope), shift - step_shift
        if abs(step_slope) + abs(step_shift) < 1e-6:  # noqa: PLR2004 - converged
            break
    moved = [(score, round(_sigmoid(slope * _log_odds(value) + shift), 4)) for score, value in knots]
    return tuple(knot for index, knot in enumerate(moved) if index == 0 or knot[1] >= moved[index - 1][1])


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, value))))


def _log_odds(value: float) -> float:
    value = min(max(value, 1e-4), 1 - 1e-4)
    return math.log(value / (1 - value))


def cut(rows: Sequence[Labelled]) -> float:
    """The score from which rows count as supported, for the best balanced accuracy by the rows' weights.

    The middle of the range of scores within half a point of the best, because the best point alone is chance.
    """
    ordered = sorted(rows)
    positive, negative = _both(ordered)
    hits, correct = positive, 0.0
    found: list[tuple[float, float, float]] = []
    below = ordered[0].score - 1.0
    for row in ordered:
        if row.score > below:
            found.append(((hits / positive + correct / negative) / 2, below, row.score))
        hits -= row.weight * row.supported
        correct += row.weight * (not row.supported)
        below = row.score
    best = max(accuracy for accuracy, _, _ in found)
    near = [(low, high) for accuracy, low, high in found if accuracy >= best - 0.005]
    return (max(near[0][0], ordered[0].score) + near[-1][1]) / 2


_SMOOTH = 0.6
"""Log-odds over which a row near the cut counts for both sides."""
_PULL = 4.0
"""How strongly the old cut holds: 4 rows' worth of balanced accuracy for each squared unit of log-odds. Both chosen on
six labelled sets, each with a model of the other five: 50 own labels then bring 0.4 points of balanced accuracy, 300
labels 0.6; the best cut of 50 labels as it stands costs 0.9."""
_REACH = 2.0
_STEPS = 40


def moved_cut(rows: Sequence[Labelled], start: float) -> float:
    """The cut for a few labels of one's own: from ``start``, as far as their (smoothed) balanced accuracy carries it."""
    positive, negative = _both(rows)
    pull = _PULL / len(rows)

    def worth(move: float) -> float:
        gained = math.fsum(
            row.weight * _sigmoid((row.score - start - move) / _SMOOTH) / positive
            if row.supported
            else row.weight * _sigmoid((start + move - row.score) / _SMOOTH) / negative
            for row in rows
        )
        return gained / 2 - pull * move * move

    moves = [step * _REACH / _STEPS for step in range(-_STEPS, _STEPS + 1)]
    return start + max(moves, key=lambda move: (worth(move), -abs(move)))


def _both(rows: Sequence[Labelled]) -> tuple[float, float]:
    positive = math.fsum(row.weight for row in rows if row.supported)
    negative = math.fsum(row.weight for row in rows if not row.supported)
    if not positive or not negative:
        raise ValueError("to choose a cut, both supported and unsupported rows are needed")
    return positive, negative
