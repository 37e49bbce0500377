"""Figures of merit with bootstrap intervals: balanced accuracy, AUROC, F1, expected calibration error, Brier score."""

from collections.abc import Callable

import numpy as np
from sklearn.metrics import roc_auc_score

RESAMPLES = 200
BINS = 10


def balanced_accuracy(labels: np.ndarray, supported: np.ndarray, _: np.ndarray) -> float:
    return float((supported[labels == 1].mean() + (~supported[labels == 0]).mean()) / 2)


def auroc(labels: np.ndarray, _: np.ndarray, probabilities: np.ndarray) -> float:
    return float(roc_auc_score(labels, probabilities))


def f1(labels: np.ndarray, supported: np.ndarray, _: np.ndarray) -> float:
    """F1 of the class that matters: rows that are not supported, found as such."""
    missed = ((labels == 0) & supported).sum()
    wrong = ((labels == 1) & ~supported).sum()
    hits = ((labels == 0) & ~supported).sum()
    return float(2 * hits / max(1, 2 * hits + missed + wrong))


def ece(labels: np.ndarray, _: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Expected calibration error over ten bins of equal width."""
    weights = np.ones(len(labels)) if weights is None else weights
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    total = 0.0
    for number in range(BINS):
        inside = bins == number
        if inside.any():
            gap = np.average(labels[inside] - probabilities[inside], weights=weights[inside])
            total += abs(gap) * weights[inside].sum()
    return float(total / weights.sum())


def brier(labels: np.ndarray, _: np.ndarray, probabilities: np.ndarray) -> float:
    return float(((probabilities - labels) ** 2).mean())


Figure = Callable[[np.ndarray, np.ndarray, np.ndarray], float]
FIGURES: dict[str, Figure] = {
    "balanced accuracy": balanced_accuracy,
    "AUROC": auroc,
    "F1": f1,
    "ECE": ece,
    "Brier": brier,
}


def interval(
    figure: Figure, groups: np.ndarray, labels: np.ndarray, supported: np.ndarray, probabilities: np.ndarray
) -> tuple[float, float]:
    """The 95 % interval of a figure over resamples of whole groups; seeded, so that it can be repeated."""
    random = np.random.default_rng(7)
    _, of_row = np.unique(groups, return_inverse=True)
    order = np.argsort(of_row, kind="stable")
    starts = np.searchsorted(of_row[order], np.arange(of_row.max() + 2))
    members = [order[starts[i] : starts[i + 1]] for i in range(of_row.max() + 1)]
    values = []
    for _ in range(RESAMPLES):
        rows = np.concatenate([members[i] for i in random.integers(0, len(members), len(members))])
        if labels[rows].min() != labels[rows].max():
            values.append(figure(labels[rows], supported[rows], probabilities[rows]))
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
