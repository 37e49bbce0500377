"""Takes, renews and gives back leases, and takes them away from workers that died."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from schemas.completion import Completion
from schemas.generation import Recheck
from schemas.job import JobRequest
from schemas.prompt import Correction, Prompt
from schemas.states import HeldReason, Step
from tasks.ports import Advance, Leased, LeaseKey, Purpose, StoredCompletion
from tasks.rescue import ABANDONED_AFTER
from worker.ledger.database import Database
from worker.ledger.fairness import FAIR_ORDER
from worker.ledger.locking import LOCK_LEASED, lock_batches

PURPOSES = {
    Step.GENERATE: [Purpose.GENERATE.value, Purpose.REASK.value, Purpose.CORRECT.value],
    Step.CHECK: [Purpose.JUDGE.value],
    Step.LOCAL: [Purpose.JUDGE.value],
}
"""Which attempts count towards a step's limits."""

_TAKE = """,
taken AS (
    UPDATE job j
    SET state = 'running', lease_token = %(token)s, lease_until = nightdesk_now() + %(lease_for)s, worker = %(worker)s,
        started_at = coalesce(j.started_at, nightdesk_now()), hinted_at = NULL
    WHERE j.id = ANY (ARRAY(SELECT id FROM chosen))
    RETURNING j.id, j.batch_id, j.tenant, j.position, j.custom_id, j.step, j.run, j.round, j.priority, j.created_at,
              j.started_at, j.available_at, j.limited_ms, j.deadline, j.cost_usd, j.correction, j.recheck
)
SELECT t.*, nightdesk_now() AS now, b.not_before, b.max_cost_usd, r.request, a.*, w.*, v.*
FROM taken t
JOIN batch b ON b.id = t.batch_id
JOIN job_request r ON r.job_id = t.id
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE spent) AS spent,
           count(*) FILTER (WHERE NOT spent AND outcome LIKE 'error:%%') AS snoozes,
           count(*) FILTER (WHERE outcome = 'unknown' AND round = t.round) AS unknown,
           count(*) FILTER (WHERE round = t.round) AS attempts,
           min(opened_at) FILTER (WHERE round = t.round) AS first_opened_at
    FROM attempt WHERE job_id = t.id AND run = t.run AND purpose = ANY(%(purposes)s)
) a
LEFT JOIN LATERAL (
    SELECT c.attempt_id, c.parsed, c.prompt, CASE WHEN c.run = t.run THEN o.timing_ms END AS timing_ms
    FROM completion c JOIN attempt o ON o.id = c.attempt_id
    WHERE c.job_id = t.id AND c.round = t.round AND c.purpose = ANY(%(answering)s) AND c.won
      AND (c.run = t.run OR (t.recheck IS NOT NULL AND c.run < t.run))
    ORDER BY c.run DESC, c.stored_at LIMIT 1
) w ON true
LEFT JOIN LATERAL (
    SELECT c.attempt_id AS judged_id, c.parsed AS judged_parsed, c.prompt AS judged_prompt,
           o.timing_ms AS judged_timing_ms
    FROM completion c JOIN attempt o ON o.id = c.attempt_id
    WHERE %(judging)s AND c.job_id = t.id AND c.run = t.run AND c.round = t.round AND c.purpose = 'judge' AND c.won
) v ON true
"""

_LEASE_HINTED = (
    """
WITH chosen AS (
    SELECT id FROM job
    WHERE id = ANY(%(ids)b::uuid[]) AND state = 'available' AND step = %(step)s
      AND (deadline IS NULL OR deadline > nightdesk_now()) AND priority >= %(min_priority)s
    ORDER BY priority DESC, id LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
)"""
    + _TAKE
)

_LEASE_IDLE = (
    FAIR_ORDER
    + """,
chosen AS (
    SELECT j.id FROM job j
    WHERE j.id = ANY (ARRAY(SELECT id FROM fair)) AND j.state = 'available' AND j.step = %(step)s
    FOR UPDATE OF j SKIP LOCKED
)"""
    + _TAKE
)

