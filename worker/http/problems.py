"""Answers errors as problem details (RFC 9457), without a secret, a host name or a traceback."""

import difflib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from typing import Any

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tasks.errors import (
    IdempotencyConflict,
    InputError,
    LedgerError,
    NightdeskError,
    NotFound,
    QueueFull,
    ServiceUnavailable,
    TooManyJobs,
    Unstorable,
    UploadsFull,
)
from tasks.ports import Refused
from tasks.raw_jobs.refusals import named_problems
from worker.http.submission_process import ProcessEnded
from worker.ledger.outage import OutageLasts
from worker.operations.body_submission import MOST_NAMED

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_S = 5
"""Seconds after which a caller may try again."""


REQUEST_ID = "nightdesk.request_id"
"""Key of the scope of a request: the id that its answer has, too."""

OPENAI = "/openai/"
"""Beginning of the addresses that speak like OpenAI's."""

_OPENAI_TYPES = {403: "permission_error", 429: "rate_limit_error"}
_OPENAI_CODES: dict[int | str, str] = {
    401: "invalid_api_key",
    429: "rate_limit_exceeded",
    "model-not-found": "model_not_found",
    "unknown-address": "unknown_url",
}


class FieldError(BaseModel):
    """One part of a request that is at fault."""

    message: str
    field: str | None = None
    line: int | None = Field(default=None, description="of the body, from 1")
    custom_id: str | None = None


class ProblemDetails(BaseModel):
    """The body of every answer that is not a success."""

    type: str = Field(description="urn:nightdesk:problem:KIND; the kind does not change, the texts may")
    title: str
    status: int
    detail: str = Field(description="what happened, why, and what to do")
    field: str | None = Field(default=None, description="dotted path of the first field at fault")
    errors: tuple[FieldError, ...] = Field(default=(), description=f"of each part at fault, at most {MOST_NAMED:,}")


@dataclass(slots=True)
class Problem(Exception):
    """A request that is answered with an error."""

    status: int
    kind: str
    title: str
    detail: str
    field: str | None = None
    errors: Sequence[FieldError] = ()
    headers: Mapping[str, str] = default(default_factory=dict)
    near: str = ""
    """The address that was meant, whose client shows nothing but errors in its own form."""

    def answer(self, path: str) -> Response:
        """The answer, in the form of the API that an address is part of."""
        if path.startswith(OPENAI):
            return self.openai_response()
        kind = f"urn:nightdesk:problem:{self.kind}"
        details = ProblemDetails(
            type=kind, title=self.title, status=self.status, detail=self.detail, field=self.field or None,
            errors=tuple(self.errors),
        )  # fmt: skip
        content = details.model_dump_json(exclude_defaults=True)
        return Response(content, self.status, {**self.headers, "Cache-Control": "no-store"}, MEDIA_TYPE)

    def openai_response(self) -> Response:
        """The answer in the form of OpenAI's API, so that its client raises what programs expect; invalid is 400 there."""
        status = 400 if self.status == 422 else self.status  # noqa: PLR2004 - the status itself
        kind = _OPENAI_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")  # noqa: PLR2004
        error = {
            "message": self.detail,
            "type": kind,
            "param": self.field,
            "code": _OPENAI_CODES.get(self.kind, _OPENAI_CODES.get(status)),
        }
        return Response(orjson.dumps({"error": error}), status, self.headers, "application/json")


def not_found(what: str = "resource") -> Problem:
    """The same for what does not exist and for what another tenant has."""
    return Problem(404, "not-found", "Not found", f"there is no such {what}, or this key may not see it; check the id")


def invalid(detail: str, field: str | None = None) -> Problem:
    """A request whose content can't be taken; the detail names the field, for some show nothing else."""
    return Problem(422, "invalid-request", "Invalid request", str(InputError(detail, field=field)), field)


def line_errors(refused: Sequence[Refused]) -> list[FieldError]:
    """The first refused lines of a body, each with its line and field."""
    return [
        FieldError(message=line.message, field=line.field, line=line.line, custom_id=line.custom_id)
        for line in refused[:MOST_NAMED]
    ]


_AWAY = "the ledger (PostgreSQL) can't be reached now; nothing was done, try again in some seconds"
_LOST = (
    "the ledger (PostgreSQL) did not answer; no accepted job is lost. Try again in some seconds: a submission with the same "
    "Idempotency-Key, because this one may have been accepted"
)

_CUT_OFF = (
    "the process of the service that takes large submissions ended; no accepted job is lost. Send the submission again "
    "with the same Idempotency-Key, because it may have been accepted"
)


_LIMITS: dict[type[TooManyJobs], str] = {QueueFull: "queue-full", UploadsFull: "storage-full"}


