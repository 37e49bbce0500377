"""Fit the check to someone's own labels: curve and cut of the words, a local model's and judges' weights. Pure."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from schemas.grounding import Verdict
from schemas.job import JobRequest
from tasks.answers.render import strip_markers
from tasks.checkers.answer import CheckedClaim, CheckInput
from tasks.checkers.blend import Blend
from tasks.checkers.blending import Scored, fitted
from tasks.checkers.calibration import Knots, Labelled, bent, isotonic, moved_cut, probability, score_at
from tasks.checkers.figures import Figures, Judged, figures_of
from tasks.checkers.judge.labelled import FittedJudge, JudgedClaim, fit_judges
from tasks.checkers.judge.weighing import Weights, Word
from tasks.checkers.lexical import Lexical
from tasks.checkers.local import Local, identity_of, is_sure
from tasks.checkers.model import Calibration, LexicalModel, shipped
from tasks.checkers.together import Answer, dependence_of, together
from tasks.errors import InputError
from tasks.ports.scorer import ClaimScorer
from tasks.postprocess import postprocess
from tasks.text.sentences import Span
from tasks.text.statements import why_not_checkable

LEAST_LABELS = 20
LEAST_OF_EACH = 5
MANY_LABELS = 600
"""Labels from which the curve is drawn anew; with fewer the shipped one is bent, which takes two parameters only."""
FOLDS = 5


class Said(NamedTuple):
    """What a judge said of an answer as a whole: of its worst claim."""

    judge: str
    """``provider:model``"""
    verdict: Verdict
    probability: float | None = None


class LabelledAnswer(NamedTuple):
    """An answer that a person calls supported (every claim of it) or not, and what a judge said of it, where known."""

    request: JobRequest
    supported: bool
    said: Said | None = None


@dataclass(frozen=True, slots=True)
class Recalibrated:
    """A calibration, with what it changes: ``after`` is measured in folds, on rows that were left out of each."""

    calibration: Calibration
    before: Figures | None = None
    """Of the words, as ``after``; None: only judges were fitted."""
    after: Figures | None = None
    with_local: Figures | None = None
    """With the local model for what the words leave open; None: there is none, or too little to fit its weights."""
    judges: tuple[FittedJudge, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """By judge, why it was not fitted."""


def weakest_score(request: JobRequest, model: LexicalModel | None = None) -> float | None:
    """The model's score of an answer's weakest checkable claim; None when it has none."""
    return min(Lexical(model).log_odds(claims_of(request)), default=None)


def claims_of(request: JobRequest) -> CheckInput:
    """The checkable claims of a given answer."""
    processed = postprocess(request, None, None)
    bare = strip_markers(processed.response, processed.markers)
    claims = tuple(
        CheckedClaim(
            text=bare[statement.start : statement.end],
            span=Span(statement.start, statement.end),
            citations=tuple(processed.citations[position] for position in statement.citations),
        )
        for statement in processed.statements
        if why_not_checkable(bare[statement.start : statement.end]) is None
    )
    return CheckInput(request, claims)


def recalibrate(labelled: Sequence[LabelledAnswer], made_at: str, scorer: ClaimScorer | None = None) -> Recalibrated:
    """Fit to labelled answers; with a local model also its weights, and those of each judge whose word is known.

    Rows of the same response stay in one fold. Raises ``InputError`` when there are too few labels of a kind.
    """
    answers, digest = _scored(labelled, Local(scorer) if scorer else None)
    rows = [answer.row for answer in answers]
    fewest = min(sum(row.supported for row in rows), sum(not row.supported for row in rows))
    if len(rows) < LEAST_LABELS or fewest < LEAST_OF_EACH:
        raise InputError(
            f"{len(rows)} answers with checkable claims, {fewest} of the rarer label: at least {LEAST_LABELS} are needed"
            f" and {LEAST_OF_EACH} of each"
        )
    model = shipped()
    start = score_at(model.knots, model.supported_at)
    whole = _fit(answers, scorer, model, start)
    folds = _in_folds(answers, scorer, model, start)
    as_it_was = _Fit(_Curve(model.knots, start, model.dependence), None)
    judges, left_out = fit_judges(list(_judged_claims(answers, whole, folds)), {})
    found = Recalibrated(
        Calibration(
            model=model.identity,
            knots=whole.curve.knots,
            supported_at=round(probability(whole.curve.knots, whole.curve.supported_from), 4),
            labels=len(rows),
            labels_sha256=digest,
            made_at=made_at,
            local=whole.blend,
            dependence=whole.curve.dependence,
        ),
        figures_of([as_it_was.of_words(answer) for answer in answers]),
        figures_of([fit.of_words(answer) for fit, answer in zip(folds, answers, strict=True)]),
        figures_of([fit.of_both(answer) for fit, answer in zip(folds, answers, strict=True)]) if whole.blend else None,
        judges,
        left_out,
    )
    return _complete(found, {})


def refit_judges(claims: Sequence[JudgedClaim], made_at: str, base: Calibration | None = None) -> Recalibrated:
    """Fit judges alone, on labelled claims that they judged; the words' curve and all else stay as in ``base``.

    Raises ``InputError`` when no judge has enough labels.
    """
    known = {weights.judge: weights for weights in base.judges} if base else {}
    judges, left_out = fit_judges(claims, known)
    if not judges:
        raise InputError("; ".join(f"{judge}: {why}" for judge, why in left_out.items()) or "no claims are labelled")
    model = shipped()
    base = base or Calibration(
        model=model.identity, knots=model.knots, supported_at=model.supported_at, labels=0, made_at=made_at
    )
    return _complete(
        Recalibrated(base.model_copy(update={"made_at": made_at}), judges=judges, left_out=left_out), known
    )


def _complete(found: Recalibrated, known: Mapping[str, Weights]) -> Recalibrated:
    """With all weights of judges, and everything that was measured, in the calibration."""
    measured = {
        "before": found.before,
        "after, in folds": found.after,
        "with local model, in folds": found.with_local,
    }
    for one in found.judges:
        name = f"judge {one.weights.judge}"
        measured |= {
            f"{name}, before": one.before,
            f"{name}, after, in folds": one.after,
            f"{name}, words alone": one.words,
        }
    weights = {**known, **{one.weights.judge: one.weights for one in found.judges}}
    metrics = {name: figures.named() for name, figures in measured.items() if figures is not None}
    changes = {"judges": tuple(weights.values()), "metrics": {**found.calibration.metrics, **metrics}}
    return replace(found, calibration=found.calibration.model_copy(update=changes))


class _Answer(NamedTuple):
    """A labelled answer.

    Attributes:
        response: its words.
        row: its weakest claim, by the words' score.
        scores: of all its claims.
        logit: of its weakest claim by the local model, if there is one.
        said: by a judge.
    """

    response: str
    row: Labelled
    scores: tuple[float, ...]
    logit: float
    said: Said | None


def _scored(labelled: Sequence[LabelledAnswer], local: Local | None) -> tuple[list[_Answer], str]:
    """The answers that have a checkable claim, and a digest of all labels."""
    found = []
    digest = hashlib.sha256()
    for request, supported, said in labelled:
        claims = claims_of(request)
        scores = tuple(Lexical().log_odds(claims))
        digest.update(f"{request.response}\0{supported}\0".encode(errors="replace"))
        if scores:
            logit = min(local.log_odds(claims), default=-math.inf) if local else -math.inf
            found.append(_Answer(request.response or "", Labelled(min(scores), supported), scores, logit, said))
    return found, digest.hexdigest()


class _Curve(NamedTuple):
    """What scores mean: of a claim, from where on it is supported, and of several together."""

    knots: Knots
    supported_from: float
    dependence: float


class _Fit(NamedTuple):
    """What the words' scores mean, and the weights of the local model beside them."""

    curve: _Curve
    blend: Blend | None

    def of_words(self, answer: _Answer) -> Judged:
        """How likely it is by words alone that all of an answer is supported, and whether its weakest claim is."""
        stated = together(_probabilities(answer.scores, self.curve.knots), self.curve.dependence)
        return Judged(stated, answer.row.score >= self.curve.supported_from, answer.row.supported)

    def of_both(self, answer: _Answer) -> Judged:
        """The same with the local model: of a weakest claim that the words leave open, both together."""
        weakest = probability(self.curve.knots, answer.row.score)
        if self.blend is None or is_sure(weakest) or not math.isfinite(answer.logit):
            return self.of_words(answer)
        both = self.blend.together(weakest, answer.logit)
        others = sorted(_probabilities(answer.scores, self.curve.knots))[1:]
        stated = together([both, *others], self.curve.dependence)
        return Judged(stated, both >= self.blend.threshold(weakest), answer.row.supported)

    def of_weakest(self, answer: _Answer) -> float:
        """The probability of its weakest claim, as a judge's word would be weighed against it."""
        weakest = probability(self.curve.knots, answer.row.score)
        if self.blend is None or is_sure(weakest) or not math.isfinite(answer.logit):
            return weakest
        return self.blend.together(weakest, answer.logit)