_RENEW = f"""
WITH held AS ({LOCK_LEASED})
UPDATE job j SET lease_until = nightdesk_now() + %(lease_for)s
FROM held h WHERE j.id = h.id
RETURNING j.id
"""

_HAND_BACK = f"""
WITH held AS ({LOCK_LEASED})
UPDATE job j SET state = 'available', available_at = nightdesk_now(), hinted_at = NULL,
                 lease_token = NULL, lease_until = NULL, worker = NULL
FROM held h
WHERE j.id = h.id
  AND NOT EXISTS (SELECT FROM attempt a WHERE a.job_id = j.id AND a.lease_token = h.token AND a.closed_at IS NULL)
RETURNING j.id
"""

_DEFER = """
WITH moved AS (
    UPDATE job j SET state = 'scheduled', step = %(step)s, round = %(round)s,
                     scheduled_at = nightdesk_now() + %(delay)s, held_reason = %(held_reason)s,
                     correction = CASE WHEN j.round = %(round)s THEN j.correction ELSE %(correction)s::jsonb END,
                     limited_ms = CASE
                         WHEN (j.step, j.round) <> (%(step)s, %(round)s) THEN NULL
                         WHEN %(limited)s THEN coalesce(j.limited_ms, 0)
                             + 1000 * extract(epoch FROM nightdesk_now() - j.available_at + %(delay)s)
                         ELSE j.limited_ms END,
                     lease_token = NULL, lease_until = NULL, worker = NULL
    WHERE j.id = %(id)s AND j.lease_token = %(token)s AND j.state = 'running'
      AND NOT EXISTS (SELECT FROM attempt a
                      WHERE a.job_id = j.id AND a.lease_token = j.lease_token AND a.closed_at IS NULL)
    RETURNING j.id, j.run, j.worker
), noted AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, %(event)s, 'worker', jsonb_build_object('delay_s', extract(epoch FROM %(delay)s::interval),
                                                            'held_reason', %(held_reason)s::text)
    FROM moved WHERE %(event)s::text IS NOT NULL
)
SELECT id FROM moved
"""

# In a statement before the rescue, so that it sees every attempt that was opened before a lock was got.
_LOCK_LOST = """
SELECT FROM job
WHERE state = 'running' AND lease_until < nightdesk_now() AND (SELECT pg_try_advisory_xact_lock(%(lock)s))
ORDER BY id LIMIT %(limit)s
FOR NO KEY UPDATE SKIP LOCKED
"""

_RESCUE = (
    """
WITH lost AS (
    SELECT id, run, lease_token, worker FROM job
    WHERE state = 'running' AND lease_until < nightdesk_now() AND (SELECT pg_try_advisory_xact_lock(%(lock)s))
    ORDER BY id LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), cut AS (
    UPDATE attempt a SET closed_at = nightdesk_now(), outcome = 'unknown', cost_usd = a.reserved_usd
    FROM lost l WHERE a.job_id = l.id AND a.lease_token = l.lease_token AND a.closed_at IS NULL
    RETURNING a.job_id, a.reserved_usd
), charged AS (
    SELECT job_id, sum(reserved_usd) AS usd FROM cut GROUP BY job_id
), due AS (
    SELECT j.batch_id, sum(c.usd) AS usd FROM charged c JOIN job j ON j.id = c.job_id GROUP BY j.batch_id
), paying AS ("""
    + lock_batches("SELECT batch_id FROM due WHERE usd <> 0")
    + """
), paid AS (
    UPDATE batch b SET reserved_usd = b.reserved_usd - d.usd, spent_usd = b.spent_usd + d.usd
    FROM paying p JOIN due d ON d.batch_id = p.id
    WHERE b.id = p.id
), freed AS (
    UPDATE job j
    SET state = CASE WHEN %(reason)s::text IS NOT NULL AND c.job_id IS NOT NULL THEN 'scheduled' ELSE 'available' END,
        held_reason = CASE WHEN c.job_id IS NOT NULL THEN %(reason)s::text END,
        available_at = nightdesk_now(), hinted_at = NULL, cost_usd = j.cost_usd + coalesce(c.usd, 0),
        lease_token = NULL, lease_until = NULL, worker = NULL
    FROM lost l LEFT JOIN charged c ON c.job_id = l.id
    WHERE j.id = l.id
    RETURNING j.id, j.run, j.state
), noted AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT f.id, f.run, 'rescue', 'dispatch', jsonb_build_object('from_worker', l.worker, 'to', f.state)
    FROM freed f JOIN lost l ON l.id = f.id
)
SELECT id FROM freed
"""
)

