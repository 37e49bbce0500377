"""Reads the lines of batches that are orders of responses or chats, and shows their answers in the same form."""

from dataclasses import dataclass
from typing import Any

import orjson

from tasks.errors import InputError
from tasks.ports import JobView
from worker.http.chat_completions import CHAT, RESPONSES, Form
from worker.http.problems import Problem
from worker.http.response_order import read_order, renamed
from worker.ledger.uploads import Upload
from worker.operations.uploaded_batches import ENDPOINT, ENDPOINT_KEY, Show
from worker.providers.registry import Installation


@dataclass(frozen=True, slots=True)
class _Orders:
    """Bodies of lines that are orders of one API."""

    form: Form

    def job(self, body: dict[str, Any], catalog: Installation) -> dict[str, Any]:
        """See ``worker.operations.uploaded_batches.Orders``."""
        try:
            # No caller waits for it.
            order = {"priority": 0, **self.form.read(body), "background": None, "stream": None}
            return read_order(order, catalog)[1]
        except (InputError, Problem) as error:
            raise self._refused(error) from error

    def named(self, error: InputError, job: dict[str, Any]) -> InputError:
        """See ``worker.operations.uploaded_batches.Orders``."""
        return self._refused(renamed(error, job))

    def _refused(self, error: InputError | Problem) -> InputError:
        problem = self.form.renamed(error)
        return InputError(problem.detail, field=problem.field)

    def show(self, view: JobView) -> tuple[int, Any]:
        """The status and the body of the answer to a job."""
        try:
            return 200, self.form.show(view)
        except Problem as problem:
            answer = problem.openai_response()
            return answer.status_code, orjson.loads(bytes(answer.body))


ORDERS: dict[str, _Orders | None] = {
    ENDPOINT: None,
    "/v1/responses": _Orders(RESPONSES),
    "/v1/chat/completions": _Orders(CHAT),
}
"""What the bodies of a batch are, by its endpoint; None: jobs."""


def endpoint_of(upload: Upload) -> str:
    """The address of the lines of an upload that a batch was ordered of."""
    return (upload.metadata or {}).get(ENDPOINT_KEY, ENDPOINT)


def show_of(upload: Upload) -> Show | None:
    """The function that makes the bodies of its output; None: they are the results."""
    orders = ORDERS.get(endpoint_of(upload))
    return None if orders is None else orders.show
