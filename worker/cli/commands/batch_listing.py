"""``nightdesk list`` and ``open``: the batches of a ledger page by page, and the page of one in a browser."""

import sys
import webbrowser
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer
from rich.table import Table
from rich.text import Text

from schemas.batch import BatchStatus
from schemas.states import JobState
from schemas.window import parse_window
from tasks.errors import NotFound, ServiceUnavailable
from worker.cli import options
from worker.cli.console import WIDE, console, safe, write_text
from worker.cli.exits import OK, run_interruptible
from worker.cli.progress import all_wait
from worker.cli.session import Session, session
from worker.cli.summary import money
from worker.cli.terminal import tell, write_json, write_line
from worker.ledger.postgres import PostgresLedger
from worker.operations.overview import status_document
from worker.settings import load_settings
from worker.supervise.service_address import batch_address, job_address

_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Seconds of each unit, the largest first."""


def list_(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many batches to list.")] = 20,
    before: Annotated[
        str | None, typer.Option(metavar="BATCH", help="The next page: those older than this batch.")
    ] = None,
    as_json: options.Json = False,
) -> int:
    """List the batches of this ledger, newest first: state, jobs, cost, age, name. 'status' says more of the newest."""
    last = None if before is None else options.batch_id(before)

    async def read(opened: Session) -> list[BatchStatus]:
        async with opened.ledger() as ledger:
            if last is not None:
                await ledger.reading.batch_status(last)
            return await ledger.reading.batches(limit + 1, last)

    with session(load_settings(), writes=False) as opened:
        batches = run_interruptible(read(opened))
    page, more = batches[:limit], len(batches) > limit
    if as_json:
        now = datetime.now(UTC)
        write_json([{"state": state_of(each, now), **status_document(each, ())} for each in page])
    else:
        show(page)
        if more:
            tell(f"older ones: nightdesk list --before {page[-1].batch_id}")
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


def show(batches: list[BatchStatus]) -> None:
    """A line a batch, or two where the terminal is narrow."""
    out, now = console(), datetime.now(UTC)
    if not batches:
        out.print("no batches")
    elif out.width >= WIDE:
        table = Table(box=None, pad_edge=False)
        for heading in ("batch", "state", "jobs", "cost", "age", "name"):
            table.add_column(heading, no_wrap=heading != "name", overflow="fold")
        for each in batches:
            cells = (str(each.batch_id), state_of(each, now), _jobs(each), money(each), age_of(each, now))
            table.add_row(*cells, safe(each.name or ""))
        out.print(table)
    else:
        for each in batches:
            out.print(Text(f"{each.batch_id}  {state_of(each, now):<9}  {age_of(each, now)}"))
            name = f"; {each.name}" if each.name else ""
            write_text(out, f"  {_jobs(each)}; {money(each)}{name}")


def _jobs(status: BatchStatus) -> str:
    failed = status.states.get(JobState.FAILED, 0)
    return f"{status.final:,} of {status.jobs:,} final" + (f", {failed:,} failed" if failed else "")


def open_(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[BATCH|JOB]",
            help="A batch's id or name, a job's id, BATCH:CUSTOM_ID or BATCH:lineN; default: the newest batch.",
        ),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser; --no-browser only writes the address.")] = True,
) -> int:
    """Open the page of a batch or a job in a browser; 'nightdesk serve' serves it. Its address goes to standard output."""
    place = None if target is None else options.job_target(target, "a batch's or a job's id")
    settings = load_settings()

    async def find(opened: Session) -> tuple[UUID, UUID | None]:
        async with opened.ledger() as ledger:
            return await (_newest(ledger) if place is None else _page_of(ledger, *place))

    with session(settings, writes=False) as opened:
        batch_id, job_id = run_interruptible(find(opened))
    address = batch_address(settings.home, batch_id) if job_id is None else job_address(settings.home, job_id)
    if address is None:
        terminal = f"nightdesk status {batch_id}" if job_id is None else f"nightdesk show {job_id}"
        raise ServiceUnavailable(
            f"no service of this home runs, so there is no page to open; 'nightdesk serve' starts one. In the terminal: {terminal}"
        )
    write_line(address)
    if browser and sys.stdout.isatty() and not webbrowser.open(address):
        tell("no browser was found: open the address above")
    return OK


async def _newest(ledger: PostgresLedger) -> tuple[UUID, None]:
    newest = await ledger.reading.batches(1)
    if not newest:
        raise NotFound("there is no batch in this ledger yet")
    return newest[0].batch_id, None


async def _page_of(ledger: PostgresLedger, first_id: UUID, name: str) -> tuple[UUID, UUID | None]:
    """The id of a batch, and of a job unless the page is the batch's."""
    if name:
        return first_id, await ledger.reading.locate(first_id, name)
    if await ledger.reading.views([first_id]):
        return first_id, first_id
    try:
        await ledger.reading.batch_status(first_id)
    except NotFound:
        raise NotFound(
            f"{first_id} is neither a batch nor a job of this ledger; 'nightdesk list' lists batches"
        ) from None
    return first_id, None
