"""The routes of orders to what is accepted already: pause and resume a batch, run jobs again."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel

from schemas.failure import FailureKind
from schemas.states import FINAL_STATES, HeldReason
from worker.http.dependencies import ServiceOf, Submitter
from worker.http.documents import Paused, Resumed, Retried, problems
from worker.http.problems import Problem
from worker.operations import job_changes
from worker.operations.operator import JobPages

router = APIRouter(prefix="/v1", tags=["orders"])

_GOING_ON = "going on"


@router.post(
    "/batches/{batch_id}/pause",
    response_model=Paused,
    responses={202: {"model": Paused, "description": _GOING_ON}, **problems(404)},
)
async def pause(batch_id: UUID, service: ServiceOf, caller: Submitter) -> Response:
    """Begin no further call of a batch until it is resumed. Calls under way end, and their answers are kept."""
    await service.ledger.tenancy.require_batch(batch_id, caller.tenant)
    count = await service.operate(caller, lambda operator: job_changes.pause(operator, batch_id, JobPages()))
    return _answer(Paused(paused=count), going_on=count is None)


@router.post(
    "/batches/{batch_id}/resume",
    response_model=Resumed,
    responses={202: {"model": Resumed, "description": _GOING_ON}, **problems(404)},
)
async def resume(batch_id: UUID, service: ServiceOf, caller: Submitter) -> Response:
    """Let a paused batch go on. Its deadline has not moved meanwhile."""
    await service.ledger.tenancy.require_batch(batch_id, caller.tenant)
    reasons = [HeldReason.BATCH_PAUSED]
    count = await service.operate(
        caller, lambda operator: job_changes.release(operator, batch_id, JobPages(), reasons=reasons)
    )
    return _answer(Resumed(resumed=count), going_on=count is None)


@router.post(
    "/batches/{batch_id}/retry",
    response_model=Retried,
    responses={202: {"model": Retried, "description": _GOING_ON}, **problems(404)},
)
async def retry_batch(
    batch_id: UUID,
    service: ServiceOf,
    caller: Submitter,
    cause: Annotated[list[FailureKind] | None, Query(description="only jobs that ended for one of these")] = None,
) -> Response:
    """Start a new run of each job of a batch that failed, expired or was cancelled. Its calls are paid."""
    await service.ledger.tenancy.require_batch(batch_id, caller.tenant)
    causes = cause or []
    ids = await service.operate(
        caller, lambda operator: job_changes.retry(operator, [batch_id], JobPages(), causes=causes)
    )
    return _answer(Retried(retried=None if ids is None else len(ids)), going_on=ids is None)


@router.post(
    "/jobs/{job_id}/retry",
    response_model=Retried,
    responses={202: {"model": Retried, "description": _GOING_ON}, **problems(404, 409)},
)
async def retry_job(job_id: UUID, service: ServiceOf, caller: Submitter) -> Response:
    """Start a new run of a final job, from its question on. Its calls are paid."""
    version = await service.ledger.tenancy.job(job_id, caller.tenant)
    if version.state not in FINAL_STATES:
        raise _not_retryable("the job is not final yet: cancel it first, or wait for its end")
    pages = JobPages()
    ids = await service.operate(caller, lambda operator: job_changes.retry(operator, [job_id], pages))
    if reason := pages.refused.get(job_id):
        raise _not_retryable(reason)
    return _answer(Retried(retried=None if ids is None else len(ids)), going_on=ids is None)


def _not_retryable(reason: str) -> Problem:
    return Problem(409, "not-retryable", "It can't run again", reason)


def _answer(document: BaseModel, *, going_on: bool) -> Response:
    return Response(document.model_dump_json(), 202 if going_on else 200, media_type="application/json")
