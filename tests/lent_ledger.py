"""Ledgers over databases that a test is lent at their making: without a fixture to name, on any number of event loops."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection

from tests.servers import Servers, advance_clock
from worker.ledger.database import Database
from worker.ledger.postgres import PostgresLedger

_lend: list[Callable[["LentLedger"], str]] = []


class LentLedger(PostgresLedger):
    """A ledger over an empty database of the running test; it needs no ``open``, and connects anew on each event loop."""

    def __init__(self) -> None:
        self.url = _lend[-1](self)
        super().__init__(self.url)
        self._database = LoopDatabase(self.url, repeats=True)

    def advance(self, delta: timedelta) -> None:
        """Set the ledger's clock forward."""
        advance_clock(self.url, delta)

    def row(self, query: LiteralString) -> Any:
        """The first row that a query finds."""
        with psycopg.connect(self.url) as connection:
            return connection.execute(query).fetchone()

    def hang_up(self) -> None:
        """Drop all connections."""
        assert isinstance(self._database, LoopDatabase)
        self._database.hang_up()


class LoopDatabase(Database):
    """Keeps connections of the running event loop, and drops those of an earlier one."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[AsyncConnection[Any]] = []

    def hang_up(self) -> None:
        """Drop all idle connections."""
        while self._idle:
            _close(self._idle.pop())

    @asynccontextmanager
    async def _take(self) -> AsyncIterator[AsyncConnection[Any]]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.hang_up()
            self._loop = loop
        connection = self._idle.pop() if self._idle else await AsyncConnection.connect(self.url, **self._session)
        try:
            yield connection
        except BaseException:
            _close(connection)
            raise
        if not connection.closed:
            self._idle.append(connection)


def _close(connection: AsyncConnection[Any]) -> None:
    """Close a connection, whose loop may have ended; nothing is awaited for it."""
    with suppress(StopIteration):
        connection.close().send(None)


@contextmanager
def lending(servers: Callable[[], Servers]) -> Iterator[None]:
    """Lends a database to each ledger that is made meanwhile, and takes all back in the end."""
    with ExitStack() as loans:

        def lend(ledger: LentLedger) -> str:
            url = loans.enter_context(servers().database(guarded=True))
            loans.callback(ledger.hang_up)
            return url

        _lend.append(lend)
        loans.callback(_lend.pop)
        yield
