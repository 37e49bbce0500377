"""Tells how the database and the ledger in it are, for ``worker.doctor``: a few counts that stay cheap when it is big.

Each count goes by an index that holds only what is asked for (see ``tables``) and stops at ``MANY``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import dict_row

from schemas.states import HeldReason, Step
from worker.ledger.database import Store
from worker.ledger.fleet import PRESENT_FOR, URGENT, Fleet, LaneNotice, known_steps
from worker.ledger.invariants import Violation, find_violations
from worker.ledger.remote_overview import RemoteNotice, RemoteOverview
from worker.ledger.schema_version import TABLES, Schema, Standing, schema_query, standing

MANY = 10_000
"""Counts stop here."""

OLDEST_SUPPORTED = 15
"""PostgreSQL's major version that the statements are written for."""

CONNECT_S = 5

BILLED_WITHIN = timedelta(days=7)
OPENED_WITHIN = timedelta(days=1)
"""How far back attempts are looked at: of all of them, only those that were made again have an index."""


class Refusal(StrEnum):
    """Why no connection came about."""

    UNREACHABLE = "unreachable"
    PASSWORD = "password"  # noqa: S105 - the kind of refusal, not one
    DATABASE = "database"


@dataclass(frozen=True, slots=True)
class Refused:
    """PostgreSQL could not be connected to."""

    why: Refusal
    detail: str


@dataclass(frozen=True, slots=True)
class Connected:
    """A PostgreSQL that answers, and what is in its database."""

    version: int
    revision: str | None
    """The schema's; None for an empty database."""
    standing: Standing
    clock_ahead: timedelta = timedelta(0)
    """How far the ledger's clock is from the server's."""
    standbys: int = 0
    """Servers that follow this one."""
    waits_for_standby: bool = False
    """A commit is confirmed only when a standby has it."""
    has_identity: bool = True
    """This role may ask which server it is, and so notice a fail-over."""
    loses_commits: str = ""
    """Settings by which a crash of the server loses confirmed commits."""


@dataclass(frozen=True, slots=True)
class HeldJobs:
    """Jobs of one batch that wait for an operator or a change."""

    batch_id: UUID
    reason: HeldReason
    jobs: int


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A job that a duty of the workers can't change, and leaves alone for a while."""

    job_id: UUID
    duty: str
    reason: str


@dataclass(frozen=True, slots=True)
class LedgerHealth:
    """Counts of what waits, runs or is wrong in the ledger; every count is at most ``MANY``, except ``holds``."""

    available: dict[Step, int]
    running: int
    working: int
    """Workers that hold a lease which has not run out."""
    stuck: int
    """Running jobs whose lease ran out longer than ``stuck_after`` ago."""
    overdue: int
    """Scheduled jobs, not held, that were due longer than ``overdue_after`` ago."""
    unpublished: int
    """Final jobs without a published result, for longer than ``unpublished_after``."""
    billed_twice: int
    """Attempts within ``BILLED_WITHIN`` whose call was made again: with an unknown outcome, or answered too late."""
    left_open: int
    """Attempts within ``OPENED_WITHIN`` on final jobs that were never closed."""
    quarantined: list[Quarantined] = field(default_factory=list)
    unreadable: list[UUID] = field(default_factory=list)
    """Jobs that failed within ``BILLED_WITHIN`` because their rows can't be read."""
    served: frozenset[Step] = frozenset()
    """Steps that some worker said to serve a moment ago."""
    urgent_workers: bool = False
    """Some worker said that it takes urgent jobs alone."""
    holds: list[HeldJobs] = field(default_factory=list)
    lanes: list[LaneNotice] = field(default_factory=list)
    """Paused, or out of reach."""
    remote: Sequence[RemoteNotice] = ()
    """Provider batches, and the calls that wait for one."""


_AVAILABLE = (
    "SELECT count(*) AS n FROM (SELECT FROM job WHERE state = 'available' AND step = %(step)s LIMIT %(many)s) j"
)

_RUNNING = """
SELECT count(*) AS running, count(DISTINCT worker) FILTER (WHERE lease_until > nightdesk_now()) AS working,
       count(*) FILTER (WHERE lease_until < nightdesk_now() - %(stuck_after)s) AS stuck
FROM (SELECT worker, lease_until FROM job WHERE state = 'running' LIMIT %(many)s) j
"""

