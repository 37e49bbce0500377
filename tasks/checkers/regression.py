"""A logistic regression of a few coefficients, drawn towards what is known: for weights fitted on someone's own labels."""

import math
from collections.abc import Sequence

_STEPS = 200
_TOO_SMALL = 1e-9
_LEAST_SHARE = 1e-6


def regression(
    features: Sequence[Sequence[float]], labels: Sequence[bool], prior: Sequence[float], held: set[int]
) -> list[float]:
    """The coefficients of a logistic regression, by Newton's method.

    Args:
        features: rows of as many values as coefficients; a constant is a column of ones.
        labels: of the rows.
        prior: what the coefficients are drawn towards, with the weight of one unit of variance each.
        held: positions of coefficients that stay 0.
    """
    free = [at for at in range(len(prior)) if at not in held]
    current = [0.0 if at in held else prior[at] for at in range(len(prior))]
    for _ in range(_STEPS):
        gradient = [-(current[at] - prior[at]) for at in free]
        hessian = [[1.0 if row == column else 0.0 for column in free] for row in free]
        for values, label in zip(features, labels, strict=True):
            chance = _chance(sum(weight * value for weight, value in zip(current, values, strict=True)))
            for row, at in enumerate(free):
                gradient[row] += (label - chance) * values[at]
                for column, other in enumerate(free):
                    hessian[row][column] += chance * (1 - chance) * values[at] * values[other]
        step = _solved(hessian, gradient)
        before, share = _loss(features, labels, prior, current), 1.0
        following = _moved(current, free, step, share)
        # Far from the goal a whole step may overshoot, and the next one more.
        while share > _LEAST_SHARE and _loss(features, labels, prior, following) > before:
            share /= 2
            following = _moved(current, free, step, share)
        current = following
        if max(map(abs, step), default=0.0) < _TOO_SMALL:
            break
    return current


def _moved(current: Sequence[float], free: Sequence[int], step: Sequence[float], share: float) -> list[float]:
    moved = list(current)
    for row, at in enumerate(free):
        moved[at] += share * step[row]
    return moved


def _loss(
    features: Sequence[Sequence[float]], labels: Sequence[bool], prior: Sequence[float], current: Sequence[float]
) -> float:
    """The negative log posterior, but for a constant."""
    drawn = math.fsum((value - wanted) ** 2 for value, wanted in zip(current, prior, strict=True)) / 2
    return drawn + math.fsum(
        _softplus(
            math.fsum(weight * value for weight, value in zip(current, values, strict=True)) * (-1 if label else 1)
        )
        for values, label in zip(features, labels, strict=True)
    )


def _softplus(odds: float) -> float:
    return max(0.0, odds) + math.log1p(math.exp(-abs(odds)))


def _solved(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination; the matrix is positive definite (a Hessian plus a prior) and at most 3 by 3."""
    size = len(right)
    rows = [[*matrix[at], right[at]] for at in range(size)]
    for at in range(size):
        for below in range(at + 1, size):
            factor = rows[below][at] / rows[at][at]
            rows[below] = [low - factor * high for low, high in zip(rows[below], rows[at], strict=True)]
    found = [0.0] * size
    for at in reversed(range(size)):
        known = sum(rows[at][column] * found[column] for column in range(at + 1, size))
        found[at] = (rows[at][size] - known) / rows[at][at]
    return found


def _chance(odds: float) -> float:
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))
