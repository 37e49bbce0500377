"""Promises that of the claims that words support at most a given share is false, or says why it can't."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.grounding import Verdict
from tasks.calibration.recalibration import LabelledAnswer, claims_of, digest_of
from tasks.errors import InputError
from tasks.grounding.checkers import Lexical
from tasks.grounding.model import Calibration, shipped

CONFIDENCE = 0.95
"""Share of the samples of labels with which the promise holds."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A calibration that keeps a promise, and what words support of the labelled lines."""

    calibration: Calibration
    alpha: float
    """Greatest share of false ones among those that are called supported."""
    supported: int
    """Lines that words support."""
    wrong: int
    """Those of them that a person labelled as not supported."""

    @property
    def coverage(self) -> float:
        """Share of all lines that are supported."""
        return self.supported / self.calibration.labels


def labels_needed(alpha: float) -> int:
    """The fewest supported lines with which any promise can be made: as many, and none of them false."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - alpha))


def guarantee(
    labels: Sequence[LabelledAnswer], alpha: float, made_at: str, base: Calibration | None = None
) -> Guarantee:
    """Tests by the exact binomial tail that at most ``alpha`` of what words call supported is false.

    All that words support has one score, so that there is no stricter threshold to try. The promise holds for claims like
    those labelled, drawn at random.

    Args:
        labels: claims, one each; an answer is supported if all of its claims are.
        alpha: in (0, 1).
        made_at: the date, for the file.
        base: the calibration in force, whose probabilities and threshold stay; None: the shipped one.

    Raises: InputError where the promise can't be made.
    """
    model = shipped().calibrated(base) if base else shipped()
    lexical = Lexical(model)
    supported = []
    lines = 0
    for request, right in labels:
        if findings := lexical.check(claims_of(request)):
            lines += 1
            if all(finding.verdict is Verdict.SUPPORTED for finding in findings):
                supported.append(right)
    needed, wrong = labels_needed(alpha), supported.count(False)
    if len(supported) < needed:
        raise InputError(
            f"words support {len(supported)} of {lines} labelled claims: at least {needed} must be, to promise that at most"
            f" {alpha:.1%} of them are false; label more"
        )
    if tail(len(supported), wrong, alpha) > 1 - CONFIDENCE:
        raise InputError(
            f"no threshold keeps the share of false claims at {alpha:.1%}: of {len(supported)} labelled claims that words"
            f" support, {wrong} are false, and none is surer than another; take a greater --alpha, or label more"
        )
    calibration = base or Calibration(
        model=model.identity, knots=model.knots, supported_at=model.supported_at, labels=0
    )
    calibration = calibration.model_copy(
        update={
            "labels": lines,
            "labels_sha256": digest_of(labels),
            "made_at": made_at,
            "metrics": {"guarantee": {"alpha": alpha, "confidence": CONFIDENCE, "coverage": len(supported) / lines}},
        }
    )
    return Guarantee(calibration, alpha, len(supported), wrong)


def tail(count: int, wrong: int, alpha: float) -> float:
    """Probability of at most so many wrong ones of ``count`` if each were wrong with probability ``alpha``."""
    return math.fsum(math.comb(count, at) * alpha**at * (1 - alpha) ** (count - at) for at in range(wrong + 1))