_SERVED = "SELECT DISTINCT unnest(steps) AS step FROM worker WHERE seen_at > nightdesk_now() - %(present_for)s"

_OVERDUE = """
SELECT count(*) AS n FROM (
    SELECT FROM job j JOIN batch b ON b.id = j.batch_id AND NOT b.paused
    WHERE j.state = 'scheduled' AND j.held_reason IS NULL AND j.scheduled_at < nightdesk_now() - %(overdue_after)s
    LIMIT %(many)s
) j
"""

_UNPUBLISHED = """
SELECT count(*) AS n FROM (
    SELECT FROM job WHERE finished_at IS NOT NULL AND result_published_at IS NULL
                      AND finished_at < nightdesk_now() - %(unpublished_after)s
    LIMIT %(many)s
) j
"""

_HOLDS = """
SELECT batch_id, held_reason, count(*) AS jobs FROM job WHERE held_reason IS NOT NULL
GROUP BY batch_id, held_reason ORDER BY jobs DESC, batch_id
"""

_QUARANTINED = """
SELECT job_id, duty, reason FROM quarantine WHERE until > nightdesk_now() ORDER BY since, job_id LIMIT %(many)s
"""

_UNREADABLE = """
SELECT id FROM job WHERE failure_kind = 'unreadable' AND finished_at > nightdesk_now() - %(billed_within)s LIMIT %(many)s
"""

# Unknown and made again; or answered after it was made again, which is no longer unknown: both calls were paid.
_BILLED_TWICE = """
SELECT count(*) AS n FROM (
    (SELECT FROM attempt u
    WHERE u.outcome = 'unknown' AND u.cost_usd IS DISTINCT FROM 0 AND u.opened_at > nightdesk_now() - %(billed_within)s
      AND EXISTS (SELECT FROM attempt a WHERE a.job_id = u.job_id AND a.run = u.run AND a.round = u.round
                                        AND a.purpose = u.purpose AND a.id <> u.id AND a.shared_from IS NULL
                                        AND (a.opened_at > u.opened_at OR a.outcome = 'ok'))
    LIMIT %(many)s)
    UNION ALL
    (SELECT FROM completion c JOIN attempt late ON late.id = c.attempt_id AND late.outcome = 'ok' AND late.cost_usd IS DISTINCT FROM 0
    WHERE NOT c.won AND c.stored_at > nightdesk_now() - %(billed_within)s
    LIMIT %(many)s)
) a
"""

# Ids of attempts begin with the time they were made, so the primary key leads to the last day.
_LEFT_OPEN = """
SELECT count(*) AS n FROM (
    SELECT FROM attempt a JOIN job j ON j.id = a.job_id JOIN job_request r ON r.job_id = j.id
    WHERE a.id > %(since)s AND a.closed_at IS NULL AND a.provider_batch_id IS NULL AND j.finished_at IS NOT NULL
      AND a.opened_at < nightdesk_now() - %(grace)s
                        - coalesce((r.head #>> '{config,timeout_s}')::float8, 60) * interval '1 second'
    LIMIT %(many)s
) a
"""

_TOTALS = """
SELECT state, coalesce(outcome, '') AS outcome, coalesce(held_reason, '') AS held_reason, sum(jobs)::bigint AS jobs
FROM job_count GROUP BY 1, 2, 3 HAVING sum(jobs) <> 0
"""

GRACE = timedelta(minutes=1)
"""Beyond a call's timeout: its worker writes down what became of it within seconds."""


