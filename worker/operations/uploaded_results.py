"""Writes the results of a batch of an uploaded file as rows of OpenAI's files: the output, and the errors."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from uuid import UUID

import orjson

from schemas.failure import FailureKind
from schemas.states import JobState
from tasks.ports import JobView
from worker.ledger.pages import in_pages
from worker.ledger.postgres import PostgresLedger
from worker.ledger.uploads import Upload
from worker.operations.result_lines import PIECE_BYTES, result_lines

Show = Callable[[JobView], tuple[int, Any]]
"""Makes the status and the body of the response of a completed job."""

VIEWS = 50
"""Jobs that are read at once where a body is more than the result."""


async def end_upload(ledger: PostgresLedger, upload: Upload, show: Show | None = None) -> Upload:
    """Notes the end of a batch whose jobs are all final, with the sizes of both files."""
    assert upload.batch_id is not None
    sizes = {True: 0, False: 0}
    for completed in sizes:
        async for piece in result_rows(ledger, upload.batch_id, completed=completed, show=show):
            sizes[completed] += len(piece)
    return await ledger.uploads.end(upload, output_bytes=sizes[True], error_bytes=sizes[False])


def error_rows(upload: Upload) -> bytes:
    """The rows of the errors of a file that no batch was made of, as it holds no line that is a job."""
    rows = [
        {
            "id": f"batch_req_{upload.id.hex}_{error['line'] or 0}",
            "custom_id": error.get("custom_id"),
            "response": None,
            "error": {"code": error["code"], "message": error["message"]},
        }
        for error in upload.errors or ()
    ]
    return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


async def result_rows(
    ledger: PostgresLedger, batch_id: UUID, *, completed: bool, show: Show | None = None
) -> AsyncIterator[bytes]:
    """The rows of the output, or those of the errors; ``show`` makes the bodies of the output, by default the results."""
    piece = bytearray()
    lines = (
        line.content
        async for line in result_lines(ledger, batch_id)
        if (line.state == JobState.COMPLETED.value) is completed
    )
    async for contents in in_pages(lines, VIEWS):
        bodies: dict[str, tuple[int, Any]] = {}
        if show is not None and completed:
            views = await ledger.reading.views([UUID(orjson.loads(content)["job_id"]) for content in contents])
            bodies = {str(view.job_id): show(view) for view in views}
        for content in contents:
            piece += orjson.dumps(_fields(content, bodies), option=orjson.OPT_APPEND_NEWLINE)
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _fields(content: bytes, bodies: Mapping[str, tuple[int, Any]]) -> dict[str, Any]:
    """A result as a line of OpenAI's files."""
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
        status, body = bodies.get(request_id, (200, orjson.Fragment(content)))
        response = {"status_code": status, "request_id": request_id, "body": body}
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
