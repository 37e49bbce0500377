"""The routes of single jobs: submit, poll, cancel, audit record."""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from schemas.job import MAX_LINE_BYTES, TRACEPARENT
from schemas.record import JobResult
from tasks.submit import Submitted
from worker.http.bodies import is_quick, parse_json, read_body
from worker.http.dependencies import OwnJob, Reader, ServiceOf, Submitter, departure_of
from worker.http.documents import PRIVATE, Cancelled, SubmittedJob, body_of, json_answer, problems
from worker.http.large_documents import write_record, write_result
from worker.http.problems import not_found
from worker.http.service import Service
from worker.http.shares import Caller, take_bytes
from worker.http.submission_process import Work
from worker.ledger.postgres import PostgresLedger
from worker.ledger.tenancy import JobVersion
from worker.operations import job_changes
from worker.operations.body_submission import submit_job
from worker.operations.operator import JobPages
from worker.operations.result_lines import PIECE_BYTES

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_TAG = re.compile(r'"([^"]*)"')

LONGEST_WAIT_S = 60
"""Seconds that a poll may wait; proxies often cut off what is silent for a minute."""

PACKED = 16
"""Times that a document is larger, at a guess, than what is stored of it."""

LARGE_BYTES = 16_000
"""Stored bytes from which on what is made of them takes longer than the loop that answers may stand still."""

