"""Answers the state of jobs by id, from the ledger."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from celery import shared_task

from schemas.record import JobResult
from tasks.errors import InputError
from tasks.ports import Reading, wired
from tasks.results import result_of

MOST_IDS = 1_000
"""Ids a call may ask for at once."""


def parse_job_ids(raw: Sequence[Any]) -> list[UUID]:
    """Reads job ids; raises ``InputError`` naming the one that is not a UUID."""
    if len(raw) > MOST_IDS:
        raise InputError(f"{len(raw)} ids asked for, at most {MOST_IDS} at once", field="job_ids")
    ids = []
    for index, value in enumerate(raw):
        try:
            ids.append(UUID(str(value)))
        except ValueError:
            raise InputError(f"{value!r} is not a job id", field=f"job_ids.{index}") from None
    return ids


async def poll(reading: Reading, ids: Sequence[UUID]) -> list[JobResult | None]:
    """The jobs' results as they stand now, in the order asked; None for an id that names no job."""
    views = {view.job_id: view for view in await reading.views(ids)}
    return [result_of(views[job_id]) if job_id in views else None for job_id in ids]


@shared_task(name="nightdesk.poll", ignore_result=False)
def poll_task(job_ids: Any) -> list[dict[str, Any] | None]:
    """Answers a producer that reaches only Redis."""
    return wired().poll(job_ids if isinstance(job_ids, list) else [job_ids])
