"""The route of files in the form of OpenAI's API: uploads for batches, and the output and errors of batches."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import IO, Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Path, Request
from fastapi.responses import Response, StreamingResponse
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from uuid_utils.compat import uuid7

from schemas.failure import FailureKind
from schemas.states import JobState
from worker.http.bodies import pieces_of
from worker.http.dependencies import Reader, ServiceOf, Submitter
from worker.http.documents import OPENAI_PROBLEMS
from worker.http.problems import Problem, invalid, not_found
from worker.ledger.postgres import PostgresLedger
from worker.ledger.uploads import RETENTION, Upload
from worker.operations.result_lines import PIECE_BYTES, result_lines

router = APIRouter(prefix="/openai/v1/files", tags=["openai"], responses=OPENAI_PROBLEMS)

MOST_BYTES = 200_000_000
"""Largest file, as at OpenAI."""

LINES = "application/jsonl"

PIECE = 1_000_000
"""Bytes of a file in a row of the ledger."""

_ID = re.compile(r"file-([0-9a-f]{32})(-output|-error)?")

FileId = Annotated[str, Path(max_length=100)]


def file_id(upload: Upload, part: str = "") -> str:
    """The id of an uploaded file, or of the output or errors of its batch."""
    return f"file-{upload.id.hex}{part}"


def _parse(text: str) -> tuple[UUID, str]:
    match = _ID.fullmatch(text)
    if match is None:
        raise not_found()
    return UUID(match[1]), match[2] or ""


def _document(upload: Upload) -> dict[str, Any]:
    created = int(upload.created_at.timestamp())
    return {
        "id": file_id(upload),
        "object": "file",
        "bytes": upload.bytes,
        "created_at": created,
        "expires_at": None if upload.submitted_at else created + int(RETENTION.total_seconds()),
        "filename": upload.filename,
        "purpose": "batch",
        "status": "processed",
    }


@router.post("", response_model=None)
async def create(request: Request, service: ServiceOf, caller: Submitter) -> Response:
    """Upload a file of JSON lines with the purpose `batch`."""
    most = min(MOST_BYTES, service.settings.http_max_body_bytes)
    parser = MultiPartParser(
        request.headers, pieces_of(request, most + 10_000), max_files=1, max_fields=20, max_part_size=10_000
    )
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise Problem(415, "unsupported-media-type", "Unsupported media type", "send multipart/form-data")
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise invalid(f"the form can't be read: {error.message}") from None
    try:
        file = form.get("file")
        if not isinstance(file, UploadFile) or file.size is None:
            raise invalid("send the file in the field 'file'", "file")
        if form.get("purpose") != "batch":
            raise invalid("the only purpose here is 'batch'", "purpose")
        size, name, content = file.size, (file.filename or "")[:200], file.file
        upload = await service.bulk.run(
            lambda ledger: ledger.uploads.add(uuid7(), caller.tenant, name, size, _pieces(content))
        )
    finally:
        await form.close()
    return _json(_document(upload))


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def _json(document: Any) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")


@router.get("/{file}", response_model=None)
async def retrieve(file: FileId, service: ServiceOf, caller: Reader) -> Response:
    """An uploaded file, or one of results, without its content."""
    upload_id, part = _parse(file)
    upload = await service.ledger.uploads.find(upload_id, caller.tenant)
    if part and not _has_results(upload):
        raise not_found()
    purpose = {"id": file, "purpose": "batch_output"} if part else {}
    return _json({**_document(upload), **purpose})


@router.delete("/{file}", response_model=None)
async def delete(file: FileId, service: ServiceOf, caller: Submitter) -> Response:
    """Remove an uploaded file that no batch was made of."""
    upload_id, part = _parse(file)
    if part or not await service.ledger.uploads.remove(upload_id, caller.tenant):
        raise not_found()
    return _json({"id": file, "object": "file", "deleted": True})


@router.get("/{file}/content", response_model=None, responses={200: {"content": {LINES: {}}}})
async def content(file: FileId, service: ServiceOf, caller: Reader) -> Response:
    """The lines of a file. Those of an uploaded one go with the batch that is made of it."""
    upload_id, part = _parse(file)
    upload = await service.ledger.uploads.find(upload_id, caller.tenant)
    batch_id = upload.batch_id
    if not part and upload.submitted_at is None:
        lines = service.bulk.stream(lambda ledger: ledger.uploads.content(upload_id))
    elif part and batch_id is not None and _has_results(upload):
        is_output = part == "-output"
        lines = service.bulk.stream(lambda ledger: _rows(ledger, batch_id, completed=is_output))
    else:
        raise not_found()
    return StreamingResponse(lines, headers={"Cache-Control": "private, no-store"}, media_type=LINES)


def _has_results(upload: Upload) -> bool:
    return upload.batch_id is not None and upload.ended_at is not None


async def _rows(ledger: PostgresLedger, batch_id: UUID, *, completed: bool) -> AsyncIterator[bytes]:
    """The rows of the output, or those of the errors."""
    piece = bytearray()
    async for line in result_lines(ledger, batch_id):
        if (line.state == JobState.COMPLETED.value) is completed:
            piece += orjson.dumps(_row(line.content)) + b"\n"
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _row(content: bytes) -> dict[str, Any]:
    """A result as a row of OpenAI's files."""
    result = orjson.loads(content)
    # A line that was refused has no job, so its batch and place name it.
    request_id = result["job_id"] or f"{result['batch_id']}_{result['position']}"
    row = {
        "id": f"batch_req_{request_id.replace('-', '')}",
        "custom_id": result["custom_id"],
        "response": None,
        "error": None,
    }
    state, failure = result["state"], result["failure"] or {}
    if state == JobState.COMPLETED.value:
        response = {"status_code": 200, "request_id": request_id, "body": orjson.Fragment(content)}
        return {**row, "response": response}
    if state in {JobState.CANCELLED.value, JobState.EXPIRED.value}:
        return {**row, "error": {"code": f"batch_{state}", "message": failure.get("message", state)}}
    refused = failure.get("kind") == FailureKind.INVALID_REQUEST.value
    error = {
        "message": failure.get("message", "the job failed"),
        "type": "invalid_request_error" if refused else "server_error",
        "param": None,
        "code": failure.get("kind"),
    }
    response = {"status_code": 400 if refused else 500, "request_id": request_id, "body": {"error": error}}
    return {**row, "response": response}
