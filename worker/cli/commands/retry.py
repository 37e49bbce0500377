"""``nightdesk retry``: a new run of jobs that are final."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Annotated
from uuid import UUID

import typer

from schemas.states import FINAL_STATES, JobState
from tasks.errors import InputError, NotFound
from tasks.poll import job_ids
from tasks.ports import JobView
from worker.cli import options
from worker.cli.actor import actor
from worker.cli.exits import INCOMPLETE, OK
from worker.cli.interrupts import run_interruptible
from worker.cli.messages import tell
from worker.cli.old_results import old_results
from worker.cli.output import write_json
from worker.cli.paging import Paging, paging
from worker.cli.progress import progress
from worker.cli.session import Session, session
from worker.ledger.pages import paged
from worker.ledger.postgres import PostgresLedger
from worker.settings import load_settings

_AGAIN = FINAL_STATES - {JobState.COMPLETED}

MOST_SHOWN = 3
"""Ids that a message repeats."""


def command(
    batch_or_jobs: Annotated[list[str], typer.Argument(metavar="BATCH|JOB", help="A batch's id, or ids of jobs.")],
    as_json: options.Json = False,
) -> int:
    """Run final jobs again: the jobs named, or those of a batch that failed, were cancelled or expired.

    Goes through them in pages; ended midway, the same command takes the rest.
    """
    ids = job_ids(batch_or_jobs)
    again = f"'nightdesk retry {' '.join(map(str, ids[:MOST_SHOWN]))}{' ...' if len(ids) > MOST_SHOWN else ''}' takes the rest"
    with (
        session(load_settings(), writes=False) as desk,
        progress(quiet=False) as shown,
        paging("retried", shown, again=again) as course,
    ):
        retried = run_interruptible(_retry(desk, ids, course))
    if as_json:
        refused = {str(job_id): why for job_id, why in course.refused.items()}
        write_json({"retried": [str(job_id) for job_id in retried], "refused": refused})
    else:
        tell(f"{len(retried)} jobs start a new run")
    return INCOMPLETE if course.refused else OK


async def _retry(desk: Session, ids: list[UUID], course: Paging) -> list[UUID]:
    retried: list[UUID] = []
    async with desk.ledger() as ledger, old_results(desk) as old:
        async for page in _chosen(ledger, ids, course):
            again = await ledger.actions.retry(page, actor(), course.add)
            await old.delete(again)
            retried += again
    return retried


async def _chosen(ledger: PostgresLedger, ids: list[UUID], course: Paging) -> AsyncIterator[Sequence[UUID]]:
    """The jobs to retry, page by page: those named, or those of a batch that did not complete; raises ``NotFound``."""
    found = await ledger.reading.views(ids)
    if len(found) == len(ids):
        _refuse_erased(found)
        course.total = len(ids)
        for page in paged(ids):
            yield page
    elif len(ids) == 1:
        status = await ledger.reading.batch_status(ids[0])
        course.total = sum(status.states.get(state, 0) for state in _AGAIN)
        async for jobs in ledger.erasure.kept_jobs(ids[0], timedelta(0)):
            if page := [job.job_id for job in jobs if job.state in _AGAIN and not job.erased]:
                yield page
    else:
        missing = set(ids) - {view.job_id for view in found}
        raise NotFound(f"no job {', '.join(map(str, sorted(missing)))}")


def _refuse_erased(found: Sequence[JobView]) -> None:
    for view in found:
        if view.erased_at is not None:
            raise InputError(
                f"job {view.job_id} was erased on {view.erased_at:%Y-%m-%d %H:%M} UTC: nothing is left to run; "
                "submit its question anew"
            )
