"""``nightdesk cancel``: ends what is not final yet."""

from typing import Annotated
from uuid import UUID

import typer

from tasks.errors import InputError, NotFound
from worker.cli import options
from worker.cli.actor import actor
from worker.cli.interrupts import run_interruptible
from worker.cli.messages import tell
from worker.cli.output import write_json
from worker.cli.session import Session, session
from worker.settings import load_settings


def command(
    batch_or_job: Annotated[str, typer.Argument(metavar="BATCH|JOB", help="The id of a batch or of a job.")],
    as_json: options.Json = False,
) -> int:
    """Cancel a job, or all jobs of a batch that are not final. What a running call costs is still recorded."""
    try:
        chosen = UUID(batch_or_job)
    except ValueError:
        raise InputError(f"{batch_or_job!r} is neither a batch id nor a job id") from None
    with session(load_settings(), writes=False) as desk:
        cancelled = run_interruptible(_cancel(desk, chosen))
    if as_json:
        write_json({"cancelled": [str(job_id) for job_id in cancelled]})
    else:
        tell(f"{len(cancelled)} jobs cancelled")
    return 0


async def _cancel(desk: Session, chosen: UUID) -> list[UUID]:
    async with desk.ledger() as ledger:
        if await ledger.views([chosen]):
            return await ledger.cancel([chosen], actor())
        try:
            return await ledger.cancel_batch(chosen, actor())
        except NotFound:
            raise NotFound(f"no batch or job {chosen}") from None
