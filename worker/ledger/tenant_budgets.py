"""Budgets of tenants and of keys: kept up to date, and shared out among the jobs that wait for money.

The money itself is reserved where attempts are opened (``attempts``), in the row of each present period, together with that
of the batch. A period ends without a trace in the next one: what a call costs later is written where it was reserved.

A job whose call does not fit is held as ``tenant_budget``, with the budgets that refused it (``short_of``). After a night
that was used up they go on in the next night, and not in the day between, in which the budget bounds nothing; jobs
that only others refused do not wait for it. A period that is over is ``short`` until the budget is set anew.

A budget of a key of the HTTP service bounds the jobs that were submitted with it, beside the budgets of its tenant, and
holds them as ``key_budget``. Its period is a day, or ``total``: one that does not end.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from uuid_utils.compat import uuid7

from schemas.budget import TOTAL, BudgetStatus
from schemas.window import Interval, parse_period
from tasks.errors import NotFound
from worker.ledger.database import Database, Store, columns_of
from worker.ledger.pages import lock_periods

PAGE_ROWS = 500
PAGES = 20
"""Jobs that are let go, or held, in one statement, and such statements for a tenant and tick."""

HELD_UP = "interval '30 minutes'"
"""How long others wait for what the first in line lacks. Calls that end may give it back, but those in a provider's batch take a day."""

ROLLED = 200
"""Budgets that get a new period in one tick."""

_EVER = Interval(datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))

_SET = """
INSERT INTO tenant_budget AS b (id, tenant, key_id, period, max_cost_usd, changed_by)
VALUES (%(id)s, %(tenant)s, %(key_id)s, %(period)s, %(max_cost_usd)s, %(actor)s)
ON CONFLICT (tenant, key_id, period) DO UPDATE SET max_cost_usd = excluded.max_cost_usd, changed_by = excluded.changed_by
RETURNING b.id, b.period, nightdesk_now() AS now
"""

# A night that is over lets go of its jobs, too; its own ceiling stays what it was.
_CHANGE_PERIODS = f"""
WITH locked_period AS ({lock_periods("(p.live OR p.short) AND p.budget_id = %(id)s")})
UPDATE budget_period p SET max_cost_usd = CASE WHEN p.live THEN %(max_cost_usd)s ELSE p.max_cost_usd END, short = false
FROM locked_period l WHERE p.id = l.id
"""

_OF_OWNER = "tenant = %(tenant)s AND key_id IS NOT DISTINCT FROM %(key_id)s::uuid"

_REMOVE = f"DELETE FROM tenant_budget WHERE {_OF_OWNER} AND period = %(period)s RETURNING id"

_COUNT_EARLIER = """
WITH new_period AS (
    SELECT id, begins_at FROM budget_period WHERE id = ANY(%(id)b::uuid[]) AND begins_at <= nightdesk_now()
), call AS (
    SELECT a.id, p.id AS period_id, a.reserved_usd, a.cost_usd, a.closed_at IS NULL AS is_open, a.outcome
    FROM new_period p JOIN job j ON j.key_id = %(key_id)s JOIN attempt a ON a.job_id = j.id AND a.opened_at >= p.begins_at
), named_attempt AS (
    -- A call that is open, or whose outcome may become known, is settled in it, too.
    UPDATE attempt a SET budget_periods = a.budget_periods || c.period_id
    FROM call c WHERE a.id = c.id AND (c.is_open OR c.outcome = 'unknown')
)
UPDATE budget_period p SET
    reserved_usd = coalesce((SELECT sum(reserved_usd) FROM call WHERE is_open), 0),
    -- Of jobs that were pruned their batch has the cost.
    spent_usd = coalesce((SELECT sum(cost_usd) FROM call), 0)
        + (SELECT coalesce(sum(pruned_usd), 0) FROM batch WHERE key_id = %(key_id)s AND created_at >= p.begins_at)
FROM new_period n WHERE p.id = n.id
"""
"""Counts the calls of a key's jobs since the beginning of its present period, if that is one of those named: a new one."""

