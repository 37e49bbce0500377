"""Shares a batch's money among the jobs that wait for it: held when there is none, released when some comes back.

The ceiling itself is enforced where attempts are opened (``attempts``).

A job whose reservation was refused is held, and ``needs_usd`` says how much it wants. The batch keeps the least that any of
its waiting jobs needs: so a closing sees by that one number if a job can go on. A job that was let go
keeps its ``needs_usd`` until it opens its attempt, so that the same money is not promised to two.

From the first refusal on, those of the batch's jobs that did not begin are held too, in pages (``hold_from`` is the position
of the next), so that they are not leased one after the other only to be refused.
"""

from collections.abc import Sequence
from uuid import UUID

from worker.ledger.database import Database
from worker.ledger.tenant_budgets import HELD_UP, settle_tenant_budgets

FUND_ROWS = 500
"""Jobs that are let go in one statement: more calls than a worker begins at once."""

HOLD_PAGES = 20
"""Pages of a batch that are held a tick."""

BATCHES = 100
"""Batches that are settled a tick."""

# What is promised, but not reserved yet, is spoken for.
_ROOM = """
CASE WHEN b.max_cost_usd IS NULL THEN 'infinity'::numeric
     ELSE b.max_cost_usd - b.reserved_usd - b.spent_usd - coalesce((
         SELECT sum(j.needs_usd) FROM job j
         WHERE j.batch_id = b.id AND j.held_reason IS NULL AND j.needs_usd IS NOT NULL AND j.finished_at IS NULL), 0)
END"""

_LEAST = """(
    SELECT j.needs_usd FROM job j
    WHERE j.batch_id = b.id AND j.held_reason = 'budget' AND j.needs_usd IS NOT NULL AND j.finished_at IS NULL
      AND j.id <> ALL (ARRAY(SELECT id FROM funded_job))
    ORDER BY j.needs_usd LIMIT 1)"""

HAS_ROOM = """
    b.least_needed_usd IS NOT NULL AND NOT b.paused
    AND (b.max_cost_usd IS NULL OR b.max_cost_usd - b.reserved_usd - b.spent_usd >= b.least_needed_usd)"""
"""Of a batch ``b``: a job that waits for money may go on, unless what there is was promised to another."""

AT_ONCE = 25
"""Calls' worth of money that a closing shares out at once; a tick of dispatch shares out less, many closings' in one go."""

HAS_ROOM_NOW = f"""{HAS_ROOM}
    AND (b.reserved_usd = 0 OR b.max_cost_usd IS NULL
         OR b.max_cost_usd - b.reserved_usd - b.spent_usd >= b.least_needed_usd * {AT_ONCE})"""
"""Of a batch ``b``: the same, and no later closing brings more back, or it is worth a statement now.

Without a call in flight, what waits would look as if it waited for an operator until the next tick.
"""

# In a statement of its own: the next one sees every job that was held before the lock was got.
_LOCK = "SELECT FROM batch WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR NO KEY UPDATE"

_FUND = f"""
WITH short_batch AS (
    SELECT b.id, {_ROOM} AS usd, coalesce(b.max_cost_usd - b.spent_usd, 'infinity') AS unspent_usd FROM batch b
    WHERE b.id = ANY(%(ids)b::uuid[]) AND b.least_needed_usd IS NOT NULL AND NOT b.paused
), affordable_job AS (
    -- In the order of submission. What the first one lacks is waited for: calls that end give it back. One that is dearer than
    -- all that is unspent waits in nobody's way, and so does one that had its time.
    SELECT w.id FROM short_batch s CROSS JOIN LATERAL (
        SELECT n.id, sum(n.needs_usd) OVER (ORDER BY n.id) AS usd
        FROM (SELECT j.id, j.needs_usd FROM job j
              WHERE j.batch_id = s.id AND j.held_reason = 'budget' AND j.finished_at IS NULL
                AND j.needs_usd <= CASE WHEN j.scheduled_at > nightdesk_now() - {HELD_UP} THEN s.unspent_usd ELSE s.usd END
              ORDER BY j.id LIMIT %(rows)s) n
    ) w WHERE w.usd <= s.usd
), locked_job AS (
    SELECT id FROM job WHERE id = ANY (ARRAY(SELECT id FROM affordable_job)) AND held_reason = 'budget'
    FOR NO KEY UPDATE SKIP LOCKED
), funded_job AS (
    UPDATE job SET state = 'available', held_reason = NULL, available_at = nightdesk_now()
    WHERE id = ANY (ARRAY(SELECT id FROM locked_job))
    RETURNING id
), least_needed AS (
    UPDATE batch b SET least_needed_usd = {_LEAST} FROM short_batch s WHERE b.id = s.id
)
SELECT count(*) AS jobs FROM funded_job
"""

