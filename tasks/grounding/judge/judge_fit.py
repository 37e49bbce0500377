"""Fit the weights of judges on labelled claims, and measure them on claims left out of each fit."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.grounding.judge.judge_weights import DEFAULT, LEAST_LABELS, JudgeWeights, LabelledVerdict, fit, weigh
from tasks.grounding.judge.triage import is_sure
from tasks.grounding.metrics import Metrics, Prediction, metrics_of

LEAST_OF_EACH = 5
FOLDS = 5


@dataclass(frozen=True, slots=True)
class JudgedClaim:
    """A labelled claim (or an answer, by its weakest claim) with a judge's verdict.

    Attributes:
        judge: ``provider:model``.
        verdict: the judge's, beside the lexical probability by the final calibration.
        group: claims of one group depend on each other and stay in one fold.
        held_out: the lexical probability by a calibration that left this claim out.
        lexical_verdict: supported by that probability alone; None: the lexical layer did not run.
    """

    judge: str
    verdict: LabelledVerdict
    group: str
    held_out: float | None
    lexical_verdict: bool | None


@dataclass(frozen=True, slots=True)
class FittedJudge:
    """A judge's weights with their effect: ``before`` by its former weights, ``after`` on claims left out of the fit."""

    weights: JudgeWeights
    before: Metrics
    after: Metrics
    without_judge: Metrics | None


def fit_judges(
    rows: Sequence[JudgedClaim], current: Mapping[str, JudgeWeights]
) -> tuple[tuple[FittedJudge, ...], dict[str, str]]:
    """Fit each judge on the claims that the lexical layer leaves open, as no judge is asked about others.

    Args:
        rows: labelled claims of any judges.
        current: their present weights; a judge that is not in there has the defaults.

    Returns: the fits, and by judge the reason of a missing one.
    """
    fits, problems = [], {}
    for judge in sorted({row.judge for row in rows}):
        open_rows = [row for row in rows if row.judge == judge and not is_sure(row.verdict.lexical)]
        if problem := _too_few(open_rows):
            problems[judge] = problem
            continue
        try:
            fits.append(_fit_one(judge, open_rows, current.get(judge, DEFAULT)))
        except ValueError as error:
            problems[judge] = str(error)
    return tuple(fits), problems


def _too_few(rows: Sequence[JudgedClaim]) -> str | None:
    rarer = min(sum(row.verdict.supported for row in rows), sum(not row.verdict.supported for row in rows))
    if len(rows) >= LEAST_LABELS and rarer >= LEAST_OF_EACH:
        return None
    return (
        f"{len(rows)} labelled claims that the lexical check leaves open, {rarer} of the rarer label: at least {LEAST_LABELS} are"
        f" needed and {LEAST_OF_EACH} of each"
    )


def _fit_one(judge: str, rows: Sequence[JudgedClaim], current: JudgeWeights) -> FittedJudge:
    weights = _rounded(fit(judge, [row.verdict for row in rows]))
    folds = [int(hashlib.sha256(row.group.encode(errors="replace")).hexdigest()[:8], 16) % FOLDS for row in rows]
    after: list[Prediction] = []
    for fold in range(FOLDS):
        training = [_by_held_out(row) for row, of in zip(rows, folds, strict=True) if of != fold]
        try:
            fold_weights = fit(judge, training, least=LEAST_LABELS // 2)
        except ValueError:
            fold_weights = current
        after.extend(_predict(row, fold_weights) for row, of in zip(rows, folds, strict=True) if of == fold)
    lexical = [
        Prediction(row.held_out, row.lexical_verdict, row.verdict.supported)
        for row in rows
        if row.held_out is not None and row.lexical_verdict is not None
    ]
    return FittedJudge(
        weights,
        before=metrics_of([_predict(row, current) for row in rows]),
        after=metrics_of(after),
        without_judge=metrics_of(lexical) if len(lexical) == len(rows) else None,
    )


def _by_held_out(row: JudgedClaim) -> LabelledVerdict:
    return row.verdict._replace(lexical=row.held_out)


def _predict(row: JudgedClaim, weights: JudgeWeights) -> Prediction:
    chance = weigh(row.held_out, row.verdict.verdict, weights, probability=row.verdict.probability)
    assert chance is not None
    return Prediction(chance, chance >= weights.supported_at, row.verdict.supported)


def _rounded(weights: JudgeWeights) -> JudgeWeights:
    numbers = ("lexical", "supported", "not_supported", "bias", "floor", "ceiling", "graded", "supported_at")
    # Adding 0 turns a negative zero into a zero.
    return weights.model_copy(update={name: round(getattr(weights, name), 4) + 0.0 for name in numbers})
