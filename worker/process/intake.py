"""Takes messages from the queues to the event loop; one runs the task it names, or is dropped, and ends no worker.

Redis is a bus that others write to, and a server that may refuse: neither what stands there nor its answers end a worker.
"""

import asyncio
import logging
import math
import zlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from queue import Empty
from time import monotonic, sleep
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import kombu.compression
import kombu.transport
import orjson
import redis
from celery import Celery
from celery.worker.consumer import Consumer
from celery.worker.control import Panel
from celery.worker.request import Request
from celery.worker.state import maybe_shutdown
from kombu.pidbox import Node
from kombu.transport import redis as redis_transport
from kombu.utils.json import loads

from schemas.states import Step
from tasks.errors import LedgerError, LedgerUnavailable, Unstorable
from tasks.ports import Catalog, Runtime
from tasks.results import parse_job_id, parse_job_ids, poll
from tasks.submit import new_batch, submit
from worker.ledger.postgres import PostgresLedger
from worker.process.doorbell import Sender
from worker.process.message_replies import replying
from worker.public_address import refuse_private
from worker.scheduling.feed import Feed
from worker.scheduling.urgent_workers import UrgentWorkers
from worker.settings import SUBMIT_QUEUE

log = logging.getLogger(__name__)

Result = TypeVar("Result")

FOLLOW_UPS = ("callbacks", "errbacks", "chain", "chord")
"""The parts of a message's body or headers from which Celery would send further messages."""

CANVAS = (*FOLLOW_UPS, "group", "group_index", "replaced_task_nesting")
"""These, and the parts from which it would count."""

LOOKS = (
    "ping",
    "stats",
    "active_queues",
    "registered",
    "active",
    "reserved",
    "scheduled",
    "revoked",
    "clock",
    "query_task",
)
"""The commands of Celery's remote control that a worker answers: they look, and change nothing."""

LARGEST_MESSAGE = 10_000_000
"""Characters of a message as it stands in Redis, bytes of a body that was compressed, and characters of the results in a reply."""

REFUSED_PAUSE_S = 1.0
LONGEST_PAUSE_S = 10.0
"""Pause before a further connection to a Redis that refused; doubles each time, and begins anew once one has lasted a minute."""


class PlainRequest(Request):
    """A request for one task with its arguments and nothing else; says in ``follow_ups`` what was taken from it."""

    _request_dict: dict[str, Any]
    _args: Any
    _kwargs: Any

    def __init__(self, message: Any, **options: Any) -> None:
        super().__init__(message, **options)
        embedded = self._Request__payload[2]  # type: ignore[attr-defined]  # Celery's own, the body as it came
        parts = {**(embedded if isinstance(embedded, dict) else {}), **self._request_dict}
        for name in CANVAS:
            self._request_dict.pop(name, None)
        self._request_dict["follow_ups"] = [name for name in FOLLOW_UPS if parts.get(name)]
        # Celery reads the body again to run the task: it gets the parsed one, without an encoding.
        self._body: Any = (self._args, self._kwargs, {})
        self._content_type = self._content_encoding = None

    @property
    def _payload(self) -> Any:
        return self._body


