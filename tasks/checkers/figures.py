"""Measure probabilities and verdicts against labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

_BINS = 10


class Judged(NamedTuple):
    """A labelled row: the probability stated, the verdict it came to, and whether a person calls it supported."""

    stated: float
    said: bool
    supported: bool


@dataclass(frozen=True, slots=True)
class Figures:
    """How well some rows were judged; all in [0, 1]."""

    balanced_accuracy: float
    ece: float
    brier: float

    def named(self) -> dict[str, float]:
        """As they stand in a calibration file."""
        return {"balanced accuracy": self.balanced_accuracy, "ECE": self.ece, "Brier": self.brier}


def figures_of(judged: Sequence[Judged]) -> Figures:
    """Balanced accuracy of the verdicts; expected calibration error over ten bins and Brier score of the probabilities."""
    right = {True: [0, 0], False: [0, 0]}
    bins: dict[int, list[float]] = {}
    brier = 0.0
    for stated, said, supported in judged:
        right[supported][0] += said == supported
        right[supported][1] += 1
        bins.setdefault(min(int(stated * _BINS), _BINS - 1), []).append(supported - stated)
        brier += (supported - stated) ** 2
    return Figures(
        balanced_accuracy=round(sum(hits / max(1, rows) for hits, rows in right.values()) / 2, 4),
        ece=round(sum(abs(sum(gaps)) for gaps in bins.values()) / len(judged), 4),
        brier=round(brier / len(judged), 4),
    )
