"""``nightdesk cancel``: ends what is not final yet."""

from typing import Annotated
from uuid import UUID

import typer

from tasks.errors import InputError, NotFound
from worker.cli import options
from worker.cli.actor import actor
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.interrupts import run_interruptible
from worker.cli.messages import tell
from worker.cli.output import write_json
from worker.cli.paging import Paging, paging
from worker.cli.progress import progress
from worker.cli.session import Session, session
from worker.settings import load_settings


def command(
    batch_or_job: Annotated[str, typer.Argument(metavar="BATCH|JOB", help="The id of a batch or of a job.")],
    as_json: options.Json = False,
) -> int:
    """Cancel a job, or all jobs of a batch that are not final. What a running call costs is still recorded.

    A batch is cancelled in pages; from the first moment on none of its jobs is called. Ended midway, the same command cancels
    the rest.
    """
    try:
        chosen = UUID(batch_or_job)
    except ValueError:
        raise InputError(f"{batch_or_job!r} is neither a batch id nor a job id") from None
    again = f"'nightdesk cancel {chosen}' cancels the rest; none of them is called any more"
    with (
        session(load_settings(), writes=False) as desk,
        progress(quiet=False) as shown,
        paging("cancelled", shown, again=again) as course,
    ):
        cancelled = run_interruptible(_cancel(desk, chosen, course))
    if as_json:
        refused = {str(job_id): why for job_id, why in course.refused.items()}
        write_json({"cancelled": [str(job_id) for job_id in cancelled], "refused": refused})
    else:
        tell(f"{len(cancelled)} jobs cancelled")
    return INCOMPLETE if course.refused else OK


async def _cancel(desk: Session, chosen: UUID, course: Paging) -> list[UUID]:
    async with desk.ledger() as ledger:
        if await ledger.reading.views([chosen]):
            return await ledger.actions.cancel([chosen], actor(), course.add)
        try:
            status = await ledger.reading.batch_status(chosen)
        except NotFound:
            raise NotFound(f"no batch or job {chosen}") from None
        course.total = status.jobs - status.final
        return await ledger.actions.cancel_batch(chosen, actor(), course.add)
