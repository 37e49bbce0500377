"""Connections to PostgreSQL: one small pool for the hot statements, with driver errors translated to ours."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import AdaptContext
from psycopg.adapt import Buffer, Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format
from psycopg.rows import namedtuple_row
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from pydantic_core import from_json

from schemas.base import EARLIEST, LATEST
from tasks.errors import LedgerError, LedgerUnavailable, NightdeskError, SchemaMismatch, Unstorable
from worker.cancellation import lost_cancellation
from worker.ledger.addresses import safe_url

log = logging.getLogger(__name__)

Parameters = Sequence[Any] | dict[str, Any]
Admit = Callable[[AsyncConnection[Any]], Awaitable[None]]
First = tuple[str, Parameters]
"""A statement that goes before another, with its parameters."""

POOL_WAIT = timedelta(seconds=10)
"""How long a statement waits for a connection before the ledger counts as unreachable."""

CONNECT_S = 5
"""Seconds a connection may take to be made."""

HOT_S = 15.0
"""Seconds that the answer of a hot statement is waited for: a quarter of a lease. They take milliseconds; but a connection
that goes through a pooler or a proxy which stopped forwarding is alive for TCP, so neither keepalives nor its user timeout
would ever end the wait."""

STATEMENT_S = 60.0
"""The same for a statement that may count or change many rows."""

TRANSACTION_S = 600.0
"""The same for what may go through a whole batch, or all of a day's results."""

CONFLICT_TRIES = 5
"""Tries in a row of a statement that loses a deadlock or a race for a unique index."""

SESSION_OPTIONS = (
    # Hot statements touch rows by index only; right after a bulk submit the statistics still say "empty table", and a
    # plan that scans it would be kept by the prepared statement.
    "-c enable_seqscan=off "
    # Compiling a statement costs more than running any of these.
    "-c jit=off "
    "-c timezone=UTC "
    "-c idle_in_transaction_session_timeout=60s "
    # A client that is gone without a word: seconds in place of the two hours of most systems.
    "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3 "
    # A statement whose connection was hung up would go on, with its locks, until it is done.
    "-c client_connection_check_interval=5s "
    # By this mark a connection is known to have them: a pooler refuses them, or drops them without a word.
    "-c nightdesk.session=direct"
)

PLAN_ONCE = " -c plan_cache_mode=force_generic_plan"
"""For a process that repeats the same statements all day: each is planned once a connection, whatever its parameters. The larger ones
take longer to plan than to run for ten jobs, and by its own rule the server plans a lease anew each time."""

_OF_SESSION = "SELECT current_setting('nightdesk.session', true) AS mark, current_setting('enable_seqscan') AS seqscan"

POOLED = (
    "PostgreSQL is reached through a pooler that keeps nothing for a connection: statements are not prepared there, which costs the server "
    "more for each"
)
UNSET = "; set on the role what the pooler drops: ALTER ROLE {role} SET enable_seqscan = off (docs/scale.md)"

_NOT_PREPARED = (psycopg.errors.DuplicatePreparedStatement, psycopg.errors.InvalidSqlStatementName)
"""A pooler gave the connection of another client: it has other prepared statements."""

_ROW_AT_FAULT = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    UnicodeEncodeError,
)
"""The values of a row can't be stored, by this server or any other."""

_LOST_RACE = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
)

_OTHER_SCHEMA = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
    psycopg.errors.InvalidSchemaName,
)

_CONNECTION_IS_SOUND = (*_ROW_AT_FAULT, *_LOST_RACE, psycopg.ProgrammingError)
"""After these the connection serves the next statement; after any other a new one may reach a server that works."""


def _read_json(content: str | bytes) -> Any:
    """The JSON of a column; its bytes where they can't be read: the reader of that row then fails, and not the fetch of all rows."""
    try:
        # Unlike orjson it reads a whole number of any length.
        return from_json(content)
    except ValueError:
        return content if isinstance(content, bytes) else content.encode()


set_json_loads(_read_json)

# For all connections: the role, the database or the environment may name one in which texts come as bytes.
os.environ["PGCLIENTENCODING"] = "UTF8"


