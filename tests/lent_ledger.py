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


class KeptLedger(PostgresLedger):
    """A ledger over the connections that are kept to a database; opening it connects to nothing."""

    def __init__(self, database_url: str, **options: Any) -> None:
        super().__init__(database_url, **options)
        self.url = database_url
        self._database = LoopDatabase(database_url, repeats=True)

    async def open(self) -> None:
        """Leave connecting to the first statement."""

    async def close(self) -> None:
        """Leave the connections to the next test."""

    def advance(self, delta: timedelta) -> None:
        """Set the ledger's clock forward."""
        advance_clock(self.url, delta)

    def row(self, query: LiteralString) -> Any:
        """The first row that a query finds."""
        return session(self.url).execute(query).fetchone()


class LentLedger(KeptLedger):
    """A ledger over an empty database of the running test; it needs no ``open``."""

    def __init__(self) -> None:
        super().__init__(_lend[-1]())


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
