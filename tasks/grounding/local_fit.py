"""Fit the weights of a local model beside the lexical score, on labelled answers."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from tasks.grounding.calibration import LabelledScore, shift_threshold
from tasks.grounding.local import is_sure
from tasks.grounding.local_weights import LocalWeights
from tasks.grounding.odds import log_odds, sigmoid
from tasks.grounding.regression import monotone_regression
from tasks.grounding.weights import tail_shares

LEAST_LABELS = 30
"""Labelled open answers that a fit needs; with fewer the cautious defaults are better."""
_LARGEST_LOGIT = 8.0
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
    """Fit the model's own curve, then both factors, on the answers that the words leave open; then the threshold on all.

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
    slope, shift = _coefficients([[_bounded(row.logit), 1.0] for row in rows], labels, [1.0, 0.0], monotone=1)
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


def _bounded(logit: float) -> float:
    return max(-_LARGEST_LOGIT, min(_LARGEST_LOGIT, logit))


def _coefficients(
    features: Sequence[Sequence[float]], labels: Sequence[bool], prior: Sequence[float], *, monotone: int
) -> list[float]:
    return [round(value, 4) for value in monotone_regression(features, labels, prior, monotone=monotone)]
