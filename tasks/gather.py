"""Gathers small things said one by one and passes them on together: ids to hint, results to publish."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Generic, TypeVar

from tasks.errors import ServiceUnavailable

log = logging.getLogger(__name__)

Item = TypeVar("Item")


class Gather(Generic[Item]):
    """Passes items on in lists, when ``most`` have come or ``wait`` after the first.

    For what may be lost: whoever receives them may fail, and the ledger's sweeps make up for it.
    """

    def __init__(
        self, name: str, pass_on: Callable[[list[Item]], Awaitable[None]], *, most: int, wait: timedelta
    ) -> None:
        self._name = name
        self._pass_on = pass_on
        self._most = most
        self._wait_s = wait.total_seconds()
        self._items: list[Item] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, item: Item) -> None:
        """Say one thing; returns at once."""
        self._items.append(item)
        if len(self._items) >= self._most:
            self._start()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._wait_s, self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._items:
            items, self._items = self._items, []
            task = asyncio.get_running_loop().create_task(self._send(items), name=f"pass on {self._name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send(self, items: list[Item]) -> None:
        try:
            await self._pass_on(items)
        except ServiceUnavailable as error:
            log.info("%d %s are left to the sweep: %s", len(items), self._name, error)
        except Exception:
            log.exception("%d %s could not be passed on; the sweep will", len(items), self._name)

    async def close(self) -> None:
        """Pass on what waits."""
        self._start()
        if self._tasks:
            await asyncio.wait(self._tasks)
