"""Fit the lexical layer's calibration, and a local model's weights, to someone's own labels; say what that changes. Pure."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas.job import JobRequest
from tasks.answers.render import strip_markers
from tasks.checkers.answer import CheckedClaim, CheckInput
from tasks.checkers.blend import Blend
from tasks.checkers.blending import Scored, fitted
from tasks.checkers.calibration import Knots, Labelled, bent, isotonic, moved_cut, probability, score_at
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


@dataclass(frozen=True, slots=True)
class Figures:
    """How well a calibration does on rows that it was not made from; all in [0, 1]."""

    balanced_accuracy: float
    ece: float
    brier: float


@dataclass(frozen=True, slots=True)
class Recalibrated:
    """A calibration, with what it changes: ``after`` is measured in folds, on rows that were left out of each."""

    calibration: Calibration
    before: Figures
    after: Figures
    with_local: Figures | None = None
    """With the local model for what the words leave open; None: there is none, or too little to fit its weights."""


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


def recalibrate(
    labelled: Sequence[tuple[JobRequest, bool]], made_at: str, scorer: ClaimScorer | None = None
) -> Recalibrated:
    """Fit to labelled answers: each supported (every claim of it) or not; with a local model also its weights.

    Rows of the same response stay in one fold. Raises ``InputError`` when there are too few labels of a kind.
    """
    scored: list[_Given] = []
    logits: list[float] = []
    local = Local(scorer) if scorer else None
    digest = hashlib.sha256()
    for request, supported in labelled:
        claims = claims_of(request)
        scores = tuple(Lexical().log_odds(claims))
        digest.update(f"{request.response}\0{supported}\0".encode(errors="replace"))
        if scores:
            scored.append(_Given(request.response or "", Labelled(min(scores), supported), scores))
            logits.append(min(local.log_odds(claims), default=-math.inf) if local else -math.inf)
    rows = [given.row for given in scored]
    fewest = min(sum(row.supported for row in rows), sum(not row.supported for row in rows))
    if len(rows) < LEAST_LABELS or fewest < LEAST_OF_EACH:
        raise InputError(
            f"{len(rows)} answers with checkable claims, {fewest} of the rarer label: at least {LEAST_LABELS} are needed"
            f" and {LEAST_OF_EACH} of each"
        )
    model = shipped()
    start = score_at(model.knots, model.supported_at)
    fitted_to = _fitted(scored, model, start)
    knots, supported_from = fitted_to.knots, fitted_to.supported_from
    after, with_local = _in_folds(scored, logits, scorer, model, start)
    blend = _blended(scorer, rows, logits, knots, supported_from)
    before = _figures([_judged(given, _Curve(model.knots, start, model.dependence)) for given in scored])
    calibration = Calibration(
        model=model.identity,
        knots=knots,
        supported_at=round(probability(knots, supported_from), 4),
        labels=len(rows),
        labels_sha256=digest.hexdigest(),
        made_at=made_at,
        metrics={
            name: {"balanced accuracy": one.balanced_accuracy, "ECE": one.ece, "Brier": one.brier}
            for name, one in (
                ("before", before),
                ("after, in folds", after),
                ("with local model, in folds", with_local),
            )
            if one is not None
        },
        local=blend,
        dependence=fitted_to.dependence,
    )
    return Recalibrated(calibration, before, after, with_local if blend else None)


class _Given(NamedTuple):
    """A labelled answer: its words, its weakest claim, and the scores of all its claims."""

    response: str
    row: Labelled
    scores: tuple[float, ...]


class _Curve(NamedTuple):
    """What scores mean: of a claim, from where on it is supported, and of several together."""

    knots: Knots
    supported_from: float
    dependence: float


class _Judged(NamedTuple):
    """What a curve says of an answer: how likely it is that all is supported, and whether its weakest claim is."""

    row: Labelled
    stated: float
    supported: bool


def _fitted(given: Sequence[_Given], model: LexicalModel, start: float) -> _Curve:
    """The curve of a claim; on it, how alike the claims of these answers fare; and where the weakest claim is enough."""
    rows = [one.row for one in given]
    alone = [Labelled(_as_one(one.scores, model), one.row.supported) for one in given]
    own = isotonic(alone) if len(alone) >= MANY_LABELS else bent(model.knots, alone)
    answers = [Answer(_probabilities(one, own), one.row.supported) for one in given]
    dependence = dependence_of(answers, expected=model.dependence)
    return _Curve(own, moved_cut(rows, start), model.dependence if dependence is None else dependence)


def _as_one(scores: Sequence[float], model: LexicalModel) -> float:
    """The score of one claim that would be as likely as all of these together.

    So that a label of a long answer is not read as one of its weakest claim: the length would be counted twice.
    """
    if len(scores) == 1:
        return scores[0]
    stated = together([probability(model.knots, score) for score in scores], model.dependence)
    return min(*scores, max(score_at(model.knots, stated), model.knots[0][0]))


def _probabilities(given: _Given, knots: Knots) -> list[float]:
    return [probability(knots, score) for score in given.scores]


def _judged(given: _Given, curve: _Curve) -> _Judged:
    stated = together(_probabilities(given, curve.knots), curve.dependence)
    return _Judged(given.row, stated, given.row.score >= curve.supported_from)


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
    scored: Sequence[_Given], logits: Sequence[float], scorer: ClaimScorer | None, model: LexicalModel, start: float
) -> tuple[Figures, Figures | None]:
    """Figures of the words alone, and with the local model, each row judged by what was fitted on other folds."""
    folds = [int(hashlib.sha256(one.response.encode(errors="replace")).hexdigest()[:8], 16) % FOLDS for one in scored]
    judged: list[_Judged] = []
    blended: list[_Judged] = []
    for fold in range(FOLDS):
        others = [at for at, of in enumerate(folds) if of != fold]
        rows = [scored[at].row for at in others]
        curve = _Curve(model.knots, start, model.dependence)
        if {row.supported for row in rows} == {True, False}:
            curve = _fitted([scored[at] for at in others], model, start)
        blend = _blended(scorer, rows, [logits[at] for at in others], curve.knots, curve.supported_from)
        for at, of in enumerate(folds):
            if of == fold:
                judged.append(_judged(scored[at], curve))
                blended.append(_with(blend, scored[at], judged[-1], logits[at], curve))
    return _figures(judged), _figures(blended) if scorer else None


def _with(blend: Blend | None, given: _Given, judged: _Judged, logit: float, curve: _Curve) -> _Judged:
    """What the check says of a row with the local model: of a weakest claim that the words leave open, both together."""
    weakest = probability(curve.knots, given.row.score)
    if blend is None or is_sure(weakest) or not math.isfinite(logit):
        return judged
    both = blend.together(weakest, logit)
    others = sorted(_probabilities(given, curve.knots))[1:]
    return _Judged(given.row, together([both, *others], curve.dependence), both >= blend.threshold(weakest))


_BINS = 10


def _figures(judged: Sequence[_Judged]) -> Figures:
    right = {True: [0, 0], False: [0, 0]}
    bins: dict[int, list[float]] = {}
    brier = 0.0
    for row, stated, supported in judged:
        right[row.supported][0] += supported == row.supported
        right[row.supported][1] += 1
        bins.setdefault(min(int(stated * _BINS), _BINS - 1), []).append(row.supported - stated)
        brier += (row.supported - stated) ** 2
    return Figures(
        balanced_accuracy=round(sum(hits / max(1, rows) for hits, rows in right.values()) / 2, 4),
        ece=round(sum(abs(sum(gaps)) for gaps in bins.values()) / len(judged), 4),
        brier=round(brier / len(judged), 4),
    )
