"""``nightdesk retry``: a new run of jobs that are final."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from schemas.states import FINAL_STATES, JobState
from tasks.errors import BrokerUnavailable, InputError, NotFound
from tasks.poll import job_ids
from tasks.ports import JobView
from worker.cli import options
from worker.cli.actor import actor
from worker.cli.interrupts import run_interruptible
from worker.cli.messages import tell, warn
from worker.cli.output import write_json
from worker.cli.session import Session, session
from worker.doorbell import ring
from worker.settings import load_settings

AT_ONCE = 500
"""Jobs retried in one statement."""


def command(
    batch_or_jobs: Annotated[list[str], typer.Argument(metavar="BATCH|JOB", help="A batch's id, or ids of jobs.")],
    as_json: options.Json = False,
) -> int:
    """Run final jobs again: the jobs named, or those of a batch that failed, were cancelled or expired."""
    ids = job_ids(batch_or_jobs)
    with session(load_settings(), writes=False) as desk:
        again = run_interruptible(_retry(desk, ids))
    if as_json:
        write_json({"retried": [str(job_id) for job_id in again]})
    else:
        tell(f"{len(again)} jobs start a new run")
    return 0


async def _retry(desk: Session, ids: list[UUID]) -> list[UUID]:
    async with desk.ledger() as ledger:
        found = await ledger.views(ids)
        if len(found) == len(ids):
            _refuse_erased(found)
            chosen = ids
        elif len(ids) == 1:
            await ledger.batch_status(ids[0])
            chosen = [
                view.job_id
                async for view in ledger.batch_views(ids[0])
                if view.state in FINAL_STATES - {JobState.COMPLETED} and view.erased_at is None
            ]
        else:
            missing = set(ids) - {view.job_id for view in found}
            raise NotFound(f"no job {', '.join(map(str, sorted(missing)))}")
        again: list[UUID] = []
        for at in range(0, len(chosen), AT_ONCE):
            again += await ledger.retry(chosen[at : at + AT_ONCE], actor())
    try:
        async with ring(desk.settings, desk.where.redis_url) as doorbell:
            await doorbell.forget(again)
    except BrokerUnavailable as error:
        warn(f"{error}; until the new run ends the result backend may still answer with the old one")
    return again


def _refuse_erased(found: Sequence[JobView]) -> None:
    for view in found:
        if view.erased_at is not None:
            raise InputError(
                f"job {view.job_id} was erased on {view.erased_at:%Y-%m-%d %H:%M} UTC: nothing is left to run; "
                "submit its question anew"
            )
