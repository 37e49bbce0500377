"""Fits the lexical model: logistic regression on the weakest claim of each row, equal weight per set and class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression

from bench.eval.data import Row
from bench.eval.thresholds import best_threshold, isotonic
from tasks.calibration.curves import LabelledScore
from tasks.grounding.model import VERBATIM, WEIGHED, Features, Knots, probability

FOLDS = 5
STRENGTH = 0.3
"""scikit-learn's C; anything from 0.01 to 1 gives the same within 0.2 points."""
ROUNDS = 3
"""The weakest claim of a row is the one with the fewest letters first, then the one the last fit thinks weakest."""

RECIPE = (
    "logistic regression (L2, C 0.3) on the weakest claim of each row, equal weight per set and class; calibrated"
    " (isotonic, 15 bins, equal weight per set; claims that stand in a source word for word by their own share) and cut"
    " (best mean balanced accuracy) on 5 grouped folds; shares of right verdicts of these sets and of bench/claims/held"
)
_LETTERS = Features._fields.index("letters")
_DIFFERS = Features._fields.index("differs")
_VERBATIM = Features._fields.index("verbatim")
_STEP = 1e-4
"""Least rise from one knot of a curve to the next."""


@dataclass(frozen=True)
class Weights:
    """A fitted logistic regression."""

    weights: tuple[float, ...]
    intercept: float

    def log_odds(self, features: np.ndarray) -> np.ndarray:
        """Shape (claims,) from (claims, features)."""
        weighed = features[:, : len(WEIGHED)] @ np.array(self.weights) + self.intercept
        return np.where(features[:, _VERBATIM] > 0, VERBATIM, weighed)


@dataclass(frozen=True)
class Fitted:
    """Weights with what their scores mean."""

    weights: Weights
    knots: Knots
    threshold: float

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """The calibrated probability of each score."""
        return np.array([probability(self.knots, score) for score in scores])

    @property
    def supported_at(self) -> float:
        """Probability at the threshold."""
        return probability(self.knots, self.threshold)