class GuardedConsumer(Consumer):
    """Drops a message that Celery itself can't read; it would end the worker, and come back an hour later."""

    _failed_at = -math.inf
    _pause_s = 0.0
    _cause = ""

    def create_task_handler(self, *arguments: Any, **options: Any) -> Callable[[Any], None]:
        """The handler of every message."""
        handle = super().create_task_handler(*arguments, **options)

        def guarded(message: Any) -> None:
            try:
                handle(message)
            except Exception as error:  # noqa: BLE001 - a hostile message may raise anything
                _drop(error)
                if not message.acknowledged:
                    message.reject()

        return guarded

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """Waits before the next try."""
        super().on_connection_error_before_connected(exc)
        self._wait_after(exc)

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Waits before the next connection where the last one was short: a server that refuses does so at once."""
        super().on_connection_error_after_connected(exc)
        self._wait_after(exc)

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Answers a message that names no task."""
        with replying(message.delivery_info.get("routing_key")):
            super().on_unknown_task(body, message, exc)

    def _wait_after(self, error: Exception) -> None:
        if isinstance(error, redis.ResponseError):
            # A refusal is an answer, too: a new process would not hear more.
            GuardedChannel.replied_at = monotonic()
        lasted_s = monotonic() - self._failed_at - self._pause_s
        again = lasted_s <= 6 * LONGEST_PAUSE_S
        self._pause_s = min(max(2 * self._pause_s, REFUSED_PAUSE_S), LONGEST_PAUSE_S) if again else 0.0
        cause = f"{type(error).__name__}: {error}"
        if again and cause != self._cause:
            log.warning(
                "Redis does not serve this worker, and counts as away until it does (tried at most %.0f s apart): %s",
                LONGEST_PAUSE_S,
                cause,
            )
        self._failed_at, self._cause = monotonic(), cause if again else ""
        while monotonic() < self._failed_at + self._pause_s:
            maybe_shutdown()
            sleep(0.1)


class LookingNode(Node):
    """Answers the commands of remote control that only look; drops any other, and all that is none.

    Who reaches Redis may send any. So are those that name workers by a regular expression, which the thread would match that
    takes messages.
    """

    def handle_message(self, body: Any, message: Any = None) -> None:
        """Answers one message."""
        del message
        try:
            if body["method"] in LOOKS and self._is_meant(**body):
                self.dispatch(body["method"], body.get("arguments"), body.get("reply_to"), body.get("ticket"))
        except Exception as error:  # noqa: BLE001 - as above
            _drop(error)

    def _is_meant(self, *, destination: Any = None, pattern: Any = None, matcher: Any = None, **_: Any) -> bool:
        if destination:
            return self.hostname in destination
        return not pattern or (matcher == "glob" and fnmatchcase(self.hostname, pattern))


class GuardedQoS(redis_transport.QoS):
    """Forgets a message that can't be acknowledged or given back: it would be in the way of all others."""

    def ack(self, delivery_tag: Any) -> None:
        """Ends a message here, also where Redis refuses: from there it comes again."""
        try:
            super().ack(delivery_tag)
        finally:
            super(redis_transport.QoS, self).ack(delivery_tag)

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:  # noqa: FBT001, FBT002 - kombu's
        """Gives a message back to its queue."""
        try:
            super().restore_by_tag(tag, client, leftmost)
        except Exception as error:  # noqa: BLE001 - as above
            _drop(error)
            with self.pipe_or_acquire(client=client) as pipe:
                self._remove_from_indices(tag, pipe).execute()  # type: ignore[attr-defined]  # not in its stubs


