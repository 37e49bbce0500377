"""Turns of tenants at what they share: so much at once, of which one tenant has a part, and those who wait one after another."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A semaphore that no tenant takes whole; belongs to one event loop."""

    def __init__(self, at_once: int, of_one: int) -> None:
        self._free = at_once
        self._of_one = of_one
        self._busy: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """The tenant that was served last stands last."""

    @asynccontextmanager
    async def take(self, tenant: str) -> AsyncIterator[None]:
        """Waits for a turn of the tenant, and ends it with the block."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._pass_on()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._end(tenant)
            raise
        try:
            yield
        finally:
            self._end(tenant)

    def _end(self, tenant: str) -> None:
        self._free += 1
        self._busy[tenant] -= 1
        if not self._busy[tenant]:
            del self._busy[tenant]
        self._pass_on()

    def _pass_on(self) -> None:
        while self._free:
            tenant = next((each for each in self._waiting if self._busy[each] < self._of_one), None)
            if tenant is None:
                return
            turn = self._waiting[tenant].popleft()
            if self._waiting[tenant]:
                self._waiting.move_to_end(tenant)
            else:
                del self._waiting[tenant]
            if not turn.cancelled():
                self._free -= 1
                self._busy[tenant] += 1
                turn.set_result(None)
