"""Tells soon that PostgreSQL does not answer, so that no request waits for connections and statements to time out."""

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import psycopg
from psycopg import AsyncConnection

from tasks.errors import LedgerUnavailable
from worker.cancellation import cancel
from worker.ledger.addresses import safe_url
from worker.ledger.database import TRANSACTION_S, Database, hang_up, only_writable

log = logging.getLogger(__name__)

EVERY_S = 0.5
"""Seconds between two looks."""

PROBE_S = 0.75
"""Seconds that the answer may take; there are two tries, the second over a new connection."""

RETURN_S = 10.0
"""Most seconds of a try while PostgreSQL is away: of several hosts the first ones may be silent."""

_PROBE = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"


class OutageLasts(LedgerUnavailable):
    """PostgreSQL was away already when a statement came; the start of the outage stands in the log."""


class Outage:
    """Asks PostgreSQL over a connection of its own whether it answers; an asynchronous context.

    A pool can't tell a server that is away from one that is busy; both only let a statement wait.
    """

    def __init__(self, database_url: str, *, probe_s: float = PROBE_S) -> None:
        """Makes it unopened; ``probe_s`` are the seconds of a try."""
        self._url = database_url
        self._probe_s = probe_s
        self._connection: AsyncConnection[Any] | None = None
        self._databases: list[tuple[AbstractEventLoop, WatchedDatabase]] = []
        self.is_on = False
        """True while PostgreSQL does not answer."""
        self.takes_writes = True
        """True if it took writes when it answered last."""

    async def __aenter__(self) -> Self:
        """Begins to ask."""
        self._task = asyncio.create_task(self._watch(), name="ask PostgreSQL")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends the questions."""
        await cancel(self._task)
        self._hang_up()

    def watch(self, database: "WatchedDatabase") -> None:
        """Tells a database of the loop of the caller when an outage begins and ends."""
        self._databases.append((asyncio.get_running_loop(), database))

    def require(self) -> None:
        """Raises ``LedgerUnavailable`` during an outage."""
        if self.is_on:
            raise OutageLasts(f"PostgreSQL at {safe_url(self._url)} does not answer")

    async def _watch(self) -> None:
        within_s = self._probe_s
        while True:
            answers = await self._answers(within_s) or await self._answers(within_s)
            if answers == self.is_on:
                self._change()
            within_s = self._probe_s if answers else min(2 * within_s, RETURN_S)
            await asyncio.sleep(EVERY_S)

    def _change(self) -> None:
        self.is_on = not self.is_on
        news = "does not answer: requests that need it are refused" if self.is_on else "answers again"
        log.warning("PostgreSQL at %s %s", safe_url(self._url), news)
        for loop, database in self._databases:
            loop.call_soon_threadsafe(database.interrupt if self.is_on else database.renew)

    async def _answers(self, within_s: float) -> bool:
        """One try; a connection that failed is not used again."""
        try:
            async with asyncio.timeout(within_s):
                connection = self._connection or await self._connect()
        except psycopg.errors.TooManyConnections:
            # It is there, and those who have a connection go on.
            return True
        except (psycopg.Error, OSError, TimeoutError):
            return False
        # A cancelled statement would wait for the server once more.
        patience = asyncio.get_running_loop().call_later(within_s, hang_up, connection)
        try:
            row = await (await connection.execute(_PROBE)).fetchone()
        except psycopg.Error:
            self._hang_up()
            return False
        finally:
            patience.cancel()
        self.takes_writes = row is not None and not row[0]
        return True

    async def _connect(self) -> AsyncConnection[Any]:
        options: dict[str, Any] = {
            "application_name": "nightdesk",
            "prepare_threshold": None,
            **only_writable(self._url),
        }
        self._connection = await AsyncConnection.connect(self._url, autocommit=True, **options)
        return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # Without a goodbye, which could wait.
            connection.pgconn.finish()


class WatchedDatabase(Database):
    """A database whose statements end when an outage begins, and fail at once while it lasts."""

    def __init__(self, database_url: str, outage: Outage, **options: Any) -> None:
        super().__init__(database_url, **options)
        self._outage = outage
        self._waits: set[asyncio.Timeout] = set()
        self._running: set[AsyncConnection[Any]] = set()
        self._renewal: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """See ``Database``."""
        await super().open()
        self._outage.watch(self)

    @asynccontextmanager
    async def connection(self, within_s: float = TRANSACTION_S) -> AsyncIterator[AsyncConnection[Any]]:
        """See ``Database``."""
        async with super().connection(within_s) as connection:
            self._running.add(connection)
            try:
                yield connection
            finally:
                self._running.discard(connection)

    @asynccontextmanager
    async def _take(self) -> AsyncIterator[AsyncConnection[Any]]:
        self._outage.require()
        try:
            async with asyncio.timeout(None) as wait:
                self._waits.add(wait)
                try:
                    connection = await self._pool.getconn()
                finally:
                    self._waits.discard(wait)
        except TimeoutError:
            self._outage.require()
            raise
        try:
            async with connection:
                yield connection
        finally:
            await self._pool.putconn(connection)

    def interrupt(self) -> None:
        """Ends the waits for connections and the statements."""
        now = asyncio.get_running_loop().time()
        for wait in self._waits:
            if wait.when() is None:
                wait.reschedule(now)
        for connection in self._running:
            hang_up(connection)

    def renew(self) -> None:
        """Replaces the connections: those from before may be dead without a sign of it."""
        self._renewal = asyncio.create_task(self._pool.drain(), name="renew connections")