class Inspection(Store):
    """Checks of ``nightdesk doctor``: counts of what is wrong, and violated invariants."""

    async def health(
        self,
        *,
        stuck_after: timedelta,
        overdue_after: timedelta = timedelta(minutes=1),
        unpublished_after: timedelta = timedelta(minutes=1),
    ) -> LedgerHealth:
        """Count what is not as it should be; raises ``LedgerUnavailable``."""
        parameters = {
            "many": MANY,
            "stuck_after": stuck_after,
            "overdue_after": overdue_after,
            "unpublished_after": unpublished_after,
            "billed_within": BILLED_WITHIN,
            "since": _first_id(datetime.now(UTC) - OPENED_WITHIN),
            "grace": GRACE,
            "present_for": PRESENT_FOR,
        }
        running = (await self._db.rows(_RUNNING, parameters))[0]
        steps = await self._db.column(_SERVED, parameters)
        return LedgerHealth(
            available={step: await self._count(_AVAILABLE, {**parameters, "step": step.value}) for step in Step},
            running=running.running,
            working=running.working,
            stuck=running.stuck,
            overdue=await self._count(_OVERDUE, parameters),
            unpublished=await self._count(_UNPUBLISHED, parameters),
            billed_twice=await self._count(_BILLED_TWICE, parameters),
            left_open=await self._count(_LEFT_OPEN, parameters),
            served=known_steps(steps),
            urgent_workers=URGENT in steps,
            unreadable=await self._db.column(_UNREADABLE, parameters),
            quarantined=[Quarantined(*row) for row in await self._db.rows(_QUARANTINED, parameters)],
            holds=[
                HeldJobs(row.batch_id, HeldReason(row.held_reason), row.jobs) for row in await self._db.rows(_HOLDS)
            ],
            lanes=await Fleet(self._db).lane_notices(),
            remote=await RemoteOverview(self._db).notices(),
        )

    async def totals(self) -> list[tuple[str, str, str, int]]:
        """Jobs of all batches by state, outcome and reason of a hold (empty: none), from the counts that triggers keep."""
        rows = await self._db.rows(_TOTALS)
        return [(row.state, row.outcome, row.held_reason, row.jobs) for row in rows]

    async def _count(self, statement: str, parameters: dict[str, Any]) -> int:
        return int(await self._db.value(statement, parameters))

    async def violations(self) -> list[Violation]:
        """Check all of them in one snapshot, without locks; raises ``LedgerUnavailable``."""
        async with self._db.connection() as connection, connection.transaction():
            await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            # Connections are set up for rows found by index; these statements read everything.
            await connection.execute("SET LOCAL enable_seqscan = on")
            return await find_violations(connection)


def _first_id(at: datetime) -> UUID:
    """The smallest UUIDv7 of a moment."""
    return UUID(int=int(at.timestamp() * 1000) << 80)


_PROMISES = """
SELECT (SELECT count(*) FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup') AS standbys,
       current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')
           AS waits_for_standby,
       coalesce(has_function_privilege(to_regprocedure('pg_control_system()'), 'EXECUTE'), false) AS has_identity,
       concat_ws(' and ', CASE WHEN current_setting('fsync') = 'off' THEN 'fsync = off' END,
                 CASE WHEN current_setting('synchronous_commit') = 'off' THEN 'synchronous_commit = off' END) AS loses_commits
"""


async def look(database_url: str) -> Connected | Refused:
    """Connect once, outside of any pool, and look at the server and at the schema."""
    try:
        connection = await AsyncConnection.connect(
            database_url,
            autocommit=True,
            connect_timeout=CONNECT_S,
            row_factory=dict_row,
            application_name="nightdesk",
            prepare_threshold=None,
        )
        async with connection:
            return await _look(connection)
    except psycopg.OperationalError as error:
        return _refused(error)


async def _look(connection: AsyncConnection[dict[str, Any]]) -> Connected:
    async def scalar(statement: str) -> Any:
        row = await (await connection.execute(statement.encode())).fetchone()
        return row["it"] if row else None

    version = connection.info.server_version // 10_000
    tables = await (await connection.execute(TABLES.encode())).fetchone()
    assert tables is not None
    query = schema_query(**tables)
    row = await (await connection.execute(query.encode())).fetchone() if query else None
    if row is None:
        return Connected(version, None, Standing.EMPTY)
    ahead = await scalar("SELECT nightdesk_now() - now() AS it")
    promises = await (await connection.execute(_PROMISES)).fetchone()
    assert promises is not None
    return Connected(version, row["revision"], standing(Schema(**row)), ahead, **promises)


def _refused(error: Exception) -> Refused:
    # No error code comes with a refused connection, only the server's words.
    detail = (str(error).strip().splitlines() or [type(error).__name__])[0].rpartition("failed: ")[2]
    detail = detail.removeprefix("FATAL:").strip()
    if "password" in detail or ("role" in detail and "does not exist" in detail):
        return Refused(Refusal.PASSWORD, detail)
    if "database" in detail and "does not exist" in detail:
        return Refused(Refusal.DATABASE, detail)
    return Refused(Refusal.UNREACHABLE, detail)
