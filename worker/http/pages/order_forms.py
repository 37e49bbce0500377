"""The forms of jobs and batches: labels, a replay, a recheck; cancel, pause, resume, a new run. Each leads back to its page."""

from collections.abc import Collection
from decimal import Decimal
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import RedirectResponse, Response
from uuid_utils.compat import uuid7

from schemas.failure import FailureKind
from schemas.job import Recheck
from schemas.states import FINAL_STATES
from tasks.errors import InputError
from tasks.ports import HintKey, Turn
from worker.http.dependencies import OwnBatch, OwnJob, ServiceOf
from worker.http.orders import Word, order_batch, retry_job
from worker.http.pages.visitors import Form, Judgement, Order, PageRoute
from worker.http.problems import Problem, invalid
from worker.ledger.postgres import PostgresLedger
from worker.operations import job_changes
from worker.operations.label_changes import MOST_NOTE_CHARACTERS, LabelRequest, add_label, checked_text, read_verdict
from worker.operations.operator import JobPages
from worker.operations.replay import ReplayOrder, replay_plan, write_replay

router = APIRouter(route_class=PageRoute)

MOST_MODEL_CHARACTERS = 300
MOST_AMOUNT_CHARACTERS = 30

REPLAY_USD = Decimal(1)
"""Ceiling of a replay whose form names none, where prices are known: a button must not spend without bound."""


@router.post("/jobs/{job_id}/labels")
async def judge(service: ServiceOf, judgement: Judgement, job: OwnJob) -> Response:
    """Stores the verdict of the person on a claim or the whole answer, and leads back to it."""
    visitor, form = judgement
    claim, _, word = form.text("judge").partition(":")
    run = form.text("run")
    if (claim and not _is_number(claim)) or not _is_number(run):
        raise invalid("the form names no claim; go back and reload the page")
    request = LabelRequest(
        job.job_id,
        read_verdict(word),
        visitor.caller.name,
        claim=int(claim) if claim else None,
        run=int(run),
        note=checked_text(form.text("note"), "note", MOST_NOTE_CHARACTERS) or None,
    )
    await add_label(service.ledger, request)
    back = form.text("back")
    fine = back.startswith("?") and back.isascii() and back.isprintable()
    place = f"#claim-{claim}" if claim else "#answer"
    return RedirectResponse(f"/view/jobs/{job.job_id}{back if fine else ''}{place}", 303)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5  # noqa: PLR2004 - of the column


@router.post("/jobs/{job_id}/replay")
async def replay(service: ServiceOf, order: Order, job: OwnJob) -> Response:
    """Sends the stored messages again, as a new job under the limits of the key, and leads to it.

    It has a ceiling unless the form names none and the price of its model is not known.
    """
    visitor, form = order
    model = checked_text(form.text("model"), "model", MOST_MODEL_CHARACTERS)
    replay_order = ReplayOrder(
        job.job_id,
        model=Turn.parse(model) if model else None,
        again=bool(form.text("again")),
        max_cost_usd=checked_text(form.text("max_cost_usd"), "max_cost_usd", MOST_AMOUNT_CHARACTERS) or None,
        default_usd=REPLAY_USD,
        submitter=visitor.caller.submitter,
    )

    async def write(ledger: PostgresLedger) -> tuple[UUID, Collection[HintKey]]:
        async with replay_plan(ledger, replay_order, service.settings) as plan:
            if not plan.origins:
                raise Problem(409, "not-replayable", "It can't be asked again", plan.refused[0].message)
            receipt = await write_replay(ledger, plan)
        return receipt.pairs[0][1], receipt.hints

    new_id, hints = await service.bulk.run(visitor.caller.tenant, write)
    service.hint(hints)
    return RedirectResponse(f"/view/jobs/{new_id}", 303)


@router.post("/jobs/{job_id}/recheck")
async def recheck(service: ServiceOf, order: Order, job: OwnJob) -> Response:
    """Starts a run that only checks the answer again, and leads back to the job."""
    visitor, _ = order
    if job.state not in FINAL_STATES:
        raise InputError("the job is not final yet: it is left to its first check")
    pages = JobPages()

    async def write(ledger: PostgresLedger) -> list[UUID]:
        operator = service.operator(visitor.caller.name, ledger)
        return await job_changes.recheck(operator, [job.job_id], Recheck(id=uuid7()), pages)

    if not await service.bulk.run(visitor.caller.tenant, write):
        reason = pages.refused.get(job.job_id, "it has no answer of a model")
        raise Problem(409, "not-checkable", "It can't be checked again", reason)
    return RedirectResponse(f"/view/jobs/{job.job_id}", 303)


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
async def change_batch(service: ServiceOf, order: Order, batch_id: OwnBatch, word: Word) -> Response:
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