_HOLD_WAITING = f"""
WITH short_batch AS (
    SELECT b.id, b.hold_from, b.least_needed_usd FROM batch b
    WHERE b.id = ANY(%(ids)b::uuid[]) AND b.hold_from IS NOT NULL AND {_ROOM} < b.least_needed_usd
), page AS (
    SELECT j.id, j.position, j.state = 'available' AND j.step = 'generate' AND j.round = 0 AND j.needs_usd IS NULL AS waits
    FROM short_batch s CROSS JOIN LATERAL (
        SELECT * FROM job k WHERE k.batch_id = s.id AND k.position >= s.hold_from ORDER BY k.position LIMIT %(rows)s
    ) j
), locked_job AS (
    -- A join, by the primary key: the index of available jobs would be read as a whole.
    SELECT j.id FROM page p JOIN job j ON j.id = p.id WHERE p.waits AND j.state = 'available'
    FOR NO KEY UPDATE OF j SKIP LOCKED
), held_job AS (
    UPDATE job j SET state = 'scheduled', held_reason = 'budget', scheduled_at = nightdesk_now(),
                     needs_usd = s.least_needed_usd
    FROM short_batch s WHERE j.id = ANY (ARRAY(SELECT id FROM locked_job))
    RETURNING j.id
), progress AS (
    UPDATE batch b SET hold_from = (SELECT max(position) + 1 FROM page HAVING count(*) = %(rows)s)
    FROM short_batch s WHERE b.id = s.id
    RETURNING b.hold_from
)
SELECT (SELECT count(*) FROM held_job) AS jobs, (SELECT hold_from FROM progress) IS NOT NULL AS more
"""

_UNSETTLED = f"""
SELECT b.id, b.hold_from IS NOT NULL AS holds, ({HAS_ROOM}) AS has_room FROM batch b
WHERE b.least_needed_usd IS NOT NULL AND (b.hold_from IS NOT NULL OR {HAS_ROOM}) AND b.id > %(after)s
ORDER BY b.id LIMIT {BATCHES}
"""


async def fund(db: Database, batch_ids: Sequence[UUID]) -> int:
    """Let jobs that wait for money go on, as many as there is money for; returns how many."""
    ids = list(batch_ids)
    rows = await db.rows(_FUND, {"ids": ids, "rows": FUND_ROWS}, first=(_LOCK, {"ids": ids}))
    return int(rows[0].jobs)


async def _hold(db: Database, batch_id: UUID, rows: int) -> int:
    """Hold the jobs of a batch without money that did not begin; returns how many."""
    jobs = 0
    for _ in range(HOLD_PAGES):
        (page,) = await db.rows(_HOLD_WAITING, {"ids": [batch_id], "rows": rows}, first=(_LOCK, {"ids": [batch_id]}))
        jobs += int(page.jobs)
        if not page.more:
            break
    return jobs


class BudgetRounds:
    """Settles the budgets of some batches at a time, one after the other: those that can't go on keep no other from its turn."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._settled_to = UUID(int=0)

    async def settle(self, rows: int) -> int:
        """Implements ``tasks.ports.Duties.settle_budgets``."""
        changed = 0
        batches = await self._db.rows(_UNSETTLED, {"after": self._settled_to})
        self._settled_to = batches[-1].id if len(batches) == BATCHES else UUID(int=0)
        for batch in batches:
            funded = await fund(self._db, [batch.id]) if batch.has_room else 0
            changed += funded
            if batch.holds and not funded:
                changed += await _hold(self._db, batch.id, rows)
        return changed + await settle_tenant_budgets(self._db)
