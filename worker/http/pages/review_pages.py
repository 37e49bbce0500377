"""The queue of reviewers: the answers of lowest confidence first, and a random sample of the rest."""

import random
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import RedirectResponse, Response

from worker.http.dependencies import ServiceOf
from worker.http.pages.batch_pages import Progress
from worker.http.pages.rendering import page
from worker.http.pages.visitors import PageRoute, Visitor, VisitorOf
from worker.http.problems import invalid
from worker.ledger.browsing import QUEUE_BATCHES, JobRow, QueueSelection

router = APIRouter(route_class=PageRoute)

QUEUE = 20
SAMPLE = 10
"""Answers on a page."""

DRAWN = 400
"""Positions that a sample is drawn from: not each has an answer that is to be judged."""

BatchOf = Annotated[UUID | None, Query()]
After = Annotated[str, Query(max_length=80)]


@router.get("/review")
async def review(
    service: ServiceOf,
    visitor: VisitorOf,
    batch: BatchOf = None,
    after: After = "",
    seed: Annotated[int, Query(ge=0, lt=2**31)] = 1,
) -> Response:
    """The answers that this person has not judged yet."""
    selection = await _selection(service, visitor, batch, after)
    rows = await service.ledger.browsing.queue(selection, QUEUE)
    sample = await _sample(service, selection, rows, seed) if batch is not None and rows and not after else []
    status = None if batch is None else await service.ledger.reading.batch_status(batch)
    context = {
        "title": "Review",
        "visitor": visitor,
        "rows": rows,
        "sample": sample,
        "seed": seed,
        "batch": batch,
        "name": None if status is None else Progress(status).name,
        "following": place_of(rows[-1]) if len(rows) == QUEUE else None,
        "after": after,
        "batches": QUEUE_BATCHES,
    }
    return page("review", context)


@router.get("/review/next")
async def following(service: ServiceOf, visitor: VisitorOf, batch: BatchOf = None, after: After = "") -> Response:
    """Leads to the answer after a place in the queue; at its end back to the queue."""
    selection = await _selection(service, visitor, batch, after)
    rows = await service.ledger.browsing.queue(selection, 1)
    if not rows:
        return RedirectResponse(f"/view/review{f'?batch={batch}' if batch else ''}", 303)
    return RedirectResponse(f"/view/jobs/{rows[0].id}?doubtful=1&queue={batch or 'all'}", 303)


def place_of(row: JobRow) -> str:
    """The place of an answer in the queue."""
    return f"{row.confidence}_{row.id}"


async def _selection(service: ServiceOf, visitor: Visitor, batch: UUID | None, after: str) -> QueueSelection:
    if batch is not None:
        await service.ledger.tenancy.require_batch(batch, visitor.caller.tenant)
    place = None
    if after:
        confidence, _, job_id = after.partition("_")
        try:
            place = float(confidence), UUID(job_id)
        except ValueError:
            raise invalid("the address names no place in the queue; begin without 'after'", "after") from None
    return QueueSelection(visitor.caller.tenant, visitor.caller.name, batch, place)


async def _sample(service: ServiceOf, selection: QueueSelection, rows: list[JobRow], seed: int) -> list[JobRow]:
    """Answers at random that are not among the least confident; the same for the same seed."""
    assert selection.batch_id is not None
    last = await service.ledger.browsing.last_position(selection.batch_id)
    positions = random.Random(seed).sample(range(last + 1), min(DRAWN, last + 1))  # noqa: S311 - nobody gains by guessing
    worst = rows[-1]
    behind = QueueSelection(selection.tenant, selection.actor, selection.batch_id, (worst.confidence or 0.0, worst.id))
    return await service.ledger.browsing.sample(behind, positions, SAMPLE)
