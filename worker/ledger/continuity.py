"""Notices that another PostgreSQL answers in the place of the one before, which may have lost the last commits.

Before any statement of this process reaches it, what the process knows is put back: calls under way, and recent answers.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from datetime import datetime
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection

from tasks.errors import LedgerUnavailable, NightdeskError
from worker.cancellation import cancel
from worker.ledger.addresses import safe_url
from worker.ledger.database import HOT_S
from worker.ledger.postgres import PostgresLedger

log = logging.getLogger(__name__)

SETTLE_S = 6.0
"""Seconds after the first sight of another PostgreSQL in which no worker leases: every worker puts back what it knows. A
pool tries to connect again at least every four seconds."""

LOOK_S = 2.0
"""Seconds between two looks: behind a pooler, connections go on while the server changes."""

_SERVER = """
SELECT system_identifier, pg_postmaster_start_time(),
       CASE WHEN NOT pg_is_in_recovery() THEN ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END
FROM pg_control_system()
"""

_NOTE = """
WITH change AS (
    UPDATE ledger SET system_identifier = %(system)s, timeline = %(timeline)s,
                      seen_at = CASE WHEN timeline IS NULL THEN NULL ELSE nightdesk_now() END
    WHERE (system_identifier, timeline) IS DISTINCT FROM (%(system)s, %(timeline)s)
    RETURNING seen_at
)
SELECT extract(epoch FROM nightdesk_now() - seen_at)::float8 FROM change
UNION ALL
SELECT extract(epoch FROM nightdesk_now() - seen_at)::float8 FROM ledger WHERE NOT EXISTS (SELECT FROM change)
"""


class Server(NamedTuple):
    """A run of a PostgreSQL server on its line of history; ``timeline`` is None while it follows another one."""

    system: int
    started_at: datetime
    timeline: int | None


class Continuity:
    """Admits the connections of a process to PostgreSQL; belongs to the loop that opens it.

    Attributes:
        confirmed_at: when the ledger was last seen on the same PostgreSQL (monotonic).
        put_back: brings into a ledger what this process knows; set once there is something.
    """

    def __init__(self, database_url: str) -> None:
        """Makes it; nothing is connected."""
        self._url = database_url
        self._server: Server | None = None
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._told_blind = False
        self.confirmed_at = -math.inf
        self.put_back: Callable[[PostgresLedger], Awaitable[None]] | None = None

    def start(self, ledger: PostgresLedger) -> None:
        """Looks every two seconds from now on, over the connections of a ledger."""
        self._task = asyncio.create_task(self._look(ledger), name="watch PostgreSQL")

    async def stop(self) -> None:
        """Ends the looks."""
        if self._task is not None:
            await cancel(self._task)

    async def _look(self, ledger: PostgresLedger) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await ledger.use_connection(self.admit, within_s=HOT_S)
            except NightdeskError as error:
                log.info("whether PostgreSQL is the same is not known: %s", error)

    async def admit(self, connection: AsyncConnection[Any]) -> None:
        """Lets a connection be used, once this process has put back what its PostgreSQL may have lost.

        Raises ``psycopg.Error``: the connection is not to be used.
        """
        asked_at = monotonic()
        server = await _server_of(connection)
        if server is None:
            self.confirmed_at = asked_at
            if not self._told_blind:
                self._told_blind = True
                log.warning(
                    "a fail-over of PostgreSQL that loses commits would go unnoticed, and nothing be put back: the role of "
                    "NIGHTDESK_DATABASE_URL may not call pg_control_system() ('nightdesk doctor' has the remedy)"
                )
            return
        if server != self._server:
            async with self._turn:
                if server != self._server:
                    await self._change_to(server, connection)
        self.confirmed_at = asked_at

    async def require_same(self, connection: AsyncConnection[Any]) -> None:
        """Lets a connection of another loop be used, if its PostgreSQL is the one that this process was admitted to."""
        server = await _server_of(connection)
        if server is not None and self._server is not None and server != self._server:
            raise psycopg.OperationalError("another PostgreSQL answers, and what it may have lost is not put back yet")

    async def _change_to(self, server: Server, connection: AsyncConnection[Any]) -> None:
        if server.timeline is None:
            raise psycopg.errors.ReadOnlySqlTransaction(
                f"PostgreSQL at {safe_url(self._url)} takes no writes: a standby, or a failover that is under way"
            )
        try:
            row = await (await connection.execute(_NOTE, server._asdict())).fetchone()
        except psycopg.errors.InsufficientPrivilege as error:
            # The first statement of the ledger itself tells the remedy.
            log.error("which PostgreSQL this is can't be noted: %s", error)  # noqa: TRY400 - the reason is the message
            row = None
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedFunction):
            # Not migrated yet: the ledger refuses its schema, with the remedy, as it opens.
            row = None
        settles_s = SETTLE_S - row[0] if row is not None and row[0] is not None else 0.0
        if self._server is not None and self.put_back is not None:
            same = (server.system, server.timeline) == (self._server.system, self._server.timeline)
            why = "was restarted" if same else "gave way to another one"
            log.warning("PostgreSQL %s and may have lost its last commits: what this process knows is put back", why)
            try:
                async with PostgresLedger(self._url, connections=1, statement_s=HOT_S) as ledger:
                    await ledger.use_connection(lambda other: _require(server, other))
                    await self.put_back(ledger)
            except NightdeskError as error:
                raise psycopg.OperationalError(str(error)) from error
        if settles_s > 0:
            log.warning("PostgreSQL changed: other workers have %.1f s to put back what they know", settles_s)
            await asyncio.sleep(settles_s)
        self._server = server


async def _require(server: Server, connection: AsyncConnection[Any]) -> None:
    if await _server_of(connection) != server:
        raise LedgerUnavailable("the address of PostgreSQL leads to several servers")


async def _server_of(connection: AsyncConnection[Any]) -> Server | None:
    """The server of a connection; None where the role may not ask."""
    try:
        row = await (await connection.execute(_SERVER)).fetchone()
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFunction):
        return None
    return None if row is None else Server(*row)
