"""Shows batches as tables."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from schemas.batch import BatchStatus
from worker.cli.progress import counts_of
from worker.cli.render.console import console
from worker.cli.summary import held_lines, money
from worker.ledger.fleet import LaneNotice
from worker.limits.remedies import event, remedy


def moment(at: datetime | None) -> str:
    """A time for people, in local time."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S") if at else ""


def show_batches(batches: Sequence[BatchStatus], lanes: Sequence[LaneNotice] = (), *, workers: int) -> None:
    """A line a batch, and one for each lane without calls."""
    table = Table(box=None, pad_edge=False)
    for heading in ("batch", "name", "created", "final", "jobs", "cost"):
        table.add_column(
            heading,
            justify="right" if heading == "final" else "left",
            overflow="fold",
            # An id that is cut in two can't be copied.
            no_wrap=heading in {"batch", "created", "final"},
        )
    for status in batches:
        table.add_row(
            str(status.batch_id),
            Text(status.name or ""),
            moment(status.created_at),
            f"{status.final} of {status.jobs}",
            counts_of(status),
            money(status),
        )
    out = console()
    if batches:
        out.print(table)
    else:
        out.print("no batches yet")
    for lane in lanes:
        out.print(f"{event(lane)}. To mend it: {remedy(lane)}", markup=False)
    out.print(f"{workers} workers of this home run" if workers else "no worker of this home runs")


def show_batch(status: BatchStatus, lanes: Sequence[LaneNotice] = ()) -> None:
    """All that is known of one batch."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for label, value in _facts(status).items():
        table.add_row(label, Text(value))
    out = console()
    out.print(table)
    for line in held_lines(status, lanes):
        out.print(line, markup=False)
    for lane in lanes:
        if not lane.paused and status.final < status.jobs:
            out.print(f"{event(lane)}. To mend it: {remedy(lane)}", markup=False)


def _facts(status: BatchStatus) -> dict[str, str]:
    facts = {
        "batch": str(status.batch_id),
        "name": status.name or "",
        "key": status.key or "",
        "tenant": status.tenant,
        "created": moment(status.created_at),
        "not before": moment(status.not_before),
        "deadline": moment(status.deadline),
        "cancelled": moment(status.cancelled_at),
        "paused": "yes" if status.paused else "",
        "final": f"{status.final} of {status.jobs}",
        "states": _counted(status.states),
        "outcomes": _counted(status.outcomes),
        "held": _counted(status.held),
        "cost": money(status),
        "unpublished": str(status.unpublished),
        "possibly billed twice": str(status.possibly_billed_twice),
    }
    return {label: value for label, value in facts.items() if value}


def _counted(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
