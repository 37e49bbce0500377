"""Fits the check to an operator's own labels: lexical curve, shares of right verdicts, weights of a local model. Pure."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.calibration.curves import (
    LabelledScore,
    Metrics,
    Prediction,
    metrics_of,
    platt_scale,
    score_at,
)
from tasks.calibration.fitting import (
    FOLDS,
    LEAST_OF_EACH,
    LocalScore,
    fit_local,
    fold_of,
)
from tasks.errors import InputError
from tasks.grounding.checkers import CheckInput, Lexical, checkable_claims
from tasks.grounding.local import Local, identity_of, is_sure
from tasks.grounding.model import Calibration, Features, Knots, LexicalModel, probability, shipped
from tasks.grounding.weights import LocalWeights, RightShares
from tasks.ports.provider import ClaimScorer

LEAST_LABELS = 20
PRIOR = 20
"""Labelled verdicts that the shipped share of right ones counts as."""


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
    decided: "Decided"
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
    whole = _fit(answers, scorer, model)
    folds = _fit_folds(answers, scorer, model)
    former = _Fit(model.knots, None)
    decided = Decided.of(answers)
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
            knots=whole.knots,
            supported_at=round(probability(whole.knots, start), 4),
            labels=len(rows),
            labels_sha256=digest_of(labels),
            made_at=made_at,
            local=whole.local,
            right=decided.shares(model.right),
            metrics={name: metrics.to_dict() for name, metrics in measured.items() if metrics is not None},
        ),
        before,
        after,
        decided,
        with_local,
    )


class _Answer(NamedTuple):
    """A labelled answer with its scores.

    Attributes:
        response: its words.
        weakest: lexical score of its weakest claim, with the label.
        verdict: that of words on all of it; None: they leave a claim open.
        logit: the local model's score of its weakest claim; minus infinity without one.
    """

    response: str
    weakest: LabelledScore
    verdict: bool | None
    logit: float


class Decided(NamedTuple):
    """Counts of the labelled answers that words decide: those they support, those they contradict, and the right ones of each."""

    supported: int
    rightly_supported: int
    contradicted: int
    rightly_contradicted: int

    @classmethod
    def of(cls, answers: Sequence[_Answer]) -> "Decided":
        """Counts them."""
        supported = [answer.weakest.supported for answer in answers if answer.verdict is True]
        contradicted = [not answer.weakest.supported for answer in answers if answer.verdict is False]
        return cls(len(supported), sum(supported), len(contradicted), sum(contradicted))

    def shares(self, before: RightShares) -> RightShares:
        """Shares of right verdicts; few labels leave them near what they were."""
        return RightShares(
            supported=round((self.rightly_supported + PRIOR * before.supported) / (self.supported + PRIOR), 4),
            contradicted=round(
                (self.rightly_contradicted + PRIOR * before.contradicted) / (self.contradicted + PRIOR), 4
            ),
        )


def digest_of(labels: Sequence[LabelledAnswer]) -> str:
    """A digest of labelled answers, in hex."""
    lines = "".join(f"{request.response}\0{supported}\0" for request, supported in labels)
    return hashlib.sha256(lines.encode(errors="replace")).hexdigest()


def _score_answers(labels: Sequence[LabelledAnswer], local: Local | None) -> list[_Answer]:
    """Scores the answers that have a checkable claim."""
    model = shipped()
    answers = []
    for request, supported in labels:
        claims = claims_of(request)
        if features := Lexical(model).features(claims):
            logit = min(local.log_odds(claims), default=-math.inf) if local else -math.inf
            weakest = LabelledScore(min(map(model.log_odds, features)), supported)
            answers.append(_Answer(request.response or "", weakest, _verdict(features), logit))
    return answers


def _verdict(features: Sequence[Features]) -> bool | None:
    if any(claim.differs for claim in features):
        return False
    return True if all(claim.verbatim for claim in features) else None


class _Fit(NamedTuple):
    """A fitted lexical curve, and the weights of the local model beside it."""

    knots: Knots
    local: LocalWeights | None

    def predict_lexical(self, answer: _Answer) -> Prediction:
        """Predicts by the lexical layer alone: the probability of the weakest claim."""
        return Prediction(probability(self.knots, answer.weakest.score), answer.weakest.supported)

    def predict(self, answer: _Answer) -> Prediction:
        """Predicts with the local model, where the lexical layer leaves the weakest claim open."""
        weakest = probability(self.knots, answer.weakest.score)
        if self.local is None or is_sure(weakest) or not math.isfinite(answer.logit):
            return self.predict_lexical(answer)
        return Prediction(self.local.probability(weakest, answer.logit), answer.weakest.supported)


def _fit(answers: Sequence[_Answer], scorer: ClaimScorer | None, model: LexicalModel) -> _Fit:
    rows = [answer.weakest for answer in answers]
    knots = platt_scale(model.knots, rows)
    return _Fit(knots, _fit_local(scorer, answers, knots))


def _fit_local(scorer: ClaimScorer | None, answers: Sequence[_Answer], knots: Knots) -> LocalWeights | None:
    """Fits the local model's weights beside this curve."""
    if scorer is None:
        return None
    rows = [
        LocalScore(probability(knots, answer.weakest.score), answer.logit, answer.weakest.supported)
        for answer in answers
    ]
    return fit_local(identity_of(scorer), rows)


def _fit_folds(answers: Sequence[_Answer], scorer: ClaimScorer | None, model: LexicalModel) -> list[_Fit]:
    """For each answer, the fit on the answers of all other folds."""
    folds = [fold_of(answer.response) for answer in answers]
    fits = []
    for fold in range(FOLDS):
        training = [answer for answer, of in zip(answers, folds, strict=True) if of != fold]
        if {answer.weakest.supported for answer in training} == {True, False}:
            fits.append(_fit(training, scorer, model))
        else:
            fits.append(_Fit(model.knots, _fit_local(scorer, training, model.knots)))
    return [fits[of] for of in folds]
