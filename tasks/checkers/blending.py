"""Fit what a local model's word is worth beside the words', on labelled answers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tasks.checkers.blend import Blend, chance, log_odds
from tasks.checkers.calibration import Labelled, moved_cut
from tasks.checkers.local import is_sure
from tasks.checkers.regression import regression

LEAST_LABELS = 30
"""Labelled open answers that a fit needs; with fewer the cautious defaults are better."""
_MOST_LOGIT = 8.0
"""A model's log-odds beyond are read as this: a few wild scores are not to lead the fit."""
_SURE = 2.94
"""Most log-odds of a fitted model alone: 0.95."""
_TAIL = 0.1
_BEYOND = 20.0
"""Log-odds of what the words decide alone: no threshold reaches it, but it counts for the balance of both kinds."""


class Scored(NamedTuple):
    """A labelled answer: the calibrated probability by words, and the model's log-odds, each of its weakest claim."""

    lexical: float
    logit: float
    supported: bool


def fitted(scorer: str, rows: Sequence[Scored], supported_at: float) -> Blend | None:
    """Fit the model's own curve, then both factors, on the answers that the words leave open; then the threshold on all.

    Args:
        scorer: name and version of the model.
        rows: all labelled answers.
        supported_at: the threshold by words, from which the new one is moved.

    Returns: None if too few answers are open, or those are of one kind only.
    """
    decided = [
        Labelled(_BEYOND if row.lexical >= supported_at else -_BEYOND, row.supported) for row in rows if not _open(row)
    ]
    rows = [row for row in rows if _open(row)]
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
            "supported_at": round(min(ceiling, max(floor, chance(moved_cut([*both, *decided], start)))), 4),
        }
    )


def _open(row: Scored) -> bool:
    return math.isfinite(row.logit) and not is_sure(row.lexical)


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
