"""Fits the weights of a local model to labelled claims."""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from tasks.calibration.curves import Coefficient, regression
from tasks.grounding.local import is_sure
from tasks.grounding.weights import LocalWeights, log_odds

LEAST_LABELS = 30
"""Labelled open claims that a fit needs; with fewer the cautious defaults are better."""
LEAST_OF_EACH = 5
FOLDS = 5


def fold_of(text: str) -> int:
    """The fold of a labelled row: equal texts are in one fold, so that no row is measured by a fit to its like."""
    return int(hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8], 16) % FOLDS


_SURE = 2.94
"""Bound of a fitted model's own log-odds: 0.95. A few wild scores must not lead the fit."""


class LocalScore(NamedTuple):
    """A labelled answer: calibrated lexical probability and the model's log-odds, each of its weakest claim."""

    lexical: float
    logit: float
    supported: bool


def fit_local(source: str, rows: Sequence[LocalScore]) -> LocalWeights | None:
    """Fits the factors of words and model on the answers that the words leave open.

    Args:
        source: name and version of the model.
        rows: all labelled answers.

    Returns: None if too few answers are open, or all of them have one label.
    """
    rows = [row for row in rows if math.isfinite(row.logit) and not is_sure(row.lexical)]
    labels = [row.supported for row in rows]
    if len(rows) < LEAST_LABELS or all(labels) or not any(labels):
        return None
    alone = LocalWeights(source=source, sure=_SURE, labels=len(rows))
    lexical, local, bias = regression(
        [(log_odds(row.lexical), log_odds(alone.alone(row.logit)), 1.0) for row in rows],
        labels,
        [Coefficient(0.7, least=0.0), Coefficient(0.7, least=0.0), Coefficient(0.0)],
    )
    return alone.model_copy(update={"lexical": round(lexical, 4), "local": round(local, 4), "bias": round(bias, 4)})
