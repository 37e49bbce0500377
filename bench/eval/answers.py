"""Puts labelled claims together to whole answers, and measures what is made of their claims' probabilities."""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from bench.eval.figures import RESAMPLES, auroc, brier, ece
from bench.eval.fitting import FOLDS, Table
from tasks.grounding.calibration import Answer, LabelledScore, fit_dependence, platt_scale
from tasks.grounding.model import joint_probability, probability

IN_ORDER = "factcheckgpt-stance"
"""Its claims come in the order of the answers that they were taken from, each five times, with other evidence."""
NEIGHBOURS = (3, 5)
_GRID = tuple((odds / 5, 1 / (1 + math.exp(-odds / 5))) for odds in range(-30, 31))
"""Log-odds as probabilities: the curve that ``platt_scale`` moves."""


@dataclass(frozen=True)
class Whole:
    """A labelled answer of several claims; ``claims`` are places in the table's ``features``."""

    kind: str
    claims: np.ndarray
    supported: bool
    group: str


def wholes(table: Table) -> list[Whole]:
    """Responses of several claims; claims of the same answer; and neighbouring claims of a set that keeps their order."""
    of_row: list[list[int]] = [[] for _ in table.rows]
    for claim, row in enumerate(table.row_of):
        of_row[row].append(claim)
    labelled_answers = [
        Whole("responses", np.array(claims), row.supported, str(row.group))
        for row, claims in zip(table.rows, of_row, strict=True)
    ]
    answers: dict[str, list[int]] = {}
    for index, row in enumerate(table.rows):
        if row.answer:
            answers.setdefault(row.answer, []).append(index)
    labelled_answers += [_joined("whole answers", table, of_row, rows, name) for name, rows in answers.items()]
    labelled_answers += _neighbours(table, of_row)
    return [answer for answer in labelled_answers if len(answer.claims) > 1]


def _joined(kind: str, table: Table, of_row: Sequence[Sequence[int]], rows: Sequence[int], group: str) -> Whole:
    claims = np.array([claim for row in rows for claim in of_row[row]], dtype=int)
    return Whole(kind, claims, all(table.rows[row].supported for row in rows), group)


def _neighbours(table: Table, of_row: Sequence[Sequence[int]]) -> Iterator[Whole]:
    inside = [index for index, row in enumerate(table.rows) if row.dataset == IN_ORDER]
    responses = [list(rows) for _, rows in groupby(inside, key=lambda index: table.rows[index].request.response)]
    for count in NEIGHBOURS:
        for start in range(0, len(responses) - count + 1, count):
            for rows in zip(*responses[start : start + count], strict=False):
                yield _joined("neighbours", table, of_row, rows, f"{count} from {start}")


def of_their_set(table: Table, claims: np.ndarray) -> np.ndarray:
    """Claims' probabilities on a curve bent to their own set, by rows of one claim in the other folds.

    As after ``nightdesk calibrate``: how alike claims fare is seen only where their own probabilities are right.
    """
    folds = table.folds()[table.row_of]
    sets, labels = table.sets[table.row_of], table.labels[table.row_of]
    alone = np.bincount(table.row_of, minlength=len(table.rows))[table.row_of] == 1
    odds = np.log(claims / (1 - claims))
    moved = claims.copy()
    for name in np.unique(sets):
        for fold in np.unique(folds):
            training = np.flatnonzero((sets == name) & (folds != fold) & alone)
            inside = np.flatnonzero((sets == name) & (folds == fold))
            if len(training):
                curve = platt_scale(_GRID, [LabelledScore(float(odds[at]), bool(labels[at])) for at in training])
                moved[inside] = [probability(curve, float(odds[at])) for at in inside]
    return moved


def dependence(answers: Sequence[Whole], curves: Sequence[np.ndarray]) -> float:
    """The dependence that fits best, each kind of answers and each curve with the same weight.

    Args:
        answers: the labelled answers.
        curves: probabilities of the table's claims, by several curves.
    """
    counts = {kind: sum(answer.kind == kind for answer in answers) for kind in {answer.kind for answer in answers}}
    most = max(counts.values())
    fitted = fit_dependence(
        [
            Answer(claims[answer.claims].tolist(), answer.supported, most / counts[answer.kind])
            for claims in curves
            for answer in answers
        ]
    )
    if fitted is None:
        raise ValueError("no answer of several claims")
    return fitted


