"""Celery's result backend with a place for each tenant: the reply to a message goes where its producer may read it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from celery.backends.redis import RedisBackend

from worker.settings import SUBMIT_QUEUE

_PREFIX: ContextVar[str] = ContextVar("prefix of the replies", default="")


@contextmanager
def replying(queue: object) -> Iterator[None]:
    """Lets replies go to the producers that write to this queue."""
    token = _PREFIX.set(
        queue.removesuffix(SUBMIT_QUEUE) if isinstance(queue, str) and queue.endswith(SUBMIT_QUEUE) else ""
    )
    try:
        yield
    finally:
        _PREFIX.reset(token)


class TenantsBackend(RedisBackend):
    """Celery's own, whose keys have the prefix of the queue that the message came by."""

    app: Any

    def store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, **rest: Any
    ) -> Any:
        """Stores the reply to a message."""
        delivery = getattr(request, "delivery_info", None)
        if not delivery:
            return super().store_result(task_id, result, state, traceback, request, **rest)
        with replying(delivery.get("routing_key")):
            return super().store_result(task_id, result, state, traceback, request, **rest)

    def get_key_for_task(self, task_id: Any, key: Any = "") -> Any:
        """The key of an answer."""
        if not (prefix := _PREFIX.get()):
            return super().get_key_for_task(task_id, key)
        options = self.app.conf.broker_transport_options
        return result_key(f"{options.get('global_keyprefix', '')}{prefix}", task_id).encode()


def result_key(prefix: str, task_id: object) -> str:
    """The key where a stock client with this ``global_keyprefix`` looks for a result."""
    return f"{prefix}celery-task-meta-{task_id}"