Wait = Annotated[
    float, Query(ge=0, le=LONGEST_WAIT_S, description="seconds to wait for the end, or for another version")
]
Tag = Annotated[str | None, Header(alias="If-None-Match", description="ETag of the version that the caller has")]


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request that brings a job: its caller, and the headers that go with the job."""

    request: Request
    service: Service
    caller: Caller
    key: str | None
    traceparent: str | None


async def _envelope(
    request: Request,
    service: ServiceOf,
    caller: Submitter,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=256,
            description="the same key and content again: the same job; the same key with other content: 409",
        ),
    ] = None,
    traceparent: Annotated[
        str | None, Header(description="W3C trace context; the spans of the job join that trace (docs/traces.md)")
    ] = None,
) -> Envelope:
    return Envelope(request, service, caller, key, traceparent)


EnvelopeOf = Annotated[Envelope, Depends(_envelope)]


@router.post(
    "",
    status_code=202,
    response_model=SubmittedJob,
    responses={
        200: {"model": SubmittedJob, "description": "known by its key"},
        **problems(400, 408, 409, 413, 415, 429),
    },
    openapi_extra=body_of({"$ref": "#/components/schemas/JobRequest"}),
)
async def submit(envelope: EnvelopeOf) -> Response:
    """Submit one job. It is safe in the ledger when this answers."""
    return _submitted(await submit_body(envelope))


async def submit_body(envelope: Envelope, make: Callable[[Any], Any] = lambda raw: raw) -> Submitted:
    """Writes the job that ``make`` makes of a body, where that takes long on the bulk loop; raises ``Problem``, ``InputError``."""
    service, caller = envelope.service, envelope.caller
    body = await read_body(envelope.request, MAX_LINE_BYTES)

    async def write(ledger: PostgresLedger) -> Submitted:
        return await submit_job(
            ledger,
            service.settings,
            service.catalog,
            with_trace(make(parse_json(body)), envelope.traceparent),
            tenant=caller.tenant,
            key=envelope.key,
            submitter=caller.submitter,
        )

    submitted = await (write(service.ledger) if is_quick(body) else service.bulk.run(caller.tenant, write))
    if submitted.receipt is not None:
        service.hint(submitted.receipt.hints)
    return submitted


def with_trace(raw: Any, traceparent: str | None) -> Any:
    """A job with the trace context of its request, where it brings none; one that is none is passed over, as the standard has it."""
    if traceparent is None or not isinstance(raw, dict) or re.fullmatch(TRACEPARENT, traceparent) is None:
        return raw
    return {"traceparent": traceparent, **raw}


def _submitted(submitted: Submitted) -> Response:
    receipt, (job_id,) = submitted.receipt, submitted.job_ids
    assert receipt is not None
    assert job_id is not None
    document = SubmittedJob(
        job_id=job_id,
        batch_id=receipt.batch_id,
        created=receipt.created,
        warnings=tuple(
            warning.removeprefix("job 0: ")
            for warning in submitted.warnings
            if not warning.startswith("nothing is new")
        ),
    )
    return json_answer(document, 202 if receipt.created else 200, {"Location": f"/v1/jobs/{job_id}"})


@router.get(
    "/{job_id}", response_model=JobResult, responses={304: {"description": "not another version"}, **problems(404)}
)
async def result(
    request: Request, job_id: UUID, service: ServiceOf, caller: Reader, wait: Wait = 0, if_none_match: Tag = None
) -> Response:
    """The result of a job as it stands: final or not.

    With `wait` it answers when the job is final; with `If-None-Match` too, when it differs from that version.
    """
    return await poll_job(request, service, caller, job_id, wait, if_none_match)


async def poll_job(
    request: Request, service: Service, caller: Caller, job_id: UUID, wait_s: float, if_none_match: str | None
) -> Response:
    """Answers a poll; raises ``NotFound``, and ``Problem`` where the key was revoked during the wait."""
    version = await service.version(job_id, caller.tenant)
    if wait_s and not version.final and (if_none_match is None or _is_same(version, if_none_match)):
        await service.watch.change(job_id, version.tag if if_none_match else None, wait_s, departure_of(request))
        await service.access.require_valid(caller)
        version = await service.version(job_id, caller.tenant)
    headers = {"ETag": etag(version), "Cache-Control": "private, no-cache"}
    if if_none_match is not None and _is_same(version, if_none_match):
        return Response(None, 304, headers)
    if version.result_bytes > LARGE_BYTES:
        return await send_large(request, service, caller, version, write_result, headers=headers)
    answer = await service.results.send(version.job_id)
    if answer is None:
        raise not_found()
    return json_answer(answer, headers=headers)


async def send_large(
    request: Request,
    service: Service,
    caller: Caller,
    version: JobVersion,
    write: Work[bytes],
    *arguments: Any,
    headers: Mapping[str, str],
    media_type: str = "application/json",
) -> Response:
    """Sends a document of a job that takes long: made in its tenant's turn, apart, and counted until its caller has read it."""
    size = PACKED * (version.result_bytes + version.request_bytes)
    content = await service.take_in(caller.tenant, write, version.job_id, *arguments, size=size)
    take_bytes(request, len(content))

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(content), PIECE_BYTES):
            yield content[at : at + PIECE_BYTES]

    return StreamingResponse(pieces(), headers={**headers, "Content-Length": str(len(content))}, media_type=media_type)


def etag(version: JobVersion) -> str:
    """The version of a job as a header; weak, because the bytes of two answers may differ in what does not matter."""
    return f'W/"{version.tag}"'


def _is_same(version: JobVersion, if_none_match: str) -> bool:
    """Compares weakly, as RFC 9110 has it: with or without ``W/``, and ``*`` is any version."""
    return if_none_match.strip() == "*" or version.tag in _TAG.findall(if_none_match)


@router.post("/{job_id}/cancel", response_model=Cancelled, responses=problems(404))
async def cancel(service: ServiceOf, caller: Submitter, job: OwnJob) -> Response:
    """Cancel a job that is not final. One that is stays as it is."""
    operator = service.operator(caller.name, service.ledger)
    changed = await job_changes.cancel(operator, job.job_id, JobPages())
    return json_answer(Cancelled(cancelled=len(changed)))


@router.get("/{job_id}/record", responses=problems(404))
async def record(request: Request, service: ServiceOf, caller: Reader, job: OwnJob) -> Response:
    """Everything known of a job: request, exact messages with proof, attempts, answers, record of each run, events."""
    return await send_large(request, service, caller, job, write_record, headers=PRIVATE)
