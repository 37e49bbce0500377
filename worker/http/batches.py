"""The routes of batches: submit lines, list, status, results, one job by its name, report, cancel."""

import base64
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field

from schemas.batch import BatchStatus
from schemas.record import JobResult
from schemas.states import JobState, Outcome
from worker.http.bodies import json_object, on_disk
from worker.http.dependencies import OwnBatch, Reader, ServiceOf, Submitter
from worker.http.documents import PRIVATE, BatchPage, Cancelled, SubmittedBatch, body_of, json_answer, problems
from worker.http.jobs import Tag, Wait, poll_job
from worker.http.orders import changed, going_on, order_batch
from worker.http.problems import invalid, line_errors
from worker.http.shares import STREAM_BYTES, take_bytes
from worker.ledger.browsing import BatchSelection
from worker.ledger.postgres import PostgresLedger
from worker.operations import batch_report
from worker.operations.body_submission import LinesOutcome, submit_lines
from worker.operations.file_form import FileForm
from worker.operations.file_intake import InputOrder
from worker.operations.overview import budgets_in_short
from worker.operations.report_page import page as report_page
from worker.operations.result_lines import Wish, stream_results

router = APIRouter(prefix="/v1/batches", tags=["batches"])

LINES = "application/x-ndjson"
HTML = "text/html"
FORMS = {
    FileForm.JSONL: LINES,
    FileForm.CSV: "text/csv; charset=utf-8",
    FileForm.PARQUET: "application/vnd.apache.parquet",
}
"""Types of the forms of results."""

MOST_BATCHES = 100
"""Batches on a page of the list."""

MOST_RESULTS = 1_000_000
"""Results on a page: those of a whole batch."""

WORST = 20
"""Answers that a report shows."""

PAGE_POLICY = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"}


class BatchOptions(BaseModel):
    """The options of a new batch, as parameters of the address."""

    name: str | None = Field(default=None, max_length=256, description="for people")
    key: str | None = Field(default=None, max_length=256, description="or the header Idempotency-Key")
    not_before: datetime | None = Field(default=None, description="no job begins before")
    window: str | None = Field(
        default=None, description="hours in which calls begin, such as '22:00-06:00 Europe/Berlin'"
    )
    deadline: datetime | None = Field(default=None, description="what is not final then expires")
    max_cost_usd: str | None = Field(default=None, description="ceiling on the cost of the batch")
    callback_url: str | None = Field(default=None, description="told by a signed POST when all jobs are final")
    defaults: str | None = Field(default=None, description="config of jobs that set none, a JSON object")
    strict: bool = Field(default=False, description="accept all lines or none")

    def fields(self, idempotency_key: str | None) -> dict[str, Any]:
        """The fields of the batch; raises ``Problem``."""
        if self.key is not None and idempotency_key not in {None, self.key}:
            raise invalid("differs from the header Idempotency-Key; send one of them", "key")
        further = {"key": self.key or idempotency_key, "defaults": json_object(self.defaults, "defaults") or None}
        options = self.model_dump(exclude={"strict"}) | further
        return {option: value for option, value in options.items() if value is not None}

    @property
    def warnings(self) -> tuple[str, ...]:
        """No error: the same batch may be sent again after its deadline, to learn its id."""
        end = self.deadline
        is_past = end is not None and end.tzinfo is not None and end < datetime.now(UTC)
        return ("the deadline is past: every job expires without an answer",) if is_past else ()


@router.post(
    "",
    status_code=202,
    response_model=SubmittedBatch,
    responses={
        200: {"model": SubmittedBatch, "description": "known from before"},
        **problems(400, 408, 409, 413, 415, 429),
    },
    openapi_extra=body_of(
        {"type": "string", "description": "one job a line, each a JobRequest; gzip is unpacked"}, LINES
    ),
)
async def submit(
    request: Request,
    service: ServiceOf,
    caller: Submitter,
    options: Annotated[BatchOptions, Query()],
    idempotency_key: Annotated[
        str | None,
        Header(alias="Idempotency-Key", min_length=1, max_length=256, description="the same batch again: its jobs"),
    ] = None,
) -> Response:
    """Submit a batch, one job a line. Lines that are no valid job are refused alone, each with its line and field."""
    fields = options.fields(idempotency_key)
    settings = service.settings
    async with on_disk(request, service.uploads, settings.http_max_body_bytes, settings.http_max_lines) as body:
        order = InputOrder([body.name], fields, strict=options.strict, tenant=caller.tenant, submitter=caller.submitter)
        outcome = await service.take_in(caller.tenant, submit_lines, order, size=body.size)
    service.hint(outcome.accepted.hints)
    return _submitted(outcome, options.warnings)


def _submitted(outcome: LinesOutcome, warnings: tuple[str, ...]) -> Response:
    accepted = outcome.accepted
    document = SubmittedBatch(
        batch_id=accepted.batch_id,
        created=accepted.created,
        jobs=accepted.jobs,
        refused=outcome.refused,
        errors=tuple(line_errors(accepted.refused)),
        repeated=outcome.repeated,
        held_by=dict(accepted.holders),
        submitted_at=accepted.submitted_at,
        warnings=(*warnings, *outcome.warnings),
    )
    headers = {} if accepted.batch_id is None else {"Location": f"/v1/batches/{accepted.batch_id}"}
    return json_answer(document, 202 if accepted.created else 200, headers)


