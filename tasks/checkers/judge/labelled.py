"""Fit what judges' words are worth on labelled claims, and measure it on claims that were left out."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.checkers.figures import Figures, Judged, figures_of
from tasks.checkers.judge.triage import is_sure
from tasks.checkers.judge.weighing import DEFAULT, LEAST_FITTED, Weights, Word, fit, weigh

LEAST_OF_EACH = 5
FOLDS = 5


@dataclass(frozen=True, slots=True)
class JudgedClaim:
    """A labelled claim (or an answer, by its weakest) with a judge's word.

    Attributes:
        judge: ``provider:model``.
        word: what it said, beside the probability by words as they will be calibrated.
        group: claims of one group are not independent and stay in one fold.
        held_out: the probability by words where this claim was left out of their own fit.
        by_words: what the words alone say of it then; None: they were not asked.
    """

    judge: str
    word: Word
    group: str
    held_out: float | None
    by_words: bool | None


@dataclass(frozen=True, slots=True)
class FittedJudge:
    """A judge's weights, with what they change: ``before`` by the weights it had, ``after`` on claims left out of the fit."""

    weights: Weights
    before: Figures
    after: Figures
    words: Figures | None
    """Without the judge."""


def fit_judges(
    rows: Sequence[JudgedClaim], known: Mapping[str, Weights]
) -> tuple[tuple[FittedJudge, ...], dict[str, str]]:
    """Fit each judge on its claims that the words leave open, as no judge is asked about others.

    Args:
        rows: of any judges.
        known: the weights that they have now; those of a judge that is not in there are the defaults.

    Returns: what was fitted, and by judge why it was not.
    """
    fitted, left_out = [], {}
    for judge in sorted({row.judge for row in rows}):
        mine = [row for row in rows if row.judge == judge and not is_sure(row.word.lexical)]
        if why := _too_few(mine):
            left_out[judge] = why
            continue
        try:
            fitted.append(_fitted(judge, mine, known.get(judge, DEFAULT)))
        except ValueError as error:
            left_out[judge] = str(error)
    return tuple(fitted), left_out


def _too_few(rows: Sequence[JudgedClaim]) -> str | None:
    rarer = min(sum(row.word.supported for row in rows), sum(not row.word.supported for row in rows))
    if len(rows) >= LEAST_FITTED and rarer >= LEAST_OF_EACH:
        return None
    return (
        f"{len(rows)} labelled claims that the words leave open, {rarer} of the rarer label: at least {LEAST_FITTED} are"
        f" needed and {LEAST_OF_EACH} of each"
    )


def _fitted(judge: str, rows: Sequence[JudgedClaim], known: Weights) -> FittedJudge:
    weights = _rounded(fit(judge, [row.word for row in rows]))
    folds = [int(hashlib.sha256(row.group.encode(errors="replace")).hexdigest()[:8], 16) % FOLDS for row in rows]
    after: list[Judged] = []
    for fold in range(FOLDS):
        others = [_left_out(row) for row, of in zip(rows, folds, strict=True) if of != fold]
        try:
            by_others = fit(judge, others, least=LEAST_FITTED // 2)
        except ValueError:
            by_others = known
        after.extend(_judged(row, by_others) for row, of in zip(rows, folds, strict=True) if of == fold)
    words = [
        Judged(row.held_out, row.by_words, row.word.supported)
        for row in rows
        if row.held_out is not None and row.by_words is not None
    ]
    return FittedJudge(
        weights,
        before=figures_of([_judged(row, known) for row in rows]),
        after=figures_of(after),
        words=figures_of(words) if len(words) == len(rows) else None,
    )


def _left_out(row: JudgedClaim) -> Word:
    return row.word._replace(lexical=row.held_out)


def _judged(row: JudgedClaim, weights: Weights) -> Judged:
    chance = weigh(row.held_out, row.word.judged, weights, probability=row.word.probability)
    assert chance is not None
    return Judged(chance, chance >= weights.supported_at, row.word.supported)


def _rounded(weights: Weights) -> Weights:
    numbers = ("lexical", "supported", "not_supported", "bias", "floor", "ceiling", "graded", "supported_at")
    # Adding 0 makes of a negative zero a zero.
    return replace(weights, **{name: round(getattr(weights, name), 4) + 0.0 for name in numbers})