_LOCK_CALLS_OUT = "LOCK TABLE budget_period IN EXCLUSIVE MODE"
"""Goes before: every statement that opens or closes a call names the table, so none is in between while they are counted."""

# The budgets first, so that a new ceiling reaches a new period, too.
_ADD_PERIODS = f"""
WITH input AS (
    SELECT * FROM unnest(%(id)b::uuid[], %(budget_id)b::uuid[], %(begins_at)b::timestamptz[], %(ends_at)b::timestamptz[])
    AS d(id, budget_id, begins_at, ends_at)
), budget AS (
    SELECT id, tenant, key_id, max_cost_usd FROM tenant_budget WHERE id = ANY(%(budget_id)b::uuid[]) ORDER BY id FOR NO KEY UPDATE
), new_period AS (
    INSERT INTO budget_period (id, budget_id, tenant, key_id, begins_at, ends_at, max_cost_usd)
    SELECT d.id, b.id, b.tenant, b.key_id, d.begins_at, d.ends_at, b.max_cost_usd FROM input d JOIN budget b ON b.id = d.budget_id
    ON CONFLICT (budget_id, begins_at) DO NOTHING
), over AS (
    {lock_periods("p.live AND p.ends_at <= nightdesk_now() AND p.budget_id = ANY(%(budget_id)b::uuid[])", "budget")}
)
UPDATE budget_period p SET live = false, short = true FROM over o WHERE p.id = o.id
"""

PERIOD_OVER = "EXISTS (SELECT FROM budget_period p WHERE p.live AND p.ends_at <= nightdesk_now())"
"""A budget needs its next period."""

JOB_WAITS = "EXISTS (SELECT FROM job j WHERE j.held_reason IN ('key_budget', 'tenant_budget'))"
"""A job waits for the budget of its tenant, or of its key."""

# The cheapest alone: those that wait for the next period of another budget must not be read one by one.
HAS_LINE = f"""EXISTS (
    SELECT FROM (
        (SELECT w.needs_usd, w.short_of, w.scheduled_at FROM job w
         WHERE p.key_id IS NULL AND w.tenant = p.tenant AND w.held_reason = 'tenant_budget' AND w.needs_usd IS NOT NULL
           AND w.finished_at IS NULL ORDER BY w.needs_usd LIMIT 20)
        UNION ALL
        (SELECT w.needs_usd, w.short_of, w.scheduled_at FROM job w
         WHERE w.key_id = p.key_id AND w.held_reason = 'key_budget' AND w.needs_usd IS NOT NULL
           AND w.finished_at IS NULL ORDER BY w.needs_usd LIMIT 20)
    ) w WHERE w.needs_usd <= p.max_cost_usd - p.spent_usd AND p.budget_id = ANY (w.short_of)
      AND w.scheduled_at > nightdesk_now() - {HELD_UP})"""
"""Of a period ``p``: a job waits for its money, and will have it when the calls that are out give it back."""

_OVER = f"""
SELECT DISTINCT b.id, b.period, nightdesk_now() AS now FROM tenant_budget b JOIN budget_period p ON p.budget_id = b.id
WHERE p.live AND p.ends_at <= nightdesk_now() ORDER BY b.id LIMIT {ROLLED}
"""


class Owner(NamedTuple):
    """A tenant, or one of its keys: the budgets of each are shared out by themselves."""

    tenant: str
    key_id: UUID | None = None


class _Scope(NamedTuple):
    """The jobs that wait for budgets of tenants, or for those of keys."""

    held_reason: str
    column: str
    """Of a job, its waiting jobs and those that it lets go: they have an index that begins with it."""


_TENANT = _Scope("tenant_budget", "tenant")
_KEY = _Scope("key_budget", "key_id")


