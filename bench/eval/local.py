"""Measure the local model that NIGHTDESK_LOCAL_MODEL names, beside the words, on the same folds."""

import math

import numpy as np

from bench.eval.fitting import HeldOut, Table, fit
from tasks.calibration.fitting import LocalScore, fit_local
from tasks.calibration.recalibration import claims_of
from tasks.grounding.local import Local, identity_of, is_sure
from tasks.ports.provider import ClaimScorer


def weakest_logits(table: Table, scorer: ClaimScorer) -> list[float]:
    """The model's log-odds of each row's weakest claim; minus infinity for a row without one."""
    local = Local(scorer)
    return [min(local.log_odds(claims_of(row.request)), default=-math.inf) for row in table.rows]


def held_out(table: Table, parts: np.ndarray, scorer: ClaimScorer, logits: list[float]) -> HeldOut:
    """Fit words, curve and the model's weights on the other parts, for each part in turn."""
    probabilities = np.zeros(len(table.rows))
    supported = np.zeros(len(table.rows), dtype=bool)
    for part in np.unique(parts):
        words_fit = fit(table, parts != part)
        scores = table.row_scores(words_fit.weights.log_odds(table.features))
        words = words_fit.probabilities(scores)
        rows = [LocalScore(float(words[at]), logits[at], bool(table.labels[at])) for at in range(len(table.rows))]
        training = [rows[at] for at in np.flatnonzero(parts != part)]
        weights = fit_local(identity_of(scorer), training)
        for at in np.flatnonzero(parts == part):
            row = rows[at]
            probabilities[at], supported[at] = row.lexical, scores[at] >= words_fit.threshold
            if weights is not None and math.isfinite(row.logit) and not is_sure(row.lexical):
                probabilities[at] = weights.probability(row.lexical, row.logit)
                supported[at] = probabilities[at] >= weights.threshold(words_fit.supported_at)
    return HeldOut(probabilities, supported)
