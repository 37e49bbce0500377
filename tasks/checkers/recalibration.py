"""Fit the lexical layer's calibration, and a local model's weights, to someone's own labels; say what that changes. Pure."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.job import JobRequest
from tasks.answers.render import strip_markers
from tasks.checkers.answer import CheckedClaim, CheckInput
from tasks.checkers.blend import Blend
from tasks.checkers.blending import Scored, fitted
from tasks.checkers.calibration import Knots, Labelled, bent, isotonic, moved_cut, probability, score_at
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
    scored: list[tuple[str, Labelled]] = []
    logits: list[float] = []
    local = Local(scorer) if scorer else None
    digest = hashlib.sha256()
    for request, supported in labelled:
        claims = claims_of(request)
        score = min(Lexical().log_odds(claims), default=None)
        digest.update(f"{request.response}\0{supported}\0".encode(errors="replace"))
        if score is not None:
            scored.append((request.response or "", Labelled(score, supported)))
            logits.append(min(local.log_odds(claims), default=-math.inf) if local else -math.inf)
    rows = [row for _, row in scored]
    fewest = min(sum(row.supported for row in rows), sum(not row.supported for row in rows))
    if len(rows) < LEAST_LABELS or fewest < LEAST_OF_EACH:
        raise InputError(
            f"{len(rows)} answers with checkable claims, {fewest} of the rarer label: at least {LEAST_LABELS} are needed"
            f" and {LEAST_OF_EACH} of each"
        )
    model = shipped()
    start = score_at(model.knots, model.supported_at)
    knots, supported_from = _fitted(rows, model.knots, start)
    after, with_local = _in_folds(scored, logits, scorer, model.knots, start)
    blend = _blended(scorer, rows, logits, knots, supported_from)
    before = _figures([(row, probability(model.knots, row.score), row.score >= start) for row in rows])
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
    )
    return Recalibrated(calibration, before, after, with_local if blend else None)


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
    scored: Sequence[tuple[str, Labelled]],
    logits: Sequence[float],
    scorer: ClaimScorer | None,
    knots: Knots,
    start: float,
) -> tuple[Figures, Figures | None]:
    """Figures of the words alone, and with the local model, each row judged by what was fitted on other folds."""
    folds = [int(hashlib.sha256(said.encode(errors="replace")).hexdigest()[:8], 16) % FOLDS for said, _ in scored]
    judged: list[tuple[Labelled, float, bool]] = []
    blended: list[tuple[Labelled, float, bool]] = []
    for fold in range(FOLDS):
        others = [at for at, of in enumerate(folds) if of != fold]
        rows = [scored[at][1] for at in others]
        own, supported_from = (
            _fitted(rows, knots, start) if {row.supported for row in rows} == {True, False} else (knots, start)
        )
        blend = _blended(scorer, rows, [logits[at] for at in others], own, supported_from)
        for at, of in enumerate(folds):
            if of == fold:
                row = scored[at][1]
                stated = probability(own, row.score)
                judged.append((row, stated, row.score >= supported_from))
                blended.append(_with(blend, judged[-1], logits[at]))
    return _figures(judged), _figures(blended) if scorer else None


def _with(blend: Blend | None, judged: tuple[Labelled, float, bool], logit: float) -> tuple[Labelled, float, bool]:
    """What the check says of a row with the local model: of one that the words leave open, both together."""
    row, lexical, _ = judged
    if blend is None or is_sure(lexical) or not math.isfinite(logit):
        return judged
    both = blend.together(lexical, logit)
    return row, both, both >= blend.threshold(lexical)


_BINS = 10


def _figures(judged: Sequence[tuple[Labelled, float, bool]]) -> Figures:
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