def _waiting(scope: _Scope) -> str:
    """The condition for a job that waits for budgets of a scope."""
    return f"j.held_reason = '{scope.held_reason}' AND j.needs_usd IS NOT NULL AND j.finished_at IS NULL"


def _owners(scope: _Scope) -> str:
    """The owners for whose budgets jobs wait, one look at the index for each."""
    first = f"""SELECT j.{scope.column} AS owner, j.tenant FROM job j
    WHERE {_waiting(scope)} AND j.{scope.column} {{}} ORDER BY j.{scope.column} LIMIT 1"""
    return f"""
WITH RECURSIVE waiting AS (
    ({first.format("IS NOT NULL")})
    UNION ALL
    SELECT n.* FROM waiting w CROSS JOIN LATERAL ({first.format("> w.owner")}) n
)
SELECT tenant, {"owner" if scope is _KEY else "NULL::uuid"} AS key_id FROM waiting
"""


_LATEST_PERIODS = """
SELECT p.* FROM tenant_budget b CROSS JOIN LATERAL (
    SELECT * FROM budget_period p WHERE p.budget_id = b.id AND p.begins_at <= nightdesk_now()
    ORDER BY p.begins_at DESC LIMIT 1
) p WHERE b.tenant = %(tenant)s AND b.key_id IS NOT DISTINCT FROM %(key_id)s::uuid
"""


def _room(scope: _Scope) -> str:
    """The money of an owner.

    What is promised to a job that has not begun is spoken for. ``present_usd`` bounds those that begin, ``usd`` those that
    wait, and ``unspent_usd`` those that may ever go on; ``closed`` budgets are those whose next period is waited for.
    """
    return f"""
SELECT coalesce(min(CASE WHEN p.ends_at > nightdesk_now() THEN p.max_cost_usd - p.reserved_usd - p.spent_usd END),
                'infinity') AS present_usd,
       coalesce(min(CASE WHEN p.ends_at > nightdesk_now() THEN p.max_cost_usd - p.reserved_usd - p.spent_usd
                         WHEN p.live THEN 0 END), 'infinity')
       - coalesce((SELECT sum(j.needs_usd) FROM job j
                   WHERE j.{scope.column} = %({scope.column})s AND j.held_reason IS NULL AND j.needs_usd IS NOT NULL
                     AND j.finished_at IS NULL), 0) AS usd,
       coalesce(min(CASE WHEN p.ends_at > nightdesk_now() THEN p.max_cost_usd - p.spent_usd WHEN p.live THEN 0 END),
                'infinity') AS unspent_usd,
       coalesce(array_agg(p.budget_id) FILTER (WHERE p.short AND p.ends_at <= nightdesk_now()), '{{}}') AS closed
FROM ({_LATEST_PERIODS}) p
"""


_GO_ON = """batches AS (
    SELECT b.id, b.paused FROM batch b WHERE b.id = ANY (ARRAY(SELECT batch_id FROM locked_job)) ORDER BY b.id FOR SHARE
), free_job AS (
    UPDATE job j SET state = CASE WHEN b.paused THEN 'scheduled' ELSE 'available' END,
                     held_reason = CASE WHEN b.paused THEN 'batch_paused' END, available_at = nightdesk_now()
    FROM locked_job l JOIN batches b ON b.id = l.batch_id WHERE j.id = l.id
    RETURNING j.id
)
SELECT count(*) AS jobs FROM free_job
"""


