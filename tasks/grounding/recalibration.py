"""Fits the check to an operator's own labels: lexical curve and threshold, weights of a local model and of judges. Pure."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.errors import InputError
from tasks.grounding.calibration import (
    Answer,
    LabelledScore,
    Metrics,
    Prediction,
    fit_dependence,
    isotonic,
    metrics_of,
    platt_scale,
    score_at,
    shift_threshold,
)
from tasks.grounding.checkers import CheckInput, Lexical, checkable_claims
from tasks.grounding.fitting import (
    FOLDS,
    LEAST_OF_EACH,
    FittedJudge,
    JudgedClaim,
    LabelledVerdict,
    LocalScore,
    fit_judges,
    fit_local,
    fold_of,
)
from tasks.grounding.local import Local, identity_of, is_sure
from tasks.grounding.model import Calibration, Knots, LexicalModel, joint_probability, probability, shipped
from tasks.grounding.weights import JudgeWeights, LocalWeights
from tasks.ports.provider import ClaimScorer

LEAST_LABELS = 20
MANY_LABELS = 600
"""Labels from which the curve is fitted again; with fewer the shipped one is scaled, which takes two parameters only."""


class AnswerVerdict(NamedTuple):
    """A judge's verdict on an answer as a whole: that of its worst claim."""

    judge: str
    """``provider:model``"""
    verdict: Verdict
    probability: float | None = None


class LabelledAnswer(NamedTuple):
    """An answer with a person's label (supported: every claim of it is), and a judge's verdict on it, if there is one."""

    request: JobRequest
    supported: bool
    verdict: AnswerVerdict | None = None