# ---- looking ---------------------------------------------------------------------------------------------------------


@router.get("", response_model=BatchPage, responses=problems())
async def batches(
    service: ServiceOf,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=MOST_BATCHES)] = 20,
    cursor: Annotated[str | None, Query(max_length=200, description="'next_cursor' of the page before")] = None,
) -> Response:
    """The batches of the tenant, newest first."""
    selection = BatchSelection(caller.tenant, after=None if cursor is None else place_of(cursor, "cursor"))
    page = await service.ledger.browsing.batches(selection, limit)
    return json_answer(BatchPage(data=tuple(page.batches), next_cursor=page.after and cursor_of(*page.after)))


def cursor_of(at: datetime, batch_id: UUID) -> str:
    """A place in a list of batches, as an address holds it."""
    return base64.urlsafe_b64encode(f"{at.isoformat()} {batch_id}".encode()).decode()


def place_of(cursor: str, parameter: str) -> tuple[datetime, UUID]:
    """The place that a parameter holds; raises ``Problem``."""
    try:
        at, _, batch_id = base64.urlsafe_b64decode(cursor).decode().partition(" ")
        moment = datetime.fromisoformat(at)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC), UUID(batch_id)
    except ValueError:
        raise invalid("is none that this service gave; begin without one", parameter) from None


@router.get("/{batch_id}", response_model=BatchStatus, responses=problems(404))
async def status(service: ServiceOf, caller: Reader, batch_id: OwnBatch) -> Response:  # noqa: ARG001 - a right is needed
    """Jobs of a batch by state and outcome, what is held and why, cost."""
    present = await service.ledger.reading.batch_status(batch_id)
    if budgets := await budgets_in_short(service.ledger, present):
        present = present.model_copy(update={"budgets": tuple(budgets)})
    return json_answer(present)


@router.get(
    "/{batch_id}/results",
    responses={200: {"content": {media_type: {} for media_type in FORMS.values()}}, **problems(404)},
)
async def results(
    request: Request,
    service: ServiceOf,
    caller: Reader,
    batch_id: OwnBatch,
    form: Annotated[FileForm, Query(alias="format", description="jsonl, csv or parquet")] = FileForm.JSONL,
    state: Annotated[JobState | None, Query(description="only lines in this state")] = None,
    outcome: Annotated[Outcome | None, Query(description="only lines of this outcome")] = None,
    after: Annotated[int, Query(ge=-1, lt=2**31, description="position of the last line that the caller has")] = -1,
    limit: Annotated[int | None, Query(ge=1, le=MOST_RESULTS, description="most lines")] = None,
) -> Response:
    """The results as they stand now: one line or row for each line that was submitted, in that order, or those asked for."""
    wish = Wish(state, outcome, after, limit)
    headers = dict(PRIVATE)
    if form is not FileForm.JSONL:
        headers["Content-Disposition"] = f'attachment; filename="{batch_id}.{form.value}"'
    take_bytes(request, STREAM_BYTES)
    pieces = service.stream(caller, lambda ledger: stream_results(ledger, batch_id, wish, form))
    return StreamingResponse(pieces, headers=headers, media_type=FORMS[form])


@router.get(
    "/{batch_id}/jobs/{name:path}",
    response_model=JobResult,
    responses={304: {"description": "not another version"}, **problems(404)},
)
async def job(
    request: Request,
    service: ServiceOf,
    caller: Reader,
    batch_id: OwnBatch,
    name: str,
    wait: Wait = 0,
    if_none_match: Tag = None,
) -> Response:
    """The result of the job with a custom id, or at a position (from 0), as `/v1/jobs/{job_id}` answers it."""
    job_id = await service.ledger.reading.locate(batch_id, name)
    return await poll_job(request, service, caller, job_id, wait, if_none_match)


@router.get("/{batch_id}/report", responses={200: {"content": {HTML: {}}}, **problems(404)})
async def report(request: Request, service: ServiceOf, caller: Reader, batch_id: OwnBatch) -> Response:
    """The report of a batch: JSON, or for a browser one page without scripts."""
    as_page = HTML in request.headers.get("accept", "")

    async def write(ledger: PostgresLedger) -> bytes:
        collected = await batch_report.collect(ledger, batch_id, worst=WORST)
        document = batch_report.document(collected)
        return report_page(document).encode() if as_page else orjson.dumps(document, default=str)

    content = await service.bulk.run(caller.tenant, write)
    return Response(content, 200, {**PRIVATE, **PAGE_POLICY}, HTML if as_page else "application/json")


# ---- changing --------------------------------------------------------------------------------------------------------


@router.post("/{batch_id}/cancel", response_model=Cancelled, responses=going_on(Cancelled))
async def cancel(service: ServiceOf, caller: Submitter, batch_id: OwnBatch) -> Response:
    """Cancel all jobs of a batch that are not final. From the answer on no further call is made for it."""
    count = await order_batch("cancel", service, caller, batch_id)
    return changed(Cancelled(cancelled=count), count)
