"""The bodies of answers that are not of the wire contract."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from schemas.batch import BatchStatus
from worker.http.problems import FieldError, ProblemDetails
from worker.ledger.labels import LabelVerdict
from worker.operations.label_changes import MOST_NOTE_CHARACTERS, checked_text, read_verdict

PRIVATE = {"Cache-Control": "private, no-store"}


def json_answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer of a document: a model, or what JSON can hold."""
    content = document.model_dump_json() if isinstance(document, BaseModel) else orjson.dumps(document, default=str)
    return Response(content, status, headers, "application/json")


def page_of(documents: list[dict[str, Any]], limit: int) -> Response:
    """A page of a list in the form of OpenAI's API; a document beyond ``limit`` says that there are more."""
    data = documents[:limit]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return json_answer({"object": "list", "data": data, **ends, "has_more": len(documents) > limit})


def body_of(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    """The body of a route that reads it itself, for the OpenAPI document."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


class SubmittedJob(BaseModel):
    """A job that was accepted, or was known by its idempotency key."""

    job_id: UUID
    batch_id: UUID = Field(description="every job is in a batch; one submitted alone has its own")
    created: bool = Field(description="false: the idempotency key names this job from before")
    warnings: tuple[str, ...] = ()


class SubmittedBatch(BaseModel):
    """A batch that was accepted, or was known by its key."""

    batch_id: UUID | None = Field(description="null: every job was known, and other batches hold them (held_by)")
    created: bool = Field(description="false: the key names this batch from before, or nothing was new")
    jobs: int = Field(description="accepted, those known from before included")
    refused: int = Field(description="lines that are no valid job; they also appear in the results, as failed")
    errors: tuple[FieldError, ...] = Field(description="of the refused lines, the first 1,000")
    repeated: int = Field(description="lines whose job is known by its idempotency key")
    held_by: dict[UUID, int] = Field(description="jobs known from before, by the batch that holds them")
    submitted_at: datetime | None = Field(description="first submission, where the key of the batch was known")
    warnings: tuple[str, ...] = ()


class BatchPage(BaseModel):
    """Some batches, newest first."""

    data: tuple[BatchStatus, ...]
    next_cursor: str | None = Field(description="value of 'cursor' for the next page; null: there is none")


class Cancelled(BaseModel):
    """The outcome of a cancel."""

    cancelled: int | None = Field(description="jobs that were cancelled; null: still going on, ask for the status")


class Paused(BaseModel):
    """The outcome of a pause."""

    paused: int | None = Field(description="jobs that wait for the resume now; null: still going on")


class Resumed(BaseModel):
    """The outcome of a resume."""

    resumed: int | None = Field(description="jobs that no longer wait; null: still going on")


class Retried(BaseModel):
    """The outcome of a retry."""

    retried: int | None = Field(description="jobs that have a new run; null: still going on")


class LabelOrder(BaseModel):
    """The verdict of a person on an answer."""

    verdict: Annotated[LabelVerdict, BeforeValidator(read_verdict)] = Field(description="1 and 0 do as well")
    claim: int | None = Field(default=None, ge=1, le=32_767, description="its number, from 1; null: the whole answer")
    run: int | None = Field(default=None, ge=1, le=32_767, description="whose answer was read; null: the present one")
    by: Annotated[str, AfterValidator(lambda text: checked_text(text, "by"))] | None = Field(
        default=None, max_length=100, description="the person, where a program labels for several"
    )
    note: Annotated[str, AfterValidator(lambda text: checked_text(text, "note"))] | None = Field(
        default=None, max_length=MOST_NOTE_CHARACTERS
    )


class StoredLabel(BaseModel):
    """A label as the ledger has it."""

    job_id: UUID
    run: int
    claim: int | None
    verdict: str
    by: str = Field(description="the name of the key, followed by the person whom the program named")
    note: str | None


class Readiness(BaseModel):
    """The state of the servers that the service needs."""

    ready: bool = Field(description="true with PostgreSQL alone: jobs are accepted and polls answered without Redis")
    postgres: str
    redis: str


PROBLEMS = {
    code: {"model": ProblemDetails, "description": text, "content": {"application/problem+json": {}}}
    for code, text in {
        400: "the body is not what its Content-Type says",
        401: "no key, or none that is known",
        403: "the key's role does not include this",
        404: "there is none, or not for this key",
        408: "the body stopped coming",
        409: "an id or key was used before with another content",
        413: "the body is too large",
        415: "the body has another type",
        421: "without keys only under a loopback name",
        422: "something in the request is not valid; 'field' names it",
        429: "too many jobs wait already",
        503: "the ledger can't be reached now",
    }.items()
}
"""Answers other than a success, for the OpenAPI document."""


class OpenAiError(BaseModel):
    """An error in the form of OpenAI's API."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAiErrorBody(BaseModel):
    """The body of an answer that is not a success, under /openai."""

    error: OpenAiError


OPENAI_PROBLEMS: dict[int | str, dict[str, object]] = {
    code: {"model": OpenAiErrorBody, "description": description}
    for code, description in {
        400: "something in the request is not valid; 'param' names it",
        **{code: str(PROBLEMS[code]["description"]) for code in (401, 403, 404, 408, 413, 415, 421, 429, 503)},
    }.items()
}
"""Answers other than a success under /openai."""


def problems(*codes: int) -> dict[int | str, dict[str, object]]:
    """Those of these codes, and of every route."""
    return {code: dict(PROBLEMS[code]) for code in sorted({*codes, 401, 403, 421, 422, 503})}