def problem_of(error: NightdeskError) -> Problem:
    """The answer to an error of ours. Details of the servers go to the log alone."""
    retry = {"Retry-After": str(RETRY_S)}
    field_name = error.field if isinstance(error, InputError) else None
    match error:
        case NotFound():
            problem = not_found()
        case IdempotencyConflict():
            problem = Problem(409, "conflict", "Conflict", str(error), field_name)
        case TooManyJobs():
            kind = _LIMITS.get(type(error), "key-limit")
            wait = {"Retry-After": str(max(1, error.retry_after_s))}
            problem = Problem(429, kind, "Too many jobs", str(error), headers=wait)
        case InputError():
            problem = invalid(str(error), field_name)
            problem.errors = line_errors(error.refused)
        case Unstorable():
            problem = invalid(f"the database can't keep a value: {error}")
        case OutageLasts():
            # The log tells of an outage once, not once a request.
            problem = Problem(503, "unavailable", "Unavailable", _AWAY, headers=retry)
        case ServiceUnavailable():
            log.warning("a request can't be served now: %s", error)
            detail = _CUT_OFF if isinstance(error, ProcessEnded) else _LOST
            problem = Problem(503, "unavailable", "Unavailable", detail, headers=retry)
        case LedgerError():
            log.error("a request can't be served: %s", error)
            detail = "the ledger did not answer as it should; the log of the service says more"
            problem = Problem(503, "ledger-error", "Ledger error", detail, headers=retry)
        case _:
            log.error("a request can't be served: %s", error)
            problem = internal()
    return problem


def internal() -> Problem:
    """A defect of ours, or of the settings."""
    detail = "the service could not do this; its log says more"
    return Problem(500, "internal", "Internal error", detail)


# ---- handlers of the application -------------------------------------------------------------------------------------


async def answer_problem(request: Request, error: Exception) -> Response:
    """Answers an error that a route raised, in the form of its part of the API."""
    match error:
        case HTTPException(status_code=404):
            problem = _unknown_address(request)
        case HTTPException(status_code=405):
            problem = _wrong_method(request)
        case _:
            problem = problem_from(error)
    if (named := _NAMED.search(getattr(request.scope.get("route"), "path", ""))) and problem == not_found():
        problem = not_found(_NOUNS.get(named[1], named[1].removesuffix("_id")))
    if problem.status == 500:  # noqa: PLR2004 - the status itself
        log.error("the request %s ended with an error of this service", request.scope.get(REQUEST_ID))
    return problem.answer(problem.near or request.url.path)


_NAMED = re.compile(r".*\{(\w+)")
"""The last part of a route's path that a caller fills in."""
_NOUNS = {"name": "job"}


def _unknown_address(request: Request) -> Problem:
    """Tells an address that nobody serves from an id that nothing has, and names the nearest one."""
    address = request.url.path.rstrip("/")
    served = list(request.app.openapi()["paths"])
    # Most of an address is alike for all: its last part must be near.
    last = difflib.get_close_matches(address.rpartition("/")[2], [path.rpartition("/")[2] for path in served], 1, 0.7)
    alike = [path for path in served if path.endswith((address, *(f"/{part}" for part in last)))]
    near = difflib.get_close_matches(address, alike, 1, 0.5)
    nearest = near[0] if address and near else ""
    hint = f"is it {nearest}? All" if nearest else "all"
    detail = f"{request.method} {address[:200] or '/'} is an address that nobody serves; {hint} are in /openapi.json"
    return Problem(404, "unknown-address", "Unknown address", detail, near=nearest)


def methods_of(request: Request) -> dict[str, Any]:
    """The entries of an address in the OpenAPI document, by the method in lower case; empty: nothing."""
    # There a part that may hold slashes is named like any other.
    path = getattr(request.scope.get("route"), "path", "").replace(":path}", "}")
    methods: dict[str, Any] = request.app.openapi()["paths"].get(path, {})
    return methods


def _wrong_method(request: Request) -> Problem:
    """Names the methods of an address, those of all its routes."""
    methods = sorted(method.upper() for method in methods_of(request) or {"get": {}})
    detail = f"this address takes {' and '.join(methods)}, not {request.method}; see /openapi.json"
    return Problem(405, "method-not-allowed", "Method not allowed", detail, headers={"Allow": ", ".join(methods)})


def problem_from(error: Exception) -> Problem:
    """The answer to any error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, NightdeskError):
        return problem_of(error)
    if isinstance(error, RequestValidationError):
        return _parameters(error)
    if isinstance(error, HTTPException):
        return _of_framework(error)
    return internal()


def _parameters(error: RequestValidationError) -> Problem:
    """The parameters of an address or a header at fault."""
    problems: list[Any] = list(error.errors())
    if any(problem["loc"][0] == "path" for problem in problems):
        # An id that is none names nothing.
        return not_found()
    errors = [
        FieldError(message=words, field=".".join(map(str, problem["loc"][1:])))
        for problem in problems[:5]
        for _, words in named_problems([problem], None)
    ]
    problem = invalid("; ".join(f"{error.field}: {error.message}" for error in errors), errors[0].field)
    problem.errors = errors
    return problem


def _of_framework(error: HTTPException) -> Problem:
    kind = {413: "too-large", 415: "unsupported-media-type"}.get(error.status_code, "refused")
    title = kind.replace("-", " ").capitalize()
    return Problem(error.status_code, kind, title, str(error.detail), headers=error.headers or {})
