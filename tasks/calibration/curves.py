"""Fits curves from a model's scores to probabilities.

Pure Python, because recalibrating on an operator's own labels must run where Nightdesk runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import mul
from typing import NamedTuple

from tasks.grounding.model import Knots, probability
from tasks.grounding.weights import log_odds, sigmoid


class LabelledScore(NamedTuple):
    """A scored row: the model's log-odds, a person's label, and the row's weight."""

    score: float
    supported: bool
    weight: float = 1.0


def score_at(knots: Knots, target: float) -> float:
    """Least score whose probability is at least ``target``; infinity if none is."""
    if knots[0][1] >= target:
        return -math.inf
    for (before, low), (after, high) in pairwise(knots):
        if high >= target:
            return before + (after - before) * (target - low) / (high - low)
    return math.inf


_LEAST_SLOPE = 0.05
_PRIOR_ROWS = 20.0
"""Rows that the old curve counts as when it is scaled to new labels: with 50 labels the data lead."""


def platt_scale(knots: Knots, rows: Sequence[LabelledScore]) -> Knots:
    """Scales a curve to new labels by slope and shift in log-odds: two parameters, as many as some 50 labels can carry.

    Platt scaling (Platt 1999) of the old probability's log-odds, drawn towards "no change" by a prior.
    """
    pull = _PRIOR_ROWS / 4
    slope, shift = regression(
        [(log_odds(probability(knots, row.score)), 1.0) for row in rows],
        [row.supported for row in rows],
        [Coefficient(1.0, pull, _LEAST_SLOPE), Coefficient(0.0, pull / 10)],
        [row.weight for row in rows],
    )
    moved = [(score, round(sigmoid(slope * log_odds(value) + shift), 4)) for score, value in knots]
    return tuple(knot for index, knot in enumerate(moved) if index == 0 or knot[1] >= moved[index - 1][1])


class Coefficient(NamedTuple):
    """A coefficient of a regression: the value that it is drawn towards, how strongly, and its least value."""

    prior: float
    pull: float = 1.0
    least: float = -math.inf


_ROUNDS = 1_000
_TOO_SMALL = 1e-7
_LONGEST_STEP = 1.0
"""Far from the optimum a longer one may overshoot."""


def regression(
    features: Sequence[Sequence[float]],
    labels: Sequence[bool],
    coefficients: Sequence[Coefficient],
    weights: Sequence[float] | None = None,
) -> list[float]:
    """Fits a logistic regression, one coefficient after another by Newton's method, until none moves.

    Args:
        features: rows of as many values as coefficients; a constant is a column of ones.
        labels: of the rows.
        coefficients: what is known of them before.
        weights: of the rows; None: each counts as one.
    """
    current = [coefficient.prior for coefficient in coefficients]
    rows = list(zip(features, labels, weights or [1.0] * len(features), strict=True))
    for _ in range(_ROUNDS):
        farthest = 0.0
        for at, (prior, pull, least) in enumerate(coefficients):
            slope, bend = -pull * (current[at] - prior), pull
            for values, label, weight in rows:
                chance = sigmoid(sum(map(mul, current, values)))
                slope += weight * (label - chance) * values[at]
                bend += weight * chance * (1 - chance) * values[at] ** 2
            step = max(least - current[at], min(_LONGEST_STEP, max(-_LONGEST_STEP, slope / bend)))
            current[at] += step
            farthest = max(farthest, abs(step))
        if farthest < _TOO_SMALL:
            break
    return current


# ---- metrics ----------------------------------------------------------------------------------------------------------

_BINS = 10


class Prediction(NamedTuple):
    """A labelled row with its prediction."""

    probability: float
    """That it is supported, in [0, 1]."""
    supported: bool
    """A person's label."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Quality of predictions; all in [0, 1]."""

    ece: float
    brier: float

    def to_dict(self) -> dict[str, float]:
        """The form of a calibration file."""
        return {"ECE": self.ece, "Brier": self.brier}


def metrics_of(predictions: Sequence[Prediction]) -> Metrics:
    """Computes expected calibration error (ten bins) and Brier score."""
    bins: dict[int, list[float]] = {}
    brier = 0.0
    for forecast, supported in predictions:
        bins.setdefault(min(int(forecast * _BINS), _BINS - 1), []).append(supported - forecast)
        brier += (supported - forecast) ** 2
    return Metrics(
        ece=round(sum(abs(sum(gaps)) for gaps in bins.values()) / len(predictions), 4),
        brier=round(brier / len(predictions), 4),
    )
