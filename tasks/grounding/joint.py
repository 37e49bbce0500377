"""Joint probability that no claim of an answer is unsupported, from the probabilities of its claims.

Claims of one answer fare alike: they are about the same sources, and were written by the same writer. So the truth lies
between the lowest probability (they stand and fall together) and the product (each for itself). The Gumbel copula
(Gumbel 1960; Nelsen, An Introduction to Copulas, 2006, section 4.2) is between both by one parameter, however many the
claims are; one claim keeps its own probability, and a higher one never lowers the answer's.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

SHARPEST = 0.95
"""Dependence from which the lowest probability counts; the power of the copula would be 20 and more."""
_STEPS = 20
_PRIOR_SPREAD = 0.2
"""One standard deviation of an operator's own dependence around the shipped one."""
_LEAST = 1e-3
"""Least likelihood of a label: one surprise must not decide a fit."""


class Answer(NamedTuple):
    """A labelled answer: the probabilities of its claims, a person's label (all supported), and its weight."""

    claims: Sequence[float]
    supported: bool
    weight: float = 1.0


def joint_probability(claims: Sequence[float], dependence: float) -> float:
    """Probability that all claims of an answer are supported.

    Args:
        claims: the probability of each, in [0, 1]; at least one.
        dependence: Kendall's tau between two claims of an answer, in [0, 1]: 0 multiplies, 1 takes the lowest.
    """
    lowest = min(claims)
    if dependence >= SHARPEST or len(claims) == 1 or lowest <= 0.0:
        return lowest
    power = 1 / (1 - dependence)
    # Scaled by the largest, so that no power of a small number underflows.
    largest = -math.log(lowest)
    if largest <= 0.0:
        return lowest
    total = math.fsum((-math.log(claim) / largest) ** power for claim in claims) ** (1 - dependence)
    # Rounding may put it a hair above.
    return min(lowest, math.exp(-largest * total))


def fit_dependence(answers: Sequence[Answer], expected: float | None = None) -> float | None:
    """Fits the dependence under which the labels of answers are likeliest, in steps of a twentieth.

    Args:
        answers: labelled answers; those with one claim do not count.
        expected: centre of the prior, which counts where labels are few; None: no prior.

    Returns: None when no answer has several claims.
    """
    several = [answer for answer in answers if len(answer.claims) > 1]
    if not several:
        return None

    def likelihood(dependence: float) -> float:
        penalty = 0.0 if expected is None else ((dependence - expected) / _PRIOR_SPREAD) ** 2 / 2
        return math.fsum(answer.weight * _likelihood(answer, dependence) for answer in several) - penalty

    return max((step / _STEPS for step in range(_STEPS + 1)), key=likelihood)


def _likelihood(answer: Answer, dependence: float) -> float:
    probability = joint_probability(answer.claims, dependence)
    return math.log(max(_LEAST, probability if answer.supported else 1 - probability))
