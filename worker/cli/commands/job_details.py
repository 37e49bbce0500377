"""``nightdesk show`` and ``open``: everything known of one job, and the page of a batch or a job in a browser."""

import sys
import webbrowser
from typing import Annotated
from uuid import UUID

from tasks.errors import NotFound, ServiceUnavailable
from worker.cli import options
from worker.cli.exits import OK
from worker.cli.help import argument, option
from worker.cli.job_view import show_job
from worker.cli.session import on_ledger
from worker.cli.styling import CitationStyleOption, Format, Styling, WithConfidence, WithSources
from worker.cli.terminal import tell, write_json, write_line
from worker.ledger.postgres import PostgresLedger
from worker.operations.audit import audit_of, find_job, job_of, to_json
from worker.settings import load_settings
from worker.supervise.service_address import batch_address, job_address


def show(
    job: options.JobTarget,
    *,
    citation_style: CitationStyleOption = None,
    output_format: Format = None,
    with_sources: WithSources = False,
    with_confidence: WithConfidence = False,
    as_json: options.Json = False,
) -> int:
    """Show everything known of a job: the answer with its claims and evidence, every attempt, the messages sent.

    The answer is rendered again when a style, a format or a closing line is asked for; the records stay as they are.
    """
    styling = Styling(citation_style, output_format, with_sources, with_confidence)
    first_id, name = options.job_target(job, "a job's id")
    detail = on_ledger(lambda ledger: find_job(ledger, first_id, name))
    audit = audit_of(detail, styling.result(detail.view))
    if as_json:
        write_json(to_json(audit))
    else:
        show_job(audit)
    return OK


def open_(
    target: Annotated[
        str | None,
        argument(
            "A batch's id or name, a job's id, BATCH:CUSTOM_ID or BATCH:lineN; default: the newest batch.",
            "[BATCH|JOB]",
        ),
    ] = None,
    browser: Annotated[bool, option("Open a browser; --no-browser only writes the address.")] = True,
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