_READ_TIME: Any = psycopg.adapters.get_loader(psycopg.adapters.types["timestamptz"].oid, Format.TEXT)


class _TimeLoader(Loader):
    """Reads a time beyond those of Python as the last or the first: else no row of its statement could be read."""

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._read = _READ_TIME(oid, context).load

    def load(self, data: Buffer) -> Any:
        try:
            return self._read(data)
        except psycopg.DataError:
            return EARLIEST if bytes(data).endswith((b"BC", b"-infinity")) else LATEST


psycopg.adapters.register_loader("timestamptz", _TimeLoader)


def unavailable(database_url: str, error: Exception) -> LedgerUnavailable:
    """The error to raise when PostgreSQL can't be reached; says where and why, never the password."""
    return LedgerUnavailable(
        f"PostgreSQL at {safe_url(database_url)} can't be reached ({_first_line(getattr(error, 'orig', None) or error)}); "
        "check that it runs and NIGHTDESK_DATABASE_URL"
    )


class LostRace(LedgerUnavailable):
    """A statement was ended in favour of another one: a deadlock, a serialization failure, a lock that was not to be had."""


def translate(error: Exception, database_url: str) -> NightdeskError:
    """The error of ours for an error of the driver.

    ``Unstorable`` only when a row's own values are at fault. Every error that is not known to need a person is
    ``LedgerUnavailable``: the same statement may succeed later, and nothing is given up for it.
    """
    detail = _first_line(error)
    where = f"PostgreSQL at {safe_url(database_url)}"
    translated: NightdeskError
    if isinstance(error, _ROW_AT_FAULT):
        translated = Unstorable(detail)
    elif isinstance(error, _OTHER_SCHEMA):
        translated = SchemaMismatch(
            f"{where} has another schema than this version of nightdesk needs ({detail}); 'nightdesk doctor' of the same version "
            "says whether to migrate it, or to upgrade this process"
        )
    elif isinstance(error, psycopg.errors.InsufficientPrivilege):
        # By whoever gives the rights back; until then the worker waits, as for a server that is away.
        translated = LedgerUnavailable(str(not_permitted(error)))
    elif isinstance(error, _NOT_PREPARED):
        translated = LostRace(f"{where} gave the connection of another session ({detail}); it can be tried again")
    elif isinstance(error, psycopg.ProgrammingError):
        translated = LedgerError(f"{where} does not understand a statement ({detail}): this is a defect of nightdesk")
    elif isinstance(error, _LOST_RACE):
        translated = LostRace(f"{where} ended a statement in favor of another one ({detail}); it can be tried again")
    elif isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        translated = LedgerUnavailable(
            f"{where} takes no writes ({detail}): a standby, or a failover that is under way; check "
            "NIGHTDESK_DATABASE_URL if it lasts"
        )
    elif isinstance(error, psycopg.Error) and error.sqlstate is not None:
        translated = LedgerUnavailable(f"{where} could not do that now ({detail}); its log may say more")
    else:
        translated = unavailable(database_url, error)
    return translated


def not_permitted(error: Exception) -> LedgerError:
    """The error to raise when the role of the URL has too few rights."""
    return LedgerError(
        f"PostgreSQL does not let the role of NIGHTDESK_DATABASE_URL do that ({_first_line(error)}): run this as the "
        "owner of the database, or grant what is missing (docs/security.md)"
    )


def arrays(rows: Sequence[object], *names: str) -> dict[str, list[Any]]:
    """Attributes of some objects as columns by their names, for a statement that unnests them."""
    return {name: [getattr(row, name) for row in rows] for name in names}


def columns_of(rows: Sequence[Sequence[Any]], *names: str) -> dict[str, list[Any]]:
    """Tuples as columns with these names, for a statement that unnests them."""
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def fields(row: Any, *names: str) -> dict[str, Any]:
    """Columns of a row that are fields of an object, under the same names."""
    return {name: getattr(row, name) for name in names}


