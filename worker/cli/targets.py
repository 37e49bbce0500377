"""Finds batches by the names that people gave them, and the jobs that a command line names."""

from uuid import UUID

from tasks.errors import NotFound
from worker.cli.session import on_ledger
from worker.ledger.postgres import PostgresLedger


def batches_of_name(name: str) -> list[UUID]:
    """The newest few batches with a name; none without a ledger."""
    try:
        return on_ledger(lambda ledger: ledger.browsing.of_name(name))
    except NotFound:
        return []


async def job_of(ledger: PostgresLedger, first: UUID, name: str) -> UUID | None:
    """The job that ``options.job_target`` read, or None where it is a batch; raises ``NotFound`` when it is neither."""
    if name:
        return await ledger.reading.locate(first, name)
    if await ledger.reading.views([first]):
        return first
    try:
        await ledger.reading.batch_status(first)
    except NotFound:
        raise NotFound(
            f"{first} is neither a batch nor a job of this ledger; 'nightdesk status' lists batches"
        ) from None
    return None