def _fund(scope: _Scope) -> str:
    """Lets jobs go on as far as the money of their owner reaches, in the order of submission.

    What the first one lacks is waited for, as calls that end give it back; one that is dearer than all that is unspent waits in
    nobody's way, and so does one that waits for long.
    """
    return f"""
WITH room AS ({_room(scope)}
), affordable_job AS (
    SELECT w.id FROM (
        SELECT n.id, sum(n.needs_usd) OVER (ORDER BY n.id) AS usd
        FROM (SELECT j.id, j.needs_usd FROM job j
              WHERE j.{scope.column} = %({scope.column})s AND {_waiting(scope)}
                AND j.needs_usd <= (SELECT CASE WHEN j.scheduled_at > nightdesk_now() - {HELD_UP} THEN unspent_usd ELSE usd END FROM room)
                AND (j.short_of && (SELECT closed FROM room)) IS NOT TRUE
              ORDER BY j.id LIMIT {PAGE_ROWS}) n
    ) w WHERE w.usd <= (SELECT usd FROM room)
), locked_job AS (
    SELECT id, batch_id FROM job
    WHERE id = ANY (ARRAY(SELECT id FROM affordable_job)) AND held_reason = '{scope.held_reason}'
    FOR NO KEY UPDATE SKIP LOCKED
), {_GO_ON}"""


# In a statement of its own: the next one sees every job that was let go before the lock was got. Two at once would promise
# the same money twice.
_LOCK = f"SELECT FROM tenant_budget WHERE {_OF_OWNER} ORDER BY id FOR NO KEY UPDATE"

AT_ONCE = 25
"""Calls' worth of money that a closing shares out at once; a tick of dispatch shares out less."""


def _with_room(scope: _Scope) -> str:
    """The owners of a scope that have room for a job that waits.

    A night that is over is left to the tick: jobs that wait for the next one would be read in vain.
    """
    return f"""
SELECT t.tenant, t.key_id
FROM (SELECT tenant, key_id, min(usd) AS usd, bool_and(reserved_usd = 0) AS idle FROM paid_period
      WHERE key_id IS {"NOT NULL" if scope is _KEY else "NULL"} GROUP BY tenant, key_id) t
CROSS JOIN LATERAL (
    SELECT j.needs_usd FROM job j WHERE j.{scope.column} = t.{scope.column} AND {_waiting(scope)}
    ORDER BY j.needs_usd LIMIT 1
) n
WHERE t.usd >= n.needs_usd AND (t.idle OR t.usd >= n.needs_usd * {AT_ONCE}) AND NOT EXISTS (
    SELECT FROM tenant_budget b CROSS JOIN LATERAL (
        SELECT p.short, p.ends_at FROM budget_period p WHERE p.budget_id = b.id AND p.begins_at <= nightdesk_now()
        ORDER BY p.begins_at DESC LIMIT 1
    ) p WHERE b.tenant = t.tenant AND b.key_id IS NOT DISTINCT FROM t.key_id AND p.short AND p.ends_at <= nightdesk_now())
"""


# After 'paid_period' of a closing.
OWNERS_WITH_ROOM = f"{_with_room(_TENANT)} UNION ALL {_with_room(_KEY)}"
"""Owners whose jobs may go on now that a closing gave money back: no later closing brings more, or it is worth a statement."""


def _hold(scope: _Scope) -> str:
    """Holds jobs that did not begin; only of batches that had a refusal: those whose calls cost nothing go on."""
    return f"""
WITH least AS (
    SELECT min(j.needs_usd) AS usd FROM job j WHERE j.{scope.column} = %({scope.column})s AND {_waiting(scope)}
), locked_job AS (
    SELECT j.id FROM job j
    WHERE j.state = 'available' AND j.step = 'generate' AND j.tenant = %(tenant)s
      AND j.{scope.column} = %({scope.column})s AND j.round = 0 AND j.needs_usd IS NULL
      AND EXISTS (SELECT FROM job h WHERE h.held_reason = '{scope.held_reason}' AND h.batch_id = j.batch_id)
      AND (SELECT present_usd < (SELECT usd FROM least) FROM ({_room(scope)}) r)
    LIMIT {PAGE_ROWS} FOR NO KEY UPDATE OF j SKIP LOCKED
), held_job AS (
    UPDATE job j SET state = 'scheduled', held_reason = '{scope.held_reason}', scheduled_at = nightdesk_now(),
                     needs_usd = (SELECT usd FROM least), short_of = ARRAY(
                         SELECT p.budget_id FROM ({_LATEST_PERIODS}) p
                         WHERE p.ends_at > nightdesk_now()
                           AND p.max_cost_usd - p.reserved_usd - p.spent_usd < (SELECT usd FROM least))
    WHERE j.id = ANY (ARRAY(SELECT id FROM locked_job))
    RETURNING j.id
)
SELECT count(*) AS jobs FROM held_job
"""


