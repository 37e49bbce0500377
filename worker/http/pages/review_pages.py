"""The queue of reviewers: the answers with the worst verdicts first, and a random sample of the rest."""

import random
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode
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
async def following(
    service: ServiceOf,
    visitor: VisitorOf,
    batch: BatchOf = None,
    after: After = "",
    seed: Annotated[int | None, Query(ge=0, lt=2**31, description="of the random sample to go on in")] = None,
    position: Annotated[int, Query(ge=0, lt=2**31)] = 0,
) -> Response:
    """Leads to the answer after a place in the queue, or in a random sample; at its end back to the queue."""
    selection = await _selection(service, visitor, batch, "" if seed is not None else after)
    if batch is not None and seed is not None:
        worst = await service.ledger.browsing.queue(selection, QUEUE)
        rows = await _sample(service, selection, worst, seed, behind=position) if worst else []
        queue = f"{batch}~{seed}"
    else:
        rows = await service.ledger.browsing.queue(selection, 1)
        queue = str(batch or "all")
    if not rows:
        return RedirectResponse(f"/view/review{f'?batch={batch}' if batch else ''}", 303)
    return RedirectResponse(f"/view/jobs/{rows[0].id}?doubtful=1&queue={queue}", 303)


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The addresses around an answer in a queue or a random sample."""

    following: str
    queue: str
    seed: str = ""
    """Of the sample."""


def place_in_queue(queue: str, job_id: UUID, position: int, standing: float | None) -> QueuePlace:
    """The place of an answer; ``queue`` is all, a batch, or a batch and the seed of its sample."""
    batch, _, seed = queue.partition("~")
    options = {} if batch == "all" else {"batch": batch}
    here: dict[str, object] = {"seed": seed, "position": position} if seed else {"after": f"{standing or 0}_{job_id}"}
    of_queue = options | ({"seed": seed} if seed else {})
    return QueuePlace(
        f"/view/review/next?{urlencode(options | here)}",
        f"/view/review?{urlencode(of_queue)}" if of_queue else "/view/review",
        seed,
    )


def place_of(row: JobRow) -> str:
    """The place of an answer in the queue."""
    return f"{row.standing}_{row.id}"


async def _selection(service: ServiceOf, visitor: Visitor, batch: UUID | None, after: str) -> QueueSelection:
    if batch is not None:
        await service.ledger.tenancy.require_batch(batch, visitor.caller.tenant)
    place = None
    if after:
        standing, _, job_id = after.partition("_")
        try:
            place = float(standing), UUID(job_id)
        except ValueError:
            raise invalid("the address names no place in the queue; begin without 'after'") from None
    return QueueSelection(visitor.caller.tenant, visitor.caller.name, batch, place)


async def _sample(
    service: ServiceOf, selection: QueueSelection, rows: list[JobRow], seed: int, behind: int | None = None
) -> list[JobRow]:
    """Answers at random that do not stand at the head of the queue, in the same order for the same seed.

    ``behind`` is the position of an answer of the sample after which it goes on.
    """
    assert selection.batch_id is not None
    last = await service.ledger.browsing.last_position(selection.batch_id)
    positions = random.Random(seed).sample(range(last + 1), min(DRAWN, last + 1))  # noqa: S311 - nobody gains by guessing
    if behind in positions:
        positions = positions[positions.index(behind) + 1 :]
    worst = rows[-1]
    rest = QueueSelection(selection.tenant, selection.actor, selection.batch_id, (worst.standing or 0.0, worst.id))
    return await service.ledger.browsing.sample(rest, positions, SAMPLE)
