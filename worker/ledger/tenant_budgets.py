"""Budgets of tenants for days and nights: kept up to date, and shared out among the jobs that wait for money.

The money itself is reserved where attempts are opened (``attempts``), in the row of each present period, together with that
of the batch. A period ends without a trace in the next one: what a call costs later is written where it was reserved.

A job whose call does not fit is held as ``tenant_budget``, with the budgets that refused it (``short_of``). After a night
that was used up they go on in the next night, and not in the day between, in which the budget bounds nothing; jobs
that only others refused do not wait for it. A period that is over is ``short`` until the budget is set anew.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from schemas.budget import BudgetStatus
from schemas.window import parse_period
from tasks.errors import NotFound
from worker.ledger.database import Database
from worker.ledger.pages import lock_periods

PAGE_ROWS = 500
PAGES = 20
"""Jobs that are let go, or held, in one statement, and such statements for a tenant and tick."""

ROLLED = 200
"""Budgets that get a new period in one tick."""

_SET = """
INSERT INTO tenant_budget AS b (id, tenant, period, max_cost_usd, changed_by)
VALUES (%(id)s, %(tenant)s, %(period)s, %(max_cost_usd)s, %(actor)s)
ON CONFLICT (tenant, period) DO UPDATE SET max_cost_usd = excluded.max_cost_usd, changed_by = excluded.changed_by
RETURNING b.id, b.period, nightdesk_now() AS now
"""

# A night that is over lets go of its jobs, too; its own ceiling stays what it was.
_CHANGE_PERIODS = f"""
WITH locked_period AS ({lock_periods("(p.live OR p.short) AND p.budget_id = %(id)s")})
UPDATE budget_period p SET max_cost_usd = CASE WHEN p.live THEN %(max_cost_usd)s ELSE p.max_cost_usd END, short = false
FROM locked_period l WHERE p.id = l.id
"""

_REMOVE = "DELETE FROM tenant_budget WHERE tenant = %(tenant)s AND period = %(period)s RETURNING id"

# The budgets first, so that a new ceiling reaches a new period, too.
_ADD_PERIODS = f"""
WITH input AS (
    SELECT * FROM unnest(%(id)b::uuid[], %(budget_id)b::uuid[], %(begins_at)b::timestamptz[], %(ends_at)b::timestamptz[])
    AS d(id, budget_id, begins_at, ends_at)
), budget AS (
    SELECT id, tenant, max_cost_usd FROM tenant_budget WHERE id = ANY(%(budget_id)b::uuid[]) ORDER BY id FOR NO KEY UPDATE
), new_period AS (
    INSERT INTO budget_period (id, budget_id, tenant, begins_at, ends_at, max_cost_usd)
    SELECT d.id, b.id, b.tenant, d.begins_at, d.ends_at, b.max_cost_usd FROM input d JOIN budget b ON b.id = d.budget_id
    ON CONFLICT (budget_id, begins_at) DO NOTHING
), over AS (
    {lock_periods("p.live AND p.ends_at <= nightdesk_now() AND p.budget_id = ANY(%(budget_id)b::uuid[])", "budget")}
)
UPDATE budget_period p SET live = false, short = true FROM over o WHERE p.id = o.id
"""

PERIOD_OVER = "EXISTS (SELECT FROM budget_period p WHERE p.live AND p.ends_at <= nightdesk_now())"
"""A budget needs its next period."""

JOB_WAITS = "EXISTS (SELECT FROM job j WHERE j.held_reason = 'tenant_budget')"
"""A job waits for the budget of its tenant."""

_OVER = f"""
SELECT DISTINCT b.id, b.period, nightdesk_now() AS now FROM tenant_budget b JOIN budget_period p ON p.budget_id = b.id
WHERE p.live AND p.ends_at <= nightdesk_now() ORDER BY b.id LIMIT {ROLLED}
"""

_TENANTS = """
WITH RECURSIVE waiting AS (
    SELECT min(tenant) AS tenant FROM job WHERE held_reason = 'tenant_budget' AND needs_usd IS NOT NULL AND finished_at IS NULL
    UNION ALL
    SELECT (SELECT min(j.tenant) FROM job j
            WHERE j.held_reason = 'tenant_budget' AND j.needs_usd IS NOT NULL AND j.finished_at IS NULL AND j.tenant > w.tenant)
    FROM waiting w WHERE w.tenant IS NOT NULL
)
SELECT tenant FROM waiting WHERE tenant IS NOT NULL
"""

_LATEST_PERIODS = """
SELECT p.* FROM tenant_budget b CROSS JOIN LATERAL (
    SELECT * FROM budget_period p WHERE p.budget_id = b.id AND p.begins_at <= nightdesk_now()
    ORDER BY p.begins_at DESC LIMIT 1
) p WHERE b.tenant = %(tenant)s
"""

# What is promised to a job that has not begun is spoken for. 'present_usd' bounds those that begin, 'usd' those that wait;
# 'closed' budgets are those whose next period is waited for.
_ROOM = f"""
SELECT coalesce(min(CASE WHEN p.ends_at > nightdesk_now() THEN p.max_cost_usd - p.reserved_usd - p.spent_usd END),
                'infinity') AS present_usd,
       coalesce(min(CASE WHEN p.ends_at > nightdesk_now() THEN p.max_cost_usd - p.reserved_usd - p.spent_usd
                         WHEN p.live THEN 0 END), 'infinity')
       - coalesce((SELECT sum(j.needs_usd) FROM job j
                   WHERE j.tenant = %(tenant)s AND j.held_reason IS NULL AND j.needs_usd IS NOT NULL
                     AND j.finished_at IS NULL), 0) AS usd,
       coalesce(array_agg(p.budget_id) FILTER (WHERE p.short AND p.ends_at <= nightdesk_now()), '{{}}') AS closed