@dataclass(frozen=True, slots=True)
class Recalibrated:
    """A calibration with its effect; ``after`` is measured in folds, on rows left out of each fit."""

    calibration: Calibration
    before: Metrics | None = None
    """Metrics of the lexical layer with the former calibration; None: only judges were fitted."""
    after: Metrics | None = None
    with_local: Metrics | None = None
    """Metrics with the local model for open answers; None: there is no model, or too few labels for its weights."""
    judges: tuple[FittedJudge, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    """By judge, the reason of a missing fit."""


def claims_of(request: JobRequest) -> CheckInput:
    """Checkable claims of the answer in a check-only request."""
    claims, _ = checkable_claims(request, postprocess(request, None, None))
    return CheckInput(request, claims)


def recalibrate(labels: Sequence[LabelledAnswer], made_at: str, scorer: ClaimScorer | None = None) -> Recalibrated:
    """Fits to labelled answers; with a local model also its weights, and those of each judge in the labels.

    Rows of the same response stay in one fold.

    Raises: InputError for too few labels of a kind.
    """
    answers, digest = _score_answers(labels, Local(scorer) if scorer else None)
    rows = [answer.weakest for answer in answers]
    fewest = min(sum(row.supported for row in rows), sum(not row.supported for row in rows))
    if len(rows) < LEAST_LABELS or fewest < LEAST_OF_EACH:
        raise InputError(
            f"{len(rows)} answers with checkable claims, {fewest} of the rarer label: at least {LEAST_LABELS} are needed"
            f" and {LEAST_OF_EACH} of each"
        )
    model = shipped()
    start = score_at(model.knots, model.supported_at)
    whole = _fit(answers, scorer, model, start)
    folds = _fit_folds(answers, scorer, model, start)
    former = _Fit(_Curve(model.knots, start, model.dependence), None)
    judges, problems = fit_judges(list(_judged_claims(answers, whole, folds)), {})
    by_fold = list(zip(folds, answers, strict=True))
    result = Recalibrated(
        Calibration(
            model=model.identity,
            knots=whole.curve.knots,
            supported_at=round(probability(whole.curve.knots, whole.curve.threshold), 4),
            labels=len(rows),
            labels_sha256=digest,
            made_at=made_at,
            local=whole.local,
            dependence=whole.curve.dependence,
        ),
        metrics_of([former.predict_lexical(answer) for answer in answers]),
        metrics_of([fit.predict_lexical(answer) for fit, answer in by_fold]),
        metrics_of([fit.predict(answer) for fit, answer in by_fold]) if whole.local else None,
        judges,
        problems,
    )
    return _complete(result, {})


def refit_judges(claims: Sequence[JudgedClaim], made_at: str, base: Calibration | None = None) -> Recalibrated:
    """Fits judges alone, on labelled claims that they judged; the lexical curve and all else stay as in ``base``.

    Raises: InputError when no judge has enough labels.
    """
    current = {weights.source: weights for weights in base.judges} if base else {}
    judges, problems = fit_judges(claims, current)
    if not judges:
        raise InputError("; ".join(f"{judge}: {why}" for judge, why in problems.items()) or "no claims are labelled")
    model = shipped()
    base = base or Calibration(
        model=model.identity, knots=model.knots, supported_at=model.supported_at, labels=0, made_at=made_at
    )
    return _complete(
        Recalibrated(base.model_copy(update={"made_at": made_at}), judges=judges, problems=problems), current
    )


def _complete(result: Recalibrated, current: Mapping[str, JudgeWeights]) -> Recalibrated:
    """Adds all weights of judges, and all metrics, to the calibration."""
    metrics = {
        "before": result.before,
        "after, in folds": result.after,
        "with local model, in folds": result.with_local,
    }
    for judge in result.judges:
        name = f"judge {judge.weights.source}"
        metrics |= {
            f"{name}, before": judge.before,
            f"{name}, after, in folds": judge.after,
            f"{name}, words alone": judge.without_judge,
        }
    weights = {**current, **{judge.weights.source: judge.weights for judge in result.judges}}
    documents = {name: measured.to_dict() for name, measured in metrics.items() if measured is not None}
    changes = {"judges": tuple(weights.values()), "metrics": {**result.calibration.metrics, **documents}}
    return replace(result, calibration=result.calibration.model_copy(update=changes))


class _Answer(NamedTuple):
    """A labelled answer with its scores.

    Attributes:
        response: its words.
        weakest: lexical score of its weakest claim, with the label.
        scores: lexical scores of all its claims.
        logit: the local model's score of its weakest claim; minus infinity without one.
        verdict: a judge's.
    """

    response: str
    weakest: LabelledScore
    scores: tuple[float, ...]
    logit: float
    verdict: AnswerVerdict | None


def _score_answers(labels: Sequence[LabelledAnswer], local: Local | None) -> tuple[list[_Answer], str]:
    """Scores the answers that have a checkable claim; also returns a digest of all labels."""
    answers = []
    digest = hashlib.sha256()
    for request, supported, verdict in labels:
        claims = claims_of(request)
        scores = tuple(Lexical().log_odds(claims))
        digest.update(f"{request.response}\0{supported}\0".encode(errors="replace"))
        if scores:
            logit = min(local.log_odds(claims), default=-math.inf) if local else -math.inf
            weakest = LabelledScore(min(scores), supported)
            answers.append(_Answer(request.response or "", weakest, scores, logit, verdict))
    return answers, digest.hexdigest()


class _Curve(NamedTuple):
    """Meaning of lexical scores: curve of a claim, threshold of a supported one, and dependence of an answer's claims."""

    knots: Knots
    threshold: float
    dependence: float


class _Fit(NamedTuple):
    """A fitted lexical curve, and the weights of the local model beside it."""

    curve: _Curve
    local: LocalWeights | None

    def predict_lexical(self, answer: _Answer) -> Prediction:
        """Predicts by the lexical layer alone: joint probability of all claims, verdict of the weakest."""
        joint = joint_probability(_probabilities(answer.scores, self.curve.knots), self.curve.dependence)
        return Prediction(joint, answer.weakest.score >= self.curve.threshold, answer.weakest.supported)

    def predict(self, answer: _Answer) -> Prediction:
        """Predicts with the local model, where the lexical layer leaves the weakest claim open."""
        weakest = probability(self.curve.knots, answer.weakest.score)
        if self.local is None or is_sure(weakest) or not math.isfinite(answer.logit):
            return self.predict_lexical(answer)
        both = self.local.probability(weakest, answer.logit)
        other_claims = sorted(_probabilities(answer.scores, self.curve.knots))[1:]
        joint = joint_probability([both, *other_claims], self.curve.dependence)
        return Prediction(joint, both >= self.local.threshold(weakest), answer.weakest.supported)

    def weakest_probability(self, answer: _Answer) -> float:
        """Probability of the weakest claim, as a judge's verdict would be weighed against it."""
        weakest = probability(self.curve.knots, answer.weakest.score)
        if self.local is None or is_sure(weakest) or not math.isfinite(answer.logit):
            return weakest
        return self.local.probability(weakest, answer.logit)


def _probabilities(scores: Sequence[float], knots: Knots) -> list[float]:
    return [probability(knots, score) for score in scores]


def _fit(answers: Sequence[_Answer], scorer: ClaimScorer | None, model: LexicalModel, start: float) -> _Fit:
    curve = _fit_curve(answers, model, start)
    return _Fit(curve, _fit_local(scorer, answers, curve))


def _judged_claims(answers: Sequence[_Answer], whole: _Fit, folds: Sequence[_Fit]) -> Iterator[JudgedClaim]:
    for answer, fold in zip(answers, folds, strict=True):
        if (verdict := answer.verdict) is not None:
            label = answer.weakest.supported
            labelled = LabelledVerdict(whole.weakest_probability(answer), verdict.verdict, label, verdict.probability)
            alone = fold.predict(answer).verdict
            yield JudgedClaim(verdict.judge, labelled, answer.response, fold.weakest_probability(answer), alone)


def _fit_curve(answers: Sequence[_Answer], model: LexicalModel, start: float) -> _Curve:
    """Fits the curve of a claim, then the dependence of an answer's claims on it, then the threshold of the weakest."""
    alone = [LabelledScore(_equivalent_score(answer.scores, model), answer.weakest.supported) for answer in answers]
    knots = isotonic(alone) if len(alone) >= MANY_LABELS else platt_scale(model.knots, alone)
    dependence = fit_dependence(
        [Answer(_probabilities(answer.scores, knots), answer.weakest.supported) for answer in answers],
        expected=model.dependence,
    )
    threshold = shift_threshold([answer.weakest for answer in answers], start)
    return _Curve(knots, threshold, model.dependence if dependence is None else dependence)


def _equivalent_score(scores: Sequence[float], model: LexicalModel) -> float:
    """Score of one claim that is as likely as all of these jointly.

    Without it a label of a long answer counts as one of its weakest claim, and the length counts twice.
    """
    if len(scores) == 1:
        return scores[0]
    joint = joint_probability(_probabilities(scores, model.knots), model.dependence)
    return min(*scores, max(score_at(model.knots, joint), model.knots[0][0]))


def _fit_local(scorer: ClaimScorer | None, answers: Sequence[_Answer], curve: _Curve) -> LocalWeights | None:
    """Fits the local model's weights beside this curve."""
    if scorer is None:
        return None
    rows = [
        LocalScore(probability(curve.knots, answer.weakest.score), answer.logit, answer.weakest.supported)
        for answer in answers
    ]
    return fit_local(identity_of(scorer), rows, probability(curve.knots, curve.threshold))


def _fit_folds(answers: Sequence[_Answer], scorer: ClaimScorer | None, model: LexicalModel, start: float) -> list[_Fit]:
    """For each answer, the fit on the answers of all other folds."""
    folds = [fold_of(answer.response) for answer in answers]
    fits = []
    for fold in range(FOLDS):
        training = [answer for answer, of in zip(answers, folds, strict=True) if of != fold]
        if {answer.weakest.supported for answer in training} == {True, False}:
            fits.append(_fit(training, scorer, model, start))
        else:
            curve = _Curve(model.knots, start, model.dependence)
            fits.append(_Fit(curve, _fit_local(scorer, training, curve)))
    return [fits[of] for of in folds]
