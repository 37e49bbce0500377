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

SUSPECT_S = 0.3
"""Seconds of a wait for a connection or a statement after which PostgreSQL is asked whether it answers at all."""

PROBE_S = 0.75
"""Seconds that the answer may take; there are two tries, the second over a new connection."""

RETURN_S = 10.0
"""Most seconds of a try while PostgreSQL is away: of several hosts the first ones may be silent."""

PAUSE_S = 0.5
"""Seconds between two of these."""

_PROBE = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"


class OutageLasts(LedgerUnavailable):
    """PostgreSQL was away already when a statement came; the start of the outage stands in the log."""


class Outage:
    """Asks PostgreSQL over a connection of its own, when a statement waits or fails; an asynchronous context.

    A pool can't tell a server that is away from one that is busy; both only let a statement wait.
    """

    def __init__(self, database_url: str, *, probe_s: float = PROBE_S) -> None:
        """Makes it unopened; ``probe_s`` are the seconds of a try."""
        self._url = database_url
        self._probe_s = probe_s
        self._takes_writes = True
        self._connection: AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[Any] | None = None
        self._loop: AbstractEventLoop | None = None
        self._databases: list[tuple[AbstractEventLoop, WatchedDatabase]] = []
        self.is_on = False
        """True while PostgreSQL does not answer."""

    async def __aenter__(self) -> Self:
        """Belongs to the loop of the caller from now on."""
        self._loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends the questions."""
        loop, self._loop = self._loop, None
        if self._task is not None and loop is not None:
            await cancel(self._task)
        self._hang_up()

    def watch(self, database: "WatchedDatabase") -> None:
        """Tells a database of the loop of the caller when an outage begins and ends."""
        self._databases.append((asyncio.get_running_loop(), database))

    def require(self) -> None:
        """Raises ``LedgerUnavailable`` during an outage."""
        if self.is_on:
            raise OutageLasts(f"PostgreSQL at {safe_url(self._url)} does not answer")

    def suspect(self) -> None:
        """Asks PostgreSQL soon; from any thread."""
        if self._loop is not None and not self.is_on:
            self._loop.call_soon_threadsafe(self._begin)

    async def takes_writes(self) -> bool:
        """Tells, within two tries, whether PostgreSQL answers now and takes writes."""
        await self._examine()
        return self._takes_writes and not self.is_on

    def _begin(self) -> None:
        if self._loop is not None and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._examine(), name="ask PostgreSQL")

    async def _examine(self) -> None:
        async with self._turn:
            if self.is_on or await self._answers(self._probe_s) or await self._answers(self._probe_s):
                return
            self.is_on = True
        log.warning("PostgreSQL at %s does not answer: requests that need it are refused", safe_url(self._url))
        for loop, database in self._databases:
            loop.call_soon_threadsafe(database.interrupt)
        if self._loop is not None:
            self._task = self._loop.create_task(self._await_return(), name="await PostgreSQL")

    async def _await_return(self) -> None:
        within_s = self._probe_s
        while not await self._answers(within_s):
            within_s = min(2 * within_s, RETURN_S)
            await asyncio.sleep(PAUSE_S)
        self.is_on = False
        for loop, database in self._databases:
            loop.call_soon_threadsafe(database.renew)
        log.warning("PostgreSQL at %s answers again", safe_url(self._url))

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
        self._takes_writes = row is not None and not row[0]
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
        suspicion = asyncio.get_running_loop().call_later(SUSPECT_S, self._outage.suspect)
        try:
            async with super().connection(within_s) as connection:
                self._running.add(connection)
                try:
                    yield connection
                finally:
                    self._running.discard(connection)
        except LedgerUnavailable:
            self._outage.suspect()
            raise
        finally:
            suspicion.cancel()

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
