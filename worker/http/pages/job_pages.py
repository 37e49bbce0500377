"""The page of a job, its sources, and two answers side by side."""

from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from schemas.grounding import Claim
from schemas.states import FINAL_STATES
from tasks.errors import NotFound
from tasks.policy.difference import Difference
from tasks.results import result_of
from worker.http import jobs as api
from worker.http.dependencies import OwnJob, ServiceOf
from worker.http.pages.order_forms import REPLAY_USD
from worker.http.pages.page_texts import anchor, answer_pieces, source_views, spans_of, stretches
from worker.http.pages.rendering import page
from worker.http.pages.review_pages import place_in_queue
from worker.http.pages.visitors import PageRoute, Visitor, VisitorOf
from worker.http.problems import not_found
from worker.ledger.postgres import PostgresLedger
from worker.operations.audit import Audit, audit_of, find_job, source_name
from worker.operations.job_difference import differences
from worker.operations.overview import remedy

router = APIRouter(route_class=PageRoute)

CLAIMS = 1_000
"""Most claims that a page lists; the answer shows all, and the record has them."""

RAW_CHARACTERS = 20_000
"""Characters of a raw answer or a message that a page shows; the record has all of them."""


@router.get("/jobs/{job_id}")
async def job(
    service: ServiceOf,
    visitor: VisitorOf,
    version: OwnJob,
    doubtful: Annotated[bool, Query(description="list claims without support only")] = False,
    queue: Annotated[str, Query(max_length=100, description="place in a review queue")] = "",
) -> Response:
    """Everything known of a job."""

    async def render(ledger: PostgresLedger) -> Response:
        detail = await find_job(ledger, version.job_id, "")
        audit = audit_of(detail, result_of(detail.view))
        return page("job", _context(audit, visitor, _ClaimList(audit, visitor, doubtful), queue))

    return await service.bulk.run(visitor.caller.tenant, render)


@dataclass(slots=True)
class _ClaimList:
    """The claims on a page, with what people said of them; all of them where none is doubtful."""

    audit: Audit
    visitor: Visitor
    doubtful: bool
    own: dict[int | None, str] = field(default_factory=dict)
    labels: dict[int | None, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.doubtful = self.doubtful and any(claim.verdict.is_doubtful for claim in self.audit.result.claims)
        for label in self.audit.detail.labels:
            if label["run"] == self.audit.detail.view.run:
                self.labels.setdefault(label["claim"], []).append(label)
                if label["actor"] == self.visitor.caller.name:
                    self.own[label["claim"]] = label["verdict"]

    @property
    def rows(self) -> dict[int, tuple[Claim, list[tuple[str, str]]]]:
        """By its number each claim of the list, with the names and addresses of its evidence."""
        listed = (
            (number, claim)
            for number, claim in enumerate(self.audit.result.claims, start=1)
            if not self.doubtful or claim.verdict.is_doubtful
        )
        return {number: (claim, self._evidence(claim)) for number, claim in islice(listed, CLAIMS)}

    def _evidence(self, claim: Claim) -> list[tuple[str, str]]:
        context = self.audit.detail.view.request.context
        return [
            (
                source_name(context[each.source_index], each.source_index + 1),
                f"#{anchor(each.source_index, each.start, each.end)}",
            )
            for each in claim.evidence
            if each.source_index < len(context)
        ]


def _context(audit: Audit, visitor: Visitor, claims: "_ClaimList", queue: str) -> dict[str, Any]:
    view, result, detail = audit.detail.view, audit.result, audit.detail
    record = view.record
    standing = record.grounding.standing if record and record.grounding else None
    return {
        "title": f"Job {view.custom_id or f'line {view.position + 1}'}",
        "visitor": visitor,
        "view": view,
        "result": result,
        "record": record,
        "detail": detail,
        "final": view.state in FINAL_STATES,
        "pieces": answer_pieces(result),
        "claims": claims,
        "claim_rows": claims.rows,
        "doubtful_count": sum(claim.verdict.is_doubtful for claim in result.claims),
        "sources": source_views(view.request.context, result),
        "source_name": source_name,
        "anchor": anchor,
        "phases": [phase for phase in result.timing_ms or () if phase[1]],
        "attempts": detail.attempts,
        "completions": [_completion(row) for row in detail.completions],
        "messages": audit.messages,
        "proofs": audit.proofs,
        "snapshot": _pretty(result.provider_snapshot.model_dump(mode="json", exclude_none=True))
        if result.provider_snapshot
        else None,
        "config": _pretty(view.request.config.model_dump(mode="json", exclude_defaults=True)),
        "metadata": _pretty(view.request.metadata) if view.request.metadata else None,
        "remedy": remedy(view.batch_id, result.failure.kind) if result.failure else None,
        "queue": queue,
        "queue_place": place_in_queue(queue, view.job_id, view.position, standing) if queue else None,
        "most": RAW_CHARACTERS,
        "replay_usd": REPLAY_USD,
    }


def _completion(row: dict[str, Any]) -> dict[str, Any]:
    raw = str(row["raw"])
    return {**row, "raw": raw[:RAW_CHARACTERS], "rest": max(0, len(raw) - RAW_CHARACTERS)}


def _pretty(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()


@router.get("/jobs/{job_id}/record")
async def record(request: Request, service: ServiceOf, visitor: VisitorOf, version: OwnJob) -> Response:
    """The record of the API, for the session of a person."""
    return await api.record(request, service, visitor.caller, version)


@router.get("/jobs/{job_id}/sources/{number}")
async def source(
    number: int,
    service: ServiceOf,
    visitor: VisitorOf,
    version: OwnJob,
) -> Response:
    """One source as a whole, with everything that the answer takes from it."""

    async def render(ledger: PostgresLedger) -> Response:
        views = await ledger.reading.views([version.job_id])
        if not views or not 1 <= number <= len(views[0].request.context):
            raise not_found()
        view = views[0]
        shown_source = view.request.context[number - 1]
        spans = spans_of(result_of(view)).get(number - 1, [])
        context = {
            "title": source_name(shown_source, number), "visitor": visitor, "view": view, "source": shown_source, "number": number,
            "stretches": stretches(shown_source.content, number - 1, spans, whole=True),
            "metadata": _pretty(shown_source.metadata) if shown_source.metadata else None,
        }  # fmt: skip
        return page("source", context)

    return await service.bulk.run(visitor.caller.tenant, render)


@router.get("/compare")
async def compare(
    service: ServiceOf,
    visitor: VisitorOf,
    a: Annotated[str, Query(max_length=60)] = "",
    b: Annotated[str, Query(max_length=60)] = "",
) -> Response:
    """Two answers side by side; without ids the form that asks for them."""
    if not a or not b:
        return page("compare", {"title": "Compare", "visitor": visitor, "pair": None, "a": a, "b": b})
    try:
        ids = UUID(a.strip()), UUID(b.strip())
    except ValueError:
        raise not_found() from None
    for job_id in ids:
        await service.ledger.tenancy.job(job_id, visitor.caller.tenant)

    async def render(ledger: PostgresLedger) -> Response:
        pairs = [pair async for pair in differences(ledger, [ids])]
        if not pairs:
            raise NotFound("no such jobs")
        return page("compare", {"title": "Compare", "visitor": visitor, "a": a, "b": b, **_compared(pairs[0])})

    return await service.bulk.run(visitor.caller.tenant, render)


def _compared(pair: Difference) -> dict[str, Any]:
    # Computed here: the templates would compute it again at each use.
    return {"pair": pair, "sides": (("First", pair.first), ("Second", pair.second)), "words": pair.words}
