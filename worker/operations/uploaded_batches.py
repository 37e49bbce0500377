"""Makes batches of uploaded files whose lines are in the form of OpenAI's Batch API, an envelope around each job, and writes their results as rows of OpenAI's files."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import orjson

from schemas.failure import FailureKind
from schemas.states import JobState
from tasks.errors import InputError
from tasks.ports import JobView, Refused, Submitter
from worker.ledger.pages import in_pages
from worker.ledger.postgres import PostgresLedger
from worker.ledger.uploads import Upload
from worker.operations.counts import count_of
from worker.operations.file_intake import InputBounds, InputOrder
from worker.operations.file_submission import Submission
from worker.operations.input_rows import Row
from worker.operations.json_lines import UPLOAD_SUFFIX
from worker.operations.result_lines import PIECE_BYTES, result_lines
from worker.operations.unpacked_file import UnpackedFile
from worker.providers.registry import Installation
from worker.settings import Settings

ENDPOINT = "/v1/answers"
"""The address in each line, and of the batch, where each body is a job."""


class Orders(Protocol):
    """Bodies of lines that are no jobs, but orders by other names."""

    def job(self, body: dict[str, Any], catalog: Installation) -> dict[str, Any]:
        """Makes the job of a body; raises ``InputError`` that names a parameter of the order."""

    def named(self, error: InputError, job: dict[str, Any]) -> InputError:
        """The refusal of a job that it made, with the parameters of the order in place of the job's fields."""


ENDPOINT_KEY = "nightdesk_endpoint"
"""Key in the metadata of an upload: the address of its lines, where it is another one."""

MOST_ERRORS = 100
"""Lines that are named of a file that no batch can be made of."""

_CODES = {None: "invalid_json_line", "custom_id": "invalid_custom_id", "url": "mismatched_url"}

_GIVEN_BY_ENVELOPE = ("custom_id", "idempotency_key", "job_id")


class BatchOrder(NamedTuple):
    """The options of a batch that is to be made of a file."""

    window: timedelta
    metadata: Mapping[str, str]
    submitter: Submitter | None = None
    """The key of the HTTP service that it came with."""
    endpoint: str = ENDPOINT
    orders: Orders | None = None
    """None: each body is a job."""


async def submit_upload(
    ledger: PostgresLedger,
    settings: Settings,
    upload: Upload,
    order: BatchOrder,
    files: Path,
) -> Upload:
    """Makes the batch of a file; again for the same file it is the same batch.

    Its window counts from the first order that was accepted. A file with a line whose envelope is wrong makes no batch: its errors are noted. A job or order that is not
    valid in a right envelope is refused alone. ``files``: the folder and the beginning of the names of those that it needs meanwhile.
    """
    if upload.submitted_at is not None:
        return upload
    window_s = int(order.window.total_seconds())
    envelopes = _Envelopes(order, Installation(settings, same_for_workers=settings.embedded()))
    # By this key a submission that was cut off before its note finds its batch again.
    batch = {
        "key": f"upload:{upload.id}",
        "name": upload.filename[:256],
        "deadline": await ledger.uploads.now() + order.window,
    }
    accepted = None
    refused: Sequence[Refused] = ()
    with _file(files) as content:
        unpacked = UnpackedFile(content, settings.http_max_body_bytes, settings.http_max_lines)
        async for piece in ledger.uploads.content(upload.id):
            while piece := unpacked.write(piece):
                pass
        unpacked.end()
        lines = InputOrder(
            [content.name],
            batch,
            tenant=upload.tenant,
            submitter=order.submitter,
            bounds=InputBounds(settings.http_max_lines, settings.http_max_lines),
            opened=envelopes.opened,
            named=envelopes.named,
        )
        try:
            submission = Submission(lines, settings)
            accepted = None if submission.empty else await submission.write(ledger)
            refused = submission.intake.refused
        except InputError:
            if not envelopes.errors:
                raise
    own = {} if order.endpoint == ENDPOINT else {ENDPOINT_KEY: order.endpoint}
    note = partial(
        ledger.uploads.submit, upload, window_s=window_s, metadata={**order.metadata, **own}, lines=envelopes.lines
    )
    if accepted is None or accepted.batch_id is None:
        return await note(errors=envelopes.errors or _errors_of(refused))
    return await note(batch_id=accepted.batch_id)


