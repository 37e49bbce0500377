"""``nightdesk open``: the page of a batch or a job, in a browser."""

import sys
import webbrowser
from typing import Annotated
from uuid import UUID

import typer

from tasks.errors import NotFound, ServiceUnavailable
from worker.cli import options
from worker.cli.exits import OK
from worker.cli.session import on_ledger
from worker.cli.terminal import tell, write_line
from worker.ledger.postgres import PostgresLedger
from worker.operations.audit import job_of
from worker.settings import load_settings
from worker.supervise.service_address import batch_address, job_address


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

    async def find(ledger: PostgresLedger) -> tuple[UUID, UUID | None]:
        if place is not None:
            return place[0], await job_of(ledger, *place)
        newest = await ledger.reading.batches(1)
        if not newest:
            raise NotFound("there is no batch in this ledger yet")
        return newest[0].batch_id, None

    batch_id, job_id = on_ledger(find, settings)
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
