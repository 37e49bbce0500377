"""Takes jobs away from workers that died, and gives up those that lose one worker after the other, or whose rows can't be read."""

import logging
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from schemas.failure import FailureKind
from schemas.states import HeldReason, JobState
from tasks.ports import LAST_RESCUES, UnreadableRow
from worker.ledger.actions import closing_statement
from worker.ledger.database import Database
from worker.ledger.pages import LEASING, NOT_IN_QUARANTINE, isolate, lock_batches, paged, pay_periods, quarantine_for

log = logging.getLogger(__name__)

# An answer that was paid for is not thrown away: the worker that takes such a job next ends it with the answer. One that dies
# of that, too, is given up in the end.
_IS_OVER = """(
    rescues >= %(max_rescues)s
    AND (rescues >= %(max_rescues)s + %(last_rescues)s
         OR (step = 'generate' AND round = 0
             AND NOT EXISTS (SELECT FROM completion c WHERE c.job_id = j.id AND c.run = j.run AND c.round = 0
                                                        AND c.purpose <> 'judge' AND c.won)))
    -- Held for its unknown outcome, not given up: an operator decides.
    AND NOT (%(reason)s::text IS NOT NULL
             AND EXISTS (SELECT FROM attempt a
                         WHERE a.job_id = j.id AND a.lease_token = j.lease_token AND a.closed_at IS NULL))
)"""

_LOST = f"""
SELECT j.id FROM job j
WHERE j.state = 'running' AND j.lease_until < nightdesk_now() AND {NOT_IN_QUARANTINE}
ORDER BY j.id LIMIT %(limit)s
"""

# In a statement before the rescue, so that it sees every attempt that was opened before a lock was got.
_LOCK_LOST = """
SELECT FROM job
WHERE id = ANY(%(ids)b::uuid[]) AND state = 'running' AND lease_until < nightdesk_now()
  AND (SELECT pg_try_advisory_xact_lock(%(lock)s))
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED
"""


def _settled(attempts: str) -> str:
    """The part of a statement that ends the attempts of a query (``id, job_id, batch_id``) without their worker.

    Each was made, perhaps, and costs what was reserved. One of the lane ``provider_batch`` was not: it is sent only once its job is
    pending, not under a lease, and never without a batch. ``charge`` has what a job pays.
    """
    return f"""lost_attempt AS ({attempts}
), closed_attempt AS (
    UPDATE attempt a SET closed_at = nightdesk_now(),
                         outcome = CASE WHEN a.lane = 'provider_batch' THEN 'error:cancelled' ELSE 'unknown' END,
                         cost_usd = CASE WHEN a.lane = 'provider_batch' THEN 0 ELSE a.reserved_usd END
    FROM lost_attempt l WHERE a.id = l.id
    RETURNING l.job_id, l.batch_id, a.outcome, a.reserved_usd AS released_usd, a.cost_usd AS spent_usd, a.budget_periods
), charge AS (
    SELECT job_id, coalesce(sum(spent_usd), 0) AS usd FROM closed_attempt WHERE outcome = 'unknown' GROUP BY job_id
), batch_sum AS (
    SELECT batch_id, sum(released_usd) AS released, sum(spent_usd) AS spent FROM closed_attempt GROUP BY batch_id
), locked_batch AS (
    {lock_batches("SELECT batch_id FROM batch_sum WHERE released <> 0 OR spent <> 0")}
), paid_batch AS (
    UPDATE batch b SET reserved_usd = b.reserved_usd - d.released, spent_usd = b.spent_usd + d.spent
    FROM locked_batch p JOIN batch_sum d ON d.batch_id = p.id
    WHERE b.id = p.id
), {pay_periods("SELECT unnest(budget_periods) AS id, released_usd, spent_usd FROM closed_attempt", "locked_batch")})"""


_UNDER_LOST_LEASES = """
    SELECT a.id, a.job_id, l.batch_id FROM attempt a JOIN lost_job l ON l.id = a.job_id AND l.lease_token = a.lease_token
    WHERE a.closed_at IS NULL AND NOT l.is_over
"""

_RESCUE = f"""
WITH lost_job AS (
    SELECT id, batch_id, run, lease_token, worker, {_IS_OVER} AS is_over FROM job j
    WHERE id = ANY(%(ids)b::uuid[]) AND state = 'running' AND lease_until < nightdesk_now()
      AND (SELECT pg_try_advisory_xact_lock(%(lock)s))
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), {_settled(_UNDER_LOST_LEASES)}, rescued_job AS (
    UPDATE job j
    SET state = CASE WHEN %(reason)s::text IS NOT NULL AND c.job_id IS NOT NULL THEN 'scheduled' ELSE 'available' END,
        held_reason = CASE WHEN c.job_id IS NOT NULL THEN %(reason)s::text END, rescues = j.rescues + 1,
        available_at = nightdesk_now(), cost_usd = j.cost_usd + coalesce(c.usd, 0),
        lease_token = NULL, lease_until = NULL, worker = NULL
    FROM lost_job l LEFT JOIN charge c ON c.job_id = l.id
    WHERE j.id = l.id AND NOT l.is_over
    RETURNING j.id, j.run, j.state
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT f.id, f.run, 'rescue', 'dispatch', jsonb_build_object('from_worker', l.worker, 'to', f.state)
    FROM rescued_job f JOIN lost_job l ON l.id = f.id
)
SELECT id, is_over FROM lost_job
"""