class Table:
    """Rows as arrays: the claims of all rows under one another, and which row each belongs to."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.features = np.array([claim for row in rows for claim in row.features] or [[0.0] * len(Features._fields)])
        self.row_of = np.array([index for index, row in enumerate(rows) for _ in row.features], dtype=int)
        self.labels = np.array([row.supported for row in rows], dtype=int)
        self.sets = np.array([row.dataset for row in rows])
        self.groups = np.array([row.group % (2**61) for row in rows])

    def sets_together(self) -> np.ndarray:
        """The set of each row; one that shares answers with an earlier one has its name."""
        first: dict[str | None, str] = {}
        together: dict[str, str] = {}
        for row in self.rows:
            earlier = first.setdefault(row.request.response, row.dataset)
            if together.setdefault(row.dataset, earlier) == row.dataset:
                together[row.dataset] = earlier
        return np.array([together[row.dataset] for row in self.rows])

    def folds(self, count: int = FOLDS) -> np.ndarray:
        """A fold for each row; groups stay together. By hash, so that a row's fold does not depend on the others."""
        return np.array([row.group % 1_000_003 % count for row in self.rows])

    def weakest(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each row with claims its weakest claim: (rows, claims)."""
        order = np.lexsort((scores, self.row_of))
        first = np.r_[True, self.row_of[order][1:] != self.row_of[order][:-1]]
        return self.row_of[order][first], order[first]

    def row_scores(self, scores: np.ndarray) -> np.ndarray:
        """The score of each row's weakest claim; a row without checkable claims has the highest that words alone give."""
        least = np.full(len(self.rows), scores.max(initial=0.0, where=scores < VERBATIM))
        rows, claims = self.weakest(scores)
        least[rows] = scores[claims]
        return least

    def row_differs(self) -> np.ndarray:
        """Tells of each row whether a fact of one of its claims differs: such a claim is never supported."""
        differs = np.zeros(len(self.rows), dtype=bool)
        differs[self.row_of[self.features[:, _DIFFERS] > 0]] = True
        return differs

    def weighted(self, chosen: np.ndarray, *, by_class: bool) -> np.ndarray:
        """Weights that give each set (and class in it) the same sum; the mean weight of chosen rows is 1."""
        weights = np.zeros(len(self.rows))
        for name in np.unique(self.sets[chosen]):
            for label in (0, 1) if by_class else (None,):
                part = chosen & (self.sets == name) & ((self.labels == label) if label is not None else True)
                if part.any():
                    weights[part] = 1 / part.sum()
        return weights * chosen.sum() / weights.sum()


def fit_weights(table: Table, chosen: np.ndarray) -> Weights:
    """Fit on the chosen rows (a mask)."""
    weighed = table.features[:, : len(WEIGHED)]
    of_claims = weighed[chosen[table.row_of]]
    centre, spread = of_claims.mean(0), of_claims.std(0) + 1e-9
    standard = (weighed - centre) / spread
    weights = table.weighted(chosen, by_class=True)
    scores = table.features[:, _LETTERS]
    for _ in range(ROUNDS):
        rows, claims = table.weakest(scores)
        rows, claims = rows[chosen[rows]], claims[chosen[rows]]
        model = LogisticRegression(C=STRENGTH, max_iter=1000)
        model.fit(standard[claims], table.labels[rows], sample_weight=weights[rows])
        scores = model.decision_function(standard)
    slopes = model.coef_[0] / spread
    return Weights(tuple(map(float, slopes)), float(model.intercept_[0] - slopes @ centre))


def held_out_scores(table: Table, chosen: np.ndarray) -> np.ndarray:
    """The score of each chosen row by weights that were fitted on the other folds of the chosen rows."""
    folds = table.folds()
    scores = np.zeros(len(table.rows))
    for fold in range(FOLDS):
        inside = chosen & (folds == fold)
        log_odds = fit_weights(table, chosen & (folds != fold)).log_odds(table.features)
        scores[inside] = table.row_scores(log_odds)[inside]
    return scores


def fit(table: Table, chosen: np.ndarray) -> Fitted:
    """Weights from all chosen rows; calibration and threshold from their held-out scores."""
    scores = held_out_scores(table, chosen)
    even, by_class = table.weighted(chosen, by_class=False), table.weighted(chosen, by_class=True)
    index = np.flatnonzero(chosen)
    by_words = [
        LabelledScore(float(scores[i]), bool(table.labels[i]), float(even[i])) for i in index if scores[i] < VERBATIM
    ]
    knots = _with_verbatim(isotonic(by_words), table.labels[chosen & (scores >= VERBATIM)])
    best = best_threshold([LabelledScore(float(scores[i]), bool(table.labels[i]), float(by_class[i])) for i in index])
    return Fitted(fit_weights(table, chosen), knots, best)


def _with_verbatim(knots: Knots, labels: np.ndarray) -> Knots:
    """The curve with the share of word-for-word rows that are supported as its end, and one imagined exception each way."""
    top = knots[-1][1] + _STEP
    share = (float(labels.sum()) + 1) / (len(labels) + 2)
    return (*knots, (VERBATIM - 1, round(top, 4)), (VERBATIM, round(max(share, top), 4)))


@dataclass(frozen=True)
class HeldOut:
    """Probability and verdict of each row by a model that has not seen its group (or its set)."""

    probabilities: np.ndarray
    """Of the row's weakest claim."""
    supported: np.ndarray


def held_out(table: Table, parts: np.ndarray) -> HeldOut:
    """Everything (weights, calibration, threshold) fitted on the other parts, for each part in turn."""
    probabilities = np.zeros(len(table.rows))
    supported = np.zeros(len(table.rows), dtype=bool)
    for part in np.unique(parts):
        fitted = fit(table, parts != part)
        scores = table.row_scores(fitted.weights.log_odds(table.features))
        inside = parts == part
        probabilities[inside] = fitted.probabilities(scores)[inside]
        supported[inside] = ((scores >= fitted.threshold) & ~table.row_differs())[inside]
    return HeldOut(probabilities, supported)
