"""Chooses the threshold of a shipped model; pure Python, without the libraries of the fit."""

from collections.abc import Sequence

from tasks.calibration.curves import LabelledScore, label_weights


def best_threshold(rows: Sequence[LabelledScore]) -> float:
    """Chooses the score from which rows count as supported, for the best balanced accuracy by the rows' weights.

    Returns the middle of the scores within half a point of the best, because the best point alone is chance.
    """
    ordered = sorted(rows)
    positive, negative = label_weights(ordered)
    hits, correct = positive, 0.0
    candidates: list[tuple[float, float, float]] = []
    below = ordered[0].score - 1.0
    for row in ordered:
        if row.score > below:
            candidates.append(((hits / positive + correct / negative) / 2, below, row.score))
        hits -= row.weight * row.supported
        correct += row.weight * (not row.supported)
        below = row.score
    best = max(accuracy for accuracy, _, _ in candidates)
    near = [(low, high) for accuracy, low, high in candidates if accuracy >= best - 0.005]
    return (max(near[0][0], ordered[0].score) + near[-1][1]) / 2
