"""What a person does to jobs and batches: cancel, retry, pause, release, and change a budget."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection

from schemas.failure import FailureKind
from schemas.generation import CheckerName, Recheck
from schemas.states import HeldReason
from tasks.errors import NotFound
from worker.ledger.closing import closing_statement
from worker.ledger.database import TRANSACTION_S, Database

_CANCEL = closing_statement(
    " SELECT id FROM job WHERE id = ANY(%(ids)b::uuid[]) AND finished_at IS NULL ORDER BY id FOR UPDATE"
)
_CANCEL_BATCH = closing_statement(
    " SELECT id FROM job WHERE batch_id = %(batch_id)s AND finished_at IS NULL ORDER BY id FOR UPDATE"
)
_NOTE_BATCH_CANCELLED = """
UPDATE batch SET cancelled_at = coalesce(cancelled_at, nightdesk_now()) WHERE id = %(batch_id)s RETURNING id
"""

_WANTS_LOCAL = """(r.request #> '{config,checkers}') @> '["local"]'"""

_LOCK_FINAL = (
    "SELECT id FROM job WHERE id = ANY(%(ids)b::uuid[]) AND finished_at IS NOT NULL ORDER BY id FOR NO KEY UPDATE"
)

_RETRY = f"""
WITH again AS (
    UPDATE job j
    SET state = 'scheduled', run = j.run + 1, round = 0, rescues = 0, scheduled_at = nightdesk_now(), available_at = NULL, limited_ms = NULL,
        step = CASE WHEN r.request ->> 'response' IS NULL THEN 'generate'
                    WHEN {_WANTS_LOCAL} THEN 'local' ELSE 'check' END,
        -- A deadline that has passed would expire the new run at once.
        deadline = CASE WHEN j.deadline <= nightdesk_now() THEN NULL ELSE j.deadline END,
        started_at = NULL, finished_at = NULL, outcome = NULL, result_published_at = NULL, worker = NULL,
        correction = NULL, recheck = NULL
    FROM job_request r
    WHERE j.id = ANY (ARRAY({_LOCK_FINAL})) AND j.finished_at IS NOT NULL AND j.erased_at IS NULL AND r.job_id = j.id
    RETURNING j.id, j.run
), noted AS (
    INSERT INTO job_event (job_id, run, kind, actor) SELECT id, run, 'retry', %(actor)s FROM again
)
SELECT id FROM again
"""

_RECHECK = f"""
WITH again AS (
    UPDATE job j
    SET state = 'scheduled', run = j.run + 1, rescues = 0, scheduled_at = nightdesk_now(), available_at = NULL, limited_ms = NULL,
        -- What the recheck names goes before what the job's config says; NULL: it names no checkers.
        step = CASE WHEN coalesce(%(local)s::boolean, {_WANTS_LOCAL}) THEN 'local' ELSE 'check' END,
        deadline = CASE WHEN j.deadline <= nightdesk_now() THEN NULL ELSE j.deadline END,
        started_at = NULL, finished_at = NULL, outcome = NULL, result_published_at = NULL, worker = NULL,
        correction = NULL, recheck = %(recheck)s::jsonb
    FROM job_request r
    WHERE j.id = ANY (ARRAY({_LOCK_FINAL})) AND j.state IN ('completed', 'failed') AND j.erased_at IS NULL AND r.job_id = j.id
      AND (r.request ->> 'response' IS NOT NULL
           OR EXISTS (SELECT FROM completion c WHERE c.job_id = j.id AND c.run <= j.run AND c.round = j.round
                                                 AND c.purpose <> 'judge' AND c.won))
    RETURNING j.id, j.run
), noted AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, 'recheck', %(actor)s, %(recheck)s::jsonb FROM again
)
SELECT id FROM again
"""

_RELEASE = """
WITH freed AS (
    UPDATE job j
    SET state = CASE WHEN b.paused OR j.scheduled_at > nightdesk_now() THEN 'scheduled' ELSE 'available' END,
        -- In a batch that is paused a job goes on only when the batch does.
        held_reason = CASE WHEN b.paused THEN 'batch_paused' END,
        available_at = nightdesk_now(), hinted_at = NULL
    FROM batch b
    WHERE b.id = j.batch_id AND j.id = ANY (ARRAY(
        SELECT id FROM job
        WHERE state = 'scheduled' AND held_reason = %(reason)s AND (%(batch_id)s::uuid IS NULL OR batch_id = %(batch_id)s)
        ORDER BY id FOR NO KEY UPDATE))
    RETURNING j.id, j.run
), noted AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, 'release', %(actor)s, jsonb_build_object('held_reason', %(reason)s::text) FROM freed
)
SELECT count(*) AS jobs FROM freed
"""

_PAUSE = "UPDATE batch SET paused = %(paused)s WHERE id = %(batch_id)s RETURNING id"

_HOLD_BATCH = """
WITH held AS (
    UPDATE job j SET state = 'scheduled', held_reason = 'batch_paused', hinted_at = NULL
    WHERE j.id = ANY (ARRAY(
        SELECT id FROM job
        WHERE batch_id = %(batch_id)s AND held_reason IS NULL AND state IN ('available', 'scheduled')
        ORDER BY id FOR NO KEY UPDATE))
    RETURNING j.id, j.run
), noted AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, 'hold', %(actor)s, jsonb_build_object('held_reason', 'batch_paused') FROM held
)
SELECT count(*) AS jobs FROM held
"""

_SET_BUDGET = "UPDATE batch SET max_cost_usd = %(max_cost_usd)s WHERE id = %(batch_id)s RETURNING id"


class PersonVerbs:
    """A person's verbs of the PostgreSQL ledger."""

    _db: Database

    async def cancel(self, job_ids: Sequence[UUID], actor: str) -> list[UUID]:
        """See ``tasks.ports.Ledger.cancel``."""
        rows = await self._db.rows(_CANCEL, {"ids": list(job_ids), **_cancelled_by(actor)})
        return [row.id for row in rows]

    async def cancel_batch(self, batch_id: UUID, actor: str) -> list[UUID]:
        """See ``tasks.ports.Ledger.cancel_batch``; raises ``NotFound``."""
        parameters = {"batch_id": batch_id, **_cancelled_by(actor)}
        await self._change_batch(_NOTE_BATCH_CANCELLED, {"batch_id": batch_id})
        return [row.id for row in await self._db.rows(_CANCEL_BATCH, parameters, within_s=TRANSACTION_S)]

    async def retry(self, job_ids: Sequence[UUID], actor: str) -> list[UUID]:
        """See ``tasks.ports.Ledger.retry``."""
        rows = await self._db.rows(_RETRY, {"ids": list(job_ids), "actor": actor})
        return [row.id for row in rows]

    async def recheck(self, job_ids: Sequence[UUID], recheck: Recheck, actor: str) -> list[UUID]:
        """See ``tasks.ports.Ledger.recheck``."""
        parameters = {
            "ids": list(job_ids),
            "recheck": recheck.model_dump_json(),
            "local": None if recheck.checkers is None else CheckerName.LOCAL in recheck.checkers,
            "actor": actor,
        }
        return [row.id for row in await self._db.rows(_RECHECK, parameters)]

    async def release(self, batch_id: UUID | None, reason: HeldReason, actor: str) -> int:
        """See ``tasks.ports.Ledger.release``. With jobs held for it every paused lane goes on, to be paused anew if need be."""
        async with self._db.connection() as connection, connection.transaction():
            if reason is HeldReason.LANE_PAUSED:
                await connection.execute("DELETE FROM lane_pause")
            return await _release(connection, batch_id, reason, actor)

    async def pause_batch(self, batch_id: UUID, actor: str, *, paused: bool) -> int:
        """See ``tasks.ports.Ledger.pause_batch``; raises ``NotFound``."""
        await self._change_batch(_PAUSE, {"batch_id": batch_id, "paused": paused})
        async with self._db.connection() as connection, connection.transaction():
            if not paused:
                return await _release(connection, batch_id, HeldReason.BATCH_PAUSED, actor)
            return await _count(connection, _HOLD_BATCH, {"batch_id": batch_id, "actor": actor})

    async def set_budget(self, batch_id: UUID, max_cost_usd: Decimal | None, actor: str) -> None:
        """See ``tasks.ports.Ledger.set_budget``; raises ``NotFound``."""
        parameters = {"batch_id": batch_id, "max_cost_usd": max_cost_usd}
        await self._change_batch(_SET_BUDGET, parameters)
        async with self._db.connection() as connection, connection.transaction():
            await _release(connection, batch_id, HeldReason.BUDGET, actor)

    async def _change_batch(self, statement: str, parameters: dict[str, Any]) -> None:
        """Change a batch in a transaction of its own: its row is never locked while jobs are waited for."""
        if not await self._db.rows(statement, parameters):
            raise NotFound(f"no batch {parameters['batch_id']}")


async def _release(connection: AsyncConnection[Any], batch_id: UUID | None, reason: HeldReason, actor: str) -> int:
    return await _count(connection, _RELEASE, {"batch_id": batch_id, "reason": reason.value, "actor": actor})


async def _count(connection: AsyncConnection[Any], statement: str, parameters: dict[str, Any]) -> int:
    row = await (await connection.execute(statement, parameters)).fetchone()
    assert row is not None
    return int(row.jobs)


def _cancelled_by(actor: str) -> dict[str, str]:
    return {
        "state": "cancelled",
        "event": "cancel",
        "actor": actor,
        "message": f"cancelled by {actor}",
        "kind": FailureKind.CANCELLED.value,
    }