def _probabilities(scores: Sequence[float], knots: Knots) -> list[float]:
    return [probability(knots, score) for score in scores]


def _fit(answers: Sequence[_Answer], scorer: ClaimScorer | None, model: LexicalModel, start: float) -> _Fit:
    curve = _fitted(answers, model, start)
    return _Fit(curve, _blended(scorer, answers, curve))


def _judged_claims(answers: Sequence[_Answer], whole: _Fit, folds: Sequence[_Fit]) -> Iterator[JudgedClaim]:
    for answer, others in zip(answers, folds, strict=True):
        if (said := answer.said) is not None:
            word = Word(whole.of_weakest(answer), said.verdict, answer.row.supported, said.probability)
            by_words = others.of_both(answer).said
            yield JudgedClaim(said.judge, word, answer.response, others.of_weakest(answer), by_words)


def _fitted(answers: Sequence[_Answer], model: LexicalModel, start: float) -> _Curve:
    """The curve of a claim; on it, how alike the claims of these answers fare; and where the weakest claim is enough."""
    alone = [Labelled(_as_one(one.scores, model), one.row.supported) for one in answers]
    own = isotonic(alone) if len(alone) >= MANY_LABELS else bent(model.knots, alone)
    found = dependence_of(
        [Answer(_probabilities(one.scores, own), one.row.supported) for one in answers], expected=model.dependence
    )
    cut = moved_cut([one.row for one in answers], start)
    return _Curve(own, cut, model.dependence if found is None else found)


