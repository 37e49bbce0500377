"""Claims' probabilities become one of the whole answer: between the product and the lowest, rising with each claim."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.grounding.calibration import Answer, fit_dependence
from tasks.grounding.model import SHARPEST, joint_probability

CLAIMS = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)
DEPENDENCE = st.floats(0.0, 1.0)


@given(CLAIMS, DEPENDENCE)
@example([1.0, 0.125], 0.0)
def test_an_answer_is_between_the_product_and_the_lowest_of_its_claims(claims: list[float], dependence: float) -> None:
    stated = joint_probability(claims, dependence)
    assert math.prod(claims) - 1e-9 <= stated <= min(claims)
    assert joint_probability(claims[::-1], dependence) == pytest.approx(stated)


@given(CLAIMS, DEPENDENCE, st.data())
def test_a_better_claim_never_lowers_the_answer(claims: list[float], dependence: float, data: st.DataObject) -> None:
    better = data.draw(st.integers(0, len(claims) - 1))
    raised = [*claims[:better], data.draw(st.floats(claims[better], 1.0)), *claims[better + 1 :]]
    assert joint_probability(raised, dependence) >= joint_probability(claims, dependence) - 1e-12
    assert (
        joint_probability([*claims, data.draw(st.floats(0.0, 1.0))], dependence)
        <= joint_probability(claims, dependence) + 1e-12
    )


@given(CLAIMS)
def test_more_dependence_never_lowers_the_answer(claims: list[float]) -> None:
    stated = [joint_probability(claims, step / 20) for step in range(21)]
    assert all(low <= high + 1e-9 for low, high in pairwise(stated))


def test_the_ends_are_the_product_and_the_lowest() -> None:
    assert joint_probability([0.7, 0.6, 0.9], 0.0) == pytest.approx(0.7 * 0.6 * 0.9)
    assert joint_probability([0.7, 0.6, 0.9], SHARPEST) == 0.6
    assert joint_probability([0.7, 0.7], 0.5) == pytest.approx(0.7 ** math.sqrt(2))
    assert joint_probability([0.73], 0.4) == 0.73
    assert joint_probability([0.0, 0.9], 0.4) == 0.0
    assert joint_probability([1.0, 1.0], 0.4) == 1.0
    assert joint_probability([1e-300, 1e-300], 0.9) > 0.0


def drawn(alike: float, count: int = 800) -> list[Answer]:
    """Answers of three claims at 0.7 each: with a chance of ``alike`` they stand or fall together, else each for itself."""
    dice = random.Random(3)
    drawn_answers = []
    for _ in range(count):
        claims = [dice.random() < 0.7] * 3 if dice.random() < alike else [dice.random() < 0.7 for _ in range(3)]
        drawn_answers.append(Answer([0.7] * 3, all(claims)))
    return drawn_answers


@pytest.mark.parametrize(("alike", "low", "high"), [(0.0, 0.0, 0.1), (0.5, 0.35, 0.7), (1.0, 0.85, 1.0)])
def test_the_dependence_between_claims_is_recovered(alike: float, low: float, high: float) -> None:
    estimate = fit_dependence(drawn(alike))
    assert estimate is not None
    assert low <= estimate <= high
    shares = [answer.supported for answer in drawn(alike)]
    assert joint_probability([0.7] * 3, estimate) == pytest.approx(sum(shares) / len(shares), abs=0.03)


def test_few_answers_hardly_move_it_and_single_claims_say_nothing() -> None:
    few = fit_dependence(drawn(0.0, count=6), expected=0.6)
    assert few is not None
    assert few >= 0.4
    assert (fit_dependence(drawn(0.0), expected=0.6) or 0.0) <= 0.1
    assert fit_dependence([Answer([0.7], supported=True)] * 50, expected=0.6) is None
    weighed = [*drawn(1.0, count=60), *(answer._replace(weight=0.001) for answer in drawn(0.0))]
    assert (fit_dependence(weighed) or 0.0) > 0.7
