"""Makes batches of uploaded files whose lines are in the form of OpenAI's Batch API, an envelope around each job, and writes their results as rows of OpenAI's files."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, NamedTuple, Protocol
from uuid import UUID

import orjson

from schemas.failure import FailureKind
from schemas.states import JobState
from tasks.errors import InputError
from tasks.ports import JobView, Refused, Submitter
from worker.ledger.pages import in_pages
from worker.ledger.postgres import PostgresLedger
from worker.ledger.uploads import Upload
from worker.operations.file_intake import InputBounds, InputOrder
from worker.operations.file_submission import Submission
from worker.operations.json_lines import UPLOAD_SUFFIX, display_name, parse_line, read_lines
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

    def named(self, error: InputError, body: dict[str, Any]) -> InputError:
        """The refusal of the job of a body, with the parameters of the order in place of the job's fields."""


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
    with _file(files) as content, _file(files) as jobs:
        unpacked = UnpackedFile(content, settings.http_max_body_bytes, settings.http_max_lines)
        async for piece in ledger.uploads.content(upload.id):
            while piece := unpacked.write(piece):
                pass
        unpacked.end()
        envelopes = _Envelopes(order, Installation(settings, same_for_workers=settings.embedded()))
        envelopes.unwrap(content.name, jobs)
        own = {} if order.endpoint == ENDPOINT else {ENDPOINT_KEY: order.endpoint}
        metadata = {**order.metadata, **own}
        note = partial(ledger.uploads.submit, upload, window_s=window_s, metadata=metadata, lines=envelopes.lines)
        if envelopes.errors:
            return await note(errors=envelopes.errors)
        # By this key a submission that was cut off before its note finds its batch again.
        batch = {
            "key": f"upload:{upload.id}",
            "name": upload.filename[:256],
            "deadline": await ledger.uploads.now() + order.window,
        }
        bounds = InputBounds(settings.http_max_lines, settings.http_max_lines)
        refused, accepted = envelopes.refused, None
        if len(refused) < envelopes.lines:
            jobs_order = InputOrder(
                [jobs.name],
                batch,
                tenant=upload.tenant,
                submitter=order.submitter,
                bounds=bounds,
                refused=refused,
                named=_names_of(content.name, order.orders),
            )
            submission = Submission(jobs_order, settings)
            refused = submission.intake.refused
            accepted = None if submission.empty else await submission.write(ledger)
    if accepted is None or accepted.batch_id is None:
        return await note(errors=_errors_of(refused))
    return await note(batch_id=accepted.batch_id)


def _errors_of(refused: list[Refused]) -> list[dict[str, Any]]:
    return [
        {**_error(line.line, "invalid_request", line.message, line.field), "custom_id": line.custom_id}
        for line in sorted(refused, key=lambda line: line.position)[:MOST_ERRORS]
    ]


def _file(stem: Path) -> Any:
    stem.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return NamedTemporaryFile(dir=stem.parent, prefix=stem.name, suffix=UPLOAD_SUFFIX)


@dataclass(slots=True)
class _Envelopes:
    """The lines of a file, and what is wrong with the envelope of some."""

    order: BatchOrder
    catalog: Installation
    lines: int = 0
    """Those that are not blank."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    """Lines in a right envelope whose order is at fault."""
    _places: dict[str, int] = field(default_factory=dict)
    """The line of each custom id."""

    def unwrap(self, name: str, jobs: IO[bytes]) -> None:
        """Writes the job of each line without its envelope, up to too many errors."""
        last = 1
        for number, content in read_lines(name):
            self.lines += 1
            try:
                row = parse_line(content)
                own = _job(row, self.order.endpoint)
                self._require_unique(own["custom_id"], number)
            except InputError as error:
                self.errors.append(_error(number, _CODES.get(error.field, "invalid_request"), str(error), error.field))
                if len(self.errors) == MOST_ERRORS:
                    break
                continue
            line = Refused(number - 1, "", None, own["custom_id"], f"{display_name(jobs.name)}, line {number}")
            if (job := self._ordered(own, row["body"], line)) is None:
                continue
            # Its line stays the one that it had, also behind blank ones.
            jobs.write(b"\n" * (number - last) + orjson.dumps(job))
            last = number
        jobs.flush()
        if not self.lines:
            self.errors.append(_error(None, "empty_file", "The input file is empty.", "input_file_id"))

    def _ordered(self, job: dict[str, Any], body: dict[str, Any], line: Refused) -> dict[str, Any] | None:
        """The job of a line; None where its order is at fault."""
        if self.order.orders is None:
            return job
        try:
            return {**self.order.orders.job(body, self.catalog), "custom_id": line.custom_id}
        except InputError as error:
            self.refused.append(replace(line, message=str(error), field=error.field))
            return None

    def _require_unique(self, custom_id: str, number: int) -> None:
        if (earlier := self._places.setdefault(custom_id, number)) != number:
            raise InputError(f"{custom_id!r} is that of line {earlier} already", field="custom_id")


def _names_of(name: str, orders: Orders | None) -> Callable[[Refused], Refused] | None:
    """Tells refused jobs by the parameters of their orders; it reads the file again, as far as the last of them."""
    if orders is None:
        return None
    lines, at, content = read_lines(name), 0, None

    def named(line: Refused) -> Refused:
        nonlocal at, content
        number = line.position + 1
        # Those that come behind a later one tell of other jobs, by names that both have.
        if line.field is None or number < at:
            return line
        while at < number:
            at, content = next(lines)
        error = orders.named(InputError(line.message, field=line.field), parse_line(content)["body"])
        return replace(line, message=str(error), field=error.field)

    return named


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