def _as_one(scores: Sequence[float], model: LexicalModel) -> float:
    """The score of one claim that would be as likely as all of these together.

    So that a label of a long answer is not read as one of its weakest claim: the length would be counted twice.
    """
    if len(scores) == 1:
        return scores[0]
    stated = together(_probabilities(scores, model.knots), model.dependence)
    return min(*scores, max(score_at(model.knots, stated), model.knots[0][0]))


def _blended(scorer: ClaimScorer | None, answers: Sequence[_Answer], curve: _Curve) -> Blend | None:
    """The local model's weights beside this curve."""
    if scorer is None:
        return None
    scored = [Scored(probability(curve.knots, one.row.score), one.logit, one.row.supported) for one in answers]
    return fitted(identity_of(scorer), scored, probability(curve.knots, curve.supported_from))


def _in_folds(answers: Sequence[_Answer], scorer: ClaimScorer | None, model: LexicalModel, start: float) -> list[_Fit]:
    """For each answer, what was fitted on the answers of other folds."""
    folds = [int(hashlib.sha256(one.response.encode(errors="replace")).hexdigest()[:8], 16) % FOLDS for one in answers]
    fits = []
    for fold in range(FOLDS):
        others = [answer for answer, of in zip(answers, folds, strict=True) if of != fold]
        if {one.row.supported for one in others} == {True, False}:
            fits.append(_fit(others, scorer, model, start))
        else:
            curve = _Curve(model.knots, start, model.dependence)
            fits.append(_Fit(curve, _blended(scorer, others, curve)))
    return [fits[of] for of in folds]
