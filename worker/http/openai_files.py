"""The route of files in the form of OpenAI's API: uploads for batches, and the output and errors of batches."""

import re
from collections.abc import Iterator
from functools import partial
from typing import IO, Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from uuid_utils.compat import uuid7

from worker.http.bodies import FORM_BYTES, declared_size, kept_pieces_of, no_space, too_large
from worker.http.dependencies import Reader, ServiceOf, Submitter
from worker.http.documents import OPENAI_PROBLEMS, PRIVATE, json_answer, page_of
from worker.http.openai_lines import show_of
from worker.http.problems import Problem, invalid, not_found
from worker.http.shares import STREAM_BYTES, take_bytes
from worker.ledger.uploads import RETENTION, Upload
from worker.operations.uploaded_batches import error_rows, result_rows

router = APIRouter(prefix="/openai/v1/files", tags=["openai"], responses=OPENAI_PROBLEMS)

MOST_BYTES = 200_000_000
"""Largest file, as at OpenAI."""

MOST_WAITING = 1_000
"""Files of a tenant that wait for their batch."""

MOST_LISTED = 10_000
"""Files on a page of the list."""

LINES = "application/jsonl"

PIECE = 1_000_000
"""Bytes of a file in a row of the ledger."""

_ID = re.compile(r"file-([0-9a-f]{32})(-output|-error)?")

FileId = Annotated[str, Path(max_length=100)]


def file_id(upload: Upload, part: str = "") -> str:
    """The id of an uploaded file, or of the output or errors of its batch."""
    return f"file-{upload.id.hex}{part}"


def parse_file_id(text: str) -> tuple[UUID, str]:
    """The upload of a file, and which of its files it is; raises ``Problem``."""
    match = _ID.fullmatch(text)
    if match is None:
        raise not_found()
    return UUID(match[1]), match[2] or ""


PARTS = {"": "batch", "-output": "batch_output", "-error": "batch_output"}
"""The files of an upload, and their purposes."""


def _document(upload: Upload, part: str = "") -> dict[str, Any]:
    """A file as OpenAI's API shows it."""
    created = (upload.ended_at or upload.submitted_at) if part else upload.created_at
    assert created is not None
    began = int(created.timestamp())
    waits = not part and upload.submitted_at is None
    return {
        "id": file_id(upload, part),
        "object": "file",
        "bytes": _size(upload, part),
        "created_at": began,
        "expires_at": began + int(RETENTION.total_seconds()) if waits else None,
        "filename": f"batch_{upload.id.hex}_{part[1:]}.jsonl" if part else upload.filename,
        "purpose": PARTS[part],
        "status": "processed",
    }


def _size(upload: Upload, part: str) -> int:
    """The size of a file; 0: there is none."""
    if part == "-error" and _is_failed(upload):
        return len(error_rows(upload))
    return (upload.output_bytes if part == "-output" else upload.error_bytes if part else upload.bytes) or 0


def _is_failed(upload: Upload) -> bool:
    """Tells that a batch was ordered, and none made."""
    return upload.submitted_at is not None and upload.batch_id is None


def _exists(upload: Upload, part: str) -> bool:
    return not part or ((upload.ended_at is not None or _is_failed(upload)) and _size(upload, part) > 0)


@router.post("")
async def create(request: Request, service: ServiceOf, caller: Submitter) -> Response:
    """Upload a file of JSON lines with the purpose `batch`."""
    most = min(MOST_BYTES, service.settings.http_max_body_bytes, service.settings.http_max_stored_bytes)
    bounds = (service.settings.http_max_stored_bytes, MOST_WAITING)
    await service.ledger.uploads.require_room(caller.tenant, max(0, declared_size(request) - FORM_BYTES), bounds)
    parser = MultiPartParser(
        request.headers,
        kept_pieces_of(request, most + FORM_BYTES),
        max_files=1,
        max_fields=20,
        max_part_size=FORM_BYTES,
    )
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise Problem(415, "unsupported-media-type", "Unsupported media type", "send multipart/form-data")
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise invalid(f"the form can't be read: {error.message}") from None
    except OSError as error:
        raise no_space(error) from error
    try:
        file, size = _file_of(form, most)
        name, content = (file.filename or "")[:200], file.file
        upload = await service.bulk.run(
            caller.tenant,
            lambda ledger: ledger.uploads.add(uuid7(), caller.tenant, name, size, _pieces(content), bounds=bounds),
        )
    finally:
        await form.close()
    return json_answer(_document(upload))