_GIVE_UP = closing_statement(
    """
SELECT id FROM job j
WHERE id = ANY(%(ids)b::uuid[]) AND state = 'running' AND lease_until < nightdesk_now() AND """
    + _IS_OVER
    + """ ORDER BY id FOR UPDATE""",
    message="""(
        SELECT format('its worker was lost %%s times while it had this job, which may be the cause (%%s). See what those '
                      'workers logged last; once it is fixed, retry the job', j.rescues + 1,
                      string_agg(DISTINCT holder.name, ', '))
        FROM job j CROSS JOIN LATERAL (
            SELECT e.detail ->> 'from_worker' AS name FROM job_event e
            WHERE e.job_id = j.id AND e.run = j.run AND e.kind = 'rescue'
            UNION SELECT j.worker
        ) holder
        WHERE j.id = ended_job.id GROUP BY j.rescues)""",
)

# A job that was cancelled or expired has no lease to run out: what its worker left open when it died is found by time.
_ABANDONED = f"""
SELECT DISTINCT j.id FROM attempt a JOIN job j ON j.id = a.job_id
WHERE a.closed_at IS NULL AND a.provider_batch_id IS NULL AND j.finished_at < nightdesk_now() - %(grace)s
  AND {NOT_IN_QUARANTINE}
ORDER BY j.id LIMIT %(limit)s
"""

_OF_ENDED_JOBS = """
    SELECT a.id, a.job_id, j.batch_id FROM attempt a JOIN job j ON j.id = a.job_id
    WHERE j.id = ANY(%(ids)b::uuid[]) AND a.closed_at IS NULL AND a.provider_batch_id IS NULL
      AND j.finished_at < nightdesk_now() - %(grace)s AND (SELECT pg_try_advisory_xact_lock(%(lock)s))
    ORDER BY j.id
    FOR UPDATE OF j, a SKIP LOCKED
"""

_CLOSE_ABANDONED = f"""
WITH {_settled(_OF_ENDED_JOBS)}
UPDATE job j SET cost_usd = j.cost_usd + c.usd FROM charge c WHERE j.id = c.job_id
"""

ABANDONED_AFTER = timedelta(minutes=1)
"""A living worker closes the attempt of a job that was taken from it (cancelled, expired) well within that time."""

RESCUE_LOCK = 0x6E64_7265
"""Advisory lock key: one process rescues at a time."""

_RESCUING = "rescue"

_GIVEN_UP = {
    "state": JobState.FAILED.value,
    "event": "given_up",
    "actor": "dispatch",
    "kind": FailureKind.WORKER_LOST.value,
}
"""How a job ends whose worker was lost too often."""


async def rescue_lost(db: Database, limit: int, unknown_reason: HeldReason | None, max_rescues: int) -> list[UUID]:
    """See ``PostgresDuties.rescue``."""
    bounds = {
        "reason": unknown_reason.value if unknown_reason else None,
        "max_rescues": max_rescues,
        "last_rescues": LAST_RESCUES,
        "lock": RESCUE_LOCK,
    }
    duty = {"limit": limit, "duty": _RESCUING, "grace": ABANDONED_AFTER}
    lost = await db.column(_LOST, duty)
    lost_rows = await _isolated(db, _RESCUE, lost, bounds)
    await _isolated(db, _GIVE_UP, [row.id for row in lost_rows if row.is_over], {**bounds, **_GIVEN_UP})
    abandoned = await db.column(_ABANDONED, duty)
    await _isolated(db, _CLOSE_ABANDONED, abandoned, {"lock": RESCUE_LOCK, "grace": ABANDONED_AFTER})
    return [row.id for row in lost_rows]


async def _isolated(db: Database, statement: str, job_ids: Sequence[UUID], parameters: dict[str, Any]) -> list[Any]:
    """Run a statement for jobs in pages; one that can't be changed keeps back no other."""

    async def change(ids: Sequence[UUID]) -> list[Any]:
        page = {**parameters, "ids": list(ids)}
        return await db.rows(statement, page, first=(_LOCK_LOST, page) if statement is _RESCUE else None)

    refuse = quarantine_for(db, _RESCUING)
    return [row for page in paged(job_ids) for row in await isolate(page, change, refuse)]


# ---- rows that can't be read ----------------------------------------------------------------------------------------

_FAIL_UNREADABLE = closing_statement(
    """
SELECT id FROM job
WHERE id = ANY(%(ids)b::uuid[]) AND state = 'running' AND lease_token = ANY(%(tokens)b::uuid[]) ORDER BY id FOR NO KEY UPDATE""",
    message="(SELECT d.message FROM unnest(%(all_ids)b::uuid[], %(messages)b::text[]) AS d(id, message) WHERE d.id = ended_job.id)",
)


async def fail_unreadable(db: Database, rows: Iterable[UnreadableRow], tokens: Iterable[UUID]) -> None:
    """End the jobs of rows that can't be read, each with its cause; they are leased under one of these tokens."""
    messages = {row.job_id: row.message for row in rows}
    parameters = {
        "state": JobState.FAILED.value,
        "event": FailureKind.UNREADABLE.value,
        "actor": "worker",
        "kind": FailureKind.UNREADABLE.value,
        "tokens": list(tokens),
        "all_ids": list(messages),
        "messages": list(messages.values()),
    }

    async def fail(ids: Iterable[UUID]) -> list[UUID]:
        return await db.column(_FAIL_UNREADABLE, {**parameters, "ids": list(ids)})

    for page in paged(list(messages)):
        for job_id in await isolate(page, fail, quarantine_for(db, LEASING)):
            log.error("job %s failed: %s", job_id, messages[job_id])
