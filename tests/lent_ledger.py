"""Ledgers over databases that a test is lent at their making: without a fixture to name, on any number of event loops."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, LiteralString

from psycopg import AsyncConnection

from tests.databases import CONNECTIONS, close, session
from tests.servers import Servers, advance_clock
from worker.ledger.database import Database
from worker.ledger.postgres import PostgresLedger

_lend: list[Callable[[], str]] = []


class LentLedger(PostgresLedger):
    """A ledger over an empty database of the running test; it needs no ``open``."""

    def __init__(self) -> None:
        self.url = _lend[-1]()
        super().__init__(self.url)
        self._database = LoopDatabase(self.url, repeats=True)

    def advance(self, delta: timedelta) -> None:
        """Set the ledger's clock forward."""
        advance_clock(self.url, delta)

    def row(self, query: LiteralString) -> Any:
        """The first row that a query finds."""
        return session(self.url).execute(query).fetchone()


class LoopDatabase(Database):
    """Takes the connections that are kept to its database, on whatever event loop runs, and keeps those that it makes."""

    @asynccontextmanager
    async def _take(self) -> AsyncIterator[AsyncConnection[Any]]:
        idle = CONNECTIONS[self.url]
        connection = idle.pop() if idle else await AsyncConnection.connect(self.url, **self._session)
        try:
            yield connection
        except BaseException:
            close(connection)
            raise
        if not connection.closed:
            idle.append(connection)


@contextmanager
def lending(servers: Callable[[], Servers]) -> Iterator[None]:
    """Lends a database to each ledger that is made meanwhile, and takes all back in the end."""
    with ExitStack() as loans:

        def lend() -> str:
            return loans.enter_context(servers().database(guarded=True))

        _lend.append(lend)
        loans.callback(_lend.pop)
        yield
