"""The forms that cancel jobs or give them a new run, and those that pause a batch."""

from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from schemas.failure import FailureKind
from schemas.states import FINAL_STATES, HeldReason
from tasks.errors import InputError
from worker.http.dependencies import ServiceOf
from worker.http.pages.visitors import Form, Order, PageRoute
from worker.http.problems import Problem, invalid
from worker.operations import job_changes
from worker.operations.operator import JobPages

router = APIRouter(route_class=PageRoute)


@router.post("/jobs/{job_id}/cancel")
async def cancel_job(job_id: UUID, service: ServiceOf, order: Order) -> Response:
    """Cancels a job that is not final, and leads back to it."""
    visitor, _ = order
    await service.ledger.tenancy.job(job_id, visitor.caller.tenant)
    await service.operate(visitor.caller, lambda operator: job_changes.cancel(operator, job_id, JobPages()))
    return RedirectResponse(f"/view/jobs/{job_id}", 303)


@router.post("/jobs/{job_id}/retry")
async def retry_job(job_id: UUID, service: ServiceOf, order: Order) -> Response:
    """Starts a new run of a final job, and leads back to it."""
    visitor, _ = order
    version = await service.ledger.tenancy.job(job_id, visitor.caller.tenant)
    if version.state not in FINAL_STATES:
        raise InputError("the job is not final yet: cancel it first, or wait for its end")
    pages = JobPages()
    await service.operate(visitor.caller, lambda operator: job_changes.retry(operator, [job_id], pages))
    if reason := pages.refused.get(job_id):
        raise Problem(409, "not-retryable", "It can't run again", reason)
    return RedirectResponse(f"/view/jobs/{job_id}", 303)


@router.post("/batches/{batch_id}/cancel")
async def cancel_batch(batch_id: UUID, service: ServiceOf, order: Order) -> Response:
    """Cancels what is not final in a batch, and leads back to it; a large one goes on after the answer."""
    visitor, _ = order
    await service.ledger.tenancy.require_batch(batch_id, visitor.caller.tenant)
    await service.operate(visitor.caller, lambda operator: job_changes.cancel(operator, batch_id, JobPages()))
    return RedirectResponse(f"/view/batches/{batch_id}", 303)


@router.post("/batches/{batch_id}/pause")
async def pause_batch(batch_id: UUID, service: ServiceOf, order: Order) -> Response:
    """Holds the jobs of a batch that wait for a call, and leads back to it."""
    visitor, _ = order
    await service.ledger.tenancy.require_batch(batch_id, visitor.caller.tenant)
    await service.operate(visitor.caller, lambda operator: job_changes.pause(operator, batch_id, JobPages()))
    return RedirectResponse(f"/view/batches/{batch_id}", 303)


@router.post("/batches/{batch_id}/resume")
async def resume_batch(batch_id: UUID, service: ServiceOf, order: Order) -> Response:
    """Lets a paused batch go on, and leads back to it."""
    visitor, _ = order
    await service.ledger.tenancy.require_batch(batch_id, visitor.caller.tenant)
    reasons = [HeldReason.BATCH_PAUSED]
    await service.operate(
        visitor.caller, lambda operator: job_changes.release(operator, batch_id, JobPages(), reasons=reasons)
    )
    return RedirectResponse(f"/view/batches/{batch_id}", 303)


@router.post("/batches/{batch_id}/retry")
async def retry_batch(batch_id: UUID, service: ServiceOf, order: Order) -> Response:
    """Starts new runs of the jobs of a batch that did not complete, all or those of one cause."""
    visitor, form = order
    await service.ledger.tenancy.require_batch(batch_id, visitor.caller.tenant)
    causes = _causes(form)
    await service.operate(
        visitor.caller, lambda operator: job_changes.retry(operator, [batch_id], JobPages(), causes=causes)
    )
    return RedirectResponse(f"/view/batches/{batch_id}", 303)


def _causes(form: Form) -> list[FailureKind]:
    cause = form.text("cause")
    if not cause:
        return []
    if cause not in {*FailureKind}:
        raise invalid("the form names no cause of failure; go back and reload the page")
    return [FailureKind(cause)]
