"""Reads the lines of batches that are orders of responses or chats, and shows their answers in the same form."""

from typing import Any

import orjson

from tasks.errors import InputError
from tasks.ports import JobView
from tasks.results import result_of
from worker.http.chat_completions import completion_of, response_order_of
from worker.http.problems import Problem
from worker.http.response_document import document_of
from worker.http.response_order import job_of, parse_order, require_answerable
from worker.ledger.uploads import Upload
from worker.operations.uploaded_batches import ENDPOINT, ENDPOINT_KEY, Read, Show
from worker.providers.registry import Installation


def _job_of_response(body: dict[str, Any], catalog: Installation) -> dict[str, Any]:
    try:
        # No caller waits for it.
        order = parse_order({"priority": 0, **body, "background": None, "stream": None})
        job = job_of(order, catalog.knows)
        require_answerable(job, order, catalog)
    except Problem as problem:
        raise InputError(problem.detail, field=problem.field) from problem
    return job


def _job_of_chat(body: dict[str, Any], catalog: Installation) -> dict[str, Any]:
    try:
        order = response_order_of(body)
    except Problem as problem:
        raise InputError(problem.detail, field=problem.field) from problem
    return _job_of_response(order, catalog)


def _response(view: JobView) -> tuple[int, Any]:
    return 200, document_of(view, result_of(view))


def _chat(view: JobView) -> tuple[int, Any]:
    try:
        return 200, completion_of(view)
    except Problem as problem:
        answer = problem.openai_response()
        return answer.status_code, orjson.loads(bytes(answer.body))


READERS: dict[str, Read | None] = {
    ENDPOINT: None,
    "/v1/responses": _job_of_response,
    "/v1/chat/completions": _job_of_chat,
}
"""By the endpoint of a batch what makes a job of a body."""

_SHOWS: dict[str, Show] = {"/v1/responses": _response, "/v1/chat/completions": _chat}


def endpoint_of(upload: Upload) -> str:
    """The address of the lines of an upload that a batch was ordered of."""
    return (upload.metadata or {}).get(ENDPOINT_KEY, ENDPOINT)


def show_of(upload: Upload) -> Show | None:
    """The function that makes the bodies of its output; None: they are the results."""
    return _SHOWS.get(endpoint_of(upload))
