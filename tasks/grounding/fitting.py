"""Fits the weights of a local model to labelled claims."""

import hashlib
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tasks.grounding.calibration import LabelledScore, shift_threshold
from tasks.grounding.local import is_sure
from tasks.grounding.weights import LocalWeights, log_odds, sigmoid

LEAST_LABELS = 30
"""Labelled open claims that a fit needs; with fewer the cautious defaults are better."""
LEAST_OF_EACH = 5
FOLDS = 5
TAIL = 0.1
"""Share of the rows, at either end, over which the precision of the surest is measured."""


def fold_of(text: str) -> int:
    """The fold of a labelled row: equal texts are in one fold, so that no row is measured by a fit to its like."""
    return int(hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8], 16) % FOLDS


class TailShares(NamedTuple):
    """Shares of supported rows among the surest at both ends."""

    floor: float
    ceiling: float


def tail_shares(rows: Sequence[tuple[float, bool]], least: int) -> TailShares:
    """Measures how often the surest rows are right, with one imagined exception each so that neither share is 0 or 1.

    Args:
        rows: (log-odds, supported).
        least: rows of a tail at least.
    """
    ranked = sorted(rows, key=lambda row: row[0])
    size = max(least, round(TAIL * len(ranked)))
    low, high = ranked[:size], ranked[-size:]
    shares = [(sum(supported for _, supported in tail) + 1) / (len(tail) + 2) for tail in (low, high)]
    return TailShares(min(shares), max(shares))


def _bounded(odds: float, largest: float) -> float:
    return max(-largest, min(largest, odds))


# ---- local models ----------------------------------------------------------------------------------------------

_LARGEST_LOCAL = 8.0
"""Bound of a model's log-odds in a fit: a few wild scores must not lead it."""
_SURE = 2.94
"""Bound of a fitted model's own log-odds: 0.95."""
_BEYOND = 20.0
"""Log-odds of an answer that the lexical layer decides alone: no threshold reaches it, but it counts for the balance."""


class LocalScore(NamedTuple):
    """A labelled answer: calibrated lexical probability and the model's log-odds, each of its weakest claim."""

    lexical: float
    logit: float
    supported: bool


def fit_local(source: str, rows: Sequence[LocalScore], supported_at: float) -> LocalWeights | None:
    """Fits the model's own curve, then both factors, on the answers that the words leave open; then the threshold on all.

    Args:
        source: name and version of the model.
        rows: all labelled answers.
        supported_at: the lexical threshold, from which the new one is moved.

    Returns: None if too few answers are open, or all of them have one label.
    """
    sure_rows = [
        LabelledScore(_BEYOND if row.lexical >= supported_at else -_BEYOND, row.supported)
        for row in rows
        if not _is_open(row)
    ]
    rows = [row for row in rows if _is_open(row)]
    labels = [row.supported for row in rows]
    if len(rows) < LEAST_LABELS or all(labels) or not any(labels):
        return None
    slope, shift = _coefficients(
        [[_bounded(row.logit, _LARGEST_LOCAL), 1.0] for row in rows], labels, [1.0, 0.0], monotone=1
    )
    alone = LocalWeights(source=source, slope=slope, shift=shift, sure=_SURE, labels=len(rows))
    own = [log_odds(alone.alone(row.logit)) for row in rows]
    features = [[log_odds(row.lexical), odds, 1.0] for row, odds in zip(rows, own, strict=True)]
    lexical, local, bias = _coefficients(features, labels, [0.7, 0.7, 0.0], monotone=2)
    both = [
        LabelledScore(bias + lexical * words + local * odds, label)
        for (words, odds, _), label in zip(features, labels, strict=True)
    ]
    floor, ceiling = tail_shares([(row.score, row.supported) for row in both], LEAST_LABELS // 3)
    threshold = shift_threshold([*both, *sure_rows], bias + lexical * log_odds(supported_at))
    return alone.model_copy(
        update={
            "lexical": lexical,
            "local": local,
            "bias": bias,
            "floor": round(floor, 4),
            "ceiling": round(ceiling, 4),
            "supported_at": round(min(round(ceiling, 4), max(round(floor, 4), sigmoid(threshold))), 4),
        }
    )


def _is_open(row: LocalScore) -> bool:
    return math.isfinite(row.logit) and not is_sure(row.lexical)


def _coefficients(
    features: Sequence[Sequence[float]], labels: Sequence[bool], prior: Sequence[float], *, monotone: int
) -> list[float]:
    return [round(value, 4) for value in monotone_regression(features, labels, prior, monotone=monotone)]


# ---- regression ---------------------------------------------------------------------------------------------------------

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
