"""Moves the threshold of the check so that of the claims called supported at most a given share is false."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.grounding import Verdict
from tasks.errors import InputError
from tasks.grounding.checkers import Lexical
from tasks.grounding.model import Calibration, shipped
from tasks.grounding.recalibration import LabelledAnswer, claims_of, digest_of

CONFIDENCE = 0.95
"""Share of the samples of labels with which the promise holds."""
STEPS = 100
"""Thresholds between 0 and 1 that may be tried."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A calibration whose threshold keeps a promise, and what that leaves of the labelled lines."""

    calibration: Calibration
    alpha: float
    """Greatest share of false ones among those that are called supported."""
    supported: int
    """Lines that stay supported."""
    wrong: int
    """Those of them that a person labelled as not supported."""
    supported_before: int
    """Lines that words support by the threshold in force."""

    @property
    def coverage(self) -> float:
        """Share of all lines that stay supported."""
        return self.supported / self.calibration.labels


def labels_needed(alpha: float) -> int:
    """The fewest supported lines with which any promise can be made: as many, and none of them false."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - alpha))


def guarantee(
    labels: Sequence[LabelledAnswer], alpha: float, made_at: str, base: Calibration | None = None
) -> Guarantee:
    """Finds the lowest threshold at which at most ``alpha`` of what words call supported is false.

    Learn-then-Test (Angelopoulos et al. 2021): a fixed sequence of thresholds, the strictest first that enough lines
    reach, each tested by the exact binomial tail; the first that fails ends it. The promise holds for claims like those
    labelled, drawn at random, if a lower score is not more often right than a higher one.

    Args:
        labels: claims, one each; an answer is supported if all of its claims are, by the least score.
        alpha: in (0, 1).
        made_at: the date, for the file.
        base: the calibration in force, whose probabilities stay; None: the shipped one. Its threshold is only raised.

    Raises: InputError where no threshold keeps the promise.
    """
    model = shipped().calibrated(base) if base else shipped()
    lexical = Lexical(model)
    scored = []
    lines = 0
    for request, right in labels:
        if findings := lexical.check(claims_of(request)):
            lines += 1
            if all(finding.verdict is Verdict.SUPPORTED for finding in findings):
                scored.append((min(finding.score or 0.0 for finding in findings), right))
    needed = labels_needed(alpha)
    if len(scored) < needed:
        raise InputError(
            f"words support {len(scored)} of {lines} labelled claims: at least {needed} must be, to promise that at most"
            f" {alpha:.1%} of them are false; label more"
        )
    promised: float | None = None
    thresholds = [step / STEPS for step in range(STEPS, -1, -1) if step / STEPS > model.supported_at]
    for threshold in [*thresholds, model.supported_at]:
        reached = [right for score, right in scored if score >= threshold]
        if len(reached) < needed:
            continue
        if tail(len(reached), reached.count(False), alpha) > 1 - CONFIDENCE:
            break
        promised = threshold
    if promised is None:
        wrong = [right for _, right in scored].count(False)
        raise InputError(
            f"no threshold keeps the share of false claims at {alpha:.1%}: of {len(scored)} labelled claims that words support,"
            f" {wrong} are false, and the surest are no better; take a greater --alpha, or label more"
        )
    remaining = [right for score, right in scored if score >= promised]
    calibration = base or Calibration(
        model=model.identity, knots=model.knots, supported_at=model.supported_at, labels=0
    )
    calibration = calibration.model_copy(
        update={
            "supported_at": round(promised, 4),
            "labels": lines,
            "labels_sha256": digest_of(labels),
            "made_at": made_at,
            "metrics": {"guarantee": {"alpha": alpha, "confidence": CONFIDENCE, "coverage": len(remaining) / lines}},
        }
    )
    return Guarantee(calibration, alpha, len(remaining), remaining.count(False), len(scored))


def tail(count: int, wrong: int, alpha: float) -> float:
    """Probability of at most so many wrong ones of ``count`` if each were wrong with probability ``alpha``."""
    return math.fsum(math.comb(count, at) * alpha**at * (1 - alpha) ** (count - at) for at in range(wrong + 1))
