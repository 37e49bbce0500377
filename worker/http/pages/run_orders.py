"""The forms that cancel jobs or give them a new run, and those that pause a batch; each leads back to its page."""

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response

from schemas.failure import FailureKind
from worker.http.dependencies import OwnBatch, OwnJob, ServiceOf
from worker.http.orders import order_batch, retry_job
from worker.http.pages.visitors import Form, Order, PageRoute
from worker.http.problems import invalid
from worker.operations import job_changes
from worker.operations.operator import JobPages

router = APIRouter(route_class=PageRoute)


@router.post("/jobs/{job_id}/cancel")
async def cancel_job(service: ServiceOf, order: Order, job: OwnJob) -> Response:
    """Cancels a job that is not final."""
    visitor, _ = order
    await service.operate(visitor.caller, lambda operator: job_changes.cancel(operator, job.job_id, JobPages()))
    return RedirectResponse(f"/view/jobs/{job.job_id}", 303)


@router.post("/jobs/{job_id}/retry")
async def retry(service: ServiceOf, order: Order, job: OwnJob) -> Response:
    """Starts a new run of a final job."""
    await retry_job(service, order[0].caller, job)
    return RedirectResponse(f"/view/jobs/{job.job_id}", 303)


@router.post("/batches/{batch_id}/{word}")
async def change_batch(
    service: ServiceOf, order: Order, batch_id: OwnBatch, word: Literal["cancel", "pause", "resume", "retry"]
) -> Response:
    """Cancels what is not final in a batch, holds what waits for a call or lets it go on, or runs again what did not complete."""
    visitor, form = order
    await order_batch(word, service, visitor.caller, batch_id, _causes(form))
    return RedirectResponse(f"/view/batches/{batch_id}", 303)


def _causes(form: Form) -> list[FailureKind]:
    cause = form.text("cause")
    if not cause:
        return []
    if cause not in {*FailureKind}:
        raise invalid("the form names no cause of failure; go back and reload the page")
    return [FailureKind(cause)]
