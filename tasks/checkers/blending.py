"""Fit what a local model's word is worth beside the words', on labelled answers that the words leave open."""

from collections.abc import Sequence
from typing import NamedTuple

from tasks.checkers.blend import Blend, chance, log_odds
from tasks.checkers.calibration import Labelled, moved_cut
from tasks.checkers.regression import regression

LEAST_LABELS = 30
"""Labelled open answers that a fit needs; with fewer the cautious defaults are better."""
_MOST_LOGIT = 8.0
"""A model's log-odds beyond are read as this: a few wild scores are not to lead the fit."""
_SURE = 2.94
"""Most log-odds of a fitted model alone: 0.95."""
_TAIL = 0.1


class Scored(NamedTuple):
    """A labelled answer: the calibrated probability by words, and the model's log-odds, each of its weakest claim."""

    lexical: float
    logit: float
    supported: bool


def fitted(scorer: str, rows: Sequence[Scored], supported_at: float) -> Blend | None:
    """Fit the model's own curve, then both factors; None if there are too few rows or labels of one kind only.

    Args:
        scorer: name and version of the model.
        rows: those that the words leave open, as the model is not asked about others.
        supported_at: the threshold by words, from which the new one is moved.
    """
    labels = [row.supported for row in rows]
    if len(rows) < LEAST_LABELS or all(labels) or not any(labels):
        return None
    slope, shift = _rising([[_held(row.logit), 1.0] for row in rows], labels, [1.0, 0.0], rising=1)
    alone = Blend(scorer=scorer, slope=slope, shift=shift, sure=_SURE, labels=len(rows))
    own = [log_odds(alone.alone(row.logit)) for row in rows]
    features = [[log_odds(row.lexical), odds, 1.0] for row, odds in zip(rows, own, strict=True)]
    lexical, local, bias = _rising(features, labels, [0.7, 0.7, 0.0], rising=2)
    both = [
        Labelled(bias + lexical * words + local * odds, label)
        for (words, odds, _), label in zip(features, labels, strict=True)
    ]
    floor, ceiling = _measured(both)
    start = bias + lexical * log_odds(supported_at)
    return alone.model_copy(
        update={
            "lexical": lexical,
            "local": local,
            "bias": bias,
            "floor": floor,
            "ceiling": ceiling,
            "supported_at": min(ceiling, max(floor, chance(moved_cut(both, start)))),
        }
    )


def _held(logit: float) -> float:
    return max(-_MOST_LOGIT, min(_MOST_LOGIT, logit))


def _rising(
    features: Sequence[Sequence[float]], labels: Sequence[bool], prior: Sequence[float], *, rising: int
) -> list[float]:
    """Coefficients of which the first ``rising`` are never below 0: those that would be are held there."""
    held: set[int] = set()
    while True:
        found = regression(features, labels, prior, held)
        wrong = {at for at in range(rising) if found[at] < 0} - held
        if not wrong:
            return [round(value, 4) for value in found]
        held |= wrong


def _measured(rows: Sequence[Labelled]) -> tuple[float, float]:
    """How often the surest tenth was right at either end, with one imagined exception each."""
    ranked = sorted(rows)
    tail = max(LEAST_LABELS // 3, round(_TAIL * len(ranked)))
    low = (sum(row.supported for row in ranked[:tail]) + 1) / (tail + 2)
    high = (sum(row.supported for row in ranked[-tail:]) + 1) / (tail + 2)
    return round(min(low, high), 4), round(max(low, high), 4)