def _free_unpriced(scope: _Scope) -> str:
    """Lets jobs without a known price go on once no budget bounds them; those of a batch with a ceiling are held for that."""
    return f"""
WITH locked_job AS (
    SELECT j.id, j.batch_id FROM job j JOIN batch b ON b.id = j.batch_id
    WHERE j.held_reason = 'price_unknown' AND j.{scope.column} = %({scope.column})s AND b.max_cost_usd IS NULL
      AND NOT EXISTS (SELECT FROM tenant_budget t WHERE t.tenant = j.tenant AND (t.key_id IS NULL OR t.key_id = j.key_id))
    ORDER BY j.id LIMIT {PAGE_ROWS} FOR NO KEY UPDATE OF j SKIP LOCKED
), {_GO_ON}"""


class _Statements(NamedTuple):
    """The statements of a scope."""

    owners: str
    fund: str
    hold: str
    free_unpriced: str


_OF_TENANTS, _OF_KEYS = (
    _Statements(_owners(scope), _fund(scope), _hold(scope), _free_unpriced(scope)) for scope in (_TENANT, _KEY)
)


def _all(scope: _Scope) -> str:
    """The budgets of a scope with their present periods."""
    which = "b.key_id IS NULL"
    if scope is _KEY:
        # One that was revoked matters only while jobs wait for its money.
        which = f"""b.key_id = coalesce((SELECT key_id FROM batch WHERE id = %(batch_id)s::uuid), b.key_id)
  AND (k.revoked_at IS NULL OR EXISTS (SELECT FROM job j WHERE j.key_id = b.key_id AND {_waiting(scope)}))"""
    jobs = f"SELECT FROM job j WHERE j.{scope.column} = b.{scope.column} AND {_waiting(scope)}"
    return f"""
SELECT b.tenant, k.name AS key, b.key_id, k.revoked_at IS NOT NULL AS key_revoked, b.period, b.max_cost_usd, p.begins_at, p.ends_at, coalesce(p.spent_usd, 0) AS spent_usd,
       coalesce(p.reserved_usd, 0) AS reserved_usd,
       EXISTS ({jobs} AND j.batch_id = coalesce(%(batch_id)s::uuid, j.batch_id) AND b.id = ANY (j.short_of)) AS used_up,
       (SELECT min(n.begins_at) FROM budget_period n
        WHERE n.budget_id = b.id AND n.begins_at > nightdesk_now()) AS next_at,
       ({jobs.replace("SELECT", "SELECT count(*)")}) AS waiting,
       ({jobs.replace("SELECT", "SELECT min(j.needs_usd)")} AND j.batch_id = coalesce(%(batch_id)s::uuid, j.batch_id)) AS least_usd
FROM tenant_budget b LEFT JOIN api_key k ON k.id = b.key_id LEFT JOIN LATERAL (
    SELECT * FROM budget_period p WHERE p.budget_id = b.id AND p.begins_at <= nightdesk_now()
    ORDER BY p.begins_at DESC LIMIT 1
) p ON true
WHERE b.tenant = coalesce(%(tenant)s::text, b.tenant) AND {which}
"""


_ALL = f"{_all(_TENANT)} UNION ALL {_all(_KEY)} ORDER BY tenant, key NULLS FIRST, period"


