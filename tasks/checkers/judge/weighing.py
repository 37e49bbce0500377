"""Weigh a judge's word against the words' own evidence: one probability that a claim is supported.

Both are put on the scale of log odds. The judge's word shifts the lexical odds by a fixed amount for "supported" and
another for "not supported"; the lexical odds count by a factor, as the two are not independent. All three numbers are
fitted on labelled claims, per judge, and kept monotone: a higher lexical score or a "supported" never lowers the
probability. The result stays within what was measured: where all are sure, it is as sure as they were right.

A judge that gives a probability instead of a word shifts them by its own log odds, times a factor, and by no more than
the words "supported" and "not supported" would: how sure it sounds says little about how often it is right.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from schemas.grounding import Verdict
from tasks.checkers.calibration import Labelled, moved_cut
from tasks.checkers.regression import regression

_EDGE = 1e-4
_MOST_LOGIT = 4.6
"""Log odds of 0.99: a probability beyond is fitted, and counts, as this."""
LEAST_FITTED = 30
"""Labelled claims that a fit needs; with fewer the defaults are better."""

TAIL = 0.1
"""Share of the claims, at either end, over which the precision of the surest is measured."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What a judge's word is worth.

    Attributes:
        judge: whose; provider and model.
        lexical: factor of the lexical log odds, 0 or more.
        supported: log odds added by "supported", 0 or more.
        not_supported: log odds added by "contradicted" or "unsupported", 0 or less.
        graded: factor of the log odds of its probability, 0 or more, where it gives one; what comes of it is held
            between ``not_supported`` and ``supported``.
        supported_at: least probability of a supported claim, where errors of both kinds weigh the same.
        bias: log odds added always.
        floor: least probability: the measured share of supported claims among the surest not supported.
        ceiling: greatest probability: the measured share among the surest supported.
        claims: labelled claims that it was fitted on; 0: the defaults.
    """

    judge: str = "default"
    lexical: float = 0.7
    supported: float = 1.11
    not_supported: float = -1.14
    bias: float = 0.0
    floor: float = 0.05
    ceiling: float = 0.95
    claims: int = 0
    graded: float = 1.0
    supported_at: float = 0.5


DEFAULT = Weights()
"""For a judge that nothing is known of: right on 76 of 100 supported and 75 of 100 unsupported claims, as published for
GPT-4-class judges (balanced accuracy 75-77 on LLM-AggreFact, Tang et al. 2024): log(0.76 / 0.25) and log(0.24 / 0.75).
The lexical odds count for less than they say, as both layers see some things alike."""


def weigh(
    lexical: float | None, judged: Verdict | None, weights: Weights = DEFAULT, *, probability: float | None = None
) -> float | None:
    """The probability that a claim is supported.

    Args:
        lexical: the calibrated probability by words; None: that layer did not run.
        judged: the judge's verdict; None: it has none, and the lexical probability stands as it is.
        weights: of this judge.
        probability: that of a judge which gives one; it counts in the place of the verdict.

    Returns: None when neither has anything to say.
    """
    if judged is None:
        return lexical
    return _clamped(_chance(_odds(lexical, judged, weights, probability)), weights)


def _odds(lexical: float | None, judged: Verdict, weights: Weights, probability: float | None = None) -> float:
    if probability is None:
        word = weights.supported if judged is Verdict.SUPPORTED else weights.not_supported
    else:
        word = min(weights.supported, max(weights.not_supported, weights.graded * _logit(probability)))
    return weights.bias + word + (weights.lexical * _logit(lexical) if lexical is not None else 0.0)


def _clamped(chance: float, weights: Weights) -> float:
    return min(weights.ceiling, max(weights.floor, chance))


def _logit(chance: float) -> float:
    chance = min(1 - _EDGE, max(_EDGE, chance))
    return math.log(chance / (1 - chance))


def _chance(odds: float) -> float:
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))


class Word(NamedTuple):
    """A labelled claim that a judge spoke of: the probability by words, its word, and whether the claim is supported."""

    lexical: float | None
    judged: Verdict
    supported: bool
    probability: float | None = None


def fit(judge: str, rows: Sequence[Word], *, least: int = LEAST_FITTED) -> Weights:
    """Fit the weights of a judge on labelled claims: all with its probability, or all with its verdict alone.

    Logistic regression by Newton's method, lightly regularised towards the defaults; a coefficient that would be
    against its sense is held at 0. Raises ``ValueError`` for fewer than ``least`` rows, rows of one label only, or rows
    of both forms.
    """
    labels = [row.supported for row in rows]
    if len(rows) < least or all(labels) or not any(labels):
        raise ValueError(f"{len(rows)} labelled claims are too few, or all alike: at least {least} of both kinds")
    graded = {row.probability is not None for row in rows}
    if len(graded) > 1:
        raise ValueError("some claims have a probability and some have none: a judge gives one or the other")
    fitted = _fit_graded(judge, rows) if graded == {True} else _fit_verdicts(judge, rows)
    floor, ceiling = _measured(fitted, rows)
    cut = moved_cut([Labelled(_odds_of(row, fitted), row.supported) for row in rows], 0.0)
    return replace(
        fitted,
        floor=floor,
        ceiling=ceiling,
        claims=len(rows),
        supported_at=min(ceiling, max(floor, _chance(cut))),
    )


def _fit_verdicts(judge: str, rows: Sequence[Word]) -> Weights:
    features = [
        [
            _logit(row.lexical) if row.lexical is not None else 0.0,
            1.0 if row.judged is Verdict.SUPPORTED else 0.0,
            0.0 if row.judged is Verdict.SUPPORTED else -1.0,
        ]
        for row in rows
    ]
    prior = [DEFAULT.lexical, DEFAULT.supported, -DEFAULT.not_supported]
    lexical, supported, not_supported = _rising(features, rows, prior, rising=3)
    return Weights(judge, lexical, supported, -not_supported, 0.0, 0.0, 1.0)


def _fit_graded(judge: str, rows: Sequence[Word]) -> Weights:
    """With a constant, which the two words of a verdict have in them: a judge may be too strict or too kind."""
    features = [
        [_logit(row.lexical) if row.lexical is not None else 0.0, _held(row.probability or 0.0), 1.0] for row in rows
    ]
    lexical, graded, bias = _rising(features, rows, [DEFAULT.lexical, DEFAULT.graded, 0.0], rising=2)
    most = graded * _MOST_LOGIT
    return Weights(judge, lexical, most, -most, bias, 0.0, 1.0, graded=graded)


def _held(probability: float) -> float:
    return max(-_MOST_LOGIT, min(_MOST_LOGIT, _logit(probability)))


def _rising(
    features: Sequence[Sequence[float]], rows: Sequence[Word], prior: Sequence[float], *, rising: int
) -> list[float]:
    """Coefficients of which the first ``rising`` are never below 0: those that would be are held there."""
    labels = [row.supported for row in rows]
    held: set[int] = set()
    while True:
        found = regression(features, labels, prior, held)
        wrong = {at for at in range(rising) if found[at] < 0} - held
        if not wrong:
            return [max(0.0, value) if at < rising else value for at, value in enumerate(found)]
        held |= wrong


def _odds_of(row: Word, weights: Weights) -> float:
    return _odds(row.lexical, row.judged, weights, row.probability)


def _measured(weights: Weights, rows: Sequence[Word]) -> tuple[float, float]:
    """How often the surest were right, at both ends, with one imagined exception each so that neither is 0 or 1."""
    ranked = sorted(rows, key=lambda row: _odds_of(row, weights))
    tail = max(LEAST_FITTED // 3, round(TAIL * len(ranked)))
    low, high = ranked[:tail], ranked[-tail:]
    floor = (sum(row.supported for row in low) + 1) / (len(low) + 2)
    ceiling = (sum(row.supported for row in high) + 1) / (len(high) + 2)
    return min(floor, ceiling), max(floor, ceiling)
