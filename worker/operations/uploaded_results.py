"""Writes the results of a batch of an uploaded file as rows of OpenAI's files: the output, and the errors."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import orjson

from schemas.failure import FailureKind
from schemas.states import JobState
from worker.ledger.postgres import PostgresLedger
from worker.ledger.uploads import Upload
from worker.operations.result_lines import PIECE_BYTES, result_lines


async def end_upload(ledger: PostgresLedger, upload: Upload) -> Upload:
    """Notes the end of a batch whose jobs are all final, with the sizes of both files."""
    assert upload.batch_id is not None
    sizes = {True: 0, False: 0}
    async for line in result_lines(ledger, upload.batch_id):
        sizes[line.state == JobState.COMPLETED.value] += len(_row(line.content))
    return await ledger.uploads.end(upload, output_bytes=sizes[True], error_bytes=sizes[False])


async def result_rows(ledger: PostgresLedger, batch_id: UUID, *, completed: bool) -> AsyncIterator[bytes]:
    """The rows of the output, or those of the errors."""
    piece = bytearray()
    async for line in result_lines(ledger, batch_id):
        if (line.state == JobState.COMPLETED.value) is completed:
            piece += _row(line.content)
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


def _row(content: bytes) -> bytes:
    """A result as a line of OpenAI's files."""
    return orjson.dumps(_fields(content), option=orjson.OPT_APPEND_NEWLINE)


def _fields(content: bytes) -> dict[str, Any]:
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