class Database:
    """A pool of autocommit connections: each statement is its own transaction and one round trip."""

    def __init__(
        self,
        database_url: str,
        *,
        size: int = 4,
        statement_s: float = STATEMENT_S,
        patience_s: float | None = None,
        repeats: bool = False,
        admit: Admit | None = None,
    ) -> None:
        """Make the pool, unopened.

        Args:
            database_url: may name several hosts; the one that takes writes is used.
            size: most connections.
            statement_s: seconds that the answer of a statement is waited for, unless it names a time of its own.
            patience_s: keep all connections open, and wait no longer than this for one, or for its answer.
            repeats: the same few statements come again and again, so each is prepared and planned at its first use.
            admit: is given each new connection before its first statement; what it raises keeps the connection out.
        """
        self.url = database_url
        self._statement_s = statement_s if patience_s is None else patience_s
        self._admit = admit
        self._repeats = repeats
        self.pooled = False
        """A connection may be another one of the server's in each transaction: nothing is kept in its session."""
        self._session: dict[str, Any] = {
            "autocommit": True,
            "application_name": "nightdesk",
            "options": SESSION_OPTIONS + (PLAN_ONCE if repeats else ""),
            **({"prepare_threshold": 0} if repeats else {}),
            "connect_timeout": CONNECT_S,
            "keepalives_idle": 5,
            "keepalives_interval": 5,
            "keepalives_count": 2,
            "tcp_user_timeout": int(1000 * (HOT_S if patience_s is None else patience_s)),
            "row_factory": namedtuple_row,
            **only_writable(database_url),
        }
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
            database_url,
            min_size=1 if patience_s is None else size,
            max_size=size,
            open=False,
            timeout=POOL_WAIT.total_seconds() if patience_s is None else patience_s,
            kwargs=lambda: self._session,
            configure=self._configure,
            reconnect_timeout=5,
        )

    async def open(self) -> None:
        """Prove that the database can be reached, and open the pool.

        The pool would go on trying and then only say that time is up; one connection says at once, and why.
        """
        raise_lost = lost_cancellation()
        try:
            await self._look_for_pooler()
            await self._pool.open(wait=True, timeout=POOL_WAIT.total_seconds())
            raise_lost()
        except BaseException as error:
            # Its workers swallow a cancellation that comes together with their connection, and then keep the loop from ending.
            await self._pool.close()
            if isinstance(error, PoolTimeout | psycopg.OperationalError):
                raise unavailable(self.url, error) from error
            raise

    async def _look_for_pooler(self) -> None:
        """Connect once, and see whether the connection has what was asked for."""
        try:
            connection = await AsyncConnection.connect(self.url, **self._session)
        except psycopg.OperationalError as error:
            if "startup parameter" not in str(error):
                raise
            del self._session["options"]
            connection = await AsyncConnection.connect(self.url, **self._session)
        async with connection:
            cursor = await connection.execute(_OF_SESSION, prepare=False)
            mark, seqscan = (await cursor.fetchone()) or (None, None)
            if mark != "direct":
                hint = UNSET.format(role=connection.info.user) if seqscan == "on" else ""
                self._keep_no_session(POOLED + hint)

    def _keep_no_session(self, why: str) -> None:
        """Prepare no statement from here on, for the next one may come to another connection of the server."""
        if not self.pooled:
            self.pooled = True
            self._session.pop("options", None)
            self._session["prepare_threshold"] = None
            log.log(logging.WARNING if self._repeats else logging.DEBUG, "%s", why)

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        # A pooler keeps this of a client's session, and of the options no other.
        if self.pooled:
            await connection.execute("SET TIME ZONE 'UTC'")
        if self._admit is not None:
            await self._admit(connection)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    @asynccontextmanager
    async def connection(self, within_s: float = TRANSACTION_S) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection for a statement or a transaction; driver errors leave it as ours (see ``translate``).

        Hung up when it is not given back in time: its user then gets ``LedgerUnavailable``.

        Raises: also ``psycopg.errors.UniqueViolation``, as it is: it names the index.
        """
        raise_lost = lost_cancellation()
        try:
            async with self._take() as connection:
                raise_lost()
                patience = asyncio.get_running_loop().call_later(within_s, hang_up, connection)
                if self.pooled:
                    connection.prepare_threshold = None
                try:
                    yield connection
                except _NOT_PREPARED:
                    self._keep_no_session(POOLED)
                    await connection.close()
                    raise
                except psycopg.Error as error:
                    if not isinstance(error, _CONNECTION_IS_SOUND):
                        await connection.close()
                    raise
                finally:
                    patience.cancel()
        except psycopg.errors.UniqueViolation:
            raise
        except (psycopg.Error, UnicodeEncodeError) as error:
            raise translate(error, self.url) from error

    def _take(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A connection of the pool, and its return."""
        return self._pool.connection()

    async def rows(
        self,
        statement: str,
        parameters: Parameters = (),
        *,
        first: First | None = None,
        within_s: float | None = None,
    ) -> list[Any]:
        """Run one statement and return its rows as named tuples; repeats it after a deadlock or a lost race.

        ``first`` is a statement that takes locks, with its parameters: it goes before in the same transaction, so that this one sees what the last holders wrote. Still one round trip.

        Raises: LedgerUnavailable, Unstorable (a value can't be kept), SchemaMismatch, LedgerError.
        """
        patience_s = self._statement_s if within_s is None else within_s

        for remaining in reversed(range(CONFLICT_TRIES)):
            try:
                async with self.connection(patience_s) as connection:
                    if first is not None:
                        return await _after(first, connection, statement, parameters, patience_s)
                    cursor = await connection.execute(statement, parameters)
                    return await cursor.fetchall() if cursor.description else []
            except (LostRace, psycopg.errors.UniqueViolation) as error:
                if not remaining and isinstance(error, LostRace):
                    raise
                if not remaining:
                    raise translate(error, self.url) from error
                log.info("repeating a statement that lost a race: %s", _first_line(error))
        raise AssertionError("unreachable")

    async def column(self, statement: str, parameters: Parameters = (), **options: Any) -> list[Any]:
        """The first column of what ``rows`` returns."""
        return [row[0] for row in await self.rows(statement, parameters, **options)]

    async def value(self, statement: str, parameters: Parameters = (), **options: Any) -> Any:
        """The first column of the one row that there always is."""
        (value,) = await self.column(statement, parameters, **options)
        return value


