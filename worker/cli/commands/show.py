"""``nightdesk show``: everything known of one job."""

from typing import Annotated
from uuid import UUID

import typer

from tasks.errors import InputError
from tasks.ports import JobDetail
from worker.cli import options
from worker.cli.audit import audit_of, to_json
from worker.cli.interrupts import run_interruptible
from worker.cli.output import write_json
from worker.cli.render.job import show_job
from worker.cli.session import Session, session
from worker.cli.styling import Format, Style, Styling, WithConfidence, WithSources
from worker.settings import load_settings


def command(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="A job's id, or BATCH:CUSTOM_ID, or BATCH:POSITION (from 0).")
    ],
    *,
    citation_style: Style = None,
    output_format: Format = None,
    with_sources: WithSources = False,
    with_confidence: WithConfidence = False,
    as_json: options.Json = False,
) -> int:
    """Show everything known of a job: the answer with its claims and evidence, every attempt, the messages sent.

    The answer is rendered anew when a style, a format or a closing line is asked for; the records stay as they are.
    """
    styling = Styling(citation_style, output_format, with_sources, with_confidence)
    first, _, name = job.partition(":")
    try:
        first_id = UUID(first)
    except ValueError:
        raise InputError(f"{first!r} is no id; give a job's id, BATCH:CUSTOM_ID or BATCH:POSITION") from None
    with session(load_settings(), writes=False) as desk:
        detail = run_interruptible(_read(desk, first_id, name))
    audit = audit_of(detail, styling.result(detail.view))
    if as_json:
        write_json(to_json(audit))
    else:
        show_job(audit)
    return 0


async def _read(desk: Session, first: UUID, name: str) -> JobDetail:
    async with desk.ledger() as ledger:
        return await ledger.reading.job_detail(await ledger.reading.locate(first, name) if name else first)