FROM ({_LATEST_PERIODS}) p
"""

_FUND = f"""
WITH room AS ({_ROOM}
), affordable_job AS (
    SELECT w.id FROM (
        SELECT n.id, sum(n.needs_usd) OVER (ORDER BY n.needs_usd, n.id) AS usd
        FROM (SELECT j.id, j.needs_usd FROM job j
              WHERE j.tenant = %(tenant)s AND j.held_reason = 'tenant_budget' AND j.finished_at IS NULL
                AND j.needs_usd <= (SELECT usd FROM room)
                AND (j.short_of && (SELECT closed FROM room)) IS NOT TRUE
              ORDER BY j.needs_usd, j.id LIMIT {PAGE_ROWS}) n
    ) w WHERE w.usd <= (SELECT usd FROM room)
), locked_job AS (
    SELECT id, batch_id FROM job WHERE id = ANY (ARRAY(SELECT id FROM affordable_job)) AND held_reason = 'tenant_budget'
    FOR NO KEY UPDATE SKIP LOCKED
), batches AS (
    SELECT b.id, b.paused FROM batch b WHERE b.id = ANY (ARRAY(SELECT batch_id FROM locked_job)) ORDER BY b.id FOR SHARE
), funded_job AS (
    UPDATE job j SET state = CASE WHEN b.paused THEN 'scheduled' ELSE 'available' END,
                     held_reason = CASE WHEN b.paused THEN 'batch_paused' END, available_at = nightdesk_now(),
                     hinted_at = NULL
    FROM locked_job l JOIN batches b ON b.id = l.batch_id WHERE j.id = l.id
    RETURNING j.id
)
SELECT (SELECT count(*) FROM funded_job) AS jobs
"""

# In a statement of its own: the next one sees every job that was let go before the lock was got. Two at once would promise
# the same money twice.
_LOCK = "SELECT FROM tenant_budget WHERE tenant = %(tenant)s ORDER BY id FOR NO KEY UPDATE"

AT_ONCE = 25
"""Calls' worth of money that a closing shares out at once; a tick of dispatch shares out less."""