class Store:
    """Statements over a database."""

    def __init__(self, database: Database) -> None:
        self._db = database


# What is sent together may be cut in two by a network that goes silent. The server then waits for the rest, with the locks of the
# first part; it does not count as idle in a transaction, and keepalives pass through a proxy that stopped forwarding.
_BOUND = "SELECT set_config('transaction_timeout', %s, true)"
LEAST_BOUND_S = 60.0
TRANSACTION_TIMEOUT_FROM = 170_000
"""Version of PostgreSQL that can end such a transaction. An older one gets the statements one by one, so that it is idle between them."""


async def _after(
    first: First, connection: AsyncConnection[Any], statement: str, parameters: Parameters, patience_s: float
) -> list[Any]:
    """The rows of a statement that returns some, run after another, in a transaction sent as a whole where the server can end it."""
    if connection.info.server_version < TRANSACTION_TIMEOUT_FROM:
        async with connection.transaction():
            await connection.execute(*first)
            return await (await connection.execute(statement, parameters)).fetchall()
    # A pipeline is a transaction of its own: to begin and end one would be two more waits for the event loop.
    async with connection.pipeline():
        await connection.execute(_BOUND, (f"{max(LEAST_BOUND_S, patience_s):.0f}s",))
        await connection.execute(*first)
        cursor = await connection.execute(statement, parameters)
    # Only now: a fetch in between would wait for the server, and the commit once more.
    return await cursor.fetchall()


def hang_up(connection: AsyncConnection[Any]) -> None:
    """End a connection while a task waits on it. Cancelling the task would wait for the server's reply once more."""
    if connection.closed:
        return
    log.warning("PostgreSQL does not answer on a connection: hanging up")
    with socket.socket(fileno=os.dup(connection.fileno())) as own, suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)


def only_writable(database_url: str) -> dict[str, str]:
    """Of several hosts the one that takes writes. A single host is connected to as it is: its refusals say more."""
    parameters = conninfo_to_dict(database_url)
    if "," not in str(parameters.get("host") or "") or "target_session_attrs" in parameters:
        return {}
    return {"target_session_attrs": "read-write"}


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
