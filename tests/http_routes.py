"""Every route of the HTTP service with the right it needs, and a request that gets past its parameters."""

from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from schemas.access import Role
from tests.http_service import LINES
from worker.http.pages.visitors import form_token

JOB = {"query": "How long is the warranty?", "context": ["The warranty lasts two years."]}
BROWSER = "a-browser"
"""Cookie of the browser that sends forms."""


@dataclass(frozen=True)
class Rule:
    """The right that a route needs (None: none), and the rest of a request."""

    right: Role | None
    request: dict[str, Any] = field(default_factory=dict)
    queries: tuple[str, ...] = ()
    """Further addresses of the route, with ids outside its path."""
    finds: bool = True
    """False: also for its owner it may have nothing to show or to do."""


def form(**fields: str) -> dict[str, Any]:
    """The form of a page of this browser."""
    return {"data": {**fields, "token": form_token(BROWSER)}}


READ, SUBMIT = Rule(Role.READ), Rule(Role.SUBMIT)
OPEN = Rule(None)

RULES: dict[str, Rule] = {
    "GET /openapi.json": OPEN,
    "HEAD /openapi.json": OPEN,
    "GET /healthz": OPEN,
    "GET /readyz": OPEN,
    "HEAD /healthz": OPEN,
    "HEAD /readyz": OPEN,
    "GET /metrics": Rule(Role.METRICS),
    "POST /v1/jobs": Rule(Role.SUBMIT, {"json": JOB}),
    "GET /v1/jobs/{job_id}": READ,
    "POST /v1/jobs/{job_id}/labels": Rule(Role.REVIEW, {"json": {"verdict": "supported"}}, finds=False),
    "POST /v1/jobs/{job_id}/retry": Rule(Role.SUBMIT, finds=False),
    "POST /v1/jobs/{job_id}/cancel": SUBMIT,
    "GET /v1/jobs/{job_id}/record": READ,
    "GET /v1/jobs/{job_id}/events": READ,
    "POST /v1/batches": Rule(Role.SUBMIT, {"content": b'{"query": "Why?"}', "headers": LINES}),
    "GET /v1/batches": READ,
    "GET /v1/batches/{batch_id}": READ,
    "GET /v1/batches/{batch_id}/results": READ,
    "GET /v1/batches/{batch_id}/jobs/{name:path}": READ,
    "GET /v1/batches/{batch_id}/report": READ,
    "POST /v1/batches/{batch_id}/retry": SUBMIT,
    "POST /v1/batches/{batch_id}/pause": SUBMIT,
    "POST /v1/batches/{batch_id}/resume": SUBMIT,
    "POST /v1/batches/{batch_id}/cancel": SUBMIT,
    "GET /v1/batches/{batch_id}/labels": READ,
    "POST /openai/v1/files": Rule(Role.SUBMIT, {"files": {"file": ("a", b"")}, "data": {"purpose": "batch"}}),
    "GET /openai/v1/files": Rule(Role.READ, queries=("/openai/v1/files?after={file}",)),
    "GET /openai/v1/files/{file}": READ,
    "DELETE /openai/v1/files/{file}": SUBMIT,
    "GET /openai/v1/files/{file}/content": READ,
    "POST /openai/v1/batches": Rule(
        Role.SUBMIT, {"json": {"input_file_id": "{spare}", "endpoint": "/v1/answers", "completion_window": "1h"}}
    ),
    "GET /openai/v1/batches": Rule(Role.READ, queries=("/openai/v1/batches?after={batch}",)),
    "GET /openai/v1/batches/{batch}": READ,
    "POST /openai/v1/batches/{batch}/cancel": SUBMIT,
    "POST /openai/v1/chat/completions": Rule(
        Role.SUBMIT, {"json": {"model": "nosuch", "messages": [{"role": "user", "content": "Why?"}]}}, finds=False
    ),
    "POST /openai/v1/completions": Rule(Role.SUBMIT, {"json": {"model": "nosuch", "prompt": "Why?"}}, finds=False),
    "GET /openai/v1/models": READ,
    "GET /openai/v1/models/{model:path}": READ,
    "POST /openai/v1/responses": Rule(Role.SUBMIT, {"json": {"input": "Why?", "sources": [], "background": True}}),
    "GET /openai/v1/responses/{response}": Rule(
        Role.READ, queries=("/openai/v1/responses/{response}?stream=true&starting_after=1",)
    ),
    "POST /openai/v1/responses/{response}/cancel": SUBMIT,
    "GET /": OPEN,
    "GET /view": OPEN,
    "GET /view/assets/{name}": OPEN,
    "GET /view/login": OPEN,
    "POST /view/login": Rule(None, form(key="none")),
    "POST /view/logout": Rule(None, form()),
    "GET /view/": READ,
    "GET /view/batches/{batch_id}": READ,
    "GET /view/batches/{batch_id}/progress": READ,
    "GET /view/batches/{batch_id}/report": READ,
    "GET /view/batches/{batch_id}/results": READ,
    "GET /view/jobs/{job_id}": READ,
    "GET /view/jobs/{job_id}/record": READ,
    "GET /view/jobs/{job_id}/sources/{number}": READ,
    "GET /view/compare": Rule(Role.READ, queries=("/view/compare?a={job_id}&b={job_id}",), finds=False),
    "POST /view/jobs/{job_id}/labels": Rule(Role.REVIEW, form(verdict="right"), finds=False),
    "POST /view/jobs/{job_id}/replay": Rule(Role.SUBMIT, form(), finds=False),
    "POST /view/jobs/{job_id}/recheck": Rule(Role.SUBMIT, form(), finds=False),
    "POST /view/jobs/{job_id}/cancel": Rule(Role.SUBMIT, form(), finds=False),
    "POST /view/jobs/{job_id}/retry": Rule(Role.SUBMIT, form(), finds=False),
    "POST /view/batches/{batch_id}/{word}": Rule(Role.SUBMIT, form(), finds=False),
    "GET /view/review": Rule(Role.READ, queries=("/view/review?batch={batch_id}",), finds=False),
    "GET /view/review/next": Rule(Role.READ, queries=("/view/review/next?batch={batch_id}",), finds=False),
    "GET /view/{path:path}": OPEN,
}


def routes_of(app: FastAPI) -> set[str]:
    """Every route that the application has, as a method and a path."""
    return {
        f"{method} {context.path}" for context in iter_route_contexts(app.routes) for method in context.methods or ()
    }