# After 'paid_period' of a closing. A night that is over is left to the tick: jobs that wait for the next one would be read in vain.
TENANTS_WITH_ROOM = f"""
SELECT t.tenant
FROM (SELECT tenant, min(usd) AS usd, bool_and(reserved_usd = 0) AS idle FROM paid_period GROUP BY tenant) t
CROSS JOIN LATERAL (
    SELECT j.needs_usd FROM job j
    WHERE j.tenant = t.tenant AND j.held_reason = 'tenant_budget' AND j.needs_usd IS NOT NULL AND j.finished_at IS NULL
    ORDER BY j.needs_usd LIMIT 1
) n
WHERE t.usd >= n.needs_usd AND (t.idle OR t.usd >= n.needs_usd * {AT_ONCE}) AND NOT EXISTS (
    SELECT FROM tenant_budget b CROSS JOIN LATERAL (
        SELECT p.short, p.ends_at FROM budget_period p WHERE p.budget_id = b.id AND p.begins_at <= nightdesk_now()
        ORDER BY p.begins_at DESC LIMIT 1
    ) p WHERE b.tenant = t.tenant AND p.short AND p.ends_at <= nightdesk_now())
"""
"""Tenants whose jobs may go on now that a closing gave money back: no later closing brings more, or it is worth a statement."""

# Only of batches that had a refusal: those whose calls cost nothing go on.
_HOLD = f"""
WITH least AS (
    SELECT min(needs_usd) AS usd FROM job
    WHERE tenant = %(tenant)s AND held_reason = 'tenant_budget' AND needs_usd IS NOT NULL AND finished_at IS NULL
), locked_job AS (
    SELECT j.id FROM job j
    WHERE j.state = 'available' AND j.step = 'generate' AND j.tenant = %(tenant)s AND j.round = 0 AND j.needs_usd IS NULL
      AND EXISTS (SELECT FROM job h WHERE h.held_reason = 'tenant_budget' AND h.batch_id = j.batch_id)
      AND (SELECT present_usd < (SELECT usd FROM least) FROM ({_ROOM}) r)
    LIMIT {PAGE_ROWS} FOR NO KEY UPDATE OF j SKIP LOCKED
), held_job AS (
    UPDATE job j SET state = 'scheduled', held_reason = 'tenant_budget', scheduled_at = nightdesk_now(), hinted_at = NULL,
                     needs_usd = (SELECT usd FROM least), short_of = ARRAY(
                         SELECT p.budget_id FROM ({_LATEST_PERIODS}) p
                         WHERE p.ends_at > nightdesk_now()
                           AND p.max_cost_usd - p.reserved_usd - p.spent_usd < (SELECT usd FROM least))
    WHERE j.id = ANY (ARRAY(SELECT id FROM locked_job))
    RETURNING j.id
)
SELECT count(*) AS jobs FROM held_job
"""

# Those of a batch with a ceiling are held for that.
_FREE_UNPRICED = f"""
WITH locked_job AS (
    SELECT j.id, j.batch_id FROM job j JOIN batch b ON b.id = j.batch_id
    WHERE j.held_reason = 'price_unknown' AND j.tenant = %(tenant)s AND b.max_cost_usd IS NULL
      AND NOT EXISTS (SELECT FROM tenant_budget t WHERE t.tenant = %(tenant)s)
    ORDER BY j.id LIMIT {PAGE_ROWS} FOR NO KEY UPDATE OF j SKIP LOCKED
), batches AS (
    SELECT b.id, b.paused FROM batch b WHERE b.id = ANY (ARRAY(SELECT batch_id FROM locked_job)) ORDER BY b.id FOR SHARE
), free_job AS (
    UPDATE job j SET state = CASE WHEN b.paused THEN 'scheduled' ELSE 'available' END,
                     held_reason = CASE WHEN b.paused THEN 'batch_paused' END, available_at = nightdesk_now(),
                     hinted_at = NULL
    FROM locked_job l JOIN batches b ON b.id = l.batch_id WHERE j.id = l.id
    RETURNING j.id
)
SELECT count(*) AS jobs FROM free_job
"""

