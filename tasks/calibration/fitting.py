"""Fits the weights of a local model to labelled claims."""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from tasks.calibration.curves import Coefficient, LabelledScore, regression, shift_threshold
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


def tail_shares(rows: Sequence[tuple[float, bool]], least: int) -> list[float]:
    """Measures how often the surest rows are right at both ends, with one imagined exception each so that no share is 0 or 1.

    Args:
        rows: (log-odds, supported).
        least: rows of a tail at least.

    Returns: the lower share and the higher one.
    """
    ranked = sorted(rows, key=lambda row: row[0])
    size = max(least, round(TAIL * len(ranked)))
    return sorted(
        (sum(supported for _, supported in tail) + 1) / (len(tail) + 2) for tail in (ranked[:size], ranked[-size:])
    )


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
    slope, shift = _rounded(
        [(max(-_LARGEST_LOCAL, min(_LARGEST_LOCAL, row.logit)), 1.0) for row in rows],
        labels,
        [Coefficient(1.0, least=0.0), Coefficient(0.0)],
    )
    alone = LocalWeights(source=source, slope=slope, shift=shift, sure=_SURE, labels=len(rows))
    own = [log_odds(alone.alone(row.logit)) for row in rows]
    features = [(log_odds(row.lexical), odds, 1.0) for row, odds in zip(rows, own, strict=True)]
    lexical, local, bias = _rounded(
        features, labels, [Coefficient(0.7, least=0.0), Coefficient(0.7, least=0.0), Coefficient(0.0)]
    )
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


def _rounded(
    features: Sequence[Sequence[float]], labels: Sequence[bool], coefficients: Sequence[Coefficient]
) -> list[float]:
    return [round(value, 4) for value in regression(features, labels, coefficients)]
