"""The pages of batches: the list, and one batch with its counts, causes of failure and jobs."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from schemas.batch import BatchStatus, FailureCause
from schemas.grounding import Verdict
from schemas.states import FINAL_STATES, HeldReason, JobState, Outcome
from worker.http import batches as api
from worker.http.dependencies import OwnBatch, ServiceOf
from worker.http.pages.rendering import page
from worker.http.pages.visitors import PageRoute, VisitorOf
from worker.http.problems import invalid
from worker.http.service import Service
from worker.ledger.browsing import BatchFilter, BatchSelection, JobSelection
from worker.operations.overview import RELEASES, Overview, batch_overview, budget_line, budgets_in_short, remedy

router = APIRouter(route_class=PageRoute)

BATCHES = 25
JOBS = 50
"""Lines on a page."""

REFRESH_S = 5
"""Seconds between two loads of a page that follows its batch without JavaScript."""

ENDINGS = (
    *Outcome,
    *(state for state in JobState if state is not JobState.COMPLETED),
)

Follow = Annotated[bool, Query(description="load the page again and again")]


@router.get("/")
async def batches(
    service: ServiceOf,
    visitor: VisitorOf,
    show: BatchFilter = BatchFilter.ALL,
    q: Annotated[str, Query(max_length=256)] = "",
    after: Annotated[str | None, Query(max_length=200)] = None,
    follow: Follow = False,
) -> Response:
    """The batches of the tenant."""
    at = None if after is None else api.place_of(after, "after")
    selection = BatchSelection(visitor.caller.tenant, show, q.strip().lower(), at)
    listing = await service.ledger.browsing.batches(selection, BATCHES)
    choice = {"show": show.value, "q": q}
    context = {
        "title": "Batches",
        "visitor": visitor,
        "rows": [Progress(status) for status in listing.batches],
        "choice": choice,
        "filters": list(BatchFilter),
        "following": None
        if listing.after is None
        else f"?{urlencode({**choice, 'after': api.cursor_of(*listing.after)})}",
        "first": None if after is None else f"?{urlencode(choice)}",
        "follow": follow,
        "follow_address": f"?{urlencode({**choice, 'follow': 1})}",
        "moving": any(not Progress(status).done for status in listing.batches),
    }
    return page("batches", context, headers=_reload(context))


def _reload(context: Mapping[str, Any]) -> dict[str, str]:
    """Loads a page again that a person follows, while there is something to follow."""
    return {"Refresh": str(REFRESH_S)} if context["follow"] and context["moving"] else {}


class Progress:
    """A batch with the figures that its line and its page show."""

    def __init__(self, status: BatchStatus) -> None:
        self.status = status
        self.done = status.final >= status.jobs
        self.share = 100 if not status.jobs else 100 * status.final // status.jobs
        self.failed = status.states.get(JobState.FAILED, 0)
        self.holds = sum(status.held.values())
        self.name = status.name or status.key or f"batch of {status.created_at:%Y-%m-%d %H:%M}"

    @property
    def state(self) -> str:
        """A word for the state of the batch."""
        if self.done:
            return "ended"
        if self.status.cancelling:
            return "being cancelled"
        if self.status.paused:
            return "paused"
        return "held" if self.holds and self.holds == self.status.jobs - self.status.final else "under way"

    @property
    def endings(self) -> list[tuple[str, int]]:
        """Jobs by outcome, then by state where they have none."""
        counts = dict[str, int]((*self.status.outcomes.items(), *self.status.states.items()))
        return [(name.value, count) for name in ENDINGS if (count := counts.get(name))]


@router.get("/batches/{batch_id}")
async def batch(
    service: ServiceOf,
    visitor: VisitorOf,
    batch_id: OwnBatch,
    ending: Annotated[str, Query(max_length=20)] = "",
    verdict: Annotated[str, Query(max_length=20)] = "",
    after: Annotated[int, Query(ge=-1, lt=2**31)] = -1,
    follow: Follow = False,
) -> Response:
    """One batch."""
    if ending not in {"", *ENDINGS} or verdict not in {"", *Verdict}:
        raise invalid("'ending' is an outcome or a state, 'verdict' one of a claim")
    selection = JobSelection(batch_id, ending, Verdict(verdict) if verdict else None, after)
    jobs = await service.ledger.browsing.jobs(selection, JOBS)
    choice = {"ending": ending, "verdict": verdict}
    overview = await batch_overview(service.ledger, batch_id)
    context = {
        **_figures(overview),
        "visitor": visitor,
        "causes": await _causes(service, batch_id, overview.batches[0]),
        "jobs": jobs.jobs,
        "choice": choice,
        "endings": [value.value for value in ENDINGS],
        "following": None if jobs.after is None else f"?{urlencode({**choice, 'after': jobs.after})}#jobs",
        "first": None if after < 0 else f"?{urlencode(choice)}#jobs",
        "follow": follow,
    }
    return page("batch", context, headers=_reload(context))


@router.get("/batches/{batch_id}/progress")
async def progress(service: ServiceOf, visitor: VisitorOf, batch_id: OwnBatch) -> Response:  # noqa: ARG001 - a right is needed
    """The figures of a batch alone, for a page that is open."""
    # Less than for the whole page: an open page asks again and again.
    status = await service.ledger.reading.batch_status(batch_id)
    overview = Overview(
        [status],
        await service.ledger.fleet.lane_notices(),
        unserved=await service.ledger.fleet.unserved(),
        budgets=await budgets_in_short(service.ledger, status),
    )
    return page("progress", _figures(overview))


@router.get("/batches/{batch_id}/report")
async def report(request: Request, service: ServiceOf, visitor: VisitorOf, batch_id: OwnBatch) -> Response:
    """The report of the API, for the session of a person."""
    return await api.report(request, service, visitor.caller, batch_id)


@router.get("/batches/{batch_id}/results")
async def results(request: Request, service: ServiceOf, visitor: VisitorOf, batch_id: OwnBatch) -> Response:
    """The results of the API, for the session of a person."""
    return await api.results(request, service, visitor.caller, batch_id)


def _figures(overview: Overview) -> dict[str, Any]:
    (status,) = overview.batches
    row = Progress(status)
    return {
        "title": row.name,
        "row": row,
        "status": status,
        "lanes": overview.lanes,
        "unserved": overview.unserved if not row.done else (),
        "holds": [
            (reason, count, *(text.format(batch=status.batch_id) for text in RELEASES[HeldReason(reason)]))
            for reason, count in status.held.items()
        ],
        "budgets": list(map(budget_line, overview.budgets)),
        "moving": not row.done,
        "retryable": sum(status.states.get(state, 0) for state in FINAL_STATES - {JobState.COMPLETED}),
    }


async def _causes(service: Service, batch_id: UUID, status: BatchStatus) -> list[tuple[FailureCause, UUID | None, str]]:
    """Each cause of failures, with its first job and the remedy."""
    causes = status.failures or ()
    jobs = await service.ledger.browsing.at(batch_id, [cause.position for cause in causes]) if causes else {}
    return [(cause, jobs.get(cause.position), remedy(batch_id, cause.kind)) for cause in causes]
