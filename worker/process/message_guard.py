"""Guards against messages on the queues: one runs the task it names, or is dropped, and ends no worker."""

import logging
import math
from collections.abc import Callable
from queue import Empty
from time import monotonic
from typing import Any, ClassVar

import kombu.transport
from celery import Celery
from celery.worker.consumer import Consumer
from celery.worker.request import Request
from kombu.transport import redis as redis_transport

log = logging.getLogger(__name__)

CANVAS = ("callbacks", "errbacks", "chain", "chord", "group", "group_index", "replaced_task_nesting")
"""The parts of a message's body or headers from which Celery would send further messages, or count."""


class PlainRequest(Request):
    """A request for one task with its arguments and nothing else."""

    _request_dict: dict[str, Any]
    _args: Any
    _kwargs: Any

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, **options)
        for name in CANVAS:
            self._request_dict.pop(name, None)
        # Celery reads the body again to run the task: it gets the parsed one, without an encoding.
        self._body: Any = (self._args, self._kwargs, {})
        self._content_type = self._content_encoding = None

    @property
    def _payload(self) -> Any:
        return self._body


class GuardedConsumer(Consumer):
    """Drops a message that Celery itself can't read; it would end the worker, and come back an hour later."""

    connection_errors: tuple[type[BaseException], ...]

    def create_task_handler(self, *arguments: Any, **options: Any) -> Callable[[Any], None]:
        """The handler of every message."""
        handle = super().create_task_handler(*arguments, **options)

        def guarded(message: Any) -> None:
            try:
                handle(message)
            except self.connection_errors:
                raise
            except Exception as error:  # noqa: BLE001 - a hostile message may raise anything
                _dropped(error)
                if not message.acknowledged:
                    message.reject()

        return guarded


class GuardedChannel(redis_transport.Channel):
    """Drops strings that are no message: the list in Redis may hold any."""

    connection_errors: tuple[type[BaseException], ...]
    replies: ClassVar[dict[str, float]] = {}
    """Times (monotonic) of the last replies from the queues and from the control channel, to any channel of the process."""

    def _brpop_read(self, **options: Any) -> bool:
        try:
            delivered = bool(super()._brpop_read(**options))  # type: ignore[misc]
        except Empty:
            self.replies["queues"] = monotonic()
            raise
        except self.connection_errors:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            _dropped(error)
            delivered = True
        self.replies["queues"] = monotonic()
        return delivered

    def _receive_one(self, client: Any) -> Any:
        message = super()._receive_one(client)  # type: ignore[misc]
        self.replies["control"] = monotonic()
        return message


class GuardedTransport(redis_transport.Transport):
    """kombu's transport over Redis with such channels."""

    Channel = GuardedChannel


def consumer_reads(within_s: float) -> bool:
    """Tells whether the queues and the control channel both replied in this time; an idle consumer polls and pings them."""
    latest = min(GuardedChannel.replies.get(source, -math.inf) for source in ("queues", "control"))
    return monotonic() - latest < within_s


def _dropped(error: Exception) -> None:
    # Without the content, which may be anything, of any length.
    log.error("a message that can't be read was dropped: %s: %.200s", type(error).__name__, error)


def trust_nothing(app: Celery) -> None:
    """Removes all tasks but our own, and guards their messages.

    Celery's built-in tasks would run, or await without end, anything that a message names. Call after all modules with
    tasks are imported.
    """
    app.finalize()
    for name in [name for name in app.tasks if name.startswith("celery.")]:
        app.tasks.unregister(name)
    for task in app.tasks.values():
        task.Request = "worker.process.message_guard:PlainRequest"
    # By the names of URL schemes, so that TLS is set up as for kombu's own.
    for scheme in ("redis", "rediss"):
        kombu.transport.TRANSPORT_ALIASES[scheme] = "worker.process.message_guard:GuardedTransport"
