"""Stops the consumer of submissions while the ledger is away, so that they wait in Redis and do not circulate."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import redis
from celery import Celery

from tasks.errors import LedgerError, ServiceUnavailable

log = logging.getLogger(__name__)

QUEUE = "submit"
PROBE_EVERY_S = 1.0
REPLY_S = 2.0
"""Seconds that this process's own consumer may take to answer."""


class SubmitGate:
    """Cancels this process's consumer of the queue, and adds it again once the ledger answers.

    Args:
        app: its remote control reaches the consumer.
        node: this process's name in it.
        reachable: asks the ledger; raises while it is away.
        loop: runs ``reachable``.
    """

    def __init__(
        self, app: Celery, node: str, reachable: Callable[[], Awaitable[None]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._app = app
        self._node = node
        self._reachable = reachable
        self._loop = loop
        self._lock = threading.Lock()
        self._closed = False
        self._reopening: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Stops the consumer; called by Celery's threads, any number of them."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            log.warning("the ledger is away: submissions over Redis wait there")
            self._control("cancel_consumer")
            self._loop.call_soon_threadsafe(self._begin_reopening)

    async def cancel(self) -> None:
        """Stops the probes at the end of the process."""
        if self._reopening is not None:
            self._reopening.cancel()
            with suppress(asyncio.CancelledError):
                await self._reopening

    def _begin_reopening(self) -> None:
        self._reopening = asyncio.create_task(self._reopen(), name="reopen the submit gate")

    async def _reopen(self) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY_S)
            try:
                await self._reachable()
            except (ServiceUnavailable, LedgerError):
                continue
            if await asyncio.to_thread(self._open):
                log.warning("the ledger is back: submissions over Redis are taken again")
                return

    def _open(self) -> bool:
        with self._lock:
            self._closed = not self._control("add_consumer")
            return not self._closed

    def _control(self, command: str) -> bool:
        """Sends a command to the consumer; False without its answer, for example without Redis."""
        try:
            return bool(
                getattr(self._app.control, command)(QUEUE, destination=[self._node], reply=True, timeout=REPLY_S)
            )
        except (OSError, redis.RedisError) as error:
            log.warning("%s of the queue %s is not answered: %s", command, QUEUE, error)
            return False