class GuardedChannel(redis_transport.Channel):
    """Drops strings that are no message: the list in Redis may hold any."""

    QoS = GuardedQoS
    connection: Any
    replied_at: ClassVar[float] = -math.inf
    """Time (monotonic) of the last reply of the control channel to any channel of the process; an idle consumer pings it every ten seconds."""
    urgent_workers: ClassVar[UrgentWorkers] = UrgentWorkers()
    """Say which priorities this process takes now."""
    priority_steps: list[int]

    def _brpop_start(self, timeout: Any = None) -> None:
        levels = self.priority_steps
        self.priority_steps = levels_to_take(levels, self.urgent_workers)
        try:
            super()._brpop_start(timeout)  # type: ignore[misc]
        finally:
            # To send, there are all of them.
            self.priority_steps = levels

    def _brpop_read(self, **options: Any) -> bool:
        return bool(self._guarded(super()._brpop_read, **options))  # type: ignore[misc]

    def _receive_one(self, client: Any) -> Any:
        delivered = self._guarded(super()._receive_one, client)  # type: ignore[misc]
        GuardedChannel.replied_at = monotonic()
        return delivered

    def _guarded(self, read: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Reads a message; one that is none counts as delivered."""
        try:
            return read(*arguments, **options)
        except Empty:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            _drop(error)
            return True

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - kombu's
        if self.connection.client is None:
            # kombu would raise AttributeError, which ends the worker; of a lost connection Celery makes a new one.
            raise redis.ConnectionError("the connection was closed while a channel of it connected again")
        parameters: dict[str, Any] = super()._connparams(asynchronous=asynchronous)  # type: ignore[misc]
        return parameters


class GuardedTransport(redis_transport.Transport):
    """kombu's transport over Redis with such channels; an answer "no" counts as a lost connection.

    A read-only replica, a server without memory, one that loads its data or whose passwords change: each serves again.
    """

    def _deliver(self, message: Any, queue: str | None) -> None:
        # Its producer may have named another one: of whom it is, and where it goes back to, is told by the queue it was in.
        message["properties"]["delivery_info"] = {"exchange": "", "routing_key": queue}
        super()._deliver(message, queue)

    Channel = GuardedChannel
    connection_errors = (*redis_transport.Transport.connection_errors, redis.RedisError)


def levels_to_take(levels: list[int], urgent_workers: UrgentWorkers) -> list[int]:
    """The priorities whose messages a process takes from each queue; the first has urgent hints, and submissions.

    Those are the workers' of urgent jobs alone while there are some: of all that wait for a message Redis chooses the one that
    waited longest, busy or not.
    """
    if urgent_workers.only:
        return levels[:1]
    return levels[1:] if urgent_workers.leave else levels


def _drop(error: Exception) -> None:
    """Notes that a message was dropped; raises the error again where it comes from Redis or the network, not from the message."""
    if isinstance(error, redis.RedisError | OSError) and not isinstance(error, redis.DataError):
        raise error
    # Without the content, which may be anything, of any length.
    log.error("a message that can't be read was dropped: %s: %.200s", type(error).__name__, error)


def read_message(text: str) -> Any:
    """Reads a message; raises ``ValueError`` for one whose values would fill the memory."""
    if len(text) > LARGEST_MESSAGE:
        raise ValueError(f"it has {len(text):,} characters, at most {LARGEST_MESSAGE:,} are read")
    return loads(text)


def unpack(body: bytes) -> bytes:
    """Unpacks a body that came compressed; raises ``ValueError`` for one that would fill the memory."""
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(body, LARGEST_MESSAGE)
    if unpacker.unconsumed_tail:
        raise ValueError(f"unpacked it has more than {LARGEST_MESSAGE:,} bytes")
    return unpacked


def take_by(urgent_workers: UrgentWorkers) -> None:
    """Lets the consumer of this process take the messages that are its own."""
    GuardedChannel.urgent_workers = urgent_workers


def trust_nothing(app: Celery) -> None:
    """Removes all tasks but our own and all commands but those that look, and guards their messages.

    Celery's built-in tasks would run, or await without end, anything that a message names; its commands end workers.
    """
    # The worker itself imports them later, and a task that comes then has no guard.
    app.loader.import_default_modules()
    app.finalize()
    for name in [name for name in app.tasks if name.startswith("celery.")]:
        app.tasks.unregister(name)
    for task in app.tasks.values():
        task.Request = "worker.process.intake:PlainRequest"
    control: Any = app.control
    control.mailbox.node_cls = LookingNode
    for name in [name for name in Panel.data if name not in LOOKS]:
        del Panel.data[name]
    for kind in kombu.compression.encoders():
        # A body that is packed by other means than gzip is none that it can unpack.
        kombu.compression.register(zlib.compress, unpack, kind)
    of_messages: Any = redis_transport
    of_messages.loads = read_message
    # By the names of URL schemes, so that TLS is set up as for kombu's own.
    for scheme in ("redis", "rediss"):
        kombu.transport.TRANSPORT_ALIASES[scheme] = "worker.process.intake:GuardedTransport"


# ---- from Celery's threads to the loop -------------------------------------------------------------------------------

LEDGER_PATIENCE_S = 20.0
"""Seconds that a submission over Redis waits for the ledger before its message returns to the queue, and comes again."""


class Intake(Runtime):
    """``tasks.ports.Runtime`` for the Celery tasks of this process: their threads wait for the event loop.

    Args:
        loop: the event loop of the process.
        feeds: of the steps that it serves.
        ledger: gets submissions and answers polls.
        owned: finds jobs within a tenant; None for one that the tenant has not.
        catalog: knows what can be served.
        sender: hints new jobs.
        tenants: the tenant of each queue with submissions; that of ``submit`` for any other.
        most_queued: most jobs of a tenant that are not final; None: no limit.
        callback_private: callbacks may go to private networks.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        feeds: Mapping[Step, Feed],
        *,
        ledger: PostgresLedger,
        owned: Callable[[Sequence[tuple[UUID, str]]], Coroutine[Any, Any, Sequence[object | None]]],
        catalog: Catalog,
        sender: Sender,
        tenants: Mapping[str, str],
        most_queued: Callable[[str], int | None],
        callback_private: bool = False,
    ) -> None:
        self._loop = loop
        self._feeds = feeds
        self._ledger = ledger
        self._owned = owned
        self._catalog = catalog
        self._sender = sender
        self._tenants = tenants
        self._most_queued = most_queued
        self._callback_private = callback_private

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def wake(self, step: Step, *, urgent: bool) -> None:
        """See ``tasks.ports.Runtime``; drops hints of a step that this process does not serve."""
        feed = self._feeds.get(step)
        if feed is not None:
            self._loop.call_soon_threadsafe(partial(feed.wake, urgent=urgent))

    def submit(self, raw_jobs: Sequence[Any], batch: dict[str, Any], queue: str = SUBMIT_QUEUE) -> dict[str, Any]:
        """See ``tasks.ports.Runtime``."""
        return self._call(self._submit(raw_jobs, batch, self._tenant_of(queue)))

    def _tenant_of(self, queue: str) -> str:
        return self._tenants.get(queue, self._tenants[SUBMIT_QUEUE])

    def poll(self, raw_ids: Sequence[Any], queue: str = SUBMIT_QUEUE) -> list[dict[str, Any] | None]:
        """See ``tasks.ports.Runtime``."""
        read = [parse_job_id(raw) for raw in raw_ids]
        job_ids = parse_job_ids([job_id for job_id in read if job_id is not None])
        results = iter(self._call(self._poll(job_ids, self._tenant_of(queue))))
        # One id at fault must not hide the answers of the others.
        return [
            {"job_id": str(raw)[:100], "error": "this is not a job id"} if job_id is None else next(results)
            for raw, job_id in zip(raw_ids, read, strict=True)
        ]

    async def _poll(self, job_ids: Sequence[UUID], tenant: str) -> list[dict[str, Any] | None]:
        owned = await self._owned([(job_id, tenant) for job_id in job_ids])
        replies: list[dict[str, Any] | None] = []
        room, some = LARGEST_MESSAGE, 20
        full = (
            f"the reply is full, as it holds {LARGEST_MESSAGE:,} characters of results: ask for this one in another message, "
            "by 'nightdesk results' or over HTTP"
        )
        for at in range(0, len(job_ids), some):
            page = slice(at, at + some)
            results = await poll(self._ledger.reading, job_ids[page]) if room else [None] * some
            for job_id, version, result in zip(job_ids[page], owned[page], results, strict=False):
                content = "null" if version is None or result is None else result.model_dump_json()
                room = room - len(content) if room >= len(content) else 0
                fits = room or version is None
                replies.append(orjson.loads(content) if fits else {"job_id": str(job_id), "error": full})
        return replies

    async def _submit(self, raw_jobs: Sequence[Any], raw_batch: dict[str, Any], tenant: str) -> dict[str, Any]:
        batch = new_batch(raw_batch, tenant=tenant, max_queued=self._most_queued(tenant))
        refuse_private(batch.callback_url, allowed=self._callback_private)
        until = self._loop.time() + LEDGER_PATIENCE_S
        while True:
            try:
                submitted = await submit(self._ledger.submission, raw_jobs, batch=batch, catalog=self._catalog)
            except (LedgerUnavailable, LedgerError) as error:
                if isinstance(error, Unstorable) or self._loop.time() >= until:
                    raise
            else:
                for key in submitted.receipt.hints if submitted.receipt else ():
                    self._sender.hint(key)
                return submitted.to_json()
            await asyncio.sleep(1)