def _errors_of(refused: Sequence[Refused]) -> list[dict[str, Any]]:
    return [
        {**_error(line.line, "invalid_request", line.message, line.field), "custom_id": line.custom_id}
        for line in sorted(refused, key=lambda line: line.position)[:MOST_ERRORS]
    ]


def _file(stem: Path) -> Any:
    stem.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return NamedTemporaryFile(dir=stem.parent, prefix=stem.name, suffix=UPLOAD_SUFFIX)


@dataclass(slots=True)
class _Envelopes:
    """Opens the lines of a file; tells what is wrong with the envelope of some, so that no batch is made."""

    order: BatchOrder
    catalog: Installation
    lines: int = 0
    """Those that are not blank."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    _places: dict[str, int] = field(default_factory=dict)
    """The line of each custom id."""

    def opened(self, rows: Iterator[Row]) -> Iterator[Row]:
        """The rows with the job of each; raises ``InputError`` at their end, or amid too many errors."""
        for row in rows:
            self.lines += 1
            try:
                if row.error is not None:
                    raise row.error
                job = _job(row.value, self.order.endpoint)
                self._require_unique(job["custom_id"], row.line)
            except InputError as error:
                self.errors.append(
                    _error(row.line, _CODES.get(error.field, "invalid_request"), str(error), error.field)
                )
                if len(self.errors) == MOST_ERRORS:
                    break
                continue
            # A batch that will not be made needs no more jobs.
            if not self.errors:
                yield self._ordered(row, job)
        if not self.lines:
            self.errors.append(_error(None, "empty_file", "The input file is empty.", "input_file_id"))
        if self.errors:
            raise InputError(f"the envelopes of {count_of(len(self.errors), 'line')} are not valid")

    def _ordered(self, row: Row, job: dict[str, Any]) -> Row:
        """The row with the job of its order, or with the fault of that."""
        if self.order.orders is None:
            return row._replace(value=job)
        own = {"custom_id": job["custom_id"]}
        try:
            return row._replace(value={**self.order.orders.job(row.value["body"], self.catalog), **own})
        except InputError as error:
            return row._replace(value=own, error=error)

    def named(self, error: InputError, job: Any) -> InputError:
        """The fault of a job by the names that its producer knows."""
        return error if self.order.orders is None else self.order.orders.named(error, job)

    def _require_unique(self, custom_id: str, number: int) -> None:
        if (earlier := self._places.setdefault(custom_id, number)) != number:
            raise InputError(f"{custom_id!r} is that of line {earlier} already", field="custom_id")


def _job(row: Any, endpoint: str) -> dict[str, Any]:
    """The job in an envelope; raises ``InputError`` naming the part of the envelope at fault."""
    if not isinstance(row, dict):
        raise InputError("each line must be a JSON object with custom_id, method, url and body")
    custom_id, body = row.get("custom_id"), row.get("body")
    if not isinstance(custom_id, str) or not custom_id:
        raise InputError("must be a string that is not empty", field="custom_id")
    if row.get("method") != "POST":
        raise InputError("must be POST", field="method")
    if row.get("url") != endpoint:
        raise InputError(f"must be {endpoint}, as the endpoint of the batch", field="url")
    if not isinstance(body, dict):
        raise InputError("must be a JSON object: the job", field="body")
    for name in _GIVEN_BY_ENVELOPE:
        if name in body and not (name == "custom_id" and body[name] == custom_id):
            raise InputError("not taken, as custom_id beside 'body' names the job; leave it out", field=f"body.{name}")
    return {**body, "custom_id": custom_id}


def _error(line: int | None, code: str, message: str, param: str | None) -> dict[str, Any]:
    return {"code": code, "line": line, "message": message, "param": param}


Show = Callable[[JobView], tuple[int, Any]]
"""Makes the status and the body of the response of a completed job."""

VIEWS = 10
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
