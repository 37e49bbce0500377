"""Fits logistic regressions of a few coefficients, drawn towards a prior: weights for an operator's own labels."""

import math
from collections.abc import Collection, Sequence

from tasks.grounding.calibration import sigmoid

_STEPS = 200
_TOO_SMALL = 1e-9
_LEAST_SHARE = 1e-6


def monotone_regression(
    features: Sequence[Sequence[float]], labels: Sequence[bool], prior: Sequence[float], *, monotone: int
) -> list[float]:
    """Fits a logistic regression whose first ``monotone`` coefficients are 0 or more.

    A coefficient that would be negative is fixed at 0, and the others are fitted again.
    """
    fixed: set[int] = set()
    while True:
        coefficients = regression(features, labels, prior, fixed)
        negative = {at for at in range(monotone) if coefficients[at] < 0} - fixed
        if not negative:
            return [max(0.0, value) if at < monotone else value for at, value in enumerate(coefficients)]
        fixed |= negative


def regression(
    features: Sequence[Sequence[float]], labels: Sequence[bool], prior: Sequence[float], fixed: Collection[int] = ()
) -> list[float]:
    """Fits the coefficients of a logistic regression by Newton's method.

    Args:
        features: rows of as many values as coefficients; a constant is a column of ones.
        labels: of the rows.
        prior: values that the coefficients are drawn towards, with the weight of one unit of variance each.
        fixed: positions of coefficients that stay 0.
    """
    free = [at for at in range(len(prior)) if at not in fixed]
    current = [0.0 if at in fixed else prior[at] for at in range(len(prior))]
    for _ in range(_STEPS):
        gradient = [-(current[at] - prior[at]) for at in free]
        hessian = [[1.0 if row == column else 0.0 for column in free] for row in free]
        for values, label in zip(features, labels, strict=True):
            chance = sigmoid(sum(weight * value for weight, value in zip(current, values, strict=True)))
            for row, at in enumerate(free):
                gradient[row] += (label - chance) * values[at]
                for column, other in enumerate(free):
                    hessian[row][column] += chance * (1 - chance) * values[at] * values[other]
        step = _solve(hessian, gradient)
        before, share = _loss(features, labels, prior, current), 1.0
        following = _move(current, free, step, share)
        # Far from the optimum a whole step may overshoot, and the next one more.
        while share > _LEAST_SHARE and _loss(features, labels, prior, following) > before:
            share /= 2
            following = _move(current, free, step, share)
        current = following
        if max(map(abs, step), default=0.0) < _TOO_SMALL:
            break
    return current


def _move(current: Sequence[float], free: Sequence[int], step: Sequence[float], share: float) -> list[float]:
    following = list(current)
    for row, at in enumerate(free):
        following[at] += share * step[row]
    return following


def _loss(
    features: Sequence[Sequence[float]], labels: Sequence[bool], prior: Sequence[float], current: Sequence[float]
) -> float:
    """Negative log posterior, but for a constant."""
    penalty = math.fsum((value - centre) ** 2 for value, centre in zip(current, prior, strict=True)) / 2
    return penalty + math.fsum(
        _softplus(
            math.fsum(weight * value for weight, value in zip(current, values, strict=True)) * (-1 if label else 1)
        )
        for values, label in zip(features, labels, strict=True)
    )


def _softplus(odds: float) -> float:
    return max(0.0, odds) + math.log1p(math.exp(-abs(odds)))


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solves by Gaussian elimination; the matrix is positive definite (a Hessian plus a prior) and at most 3 by 3."""
    size = len(right)
    rows = [[*matrix[at], right[at]] for at in range(size)]
    for at in range(size):
        for below in range(at + 1, size):
            factor = rows[below][at] / rows[at][at]
            rows[below] = [low - factor * high for low, high in zip(rows[below], rows[at], strict=True)]
    solution = [0.0] * size
    for at in reversed(range(size)):
        total = sum(rows[at][column] * solution[column] for column in range(at + 1, size))
        solution[at] = (rows[at][size] - total) / rows[at][at]
    return solution