def ways(answers: Sequence[Whole], claims: np.ndarray, curves: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The probability of each answer: the lowest of its claims, their product, and together.

    Args:
        answers: the labelled answers.
        claims: probabilities of the table's claims, that are put together.
        curves: those that the dependence is fitted on; for each answer on those of other folds.
    """
    folds = np.array([int(hashlib.sha256(answer.group.encode()).hexdigest()[:8], 16) % FOLDS for answer in answers])
    dependences = {
        fold: dependence([answer for answer, of in zip(answers, folds, strict=True) if of != fold], curves)
        for fold in np.unique(folds)
    }
    stated = [claims[answer.claims].tolist() for answer in answers]
    return {
        "lowest": np.array([min(probabilities) for probabilities in stated]),
        "product": np.array([math.prod(probabilities) for probabilities in stated]),
        "together": np.array(
            [
                joint_probability(probabilities, dependences[fold])
                for fold, probabilities in zip(folds, stated, strict=True)
            ]
        ),
    }


def markdown(table: Table, claims: np.ndarray) -> list[str]:
    """The worth of each way, as lines of a report."""
    answers = wholes(table)
    if not answers:
        return []
    curves = {"of all sets": claims, "of their own set": of_their_set(table, claims)}
    lines = [
        "## Confidence of answers with several claims",
        "",
        f"In percent, means over the kinds of answers; the dependence ({dependence(answers, [*curves.values()]):.2f} on all) is fitted on other answers.",
        "",
        "| kind | answers | claims each | supported | dependence by the curve of their own set |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind in sorted({answer.kind for answer in answers}):
        of_kind = [answer for answer in answers if answer.kind == kind]
        cells = (
            f"{len(of_kind)}",
            f"{np.mean([len(answer.claims) for answer in of_kind]):.1f}",
            f"{100 * np.mean([answer.supported for answer in of_kind]):.0f} %",
            f"{dependence(of_kind, [curves['of their own set']]):.2f}",
        )
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    lines += ["", "| curve | confidence | mean | ECE | Brier | AUROC |", "| --- | --- | --- | --- | --- | --- |"]
    labels = np.array([answer.supported for answer in answers], dtype=int)
    for curve, probabilities in curves.items():
        judged = ways(answers, probabilities, [*curves.values()])
        for way, stated in judged.items():
            cells = [_figure_text(figure, way, judged, labels, answers) for figure in (ece, brier, auroc)]
            lines.append(f"| {curve} | {way} | {100 * stated.mean():.0f} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _figure_text(
    figure: Callable[..., float], way: str, judged: dict[str, np.ndarray], labels: np.ndarray, answers: Sequence[Whole]
) -> str:
    """A figure's mean over the kinds, and for "together" the 95 % interval of its difference to the lowest."""
    value = 100 * _mean(figure, judged[way], labels, answers, np.arange(len(answers)))
    if way != "together":
        return f"{value:.1f}"
    random = np.random.default_rng(7)
    _, of_answer = np.unique([f"{answer.kind} {answer.group}" for answer in answers], return_inverse=True)
    order = np.argsort(of_answer, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(of_answer))[:-1])
    gains = []
    for _ in range(RESAMPLES):
        chosen = np.concatenate([members[at] for at in random.integers(0, len(members), len(members))])
        gains.append(
            _mean(figure, judged[way], labels, answers, chosen)
            - _mean(figure, judged["lowest"], labels, answers, chosen)
        )
    low, high = np.percentile(gains, [2.5, 97.5])
    return f"{value:.1f} ({100 * low:+.1f} to {100 * high:+.1f} to the lowest)"


def _mean(
    figure: Callable[..., float], stated: np.ndarray, labels: np.ndarray, answers: Sequence[Whole], chosen: np.ndarray
) -> float:
    of_kind = np.array([answers[at].kind for at in chosen])
    values = []
    for kind in np.unique(of_kind):
        inside = chosen[of_kind == kind]
        if labels[inside].min() != labels[inside].max():
            values.append(figure(labels[inside], labels[inside], stated[inside]))
    return float(np.mean(values))
