"""Measures the local model that NIGHTDESK_LOCAL_MODEL names, beside the words, on the same folds."""

import math

import numpy as np

from bench.eval.fitting import HeldOut, Table, fit
from tasks.checkers.blending import Scored, fitted
from tasks.checkers.local import Local, identity_of, is_sure
from tasks.checkers.recalibration import claims_of
from tasks.ports.scorer import ClaimScorer


def weakest_logits(table: Table, scorer: ClaimScorer) -> list[float]:
    """The model's log-odds of each row's weakest claim; minus infinity for a row without one."""
    local = Local(scorer)
    return [min(local.log_odds(claims_of(row.request)), default=-math.inf) for row in table.rows]


def held_out(table: Table, parts: np.ndarray, scorer: ClaimScorer, logits: list[float]) -> HeldOut:
    """Words, curve, cut and the model's weights fitted on the other parts, for each part in turn."""
    probabilities = np.zeros(len(table.rows))
    supported = np.zeros(len(table.rows), dtype=bool)
    for part in np.unique(parts):
        found = fit(table, parts != part)
        scores = table.row_scores(found.weights.log_odds(table.features))
        words = found.probabilities(scores)
        rows = [Scored(float(words[at]), logits[at], bool(table.labels[at])) for at in range(len(table.rows))]
        others = [rows[at] for at in np.flatnonzero(parts != part)]
        blend = fitted(identity_of(scorer), others, found.supported_at)
        for at in np.flatnonzero(parts == part):
            row = rows[at]
            probabilities[at], supported[at] = row.lexical, scores[at] >= found.cut
            if blend is not None and math.isfinite(row.logit) and not is_sure(row.lexical):
                probabilities[at] = blend.together(row.lexical, row.logit)
                supported[at] = probabilities[at] >= blend.threshold(row.lexical)
    return HeldOut(probabilities, supported)
