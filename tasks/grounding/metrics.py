"""Measure probabilities and verdicts against labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_BINS = 10


class Prediction(NamedTuple):
    """A labelled row with its prediction."""

    probability: float
    """That it is supported, in [0, 1]."""
    verdict: bool
    """Supported by the threshold."""
    supported: bool
    """A person's label."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Quality of predictions; all in [0, 1]."""

    balanced_accuracy: float
    ece: float
    brier: float

    def to_dict(self) -> dict[str, float]:
        """The form of a calibration file."""
        return {"balanced accuracy": self.balanced_accuracy, "ECE": self.ece, "Brier": self.brier}


def metrics_of(predictions: Sequence[Prediction]) -> Metrics:
    """Compute balanced accuracy of the verdicts, and expected calibration error (ten bins) and Brier score of the probabilities."""
    right = {True: [0, 0], False: [0, 0]}
    bins: dict[int, list[float]] = {}
    brier = 0.0
    for probability, verdict, supported in predictions:
        right[supported][0] += verdict == supported
        right[supported][1] += 1
        bins.setdefault(min(int(probability * _BINS), _BINS - 1), []).append(supported - probability)
        brier += (supported - probability) ** 2
    return Metrics(
        balanced_accuracy=round(sum(hits / max(1, rows) for hits, rows in right.values()) / 2, 4),
        ece=round(sum(abs(sum(gaps)) for gaps in bins.values()) / len(predictions), 4),
        brier=round(brier / len(predictions), 4),
    )
