"""What the probabilities of an answer's claims say of the whole answer: how likely it is that none is unsupported.

Claims of one answer fare alike: they are about the same sources, and were written by the same writer. So the truth lies
between the lowest probability (they stand and fall together) and the product (each for itself). The Gumbel copula
(Gumbel 1960; Nelsen, An Introduction to Copulas, 2006, section 4.2) is between both by one parameter, however many the
claims are; one claim keeps its own probability, and a higher one never lowers the answer's.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

SHARPEST = 0.95
"""Dependence from which the lowest probability is taken; the power of the copula would be 20 and more."""
_STEPS = 20
_PRIOR_SPREAD = 0.2
"""How far the dependence of someone's own data is expected from the shipped one: one standard deviation."""
_LEAST = 1e-3
"""Least probability of what was seen: one surprise is not to decide a fit."""


class Answer(NamedTuple):
    """A labelled answer: the probabilities of its claims, whether a person found all of them supported, its weight."""

    claims: Sequence[float]
    supported: bool
    weight: float = 1.0


def together(claims: Sequence[float], dependence: float) -> float:
    """The probability that all claims of an answer are supported.

    Args:
        claims: the probability of each, in [0, 1]; at least one.
        dependence: Kendall's tau between two claims of an answer, in [0, 1]: 0 multiplies, 1 takes the lowest.
    """
    lowest = min(claims)
    if dependence >= SHARPEST or len(claims) == 1 or lowest <= 0.0:
        return lowest
    power = 1 / (1 - dependence)
    # In parts of the largest, so that no power of a small number gets lost.
    most = -math.log(lowest)
    if most <= 0.0:
        return lowest
    all_of_them = math.fsum((-math.log(claim) / most) ** power for claim in claims) ** (1 - dependence)
    # Rounding may put it a hair above.
    return min(lowest, math.exp(-most * all_of_them))


def dependence_of(answers: Sequence[Answer], expected: float | None = None) -> float | None:
    """The dependence under which the labels of answers are likeliest, in steps of a twentieth.

    Args:
        answers: those with one claim tell nothing and don't count.
        expected: what it is drawn towards where labels are few; None: towards nothing.

    Returns: None when no answer has several claims.
    """
    several = [answer for answer in answers if len(answer.claims) > 1]
    if not several:
        return None

    def likelihood(dependence: float) -> float:
        drawn = 0.0 if expected is None else ((dependence - expected) / _PRIOR_SPREAD) ** 2 / 2
        return math.fsum(answer.weight * _likelihood(answer, dependence) for answer in several) - drawn

    return max((step / _STEPS for step in range(_STEPS + 1)), key=likelihood)


def _likelihood(answer: Answer, dependence: float) -> float:
    stated = together(answer.claims, dependence)
    return math.log(max(_LEAST, stated if answer.supported else 1 - stated))
