"""Fit the calibration and the threshold of the lexical layer to someone's own labels, and say what that changes. Pure."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.job import JobRequest
from tasks.answers.render import strip_markers
from tasks.checkers.answer import CheckedClaim, CheckInput
from tasks.checkers.calibration import Knots, Labelled, bent, isotonic, moved_cut, probability, score_at
from tasks.checkers.lexical import Lexical
from tasks.checkers.model import Calibration, LexicalModel, shipped
from tasks.errors import InputError
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


def weakest_score(request: JobRequest, model: LexicalModel | None = None) -> float | None:
    """The model's score of an answer's weakest checkable claim; None when it has none."""
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
    return min(Lexical(model).log_odds(CheckInput(request, claims)), default=None)


def recalibrate(labelled: Sequence[tuple[JobRequest, bool]], made_at: str) -> Recalibrated:
    """Fit to labelled answers: each supported (every claim of it) or not.

    Rows of the same response stay in one fold. Raises ``InputError`` when there are too few labels of a kind.
    """
    scored: list[tuple[str, Labelled]] = []
    digest = hashlib.sha256()
    for request, supported in labelled:
        score = weakest_score(request)
        digest.update(f"{request.response}\0{supported}\0".encode(errors="replace"))
        if score is not None:
            scored.append((request.response or "", Labelled(score, supported)))
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
    after = _in_folds(scored, model.knots, start)
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
            for name, one in (("before", before), ("after, in folds", after))
        },
    )
    return Recalibrated(calibration, before, after)


def _fitted(rows: Sequence[Labelled], knots: Knots, start: float) -> tuple[Knots, float]:
    own = isotonic(rows) if len(rows) >= MANY_LABELS else bent(knots, rows)
    return own, moved_cut(rows, start)


def _in_folds(scored: Sequence[tuple[str, Labelled]], knots: Knots, start: float) -> Figures:
    folds = [int(hashlib.sha256(said.encode(errors="replace")).hexdigest()[:8], 16) % FOLDS for said, _ in scored]
    judged: list[tuple[Labelled, float, bool]] = []
    for fold in range(FOLDS):
        others = [row for (_, row), of in zip(scored, folds, strict=True) if of != fold]
        own, supported_from = (
            _fitted(others, knots, start) if {row.supported for row in others} == {True, False} else (knots, start)
        )
        judged.extend(
            (row, probability(own, row.score), row.score >= supported_from)
            for (_, row), of in zip(scored, folds, strict=True)
            if of == fold
        )
    return _figures(judged)


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
