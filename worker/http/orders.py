"""The routes of orders to what is accepted already: cancel, pause and resume a batch, run jobs again; the viewer gives the same."""

from collections.abc import Sequence
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel

from schemas.failure import FailureKind
from schemas.states import FINAL_STATES, HeldReason
from worker.http.dependencies import OwnBatch, OwnJob, ServiceOf, Submitter
from worker.http.documents import Paused, Resumed, Retried, json_answer, problems
from worker.http.problems import Problem
from worker.http.service import Service
from worker.http.shares import Caller
from worker.ledger.tenancy import JobVersion
from worker.operations import job_changes
from worker.operations.operator import JobPages, Operator

router = APIRouter(prefix="/v1", tags=["orders"])

Word = Literal["cancel", "pause", "resume", "retry"]
"""What may be done to a batch."""


def going_on(model: type[BaseModel], *codes: int) -> dict[int | str, dict[str, object]]:
    """The answers to an order beside its success, for the OpenAPI document."""
    return {202: {"model": model, "description": "going on"}, **problems(404, *codes)}


async def order_batch(
    word: Word, service: Service, caller: Caller, batch_id: UUID, causes: Sequence[FailureKind] = ()
) -> int | None:
    """Cancels, pauses, resumes or retries a batch; returns the number of its jobs that this changed, None while it goes on."""

    async def order(operator: Operator) -> int:
        pages = JobPages()
        match word:
            case "cancel":
                return len(await job_changes.cancel(operator, batch_id, pages))
            case "pause":
                return await job_changes.pause(operator, batch_id, pages)
            case "resume":
                return await job_changes.release(operator, batch_id, pages, reasons=[HeldReason.BATCH_PAUSED])
            case "retry":
                return len(await job_changes.retry(operator, [batch_id], pages, causes=causes))

    return await service.operate(caller, order)


async def retry_job(service: Service, caller: Caller, version: JobVersion) -> int | None:
    """Starts a new run of a job; raises ``Problem`` where it can't have one."""
    if version.state not in FINAL_STATES:
        raise _not_retryable("the job is not final yet: cancel it first, or wait for its end")
    pages = JobPages()
    ids = await service.operate(caller, lambda operator: job_changes.retry(operator, [version.job_id], pages))
    if reason := pages.refused.get(version.job_id):
        raise _not_retryable(reason)
    return None if ids is None else len(ids)


def _not_retryable(reason: str) -> Problem:
    return Problem(409, "not-retryable", "It can't run again", reason)


def changed(document: BaseModel, count: int | None) -> Response:
    """The answer to an order; a ``count`` of None: it goes on."""
    return json_answer(document, 202 if count is None else 200)


@router.post("/batches/{batch_id}/pause", response_model=Paused, responses=going_on(Paused))
async def pause(service: ServiceOf, caller: Submitter, batch_id: OwnBatch) -> Response:
    """Begin no further call of a batch until it is resumed. Calls under way end, and their answers are kept."""
    count = await order_batch("pause", service, caller, batch_id)
    return changed(Paused(paused=count), count)


@router.post("/batches/{batch_id}/resume", response_model=Resumed, responses=going_on(Resumed))
async def resume(service: ServiceOf, caller: Submitter, batch_id: OwnBatch) -> Response:
    """Let a paused batch go on. Its deadline has not moved meanwhile."""
    count = await order_batch("resume", service, caller, batch_id)
    return changed(Resumed(resumed=count), count)


@router.post("/batches/{batch_id}/retry", response_model=Retried, responses=going_on(Retried))
async def retry_batch(
    service: ServiceOf,
    caller: Submitter,
    batch_id: OwnBatch,
    cause: Annotated[list[FailureKind] | None, Query(description="only jobs that ended for one of these")] = None,
) -> Response:
    """Start a new run of each job of a batch that failed, expired or was cancelled. Its calls are paid."""
    count = await order_batch("retry", service, caller, batch_id, cause or ())
    return changed(Retried(retried=count), count)


@router.post("/jobs/{job_id}/retry", response_model=Retried, responses=going_on(Retried, 409), name="retry_job")
async def retry(service: ServiceOf, caller: Submitter, job: OwnJob) -> Response:
    """Start a new run of a final job, from its question on. Its calls are paid."""
    count = await retry_job(service, caller, job)
    return changed(Retried(retried=count), count)
