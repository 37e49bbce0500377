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
    whole = _fit(rows, [answer.logit for answer in answers], scorer, model.knots, start)
    by_words, with_local = _in_folds(answers, scorer, model.knots, start)
    before = figures_of(
        [Judged(probability(model.knots, row.score), row.score >= start, row.supported) for row in rows]
    )
    judges, left_out = fit_judges(list(_judged_claims(answers, whole, with_local)), {})
    found = Recalibrated(
        Calibration(
            model=model.identity,
            knots=whole.knots,
            supported_at=round(probability(whole.knots, whole.supported_from), 4),
            labels=len(rows),
            labels_sha256=digest,
            made_at=made_at,
            local=whole.blend,
        ),
        before,
        figures_of(by_words),
        figures_of(with_local) if whole.blend else None,
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
    """A labelled answer with the scores of its weakest claim: by words, and by the local model if there is one."""

    response: str
    row: Labelled
    logit: float
    said: Said | None


def _scored(labelled: Sequence[LabelledAnswer], local: Local | None) -> tuple[list[_Answer], str]:
    """The answers that have a checkable claim, and a digest of all labels."""
    found = []
    digest = hashlib.sha256()
    for request, supported, said in labelled:
        claims = claims_of(request)
        score = min(Lexical().log_odds(claims), default=None)
        digest.update(f"{request.response}\0{supported}\0".encode(errors="replace"))
        if score is not None:
            logit = min(local.log_odds(claims), default=-math.inf) if local else -math.inf
            found.append(_Answer(request.response or "", Labelled(score, supported), logit, said))
    return found, digest.hexdigest()


class _Fit(NamedTuple):
    """Curve and cut of the words, and the weights of the local model beside them."""

    knots: Knots
    supported_from: float
    blend: Blend | None

    def of_words(self, row: Labelled) -> Judged:
        """What the check says of a row by words alone."""
        return Judged(probability(self.knots, row.score), row.score >= self.supported_from, row.supported)

    def of_both(self, row: Labelled, logit: float) -> Judged:
        """What it says with the local model: of a row that the words leave open, both together."""
        by_words = self.of_words(row)
        if self.blend is None or is_sure(by_words.stated) or not math.isfinite(logit):
            return by_words
        both = self.blend.together(by_words.stated, logit)
        return Judged(both, both >= self.blend.threshold(by_words.stated), row.supported)


def _fit(
    rows: Sequence[Labelled], logits: Sequence[float], scorer: ClaimScorer | None, knots: Knots, start: float
) -> _Fit:
    own, supported_from = _fitted(rows, knots, start)
    return _Fit(own, supported_from, _blended(scorer, rows, logits, own, supported_from))


def _judged_claims(answers: Sequence[_Answer], whole: _Fit, held_out: Sequence[Judged]) -> Iterator[JudgedClaim]:
    for answer, left_out in zip(answers, held_out, strict=True):
        if (said := answer.said) is not None:
            word = Word(
                whole.of_both(answer.row, answer.logit).stated, said.verdict, answer.row.supported, said.probability
            )
            yield JudgedClaim(said.judge, word, answer.response, left_out.stated, left_out.said)


def _fitted(rows: Sequence[Labelled], knots: Knots, start: float) -> tuple[Knots, float]:
    own = isotonic(rows) if len(rows) >= MANY_LABELS else bent(knots, rows)
    return own, moved_cut(rows, start)


def _blended(
    scorer: ClaimScorer | None, rows: Sequence[Labelled], logits: Sequence[float], knots: Knots, supported_from: float
) -> Blend | None:
    """The local model's weights beside these curves."""
    if scorer is None:
        return None
    scored = [
        Scored(probability(knots, row.score), logit, row.supported) for row, logit in zip(rows, logits, strict=True)
    ]
    return fitted(identity_of(scorer), scored, probability(knots, supported_from))


def _in_folds(
    answers: Sequence[_Answer], scorer: ClaimScorer | None, knots: Knots, start: float
) -> tuple[list[Judged], list[Judged]]:
    """What is said of each row by words, and with the local model, by what was fitted on the rows of other folds."""
    folds = [
        int(hashlib.sha256(answer.response.encode(errors="replace")).hexdigest()[:8], 16) % FOLDS for answer in answers
    ]
    fits = []
    for fold in range(FOLDS):
        others = [answer for answer, of in zip(answers, folds, strict=True) if of != fold]
        rows = [answer.row for answer in others]
        if {row.supported for row in rows} == {True, False}:
            fits.append(_fit(rows, [answer.logit for answer in others], scorer, knots, start))
        else:
            fits.append(_Fit(knots, start, None))
    by_words = [fits[of].of_words(answer.row) for answer, of in zip(answers, folds, strict=True)]
    both = [fits[of].of_both(answer.row, answer.logit) for answer, of in zip(answers, folds, strict=True)]
    return by_words, both
