"""Scores become probabilities: monotone, never surer than measured, and movable with few labels."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.eval.thresholds import best_threshold, isotonic
from tasks.calibration.curves import LabelledScore, score_at
from tasks.grounding.model import probability

KNOTS = ((-2.0, 0.1), (0.0, 0.5), (2.0, 0.8))


def drawn(count: int, shift: float, seed: int = 1) -> list[LabelledScore]:
    """Rows whose chance of being supported is the sigmoid of their score plus a shift."""
    dice = random.Random(seed)
    scores = [dice.uniform(-3, 3) for _ in range(count)]
    return [LabelledScore(score, dice.random() < 1 / (1 + math.exp(-score - shift))) for score in scores]


def test_probabilities_lie_on_the_curve_and_stay_within_its_ends() -> None:
    assert [probability(KNOTS, score) for score in (-9, -2, -1, 0, 1, 9)] == pytest.approx(
        [0.1, 0.1, 0.3, 0.5, 0.65, 0.8]
    )
    assert probability(((0.0, 0.4),), 5.0) == 0.4
    assert [score_at(KNOTS, probability) for probability in (0.05, 0.3, 0.5, 0.9)] == [-math.inf, -1.0, 0.0, math.inf]


ROWS = st.lists(st.builds(LabelledScore, st.floats(-5, 5), st.booleans(), st.sampled_from([0.5, 1.0, 2.0])), min_size=1)


@given(ROWS)
def test_a_fitted_curve_rises_and_keeps_the_mean(rows: list[LabelledScore]) -> None:
    knots = isotonic(rows, bins=5)
    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(knots))
    assert all(0 <= share <= 1 for _, share in knots)


def test_a_fitted_curve_finds_the_shares() -> None:
    rows = drawn(4000, 0.0)
    knots = isotonic(rows)
    for score in (-2.0, 0.0, 2.0):
        assert probability(knots, score) == pytest.approx(1 / (1 + math.exp(-score)), abs=0.07)
    assert knots[-1][1] < 0.98


def test_the_cut_separates_best() -> None:
    rows = [LabelledScore(score / 10, score >= 4) for score in range(-20, 20)]
    assert best_threshold(rows) == pytest.approx(0.35, abs=0.051)
    with pytest.raises(ValueError, match="both supported and unsupported"):
        best_threshold([LabelledScore(0.0, supported=True)])