_ALL = """
SELECT b.tenant, b.period, b.max_cost_usd, p.begins_at, p.ends_at, coalesce(p.spent_usd, 0) AS spent_usd,
       coalesce(p.reserved_usd, 0) AS reserved_usd,
       EXISTS (SELECT FROM job j WHERE j.tenant = b.tenant AND j.held_reason = 'tenant_budget' AND j.needs_usd IS NOT NULL
                                   AND j.finished_at IS NULL AND j.batch_id = coalesce(%(batch_id)s::uuid, j.batch_id)
                                   AND b.id = ANY (j.short_of)) AS used_up,
       (SELECT min(n.begins_at) FROM budget_period n
        WHERE n.budget_id = b.id AND n.begins_at > nightdesk_now()) AS next_at,
       (SELECT count(*) FROM job j WHERE j.tenant = b.tenant AND j.held_reason = 'tenant_budget'
                                     AND j.needs_usd IS NOT NULL AND j.finished_at IS NULL) AS waiting
FROM tenant_budget b LEFT JOIN LATERAL (
    SELECT * FROM budget_period p WHERE p.budget_id = b.id AND p.begins_at <= nightdesk_now()
    ORDER BY p.begins_at DESC LIMIT 1
) p ON true
WHERE b.tenant = coalesce(%(tenant)s::text, b.tenant)
ORDER BY b.tenant, b.period
"""


class TenantBudgets:
    """The budgets of all tenants, as an operator sets them."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def set(self, tenant: str, period: str, max_cost_usd: Decimal, actor: str) -> None:
        """Sets the budget of a tenant for a period in one spelling; jobs that wait for it go on as far as it allows.

        Calls that are open count in no budget that is set meanwhile.
        """
        values = {"id": uuid7(), "tenant": tenant, "period": period, "max_cost_usd": max_cost_usd, "actor": actor}
        async with self._db.connection() as connection, connection.transaction():
            row = await (await connection.execute(_SET, values)).fetchone()
            await connection.execute(_ADD_PERIODS, _next_periods([row]))
            await connection.execute(_CHANGE_PERIODS, {"id": row.id, "max_cost_usd": max_cost_usd})  # type: ignore[union-attr]
        await _settle(self._db, tenant)

    async def remove(self, tenant: str, period: str) -> None:
        """Removes a budget with its sums; jobs that wait for it go on. Raises ``NotFound``."""
        if not await self._db.rows(_REMOVE, {"tenant": tenant, "period": period}):
            raise NotFound(
                f"the tenant {tenant!r} has no budget for {period!r}; 'nightdesk budget list' shows those there are"
            )
        await _settle(self._db, tenant)
        await _in_pages(self._db, _FREE_UNPRICED, tenant)

    async def all(self, tenant: str | None = None, batch_id: UUID | None = None) -> list[BudgetStatus]:
        """The budgets of a tenant, or of all; ``used_up`` are those that refused a job that waits, of a batch or any."""
        values = {"tenant": tenant, "batch_id": batch_id}
        return [BudgetStatus(**row._asdict()) for row in await self._db.rows(_ALL, values)]


async def settle_tenant_budgets(db: Database) -> int:
    """Give budgets their next period, and let jobs go on or hold them by what is left; returns how many jobs."""
    if over := await db.rows(_OVER):
        await db.rows(_ADD_PERIODS, _next_periods(over))
    return sum([await _settle(db, row.tenant) for row in await db.rows(_TENANTS)])


async def fund_tenant(db: Database, tenant: str) -> int:
    """Let jobs of a tenant go on as far as its money reaches; returns how many."""
    return await _in_pages(db, _FUND, tenant)


async def _settle(db: Database, tenant: str) -> int:
    return await fund_tenant(db, tenant) or await _in_pages(db, _HOLD, tenant)


async def _in_pages(db: Database, statement: str, tenant: str) -> int:
    jobs = 0
    values = {"tenant": tenant}
    for _ in range(PAGES):
        (page,) = await db.rows(statement, values, first=(_LOCK, values))
        jobs += int(page.jobs)
        if page.jobs < PAGE_ROWS:
            break
    return jobs


def _next_periods(budgets: Sequence[Any]) -> dict[str, list[Any]]:
    """The present or next period of each budget and the one after, so that a new one is there before it begins."""
    columns: dict[str, list[Any]] = {"id": [], "budget_id": [], "begins_at": [], "ends_at": []}
    for budget in budgets:
        window = parse_period(budget.period)
        first = window.interval(budget.now)
        for interval in (first, window.after(first)):
            values = (uuid7(), budget.id, interval.begins_at, interval.ends_at)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    return columns
