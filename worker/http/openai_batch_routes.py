"""The routes of batches in the form of OpenAI's API, for its stock client."""

import asyncio
import re
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from schemas.batch import BatchStatus
from schemas.states import JobState
from tasks.errors import NotFound
from tasks.submit import validated
from worker.http.bodies import parse_json, read_body, remove_files
from worker.http.dependencies import Reader, ServiceOf, Submitter
from worker.http.documents import OPENAI_PROBLEMS, json_answer, page_of
from worker.http.openai_files import file_id, parse_file_id
from worker.http.openai_lines import ORDERS, endpoint_of, show_of
from worker.http.openai_metadata import Metadata
from worker.http.problems import Problem, invalid, not_found, problem_of
from worker.http.service import Service
from worker.http.submission_process import LARGE_BYTES, ProcessEnded
from worker.ledger.postgres import PostgresLedger
from worker.ledger.uploads import Upload
from worker.operations import job_changes
from worker.operations.operator import JobPages
from worker.operations.unpacked_file import GZIP
from worker.operations.uploaded_batches import ENDPOINT_KEY, BatchOrder, end_upload, submit_upload

router = APIRouter(prefix="/openai/v1/batches", tags=["openai"], responses=OPENAI_PROBLEMS)

MOST_BODY_BYTES = 100_000
_BATCH = re.compile(r"batch_([0-9a-f]{32})")

END_S = 2.0
"""Seconds that a request waits for the sizes of the results of a batch that ended."""

_CUT_OFF = (
    "the process of the service that takes large files in ended before its answer. Create the batch of the same file "
    "again: nothing is done twice"
)

BatchId = Annotated[str, Path(max_length=100)]


class CreateBatch(BaseModel):
    """The order of a batch."""

    model_config = ConfigDict(extra="ignore")

    input_file_id: str
    endpoint: str
    output_expires_after: Any = None
    completion_window: str = Field(pattern=r"^[1-9][0-9]{0,2}h$", description="24h, or another number of hours")
    metadata: Metadata = None


@router.post("")
async def create(request: Request, service: ServiceOf, caller: Submitter) -> Response:
    """Make a batch of an uploaded file. The same file again is the same batch: nothing is done twice."""
    order: CreateBatch = validated(CreateBatch, parse_json(await read_body(request, MOST_BODY_BYTES)))
    if order.endpoint not in ORDERS:
        raise invalid(f"not one of {', '.join(ORDERS)}; a prompt goes there as the message of a chat", "endpoint")
    if order.output_expires_after is not None:
        raise invalid("results are kept until their batch is erased; leave it out", "output_expires_after")
    try:
        upload_id, part = parse_file_id(order.input_file_id)
        upload = await service.ledger.uploads.find(upload_id, caller.tenant)
    except (NotFound, Problem):
        raise invalid(f"there is no file {order.input_file_id[:100]!r}", "input_file_id") from None
    if part:
        raise invalid("is a file of results; name an uploaded one", "input_file_id")
    window = timedelta(hours=int(order.completion_window.removesuffix("h")))
    wish = BatchOrder(window, order.metadata or {}, caller.submitter, order.endpoint, ORDERS[order.endpoint])
    return json_answer(await _document(service, await _take_in(service, upload, wish)))


async def _take_in(service: Service, upload: Upload, wish: BatchOrder) -> Upload:
    """Makes the batch; what a killed process leaves of it on disk is removed."""
    files = service.uploads / uuid4().hex
    # A small file of gzip may hold any number of lines.
    is_packed = await service.ledger.uploads.starts_with(upload.id, GZIP)
    size = max(upload.bytes, LARGE_BYTES) if is_packed else upload.bytes
    try:
        return await service.take_in(upload.tenant, submit_upload, upload, wish, files, size=size)
    except ProcessEnded as error:
        await asyncio.to_thread(remove_files, files)
        problem = problem_of(error)
        problem.detail = _CUT_OFF
        raise problem from error