# A job that was cancelled or expired has no lease to run out: what its worker left open when it died is found by time.
_CLOSE_ABANDONED = (
    """
WITH lost AS (
    SELECT a.id, j.id AS job_id FROM attempt a JOIN job j ON j.id = a.job_id
    WHERE a.closed_at IS NULL AND a.provider_batch_id IS NULL AND j.finished_at < nightdesk_now() - %(grace)s
      AND (SELECT pg_try_advisory_xact_lock(%(lock)s))
    ORDER BY j.id LIMIT %(limit)s
    FOR UPDATE OF j, a SKIP LOCKED
), cut AS (
    UPDATE attempt a SET closed_at = nightdesk_now(), outcome = 'unknown', cost_usd = a.reserved_usd
    FROM lost l WHERE a.id = l.id
    RETURNING a.job_id, a.reserved_usd
), charged AS (
    UPDATE job j SET cost_usd = j.cost_usd + c.usd
    FROM (SELECT job_id, sum(reserved_usd) AS usd FROM cut GROUP BY job_id) c
    WHERE j.id = c.job_id
    RETURNING j.batch_id, c.usd
), due AS (
    SELECT batch_id, sum(usd) AS usd FROM charged GROUP BY batch_id
), paying AS ("""
    + lock_batches("SELECT batch_id FROM due")
    + """
)
UPDATE batch b SET reserved_usd = b.reserved_usd - d.usd, spent_usd = b.spent_usd + d.usd
FROM paying p JOIN due d ON d.batch_id = p.id
WHERE b.id = p.id
"""
)

RESCUE_LOCK = 0x6E64_7265
"""Advisory lock key: one process rescues at a time."""


