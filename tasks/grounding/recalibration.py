"""Fits the check to an operator's own labels: lexical curve and threshold, weights of a local model. Pure."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    LocalScore,
    fit_local,
    fold_of,
)
from tasks.grounding.local import Local, identity_of, is_sure
from tasks.grounding.model import Calibration, Knots, LexicalModel, joint_probability, probability, shipped
from tasks.grounding.weights import LocalWeights
from tasks.ports.provider import ClaimScorer

LEAST_LABELS = 20
MANY_LABELS = 600
"""Labels from which the curve is fitted again; with fewer the shipped one is scaled, which takes two parameters only."""


class LabelledAnswer(NamedTuple):
    """An answer with a person's label (supported: every claim of it is)."""

    request: JobRequest
    supported: bool


@dataclass(frozen=True, slots=True)
class Recalibrated:
    """A calibration with its effect; ``after`` is measured in folds, on rows left out of each fit."""

    calibration: Calibration
    before: Metrics
    """Metrics of the lexical layer with the shipped calibration."""
    after: Metrics
    with_local: Metrics | None = None
    """Metrics with the local model for open answers; None: there is no model, or too few labels for its weights."""


def claims_of(request: JobRequest) -> CheckInput:
    """Checkable claims of the answer in a check-only request."""
    claims, _ = checkable_claims(request, postprocess(request, None, None))
    return CheckInput(request, claims)


def recalibrate(labels: Sequence[LabelledAnswer], made_at: str, scorer: ClaimScorer | None = None) -> Recalibrated:
    """Fits to labelled answers; with a local model also its weights.

    Rows of the same response stay in one fold.

    Raises: InputError for too few labels of a kind.
    """
    answers = _score_answers(labels, Local(scorer) if scorer else None)
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
    by_fold = list(zip(folds, answers, strict=True))
    before, after = (
        metrics_of([former.predict_lexical(answer) for answer in answers]),
        metrics_of([fit.predict_lexical(answer) for fit, answer in by_fold]),
    )
    with_local = metrics_of([fit.predict(answer) for fit, answer in by_fold]) if whole.local else None
    measured = {"before": before, "after, in folds": after, "with local model, in folds": with_local}
    return Recalibrated(
        Calibration(
            model=model.identity,
            knots=whole.curve.knots,
            supported_at=round(probability(whole.curve.knots, whole.curve.threshold), 4),
            labels=len(rows),
            labels_sha256=digest_of(labels),
            made_at=made_at,
            local=whole.local,
            dependence=whole.curve.dependence,
            metrics={name: metrics.to_dict() for name, metrics in measured.items() if metrics is not None},
        ),
        before,
        after,
        with_local,
    )


class _Answer(NamedTuple):
    """A labelled answer with its scores.

    Attributes:
        response: its words.
        weakest: lexical score of its weakest claim, with the label.
        scores: lexical scores of all its claims.
        logit: the local model's score of its weakest claim; minus infinity without one.
    """

    response: str
    weakest: LabelledScore
    scores: tuple[float, ...]
    logit: float


def digest_of(labels: Sequence[LabelledAnswer]) -> str:
    """A digest of labelled answers, in hex."""
    lines = "".join(f"{request.response}\0{supported}\0" for request, supported in labels)
    return hashlib.sha256(lines.encode(errors="replace")).hexdigest()


def _score_answers(labels: Sequence[LabelledAnswer], local: Local | None) -> list[_Answer]:
    """Scores the answers that have a checkable claim."""
    answers = []
    for request, supported in labels:
        claims = claims_of(request)
        scores = tuple(Lexical().log_odds(claims))
        if scores:
            logit = min(local.log_odds(claims), default=-math.inf) if local else -math.inf
            weakest = LabelledScore(min(scores), supported)
            answers.append(_Answer(request.response or "", weakest, scores, logit))
    return answers


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


def _probabilities(scores: Sequence[float], knots: Knots) -> list[float]:
    return [probability(knots, score) for score in scores]


def _fit(answers: Sequence[_Answer], scorer: ClaimScorer | None, model: LexicalModel, start: float) -> _Fit:
    curve = _fit_curve(answers, model, start)
    return _Fit(curve, _fit_local(scorer, answers, curve))


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
