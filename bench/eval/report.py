"""Tells what was measured: tables side by side, reliability diagrams, and the worst errors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from bench.eval.contrast import Share
from bench.eval.contrast import markdown as contrast_markdown
from bench.eval.figures import BINS, FIGURES, ece, interval
from bench.eval.fitting import HeldOut, Table
from bench.eval.timing import CLAIMS, Timed

mpl.use("agg")
import matplotlib.pyplot as plt

WORD_SHARE_AT = 0.5
SINGLE_AT = 0.475
WORST = 12


@dataclass(frozen=True)
class Evaluation:
    """Judgements of the same rows by several ways."""

    table: Table
    judged: dict[str, HeldOut]
    contrast: dict[tuple[str, str], Share]
    """The shares of contrast pairs by (set, kind)."""


def word_share(table: Table) -> HeldOut:
    """The usual baseline: more than half of the response's words occur in the sources."""
    shares = np.array([row.word_share for row in table.rows])
    return HeldOut(shares, shares > WORD_SHARE_AT)


def single_feature(table: Table) -> HeldOut:
    """One feature: the weighted share of words in the best window, cut at 0.475."""
    shares = table.row_scores(np.array([share for row in table.rows for share in row.window_shares] or [0.0]))
    return HeldOut(shares, shares >= SINGLE_AT)


def metrics(evaluation: Evaluation) -> dict[str, Any]:
    """Means over the sets, for the model file."""
    return {
        name: {figure: round(float(np.mean(values)), 4) for figure, values in _by_set(evaluation.table, judged).items()}
        | {"pooled ECE": round(_pooled_ece(evaluation.table, judged), 4)}
        for name, judged in evaluation.judged.items()
    }


def _by_set(table: Table, judged: HeldOut) -> dict[str, list[float]]:
    return {
        figure: [
            function(table.labels[inside], judged.supported[inside], judged.probabilities[inside])
            for name in np.unique(table.sets)
            if (inside := table.sets == name).any()
        ]
        for figure, function in FIGURES.items()
    }


def _pooled_ece(table: Table, judged: HeldOut) -> float:
    return max(_ece_of_rows(table, judged), _ece_of_sets(table, judged))


def _ece_of_rows(table: Table, judged: HeldOut) -> float:
    return ece(table.labels, judged.supported, judged.probabilities)


def _ece_of_sets(table: Table, judged: HeldOut) -> float:
    even = table.weighted(np.ones(len(table.rows), dtype=bool), by_class=False)
    return ece(table.labels, judged.supported, judged.probabilities, even)


def markdown(evaluation: Evaluation, timed: Timed, drift: str) -> str:
    """The whole table, with intervals."""
    table = evaluation.table
    names = list(np.unique(table.sets))
    lines = [
        "# Lexical layer",
        "",
        (
            f"{len(table.rows)} rows, {len(np.unique(table.groups))} groups. In percent; in brackets the 95 % interval"
            " over resampled groups. Means are over the sets."
        ),
    ]
    for figure, function in FIGURES.items():
        lines += [
            "",
            f"## {figure}",
            "",
            "| | " + " | ".join(["mean", *names]) + " |",
            "| --- |" + " --- |" * (len(names) + 1),
        ]
        for way, judged in evaluation.judged.items():
            cells = []
            for name in names:
                inside = table.sets == name
                values = table.labels[inside], judged.supported[inside], judged.probabilities[inside]
                low, high = interval(function, table.groups[inside], *values)
                cells.append((function(*values), f"{100 * function(*values):.1f} ({100 * low:.0f}-{100 * high:.0f})"))
            mean = np.mean([value for value, _ in cells])
            lines.append(f"| {way} | {100 * mean:.1f} | " + " | ".join(cell for _, cell in cells) + " |")
    lines += [
        "",
        *contrast_markdown(evaluation.contrast),
        "## In short",
        "",
        *(
            f"- {way}: mean balanced accuracy {100 * np.mean(_by_set(table, judged)['balanced accuracy']):.1f}, AUROC"
            f" {100 * np.mean(_by_set(table, judged)['AUROC']):.1f}, ECE of all rows together"
            f" {100 * _ece_of_rows(table, judged):.1f} (each row counts the same), {100 * _ece_of_sets(table, judged):.1f} (each set)"
            for way, judged in evaluation.judged.items()
        ),
        (
            f"- CPU of the check: {timed.fresh_ms:.2f} ms an answer of {CLAIMS} claims against 20 KB of sources not seen"
            f" before ({timed.claim_ms:.2f} ms a claim), {timed.known_ms:.2f} ms when the sources recur;"
            f" {timed.postprocess_ms:.2f} ms go to the step before it, with new sources."
        ),
        f"- {drift}",
        "",
    ]
    return "\n".join(lines)


def errors(evaluation: Evaluation) -> str:
    """The rows on which the model was surest and wrong."""
    table, judged = evaluation.table, evaluation.judged["full model, folds"]
    gap = np.where(table.labels == 1, judged.probabilities - 1, judged.probabilities)
    lines = ["", "## Worst errors (held out)", ""]
    for title, order in (("Called supported", np.argsort(-gap)), ("Called unsupported", np.argsort(gap))):
        lines += [
            f"{title}, and the label says otherwise:",
            "",
            "| row | probability | response | source (its beginning) |",
            "| --- | --- | --- | --- |",
        ]
        for index in order[:WORST]:
            row = table.rows[index]
            source = row.request.context[0].content if row.request.context else ""
            lines.append(
                f"| {row.id} | {judged.probabilities[index]:.2f} | {_cell(row.request.response or '')} | {_cell(source)} |"
            )
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    plain = " ".join(text.replace("|", "/").split())
    return plain if len(plain) <= 160 else plain[:160] + "…"


def reliability(evaluation: Evaluation, path: Path) -> None:
    """One diagram a way: measured share of supported rows over the stated probability."""
    table = evaluation.table
    figure, axes = plt.subplots(1, len(evaluation.judged), figsize=(4 * len(evaluation.judged), 4), sharey=True)
    for axis, (way, judged) in zip(np.atleast_1d(axes), evaluation.judged.items(), strict=True):
        bins = np.minimum((judged.probabilities * BINS).astype(int), BINS - 1)
        for name in [*np.unique(table.sets), "all"]:
            inside = (table.sets == name) | (name == "all")
            points = [
                (judged.probabilities[part].mean(), table.labels[part].mean())
                for number in range(BINS)
                if (part := inside & (bins == number)).sum() >= 15
            ]
            axis.plot(*zip(*points, strict=True), marker="o", lw=2.5 if name == "all" else 0.8, ms=4, label=name)
        axis.plot([0, 1], [0, 1], color="grey", ls=":")
        axis.set(title=way, xlabel="stated probability", xlim=(0, 1), ylim=(0, 1))
    np.atleast_1d(axes)[0].set_ylabel("measured share supported")
    np.atleast_1d(axes)[-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