@router.get("")
async def batches(
    service: ServiceOf,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    after: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """The batches made through this door, newest first."""
    last = None if after is None else (await _find(service, after, caller.tenant)).id
    uploads = await service.ledger.uploads.submitted(caller.tenant, limit + 1, last)
    return page_of([await _document(service, upload) for upload in uploads], limit)


@router.get("/{batch}")
async def retrieve(batch: BatchId, service: ServiceOf, caller: Reader) -> Response:
    """A batch as it stands."""
    return json_answer(await _document(service, await _find(service, batch, caller.tenant)))


@router.post("/{batch}/cancel")
async def cancel(batch: BatchId, service: ServiceOf, caller: Submitter) -> Response:
    """Cancel what is not final; goes on after the answer."""
    upload = await _find(service, batch, caller.tenant)
    batch_id = upload.batch_id
    if batch_id is not None and upload.ended_at is None:

        async def work(ledger: PostgresLedger) -> list[UUID]:
            return await job_changes.cancel(service.operator(caller.name, ledger), batch_id, JobPages())

        service.go_on(service.bulk.run(caller.tenant, work))
    document = await _document(service, upload)
    return json_answer({**document, "status": "cancelling"} if document["status"] == "in_progress" else document)


async def _find(service: Service, batch: str, tenant: str) -> Upload:
    match = _BATCH.fullmatch(batch)
    upload = None if match is None else await service.ledger.uploads.find(UUID(match[1]), tenant)
    if upload is None or upload.submitted_at is None:
        raise not_found()
    return upload


# ---- the document ----------------------------------------------------------------------------------------------------


async def _document(service: Service, upload: Upload) -> dict[str, Any]:
    """A batch as OpenAI's API shows it."""
    assert upload.submitted_at is not None
    if upload.batch_id is None:
        ended = {"status": "failed", "failed_at": _seconds(upload.submitted_at)}
        return {**_fields(upload), **ended, "error_file_id": file_id(upload, "-error")}
    status = await service.ledger.reading.batch_status(upload.batch_id)
    refused = await service.ledger.uploads.refused_lines(upload.batch_id)
    if status.final == status.jobs and upload.ended_at is None:
        upload = await _end(service, upload)
    completed = status.states.get(JobState.COMPLETED, 0)
    failed = refused + status.final - completed
    counts = {"total": status.jobs + refused, "completed": completed, "failed": failed}
    return {**_fields(upload), **_ends(upload, status), **_files(upload, completed, failed), "request_counts": counts}


async def _end(service: Service, upload: Upload) -> Upload:
    """Ends a batch whose jobs are all final; a large one is a while in the state ``finalizing``, as at OpenAI."""
    task = service.endings.get(upload.id)
    if task is None:
        task = service.endings[upload.id] = service.go_on(
            service.bulk.run(upload.tenant, lambda ledger: end_upload(ledger, upload, show_of(upload)))
        )
        task.add_done_callback(lambda _: service.endings.pop(upload.id))
    ended, _ = await asyncio.wait({task}, timeout=END_S)
    return task.result() if ended else upload


def _fields(upload: Upload) -> dict[str, Any]:
    """The fields that do not change, and those of a state that it is not in."""
    assert upload.submitted_at is not None
    began = int(upload.submitted_at.timestamp())
    errors = None if upload.errors is None else {"object": "list", "data": upload.errors}
    total = upload.lines or 0
    names = ("finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    return {
        "id": f"batch_{upload.id.hex}",
        "object": "batch",
        "endpoint": endpoint_of(upload),
        "errors": errors,
        "input_file_id": file_id(upload),
        "completion_window": f"{(upload.window_s or 0) // 3600}h",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": began,
        "in_progress_at": began if upload.batch_id else None,
        "expires_at": began + (upload.window_s or 0),
        **{f"{name}_at": None for name in names},
        "request_counts": {"total": total, "completed": 0, "failed": 0},
        "metadata": {name: text for name, text in (upload.metadata or {}).items() if name != ENDPOINT_KEY},
    }


def _ends(upload: Upload, status: BatchStatus) -> dict[str, Any]:
    """The state, with the times of its edges."""
    cancelling = {"cancelling_at": _seconds(status.cancelled_at)} if status.cancelled_at else {}
    if upload.ended_at is None and status.final == status.jobs:
        return {"status": "finalizing", **cancelling}
    if upload.ended_at is None:
        # After a cancel that is through, jobs which are not final were ordered again.
        return {"status": "cancelling", **cancelling} if status.cancelling else {"status": "in_progress"}
    ended = _seconds(upload.ended_at)
    if status.states.get(JobState.EXPIRED):
        return {"status": "expired", "expired_at": ended, **cancelling}
    if cancelling and status.states.get(JobState.CANCELLED):
        return {"status": "cancelled", "cancelled_at": ended, **cancelling}
    return {"status": "completed", "finalizing_at": ended, "completed_at": ended, **cancelling}


def _files(upload: Upload, completed: int, failed: int) -> dict[str, Any]:
    """The files of a batch that ended: each only where it has a line."""
    if upload.ended_at is None:
        return {}
    return {
        "output_file_id": file_id(upload, "-output") if completed else None,
        "error_file_id": file_id(upload, "-error") if failed else None,
    }


def _seconds(at: Any) -> int | None:
    return None if at is None else int(at.timestamp())
