"""Reads the lines of batches that are orders of responses or chats, and shows their answers in the same form."""

from dataclasses import dataclass
from typing import Any

import orjson

from tasks.errors import InputError
from tasks.ports import JobView
from tasks.results import result_of
from worker.http.chat_completions import CHAT, Form, completion_of
from worker.http.problems import Problem, problem_from
from worker.http.response_document import document_of
from worker.http.response_order import read_order, renamed
from worker.ledger.uploads import Upload
from worker.operations.uploaded_batches import ENDPOINT, ENDPOINT_KEY, Orders, Show
from worker.providers.registry import Installation


@dataclass(frozen=True, slots=True)
class _Orders:
    """Bodies of lines that are orders of one API."""

    form: Form | None = None
    """None: they are those of responses."""

    def job(self, body: dict[str, Any], catalog: Installation) -> dict[str, Any]:
        """See ``worker.operations.uploaded_batches.Orders``."""
        try:
            order = self.form.read(body) if self.form else body
            # No caller waits for it.
            return read_order({"priority": 0, **order, "background": None, "stream": None}, catalog)[1]
        except (InputError, Problem) as error:
            raise self._refused(error) from error

    def named(self, error: InputError, job: dict[str, Any]) -> InputError:
        """See ``worker.operations.uploaded_batches.Orders``."""
        return self._refused(renamed(error, job))

    def _refused(self, error: InputError | Problem) -> InputError:
        problem = self.form.renamed(error) if self.form else problem_from(error)
        return InputError(problem.detail, field=problem.field)


def _response(view: JobView) -> tuple[int, Any]:
    return 200, document_of(view, result_of(view))


def _chat(view: JobView) -> tuple[int, Any]:
    try:
        return 200, completion_of(view)
    except Problem as problem:
        answer = problem.openai_response()
        return answer.status_code, orjson.loads(bytes(answer.body))


ORDERS: dict[str, Orders | None] = {
    ENDPOINT: None,
    "/v1/responses": _Orders(),
    "/v1/chat/completions": _Orders(CHAT),
}
"""What the bodies of a batch are, by its endpoint; None: jobs."""

_SHOWS: dict[str, Show] = {"/v1/responses": _response, "/v1/chat/completions": _chat}


def endpoint_of(upload: Upload) -> str:
    """The address of the lines of an upload that a batch was ordered of."""
    return (upload.metadata or {}).get(ENDPOINT_KEY, ENDPOINT)


def show_of(upload: Upload) -> Show | None:
    """The function that makes the bodies of its output; None: they are the results."""
    return _SHOWS.get(endpoint_of(upload))
