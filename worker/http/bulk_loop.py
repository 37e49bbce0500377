"""A second event loop in a thread of its own, for what computes long: uploads, exports, audits, operations over batches."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import uvloop

from worker.http.turns import Turns
from worker.ledger.outage import Outage
from worker.ledger.postgres import PostgresLedger

Result = TypeVar("Result")

CONNECTIONS = 6
"""To PostgreSQL; ``UPLOADS`` of them at most are held by submissions, the others by short statements."""

UPLOADS = 3
"""Submissions written at once; further ones wait on disk."""

AT_ONCE = 12
"""Pieces of other work under way at once: between two of its statements each leaves its connection to others."""

OF_ONE = 2
"""Submissions, and pieces of other work, that one tenant has under way; further ones wait for their turn."""


class BulkLoop:
    """Runs coroutines beside the loop that answers requests; polls are never behind them.

    ``start`` and ``stop`` belong to the main loop, as everything here.
    """

    def __init__(self, database_url: str, outage: Outage) -> None:
        self._ledger = PostgresLedger(database_url, connections=CONNECTIONS, outage=outage)
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="bulk loop", daemon=True)
        self._uploads = Turns(UPLOADS, OF_ONE)
        self._turns = Turns(AT_ONCE, OF_ONE)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def start(self) -> None:
        """Starts the thread and connects; raises ``LedgerUnavailable``, ``SchemaMismatch``."""
        self._thread.start()
        try:
            await self._call(self._ledger.open())
        except BaseException:
            await self._halt()
            raise

    async def stop(self) -> None:
        """Closes the connections and ends the thread."""
        await self._call(self._ledger.close())
        await self._halt()

    async def _halt(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def submit(self, tenant: str, work: Callable[[PostgresLedger], Coroutine[Any, Any, Result]]) -> Result:
        """Runs the submission of a tenant in its turn, with a ledger of that loop; cancelled with its caller."""
        async with self._uploads.take(tenant):
            return await self._call(work(self._ledger))

    async def run(self, tenant: str, work: Callable[[PostgresLedger], Coroutine[Any, Any, Result]]) -> Result:
        """Runs other work of a tenant in its turn, with a ledger of that loop; cancelled with its caller."""
        async with self._turns.take(tenant):
            return await self._call(work(self._ledger))

    async def stream(
        self, tenant: str, work: Callable[[PostgresLedger], AsyncIterator[bytes]]
    ) -> AsyncGenerator[bytes, None]:
        """Yields what an iterator yields over there, one piece as it is asked for, each in its turn: a slow reader holds nothing up."""
        pieces = work(self._ledger)
        try:
            while True:
                async with self._turns.take(tenant):
                    piece = await self._call(_next(pieces))
                if piece is None:
                    return
                yield piece
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                with suppress(RuntimeError):  # it still runs for a caller that was cancelled, and ends by that
                    await self._call(close())


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)
