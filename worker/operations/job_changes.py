"""Cancels, releases, retries and rechecks jobs, in pages: one that ends midway is completed by the same call again."""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

from schemas.failure import FailureKind
from schemas.job import Recheck
from schemas.states import FINAL_STATES, HeldReason, JobState
from tasks.errors import InputError, NotFound
from tasks.ports import JobView
from worker.ledger.pages import paged
from worker.ledger.postgres import PostgresLedger
from worker.operations.audit import job_of
from worker.operations.operator import JobPages, Operator, published_results

_RETRIED = FINAL_STATES - {JobState.COMPLETED}
"""States in which the retry of a batch takes a job."""

_OLD_RESULT = "until the new run ends the result backend may still answer with the old one"


async def cancel(operator: Operator, job_or_batch: UUID, pages: JobPages) -> list[UUID]:
    """Cancels a job, or all jobs of a batch that are not final; returns the ids changed. Raises ``NotFound``."""
    ledger = operator.ledger
    if await job_of(ledger, job_or_batch) is not None:
        return await ledger.actions.cancel([job_or_batch], operator.name, pages.add)
    status = await ledger.reading.batch_status(job_or_batch)
    pages.total = status.jobs - status.final
    return await ledger.actions.cancel_batch(job_or_batch, operator.name, pages.add)


async def release(
    operator: Operator,
    batch_id: UUID,
    pages: JobPages,
    *,
    reasons: Sequence[HeldReason],
    max_cost_usd: Decimal | None = None,
) -> int:
    """Releases the jobs of a batch that are held for these reasons; returns how many are no longer held.

    Paused lanes go on with the jobs that are held for them in all batches. ``max_cost_usd`` is a new ceiling on the cost of the
    batch, and releases what the old one held. Raises ``InputError`` for one below what is spent.
    """
    ledger = operator.ledger
    before = await ledger.reading.batch_status(batch_id)
    pages.total = sum(count for reason, count in before.held.items() if reason in reasons)
    if max_cost_usd is not None:
        if before.spent_usd is not None and max_cost_usd < before.spent_usd:
            raise InputError(
                f"{max_cost_usd.normalize():f} is below what the calls of the batch cost already, {before.spent_usd.normalize():f} USD: "
                "none of its jobs could go on; nothing changed",
                field="--max-cost-usd",
            )
        await ledger.actions.set_budget(batch_id, max_cost_usd, operator.name, pages.add)
    for reason in reasons:
        if reason is HeldReason.BATCH_PAUSED and before.paused:
            await ledger.actions.pause_batch(batch_id, operator.name, paused=False, on_page=pages.add)
        else:
            # Nothing would let the jobs of other batches go on once no lane is paused.
            which = None if reason is HeldReason.LANE_PAUSED else batch_id
            await ledger.actions.release(which, reason, operator.name, pages.add)
    after = await ledger.reading.batch_status(batch_id)
    return sum(before.held.values()) - sum(after.held.values())


async def pause(operator: Operator, batch_id: UUID, pages: JobPages) -> int:
    """Holds the jobs of a batch that wait for a call; returns how many. Raises ``NotFound``."""
    status = await operator.ledger.reading.batch_status(batch_id)
    pages.total = status.jobs - status.final
    return await operator.ledger.actions.pause_batch(batch_id, operator.name, paused=True, on_page=pages.add)


async def retry(
    operator: Operator, ids: Sequence[UUID], pages: JobPages, *, causes: Collection[FailureKind] = ()
) -> list[UUID]:
    """Starts a new run of jobs, or of the jobs of one batch that did not complete; returns the ids changed.

    ``causes`` are those of the jobs of a batch to take; empty: all. Raises: NotFound, InputError for a job that is erased.
    """
    retried: list[UUID] = []
    async with published_results(operator, _OLD_RESULT) as results:
        async for page in _jobs_to_retry(operator, ids, pages, causes):
            changed = await operator.ledger.actions.retry(page, operator.name, pages.add)
            await results.delete(changed)
            retried += changed
    return retried


async def _jobs_to_retry(
    operator: Operator, ids: Sequence[UUID], pages: JobPages, causes: Collection[FailureKind]
) -> AsyncIterator[Sequence[UUID]]:
    views = await operator.ledger.reading.views(ids)
    if len(views) == len(ids):
        if causes:
            raise InputError("a cause selects jobs of a batch; give a batch's id", field="--cause")
        _require_content(views)
        pages.total = len(ids)
        for page in paged(ids):
            yield page
    elif len(ids) == 1:
        async for page in _jobs_of_batch_to_retry(operator.ledger, ids[0], pages, causes):
            yield page
    else:
        missing = set(ids) - {view.job_id for view in views}
        raise NotFound(f"no job {', '.join(map(str, sorted(missing)))}")


def _require_content(views: Iterable[JobView]) -> None:
    for view in views:
        if view.erased_at is not None:
            raise InputError(
                f"job {view.job_id} was erased on {view.erased_at:%Y-%m-%d %H:%M} UTC: nothing is left to run; "
                "submit its question again"
            )


async def _jobs_of_batch_to_retry(
    ledger: PostgresLedger, batch_id: UUID, pages: JobPages, causes: Collection[FailureKind]
) -> AsyncIterator[Sequence[UUID]]:
    status = await ledger.reading.batch_status(batch_id)
    pages.total = sum(status.states.get(state, 0) for state in _RETRIED)
    async for jobs in ledger.erasure.job_pages(batch_id, timedelta(0)):
        page = [job.job_id for job in jobs if job.state in _RETRIED and not job.erased]
        if page and causes:
            page = await ledger.figures.with_cause(page, causes)
        if page:
            yield page


async def recheck(operator: Operator, ids: Sequence[UUID], change: Recheck, pages: JobPages) -> list[UUID]:
    """Starts new runs at the check of those jobs that have an answer; returns their ids."""
    pages.total = len(ids)
    rechecked: list[UUID] = []
    async with published_results(operator, _OLD_RESULT) as results:
        for page in paged(ids):
            changed = await operator.ledger.actions.recheck(page, change, operator.name, pages.add)
            await results.delete(changed)
            rechecked += changed
    return rechecked