class Leasing:
    """The lease verbs of the PostgreSQL ledger."""

    _db: Database
    _shares: str

    async def lease(
        self,
        step: Step,
        worker: str,
        lease_for: timedelta,
        limit: int,
        *,
        ids: Sequence[UUID] | None = None,
        min_priority: int | None = None,
    ) -> list[Leased]:
        """See ``tasks.ports.Ledger.lease``."""
        parameters = {
            "step": step.value,
            "worker": worker,
            "lease_for": lease_for,
            "limit": limit,
            "token": (token := uuid7()),
            "purposes": PURPOSES[step],
            "answering": PURPOSES[Step.GENERATE],
            "judging": step is not Step.GENERATE,
            "min_priority": -32768 if min_priority is None else min_priority,
        }
        if ids is None:
            rows = await self._db.rows(_LEASE_IDLE, {**parameters, "shares": self._shares})
        else:
            rows = await self._db.rows(_LEASE_HINTED, {**parameters, "ids": list(ids)})
        return sorted((_leased(row, token) for row in rows), key=lambda job: (-job.priority, job.job_id))

    async def renew(self, leases: Sequence[LeaseKey], lease_for: timedelta) -> set[UUID]:
        """See ``tasks.ports.Ledger.renew``."""
        if not leases:
            return set()
        kept = await self._db.rows(_RENEW, {**_keys(leases), "lease_for": lease_for})
        return {lease.job_id for lease in leases} - {row.id for row in kept}

    async def hand_back(self, leases: Sequence[LeaseKey]) -> set[UUID]:
        """See ``tasks.ports.Ledger.hand_back``."""
        if not leases:
            return set()
        return {row.id for row in await self._db.rows(_HAND_BACK, _keys(leases))}

    async def defer(self, lease: LeaseKey, advance: Advance) -> bool:
        """See ``tasks.ports.Ledger.defer``."""
        parameters = {
            "id": lease.job_id,
            "token": lease.token,
            "step": advance.step.value,
            "round": advance.round,
            "delay": advance.delay,
            "held_reason": advance.held_reason.value if advance.held_reason else None,
            "event": advance.event,
            "limited": advance.limited,
            "correction": advance.correction.model_dump_json() if advance.correction else None,
        }
        return bool(await self._db.rows(_DEFER, parameters))

    async def rescue(self, limit: int, unknown_reason: HeldReason | None) -> list[UUID]:
        """See ``tasks.ports.Ledger.rescue``."""
        reason = unknown_reason.value if unknown_reason else None
        which = {"limit": limit, "lock": RESCUE_LOCK}
        rows = await self._db.rows(_RESCUE, {**which, "reason": reason}, first=(_LOCK_LOST, which))
        await self._db.rows(_CLOSE_ABANDONED, {"limit": limit, "grace": ABANDONED_AFTER, "lock": RESCUE_LOCK})
        return [row.id for row in rows]


def _keys(leases: Sequence[LeaseKey]) -> dict[str, list[UUID]]:
    return {"ids": [lease.job_id for lease in leases], "tokens": [lease.token for lease in leases]}


def _leased(row: Any, token: UUID) -> Leased:
    request = JobRequest.model_validate(row.request)
    recheck = Recheck.model_validate(row.recheck) if row.recheck is not None else None
    if recheck is not None:
        request = request.model_copy(update={"config": recheck.applied(request.config)})
    # A later run counts from its own beginning; the first from acceptance, or from when it was due.
    due = request.scheduled_at or row.not_before or row.created_at
    accepted = row.started_at if row.run > 1 else max(row.created_at, due)
    return Leased(
        job_id=row.id,
        batch_id=row.batch_id,
        tenant=row.tenant,
        position=row.position,
        custom_id=row.custom_id,
        step=Step(row.step),
        run=row.run,
        round=row.round,
        priority=row.priority,
        token=token,
        request=request,
        created_at=row.created_at,
        deadline=row.deadline,
        age_ms=_ms(row.now - accepted),
        waited_ms=_ms(row.now - (row.available_at or row.now)),
        limited_ms=row.limited_ms or 0.0,
        spent=row.spent,
        snoozes=row.snoozes,
        unknown=row.unknown,
        attempts=row.attempts,
        cost_usd=row.cost_usd,
        max_cost_usd=row.max_cost_usd,
        first_opened_ago_ms=None if row.first_opened_at is None else _ms(row.now - row.first_opened_at),
        stored=_stored(row.attempt_id, row.parsed, row.prompt, row.timing_ms),
        correction=Correction.model_validate(row.correction) if row.correction is not None else None,
        recheck=recheck,
        judged=_stored(row.judged_id, row.judged_parsed, row.judged_prompt, row.judged_timing_ms),
        started_ago_ms=_ms(row.now - row.started_at),
    )


def _stored(attempt_id: UUID | None, parsed: Any, prompt: Any, timing_ms: Any) -> StoredCompletion | None:
    if attempt_id is None:
        return None
    return StoredCompletion(
        attempt_id=attempt_id,
        completion=Completion.model_validate(parsed),
        prompt=Prompt.model_validate(prompt),
        timing_ms=timing_ms or {},
    )


def _ms(duration: timedelta) -> float:
    return max(0.0, duration.total_seconds() * 1000)
