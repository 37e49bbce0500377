"""Changes many jobs in pages, each a short transaction; one bad row never stops the others, and a duty tries it later.

Statements lock rows in one order, so that no two of them ever wait for each other in a circle:

1. Advisory locks, by key.
2. Jobs, by id.
3. What hangs on a job (attempts, completions, records), only under the lock of its job.
4. Batches, by id. Every attempt of a batch comes by here, so a transaction that locks a batch ends soon after.
5. Periods of tenants' budgets, by id; the same holds for them.

A statement that writes several jobs or batches locks them first, in a CTE of its own: an ``UPDATE ... FROM`` takes them in
the order of its plan. What follows refers to that CTE, for PostgreSQL runs the parts of a statement in no fixed order.
``SKIP LOCKED`` never waits, so it may take jobs in any order, also under the lock of a batch. Nothing else does: whoever
changes a batch and then its jobs commits in between.

``FOR NO KEY UPDATE`` is enough: no key that another table refers to ever changes, and rows that are inserted with such a
reference need not wait then.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from tasks.errors import Unstorable
from tasks.ports import OnPage, Page
from worker.ledger.database import Database

log = logging.getLogger(__name__)

PAGE_ROWS = 500
"""Jobs a transaction. Closing that many takes some 100 ms: no other statement waits longer for their locks."""

_DRIVER_ERRORS = (
    # A trigger or a function of the operator that raises.
    psycopg.errors.RaiseException,
    # A damaged page, index or out-of-line value.
    psycopg.errors.DataCorrupted,
    psycopg.errors.IndexCorrupted,
    psycopg.errors.InternalError_,
)

LOCK_LEASED = """
SELECT j.id, d.token FROM unnest(%(ids)b::uuid[], %(tokens)b::uuid[]) AS d(id, token)
JOIN job j ON j.id = d.id AND j.lease_token = d.token AND j.state = 'running'
ORDER BY j.id FOR NO KEY UPDATE OF j
"""
"""Locks the jobs that are still held by their tokens."""

Row = TypeVar("Row")

Change = Callable[[Sequence[UUID]], Awaitable[Sequence[Row]]]
"""Changes jobs in one transaction; returns a row for each change. Jobs that are in another state by now are left out."""

Refuse = Callable[[UUID, Exception], Awaitable[None]]
"""Takes note of a job that alone makes the change fail."""


def lock_batches(ids: str, columns: str = "b.id") -> str:
    """Return a query that locks the batches whose ids a query yields, all of which it reads before it locks the first."""
    return f"SELECT {columns} FROM batch b WHERE b.id = ANY (ARRAY({ids})) ORDER BY b.id FOR NO KEY UPDATE"


def lock_periods(which: str, after: str | None = None, columns: str = "p.id") -> str:
    """Return a query that locks the periods of budgets that a condition names, once the locks of a relation were got."""
    waits = "" if after is None else f"AND (SELECT count(*) FROM {after}) IS NOT NULL "
    return f"SELECT {columns} FROM budget_period p WHERE {which} {waits}ORDER BY p.id FOR NO KEY UPDATE"


def pay_periods(sums: str, after: str) -> str:
    """Return relations that settle what a query yields (``id``, ``released_usd``, ``spent_usd``), its periods locked in order."""
    return f"""period_sum AS (
    SELECT id, sum(released_usd) AS released, sum(spent_usd) AS spent FROM ({sums}) c GROUP BY id
), locked_period AS (
    {lock_periods("p.id = ANY (ARRAY(SELECT id FROM period_sum WHERE released <> 0 OR spent <> 0))", after)}
), paid_period AS (
    UPDATE budget_period p SET reserved_usd = p.reserved_usd - d.released, spent_usd = p.spent_usd + d.spent
    FROM locked_period l JOIN period_sum d ON d.id = l.id
    WHERE p.id = l.id
"""


def paged(ids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    """Cut ids into pages in ascending order, each id once."""
    ordered = sorted(set(ids))
    for at in range(0, len(ordered), PAGE_ROWS):
        yield ordered[at : at + PAGE_ROWS]


async def in_pages(rows: AsyncIterator[Row], size: int) -> AsyncIterator[list[Row]]:
    """Collect the rows of a stream into pages; none is empty."""
    page: list[Row] = []
    async for row in rows:
        page.append(row)
        if len(page) == size:
            yield page
            page = []
    if page:
        yield page


async def isolate(ids: Sequence[UUID], change: Change[Row], refuse: Refuse) -> list[Row]:
    """Change jobs in one transaction; after an error halve it until the row at fault is alone, and refuse that row.

    An error that no single row can cause, such as an unreachable database, is raised.
    """
    if not ids:
        return []
    try:
        return list(await change(ids))
    except Exception as error:
        if not row_at_fault(error):
            raise
        if len(ids) == 1:
            await refuse(ids[0], error)
            return []
    middle = len(ids) // 2
    first = await isolate(ids[:middle], change, refuse)
    return first + await isolate(ids[middle:], change, refuse)


async def read_apart(db: Database, statement: str, ids: Sequence[UUID]) -> tuple[list[Any], list[UUID]]:
    """Read the rows of jobs by a statement that takes ``ids``; also returns the ids of those at which it fails."""
    refused: dict[UUID, str] = {}

    async def read(some: Sequence[UUID]) -> list[Any]:
        return await db.rows(statement, {"ids": list(some)})

    return await isolate(ids, read, _note_in(refused)), list(refused)


async def each_page(ids: Sequence[UUID]) -> AsyncIterator[Sequence[UUID]]:
    """Give the pages of ids that are at hand in the form in which ``walk`` finds them."""
    for page in paged(ids):
        yield page


def change_by(db: Database, statement: str, parameters: Mapping[str, Any]) -> Change[UUID]:
    """Make a change from a statement that takes ``ids`` and returns the ids it changed."""

    async def change(job_ids: Sequence[UUID]) -> list[UUID]:
        return await db.column(statement, {**parameters, "ids": list(job_ids)})

    return change


async def change_pages(pages: AsyncIterator[Sequence[UUID]], change: Change[UUID], on_page: OnPage) -> list[UUID]:
    """Change jobs page by page for an operator; returns those changed. The others are logged and named in their page."""
    changed: list[UUID] = []
    async for ids in pages:
        refused: dict[UUID, str] = {}
        done = await isolate(ids, change, _note_in(refused))
        changed += done
        on_page(Page(len(ids), done, refused))
    return changed


def _note_in(refused: dict[UUID, str]) -> Refuse:
    async def refuse(job_id: UUID, error: Exception) -> None:
        refused[job_id] = reason(error)
        log.warning("job %s can't be read or changed: %s", job_id, refused[job_id])

    return refuse


def row_at_fault(error: Exception) -> bool:
    """Tell an error that one row can cause, so that the others are worth a try without it."""
    return isinstance(error, Unstorable) or isinstance(error.__cause__ or error, _DRIVER_ERRORS)


def reason(error: Exception) -> str:
    """The first line of the database's error, for logs and messages."""
    cause = error.__cause__ or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


async def walk(
    db: Database, statement: str, parameters: Mapping[str, Any], begin: Mapping[str, Any]
) -> AsyncIterator[list[Any]]:
    """Read the pages of a statement one by one; locks nothing.

    Args:
        db: where to read.
        statement: takes ``page``, the rows of a page, and ``after_...`` for each column that orders them.
        parameters: its other parameters.
        begin: the columns that order the rows, each with a value before the first.
    """
    after = {f"after_{column}": value for column, value in begin.items()}
    while True:
        rows = await db.rows(statement, {**parameters, **after, "page": PAGE_ROWS})
        if rows:
            yield rows
        if len(rows) < PAGE_ROWS:
            return
        after = {f"after_{column}": getattr(rows[-1], column) for column in begin}


NOT_IN_QUARANTINE = """NOT EXISTS (
    SELECT FROM quarantine q WHERE q.job_id = j.id AND q.duty = %(duty)s AND q.until > nightdesk_now()
)"""
"""Condition on ``job j`` for the statement by which a duty finds its jobs; takes the parameter ``duty``.

Without it a bad row that is first in the order would be tried at every tick, and enough of them would fill the page.
"""

LEASING = "lease"
"""The duty of leases and of the hints that lead to them."""

NOT_BARRED = f"""j.id <> ALL (ARRAY(
    SELECT job_id FROM quarantine WHERE duty = '{LEASING}' AND until > nightdesk_now()
))"""
"""Condition on ``job j`` for leases and hints: the table, nearly always empty, is read once a statement, not once a row."""

# A minute, two, four, up to an hour: a cause that is mended is noticed soon, one that stays costs nothing.
_ADD = """
INSERT INTO quarantine AS q (job_id, duty, reason, until)
VALUES (%(job_id)s, %(duty)s, %(reason)s, nightdesk_now() + interval '1 minute')
ON CONFLICT (job_id, duty) DO UPDATE
SET reason = excluded.reason, tries = q.tries + 1,
    until = nightdesk_now() + least(interval '1 minute' * 2 ^ least(q.tries, 6), interval '1 hour')
"""


def quarantine_for(db: Database, duty: str) -> Refuse:
    """Give a duty the way to refuse a job: it is logged, and not tried again for a while."""

    async def refuse(job_id: UUID, error: Exception) -> None:
        log.error("job %s can't be changed by %s and is tried again later: %s", job_id, duty, reason(error))
        await db.rows(_ADD, {"job_id": job_id, "duty": duty, "reason": reason(error)[:500]})

    return refuse


async def quarantine_bad(
    db: Database, job_ids: Sequence[UUID], statement: str, parameters: Mapping[str, Any]
) -> list[UUID]:
    """Try a statement of leasing that takes ``ids`` on ever smaller parts of some jobs, undo it, and quarantine those that make it fail."""
    bad: list[UUID] = []
    quarantine = quarantine_for(db, LEASING)

    async def attempt(ids: Sequence[UUID]) -> list[UUID]:
        async with db.connection() as connection, connection.transaction(force_rollback=True):
            await connection.execute(statement, {**parameters, "ids": list(ids)})
        return []

    async def refuse(job_id: UUID, error: Exception) -> None:
        bad.append(job_id)
        await quarantine(job_id, error)

    await isolate(job_ids, attempt, refuse)
    return bad
