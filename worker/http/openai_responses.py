"""The routes of responses in the form of OpenAI's API, for its stock client: one question, its sources, a checked answer."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from schemas.states import FINAL_STATES
from tasks.errors import InputError, NightdeskError
from tasks.ports import JobView
from tasks.results import result_of
from worker.http.dependencies import Reader, ServiceOf, Submitter, departure_of
from worker.http.documents import OPENAI_PROBLEMS, PRIVATE, body_of, json_answer
from worker.http.jobs import LARGE_BYTES, Envelope, EnvelopeOf, send_large, submit_body
from worker.http.large_documents import read_view, write_events, write_response
from worker.http.problems import Problem, not_found, problem_from
from worker.http.response_document import document_of, response_id
from worker.http.response_events import first_events, last_events, line_of
from worker.http.response_order import CreateResponse, read_order, renamed
from worker.http.service import Service
from worker.http.shares import Caller
from worker.ledger.tenancy import JobVersion
from worker.operations import job_changes
from worker.operations.operator import JobPages

router = APIRouter(prefix="/openai/v1/responses", tags=["openai"], responses=OPENAI_PROBLEMS)

LONGEST_S = 570.0
"""Seconds that an order waits for its answer; the client gives up after 600."""

BEAT_S = 15.0
"""Seconds of silence after which a comment is sent: proxies cut off what is silent for a minute."""

EVENTS = "text/event-stream"
EVENT_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_ID = re.compile(r"resp_([0-9a-f]{32})")

ResponseId = Annotated[str, Path(max_length=100)]


@router.post("", openapi_extra=body_of({"type": "object", "properties": {"input": {}, "model": {}}}))
async def create(envelope: EnvelopeOf) -> Response:
    """Answer one question from its sources. The answer comes when it is checked; with `background` the response at once."""
    order, view = await submit_order(envelope)
    if order.stream:
        return _stream(envelope.service, envelope.caller, view, -1)
    return _json(view if order.background else await final_view(envelope, view))


async def submit_order(
    envelope: Envelope, read: Callable[[Any], Any] = lambda raw: raw
) -> tuple[CreateResponse, JobView]:
    """Writes the job of the order in a body; ``read`` makes the order of a response of another form. Raises ``Problem``."""
    order_and_job: tuple[CreateResponse, dict[str, Any]] | None = None

    def make(raw: Any) -> dict[str, Any]:
        nonlocal order_and_job
        order_and_job = read_order(read(raw), envelope.service.catalog)
        return order_and_job[1]

    try:
        submitted = await submit_body(envelope, make)
    except InputError as error:
        if order_and_job is None:
            raise
        raise renamed(error, order_and_job[1]) from error
    assert order_and_job is not None
    (job_id,) = submitted.job_ids
    assert job_id is not None
    return order_and_job[0], await read_view(envelope.service.ledger, job_id)


@router.get("/{response}", responses={200: {"content": {"application/json": {}, EVENTS: {}}}})
async def retrieve(
    request: Request,
    response: ResponseId,
    service: ServiceOf,
    caller: Reader,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=0, description="number of the last event that the caller has")]
    | None = None,
) -> Response:
    """A response as it stands; with `stream` its events, from the first or after one."""
    version = await _require(service, caller, response)
    after = -1 if starting_after is None else starting_after
    if version.final and version.result_bytes + version.request_bytes > LARGE_BYTES:
        send = partial(send_large, request, service, caller, version)
        if stream:
            return await send(write_events, after, headers=EVENT_HEADERS, media_type=EVENTS)
        return await send(write_response, headers=PRIVATE)
    view = await read_view(service.ledger, version.job_id)
    return _stream(service, caller, view, after) if stream else _json(view)


@router.post("/{response}/cancel")
async def cancel(response: ResponseId, service: ServiceOf, caller: Submitter) -> Response:
    """Cancel a response that is not final, in the background or not."""
    version = await _require(service, caller, response)
    await job_changes.cancel(service.operator(caller.name, service.ledger), version.job_id, JobPages())
    return _json(await read_view(service.ledger, version.job_id))


async def _require(service: Service, caller: Caller, response: str) -> JobVersion:
    match = _ID.fullmatch(response)
    if match is None:
        raise not_found()
    return await service.version(UUID(match[1]), caller.tenant)


def _json(view: JobView) -> Response:
    return json_answer(document_of(view, result_of(view)), headers=PRIVATE)


async def final_view(envelope: Envelope, view: JobView) -> JobView:
    """Waits for the end of a job; raises ``Problem`` where it does not come in time."""
    departure = departure_of(envelope.request)
    async for final in wait_for(envelope.service, envelope.caller, view.job_id, LONGEST_S, departure):
        if final is not None:
            return final
    # An order that is sent again would be another one, and paid for again.
    detail = (
        f"the answer is not there yet, and goes on: retrieve {response_id(view.job_id)} later, or order with background"
    )
    raise Problem(504, "timeout", "Timeout", detail, headers={"X-Should-Retry": "false"})


async def wait_for(
    service: Service, caller: Caller, job_id: UUID, within_s: float, departure: "asyncio.Future[None] | None" = None
) -> AsyncIterator[JobView | None]:
    """Yields None now and then, and the job once it is final; ends without it when the time, the service or the connection ends."""
    until = time.monotonic() + within_s
    while (
        not service.watch.closed.is_set()
        and time.monotonic() < until
        and not (departure is not None and departure.done())
    ):
        version = await service.version(job_id, caller.tenant)
        if not version.final:
            await service.watch.change(job_id, None, BEAT_S, departure)
            await service.access.require_valid(caller)
            yield None
            continue
        view = await read_view(service.ledger, job_id)
        if view.state in FINAL_STATES:
            yield view
            return


def _stream(service: Service, caller: Caller, view: JobView, after: int) -> Response:
    return StreamingResponse(_lines(service, caller, view, after), headers=EVENT_HEADERS, media_type=EVENTS)


async def _lines(service: Service, caller: Caller, view: JobView, after: int) -> AsyncIterator[bytes]:
    """The events of a response as they are sent, numbered in the same way each time."""
    beginning = [*first_events(document_of(view, result_of(view)))]
    for line in _numbered(iter(beginning), 0, after):
        yield line
    try:
        async for final in wait_for(service, caller, view.job_id, float("inf")):
            if final is None:
                yield b": still here\n\n"
                continue
            result = result_of(final)
            for line in _numbered(last_events(document_of(final, result), final, result), len(beginning), after):
                yield line
            return
        detail = "the service stops"
    except (NightdeskError, Problem) as error:
        detail = problem_from(error).detail
    message = f"{detail}; the answer goes on: retrieve {response_id(view.job_id)}"
    event = {"type": "error", "code": "server_error", "message": message, "param": None}
    yield line_of(event, max(after + 1, len(beginning)))


def _numbered(events: Iterator[dict[str, Any]], first: int, after: int) -> Iterator[bytes]:
    for number, event in enumerate(events, first):
        if number > after:
            yield line_of(event, number)
