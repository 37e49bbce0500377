"""``nightdesk status``: the state of a batch, or a line for each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from rich.console import Console
from rich.text import Text

from schemas.batch import BatchStatus
from schemas.window import parse_window
from worker.cli import options
from worker.cli.console import console, facts_of, moment, safe, write_text
from worker.cli.exits import OK
from worker.cli.help import argument, option
from worker.cli.progress import all_wait, counts_of, window_text
from worker.cli.session import queues_of, session
from worker.cli.summary import error_counts, money, named_counts, notice_lines
from worker.cli.terminal import tell, write_json
from worker.ledger.postgres import PostgresLedger
from worker.operations.counts import count_of
from worker.operations.overview import Overview, batch_overview, overview, status_document, unserved_line
from worker.settings import Settings, load_settings
from worker.supervise.workers import WorkerProcess

_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Seconds of each unit, the largest first."""


def status(
    batch: Annotated[
        UUID | None, argument("A batch's id; default: the newest.", "[BATCH]", parser=options.batch_id)
    ] = None,
    limit: Annotated[int, option("How many batches to list.", min=1, max=1000)] = 20,
    as_json: options.Json = False,
) -> int:
    """Show the state of a batch: jobs by state and outcome, what is held and why, cost. Without BATCH, list the newest."""

    async def read(ledger: PostgresLedger) -> Overview:
        if batch is not None:
            return await batch_overview(ledger, batch)
        return await overview(ledger, newest=limit + 1)

    settings = load_settings()
    with session(settings, writes=False) as opened:
        page = opened.on_ledger(read)
        workers = opened.supervisor.running()
        orphans = [] if opened.state.has_user_of_workers else [each for each in workers.values() if each.ephemeral]
    present = replace(page, batches=page.batches[:limit])
    if as_json:
        now = datetime.now(UTC)
        documents = [{"state": state_of(each, now), **status_document(each, present.lanes)} for each in present.batches]
        # One alone is the document of the contract.
        write_json(status_document(present.batches[0], present.lanes) if batch else documents)
        return OK
    if batch is None:
        _show_batches(present, workers)
        if len(page.batches) > limit:
            tell("there are older ones: --limit shows more")
    else:
        _show_batch(present.batches[0], present, workers)
    if orphans:
        words = count_of(len(orphans), "worker, which goes on", "workers, which go on")
        tell(f"a command that was killed left {words}: 'nightdesk down' ends {'it' if len(orphans) == 1 else 'them'}")
    _show_lost_answers(settings)
    return OK


def state_of(status: BatchStatus, now: datetime) -> str:
    """The state of a batch in a word."""
    remaining = status.jobs - status.final
    words = {
        "erased": status.erased_at is not None,
        # Jobs that run again after it make the batch an active one.
        "cancelled": status.cancelled_at is not None and (status.cancelling or not remaining),
        "final": not remaining,
        "paused": status.paused,
        "held": remaining == sum(status.held.values()),
        "waiting": (status.not_before is not None and status.not_before > now)
        or (status.window is not None and all_wait(status) and parse_window(status.window).opening(now) > now),
    }
    return next((word for word, holds in words.items() if holds), "active")


def age_of(status: BatchStatus, now: datetime) -> str:
    """The age of a batch in its largest unit: ``3 h``."""
    seconds = max(0, int((now - status.created_at).total_seconds()))
    return next((f"{seconds // size} {unit}" for size, unit in _AGES if seconds >= size), f"{seconds} s")


def _show_lost_answers(settings: Settings) -> None:
    """A line for each file of paid answers whose jobs PostgreSQL lost."""
    if not any(settings.home.expanduser().glob("spool/*/*.lost")):
        return
    from worker.process.spool import batches_of, lost_answers  # noqa: PLC0415 - there are hardly ever any

    for path, rows in lost_answers(settings.home).items():
        batches = ", ".join(batches_of(rows))
        write_text(
            console(), f"PostgreSQL lost the jobs of {len(rows):,} paid answers (batches {batches}); they are in {path}"
        )


def _show_batches(present: Overview, workers: Mapping[str, WorkerProcess]) -> None:
    """The batches, and a line for each lane without calls."""
    out = console()
    show(out, present.batches)
    for lane in present.lanes:
        write_text(out, f"{lane.event}. To fix it: {lane.remedy}")
    if present.unserved:
        write_text(out, unserved_line(present.unserved, queues_of(workers)))
    out.print(_staff(len(workers), len(present.workers)))


def show(out: Console, batches: Sequence[BatchStatus]) -> None:
    """Two lines a batch: an id that is cut in two can't be copied, and a narrow terminal has no room for a table."""
    now = datetime.now(UTC)
    if not batches:
        out.print("no batches yet")
    for each in batches:
        out.print(Text(f"{each.batch_id}  {state_of(each, now):<9}  {age_of(each, now)}"))
        name = f"{each.name}: " if each.name else ""
        out.print(safe(f"  {name}{each.final:,} of {each.jobs:,} final, {counts_of(each)}; cost {money(each)}"))


def _staff(own: int, present: int) -> str:
    """The workers of this home, and those beyond them that reach the same ledger by its URL."""
    here = (
        count_of(own, "worker of this home runs", "workers of this home run") if own else "no worker of this home runs"
    )
    return f"{here}; {present - own:,} elsewhere with the same ledger" if present > own else here


def _show_batch(status: BatchStatus, present: Overview, workers: Mapping[str, WorkerProcess]) -> None:
    """Everything on one batch."""
    out = console()
    out.print(facts_of(_facts(status)))
    for notice in present.remote:
        write_text(out, notice.event)
    for line in notice_lines(present, queues_of(workers)):
        write_text(out, line)


def _callback_text(status: BatchStatus) -> str:
    callback = status.callback
    if callback is None:
        return ""
    if callback.state == "waiting" and not callback.tries and callback.last_error is None:
        return f"to {callback.url} when all jobs are final"
    text = f"{callback.state.replace('_', ' ')}, {count_of(callback.tries, 'try', 'tries')} at {callback.url}"
    text += f"; {callback.last_error}" if callback.last_error else ""
    return text + (f"; next try {moment(callback.next_at)}" if callback.next_at else "")


def _facts(status: BatchStatus) -> dict[str, str]:
    return {
        "batch": str(status.batch_id),
        "name": status.name or "",
        "key": status.key or "",
        "tenant": status.tenant,
        "created": moment(status.created_at),
        "not before": moment(status.not_before),
        "window": window_text(status),
        "deadline": moment(status.deadline),
        "cancelled": moment(status.cancelled_at),
        "paused": "yes" if status.paused else "",
        "final": f"{status.final:,} of {status.jobs:,}",
        "states": named_counts(status.states),
        "outcomes": named_counts(status.outcomes),
        "held": named_counts(status.held),
        "not valid": count_of(status.refused_lines, "line") if status.refused_lines else "",
        "wrong facts": error_counts(status.errors or {}),
        "left a provider batch": f"{count_of(status.spilled, 'job')}, for the deadline" if status.spilled else "",
        "cost": money(status),
        "callback": _callback_text(status),
        "unpublished": str(status.unpublished or ""),
        "possibly billed twice": str(status.possibly_billed_twice or ""),
    }
