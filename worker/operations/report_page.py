"""Draws the report of a batch as one HTML page that needs nothing else: no script, no network, no font of its own."""

import base64
import hashlib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from schemas.batch import BatchStatus
from schemas.states import JobState, Outcome
from worker.ledger.batch_figures import BINS, BUCKETS
from worker.operations.counts import amount, cost, duration, spent_of, whole_number

ENDINGS = (
    *Outcome,
    *(JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED),
)
"""In the order of the colours (report.css.j2) and of the columns."""

HEIGHT = 100.0
WIDTH = 100.0
GAP = 0.12
"""Share of a column that stays empty, so that neighbours are told apart."""


class Bar(NamedTuple):
    """A rectangle of a plot, in its own units; the page stretches them."""

    x: float
    y: float
    width: float
    height: float
    kind: str


class Columns(NamedTuple):
    """A plot of columns with the same numbers as a table."""

    title: str
    bars: list[Bar]
    top: int
    marks: list[str]
    """Texts below the first column, the middle and the last."""
    kinds: list[str]
    rows: list[tuple[str, list[int]]]


_TURNS = {
    code: f"[U+{code:04X}]"
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t\r"
}
"""Characters that turn the direction of what follows, or that no font shows: text could pretend to be another."""


def visible(value: Any) -> Any:
    """Text with its invisible turns shown; what the templates made is as it is."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return value.translate(_TURNS)


def make_environment(folder: Path) -> Environment:
    """Renders the templates of a folder: what they did not make themselves is escaped, and its invisible turns are shown."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible,
    )


def page(document: dict[str, Any]) -> str:
    """The page of a report's document."""
    environment = make_environment(Path(__file__).parent)
    environment.filters.update(
        cost=cost,
        amount=amount,
        count=whole_number,
        percent=lambda value: "" if value is None else f"{value:.1%}",
        span=duration,
        moment=_moment,
        word=word,
    )
    style, _, _ = environment.loader.get_source(environment, "report.css.j2")  # type: ignore[union-attr]
    status = BatchStatus.model_validate(document["status"])
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return environment.get_template("report.html.j2").render(
        **document,
        style=style,
        # Nothing but this style applies, whatever a source or an answer brings along.
        policy=f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        endings=_endings(document["status"]),
        final=status.final,
        throughput_plot=_throughput(document),
        score_plots=[plot for name in ("grounding", "decided") if (plot := _scores(name, document["scores"]))],
        spent=spent_of(status),
    )


# ---- plots -----------------------------------------------------------------------------------------------------------


def _endings(status: dict[str, Any]) -> list[tuple[str, int]]:
    counts = {**status["states"], **status["outcomes"]}
    counts.pop(JobState.COMPLETED.value, None)
    order = [ending.value for ending in ENDINGS]
    return sorted(counts.items(), key=lambda item: [*order, item[0]].index(item[0]))


def _throughput(document: dict[str, Any]) -> Columns | None:
    rows = document["throughput"]
    if not rows:
        return None
    began, ended = document["began"], document["ended"]
    step = (ended - began) / BUCKETS
    kinds = [ending.value for ending in ENDINGS if any(row["ending"] == ending.value for row in rows)]
    counts = [[0] * len(kinds) for _ in range(BUCKETS)]
    for row in rows:
        counts[min(max(row["bucket"], 1), BUCKETS) - 1][kinds.index(row["ending"])] += row["jobs"]
    stamp = "%H:%M:%S" if ended - began < timedelta(hours=1) else "%H:%M"
    times = [(began + step * place).astimezone().strftime(stamp) for place in range(BUCKETS + 1)]
    title = f"Jobs that ended in each {duration(step.total_seconds())}"
    return _columns(title, times, counts, kinds, [times[0], times[BUCKETS // 2], times[-1]])


def _scores(name: str, rows: list[dict[str, Any]]) -> Columns | None:
    bins = {row["bin"]: row["jobs"] for row in rows if row["name"] == name}
    if not bins:
        return None
    labels = [f"{place / BINS:.2f}" for place in range(BINS + 1)]
    counts = [[bins.get(place + 1, 0)] for place in range(BINS)]
    titles = {
        "grounding": "Answers by grounding: the share of claims that the sources support",
        "decided": "Answers by what is decided: the share of claims that words, a model or a judge could tell",
    }
    return _columns(titles[name], labels, counts, [name], ["0", "0.5", "1"])


def _columns(title: str, labels: list[str], counts: list[list[int]], kinds: list[str], marks: list[str]) -> Columns:
    top = max(map(sum, counts)) or 1
    width = WIDTH / len(counts)
    bars = []
    for place, column in enumerate(counts):
        height = 0.0
        for kind, count in zip(kinds, column, strict=True):
            if count:
                part = HEIGHT * count / top
                height += part
                bars.append(Bar(place * width, HEIGHT - height, width * (1 - GAP), part, kind))
    rows = [(label, column) for label, column in zip(labels, counts, strict=False) if any(column)]
    return Columns(title, bars, top, marks, kinds, rows)


# ---- text ------------------------------------------------------------------------------------------------------------


def _moment(at: datetime | str | None) -> str:
    if at is None:
        return "-"
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def word(name: Any) -> str:
    """A name of the program as words."""
    return str(getattr(name, "value", name)).replace("_", " ")