def _file_of(form: FormData, most: int) -> tuple[UploadFile, int]:
    """The file of a form and its size; raises ``Problem`` for a form that is no upload for a batch."""
    file = form.get("file")
    if not isinstance(file, UploadFile) or file.size is None:
        raise invalid("send the file in the field 'file'", "file")
    if form.get("purpose") != "batch":
        raise invalid("the only purpose here is 'batch'", "purpose")
    if any(name.startswith("expires_after") for name in form):
        detail = f"a file is kept until its batch is made, or {RETENTION.days} days; leave it out"
        raise invalid(detail, "expires_after")
    if file.size > most:
        raise too_large(most)
    return file, file.size


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


@router.get("")
async def files(
    service: ServiceOf,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 1_000,
    after: Annotated[str | None, Query(max_length=100)] = None,
    order: Literal["asc", "desc"] = "desc",
    purpose: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """Files by their time: those that were uploaded, and the output and errors of their batches."""
    newest_first = order == "desc"
    last_id, last_part = (None, "") if after is None else parse_file_id(after)
    if last_id is not None:
        await service.ledger.uploads.find(last_id, caller.tenant)
    uploads = await service.ledger.uploads.files(
        caller.tenant, limit + 2, last_id, ended=purpose == "batch_output", newest_first=newest_first
    )
    # Results come after their input.
    parts = sorted(PARTS, reverse=newest_first)
    documents = [
        _document(upload, part)
        for upload in uploads
        for part in parts
        if _exists(upload, part)
        and purpose in {None, PARTS[part]}
        and (upload.id != last_id or parts.index(part) > parts.index(last_part))
    ]
    return page_of(documents, limit)


@router.get("/{file}")
async def retrieve(file: FileId, service: ServiceOf, caller: Reader) -> Response:
    """An uploaded file, or one of results, without its content."""
    upload, part = await _find(service, caller, file)
    if not _exists(upload, part):
        raise not_found()
    return json_answer(_document(upload, part))


async def _find(service: ServiceOf, caller: Reader, file: str) -> tuple[Upload, str]:
    upload_id, part = parse_file_id(file)
    return await service.ledger.uploads.find(upload_id, caller.tenant), part


@router.delete("/{file}")
async def delete(file: FileId, service: ServiceOf, caller: Submitter) -> Response:
    """Remove an uploaded file that no batch was made of."""
    upload_id, part = parse_file_id(file)
    if part or not await service.ledger.uploads.remove(upload_id, caller.tenant):
        raise not_found()
    return json_answer({"id": file, "object": "file", "deleted": True})


@router.get("/{file}/content", responses={200: {"content": {LINES: {}}}})
async def content(request: Request, file: FileId, service: ServiceOf, caller: Reader) -> Response:
    """The lines of a file. Those of an uploaded one go with the batch that is made of it."""
    upload, part = await _find(service, caller, file)
    batch_id = upload.batch_id
    if not part and upload.submitted_at is None:
        lines = service.stream(caller, lambda ledger: ledger.uploads.content(upload.id))
    elif part == "-error" and _is_failed(upload):
        return Response(error_rows(upload), headers=PRIVATE, media_type=LINES)
    elif part and batch_id is not None and _exists(upload, part):
        rows = partial(result_rows, batch_id=batch_id, completed=part == "-output", show=show_of(upload))
        lines = service.stream(caller, rows)
    else:
        raise not_found()
    take_bytes(request, STREAM_BYTES)
    return StreamingResponse(lines, headers=PRIVATE, media_type=LINES)