class TenantBudgets(Store):
    """The budgets of all tenants and keys, as an operator sets them."""

    async def set(
        self, tenant: str, period: str, max_cost_usd: Decimal, actor: str, *, key_id: UUID | None = None
    ) -> None:
        """Sets the budget of an owner for a period in one spelling; jobs that wait for it go on as far as it allows.

        One of a tenant counts from this moment, without the calls that are open. One of a key counts what its jobs cost
        before, too: since the beginning of its day, or in all.
        """
        owner = Owner(tenant, key_id)
        values = {"id": uuid7(), **owner._asdict(), "period": period, "max_cost_usd": max_cost_usd, "actor": actor}
        async with self._db.connection() as connection, connection.transaction():
            if key_id is not None:
                await connection.execute(_LOCK_CALLS_OUT)
            row = await (await connection.execute(_SET, values)).fetchone()
            periods = _next_periods([row])
            await connection.execute(_ADD_PERIODS, periods)
            if key_id is not None:
                await connection.execute(_COUNT_EARLIER, {"id": periods["id"], "key_id": key_id})
            await connection.execute(_CHANGE_PERIODS, {"id": row.id, "max_cost_usd": max_cost_usd})  # type: ignore[union-attr]
        await _settle(self._db, owner)

    async def remove(self, tenant: str, period: str, *, key_id: UUID | None = None) -> None:
        """Removes a budget with its sums; jobs that wait for it go on. Raises ``NotFound``."""
        owner = Owner(tenant, key_id)
        if not await self._db.rows(_REMOVE, {**owner._asdict(), "period": period}):
            raise NotFound(
                f"the tenant {tenant!r} has no budget for {period!r}; 'nightdesk budget list' shows those there are"
            )
        await _settle(self._db, owner)
        await _in_pages(self._db, _statements(owner).free_unpriced, owner)

    async def all(self, tenant: str | None = None, batch_id: UUID | None = None) -> list[BudgetStatus]:
        """The budgets of a tenant and its keys, or of all.

        ``used_up`` are those that refused a job that waits, of a batch or any.
        """
        values = {"tenant": tenant, "batch_id": batch_id}
        return [BudgetStatus(**row._asdict()) for row in await self._db.rows(_ALL, values)]


async def settle_tenant_budgets(db: Database) -> int:
    """Give budgets their next period, and let jobs go on or hold them by what is left; returns how many jobs."""
    if over := await db.rows(_OVER):
        await db.rows(_ADD_PERIODS, _next_periods(over))
    owners = [Owner(*row) for scope in (_OF_TENANTS, _OF_KEYS) for row in await db.rows(scope.owners)]
    return sum([await _settle(db, owner) for owner in owners])


async def fund_owner(db: Database, owner: Owner) -> int:
    """Let jobs of a tenant or a key go on as far as its money reaches; returns how many."""
    return await _in_pages(db, _statements(owner).fund, owner)


async def _settle(db: Database, owner: Owner) -> int:
    return await fund_owner(db, owner) or await _in_pages(db, _statements(owner).hold, owner)


async def _in_pages(db: Database, statement: str, owner: Owner) -> int:
    jobs = 0
    values = owner._asdict()
    for _ in range(PAGES):
        jobs += (page := int(await db.value(statement, values, first=(_LOCK, values))))
        if page < PAGE_ROWS:
            break
    return jobs


def _statements(owner: Owner) -> _Statements:
    return _OF_TENANTS if owner.key_id is None else _OF_KEYS


def _next_periods(budgets: Sequence[Any]) -> dict[str, list[Any]]:
    """The present or next period of each budget and the one after, so that a new one is there before it begins."""
    rows = []
    for budget in budgets:
        if budget.period == TOTAL:
            intervals = [_EVER]
        else:
            window = parse_period(budget.period)
            first = window.interval(budget.now)
            intervals = [first, window.after(first)]
        rows += [(uuid7(), budget.id, interval.begins_at, interval.ends_at) for interval in intervals]
    return columns_of(rows, "id", "budget_id", "begins_at", "ends_at")
