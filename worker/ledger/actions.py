"""Actions of an operator on jobs and batches: cancel, retry, recheck, release, pause, change a budget.

Cancelling and expiring share the statement that ends jobs without a worker.
"""

from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from schemas import CONTRACT_VERSION
from schemas.failure import FailureKind
from schemas.generation import CheckerName
from schemas.job import Recheck
from schemas.states import HeldReason
from tasks.errors import NotFound
from tasks.ports import OnPage, Page, no_page
from worker.ledger.database import Database, Store
from worker.ledger.pages import change_by, change_pages, each_page, lock_batches, walk


def closing_statement(which: str, *, message: str = "%(message)s::text") -> str:
    """A statement that ends the jobs of a subquery ``which`` (yielding ``id``, locked) and returns their ids.

    Named parameters: ``state``, ``event``, ``actor``, ``message``, ``kind`` and those of ``which``. A running job's lease ends
    here; its holder learns so at the next renewal, and what its call still costs lands on the attempt. ``message`` is an
    expression that may speak of the row ``ended_job``.
    """
    return f"""
WITH locked_job AS ({which}
), ended_job AS (
    UPDATE job j SET state = %(state)s, finished_at = nightdesk_now(), held_reason = NULL,
                     lease_token = NULL, lease_until = NULL, result_published_at = NULL,
                     failure_kind = CASE WHEN %(state)s = 'failed' THEN %(kind)s::text END
    FROM locked_job c WHERE j.id = c.id
    RETURNING j.id, j.run, j.tenant, j.created_at, j.replay_of
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, %(event)s, %(actor)s, '{{}}'::jsonb FROM ended_job
), record AS (
    INSERT INTO generation_record (job_id, run, tenant, message_id, retrieval_record_id, trace_id, request_id,
                                   contract_version, answer, output_format, citations, quality, status, error_message,
                                   failure, timing_ms, created_at, replay_of)
    SELECT ended_job.id, ended_job.run, ended_job.tenant, coalesce(r.head ->> 'message_id', ended_job.id::text),
           r.head ->> 'retrieval_record_id', r.head ->> 'trace_id', r.head ->> 'request_id',
           {CONTRACT_VERSION}, '', coalesce(r.head #>> '{{config,output_format}}', 'markdown'), '[]'::jsonb,
           '{{}}'::jsonb, 'failed', m.text,
           jsonb_build_object('kind', %(kind)s::text, 'message', m.text, 'at', nightdesk_now()),
           jsonb_build_object('total', extract(epoch FROM nightdesk_now() - ended_job.created_at) * 1000), nightdesk_now(),
           ended_job.replay_of
    FROM ended_job JOIN job_request r ON r.job_id = ended_job.id CROSS JOIN LATERAL (SELECT {message} AS text) m
)
SELECT id FROM ended_job
"""


_CANCEL = closing_statement("""
    SELECT id FROM job WHERE id = ANY(%(ids)b::uuid[]) AND finished_at IS NULL ORDER BY id FOR NO KEY UPDATE
""")

# From here on a lease that meets a job of the batch cancels it: nothing of it is called any more.
_BEGIN_CANCEL = """
UPDATE batch SET cancelled_at = coalesce(cancelled_at, nightdesk_now()), cancelling_by = %(actor)s
WHERE id = %(batch_id)s RETURNING id
"""
_END_CANCEL = "UPDATE batch SET cancelling_by = NULL WHERE id = %(batch_id)s AND cancelling_by = %(actor)s"

_WANTS_LOCAL = """(r.head #> '{config,checkers}') @> '["local"]'"""

# A deadline that has passed would expire the new run at once.
_NEW_RUN = """state = 'scheduled', run = j.run + 1, rescues = 0, scheduled_at = nightdesk_now(), available_at = NULL,
        limited_ms = NULL, deadline = CASE WHEN j.deadline <= nightdesk_now() THEN NULL ELSE j.deadline END,
        started_at = NULL, finished_at = NULL, outcome = NULL, result_published_at = NULL, worker = NULL,
        correction = NULL, needs_usd = NULL, errors = NULL, standing = NULL, failure_kind = NULL"""

_RETRY = f"""
WITH locked_job AS (
    SELECT id FROM job WHERE id = ANY(%(ids)b::uuid[]) AND finished_at IS NOT NULL AND erased_at IS NULL
    ORDER BY id FOR NO KEY UPDATE
), new_run AS (
    UPDATE job j
    SET {_NEW_RUN}, round = 0, recheck = NULL,
        step = CASE WHEN r.head ->> 'response' IS NULL THEN 'generate'
                    WHEN {_WANTS_LOCAL} THEN 'local' ELSE 'check' END
    FROM job_request r
    WHERE j.id = ANY (ARRAY(SELECT id FROM locked_job)) AND r.job_id = j.id
    RETURNING j.id, j.run
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor) SELECT id, run, 'retry', %(actor)s FROM new_run
)
SELECT id FROM new_run
"""

_RECHECK = f"""
WITH locked_job AS (
    SELECT id FROM job WHERE id = ANY(%(ids)b::uuid[]) AND state IN ('completed', 'failed') AND erased_at IS NULL
    ORDER BY id FOR NO KEY UPDATE
), new_run AS (
    UPDATE job j
    SET {_NEW_RUN}, recheck = %(recheck)s::jsonb,
        -- What the recheck names goes before what the job's config says; NULL: it names no checkers.
        step = CASE WHEN coalesce(%(local)s::boolean, {_WANTS_LOCAL}) THEN 'local' ELSE 'check' END
    FROM job_request r
    WHERE j.id = ANY (ARRAY(SELECT id FROM locked_job)) AND r.job_id = j.id
      AND (r.head ->> 'response' IS NOT NULL
           OR EXISTS (SELECT FROM completion c WHERE c.job_id = j.id AND c.run <= j.run AND c.round = j.round
                                                 AND c.purpose <> 'judge' AND c.won))
    RETURNING j.id, j.run
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, 'recheck', %(actor)s, %(recheck)s::jsonb FROM new_run
)
SELECT id FROM new_run
"""

# After the jobs, as everywhere: a pause or the end of one waits until this page is committed, and so misses no job of it.
_BATCHES = """batches AS (
    SELECT b.id, b.paused, b.opens_at FROM batch b WHERE b.id = ANY (ARRAY(SELECT batch_id FROM locked_job)) ORDER BY b.id FOR SHARE
)"""

_RELEASE = f"""
WITH locked_job AS (
    SELECT id, batch_id, step FROM job WHERE id = ANY(%(ids)b::uuid[]) AND held_reason = %(reason)s
    ORDER BY id FOR NO KEY UPDATE
), {_BATCHES}, released_job AS (
    UPDATE job j
    SET state = CASE WHEN b.paused OR greatest(j.scheduled_at, c.opens_at) > nightdesk_now() THEN 'scheduled'
                     ELSE 'available' END,
        scheduled_at = greatest(j.scheduled_at, c.opens_at),
        -- In a batch that is paused a job goes on only when the batch does.
        held_reason = CASE WHEN b.paused THEN 'batch_paused' END,
        available_at = nightdesk_now(),
        needs_usd = CASE WHEN %(reason)s NOT IN ('budget', 'key_budget', 'tenant_budget') THEN j.needs_usd END
    FROM (SELECT l.id, l.batch_id, CASE WHEN l.step = 'generate' THEN w.opens_at END AS opens_at
          FROM locked_job l JOIN batches w ON w.id = l.batch_id) c
    JOIN batches b ON b.id = c.batch_id
    WHERE j.id = c.id
    RETURNING j.id, j.run
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, 'release', %(actor)s, jsonb_build_object('held_reason', %(reason)s::text) FROM released_job
)
SELECT id FROM released_job
"""

# What is refused again is held again, with the rest of its batch.
_HOLD_AGAIN = f"""
WITH short_batch AS (
    {lock_batches("SELECT id FROM batch WHERE least_needed_usd IS NOT NULL AND id = coalesce(%(batch_id)s::uuid, id)")}
)
UPDATE batch b SET hold_from = 0 FROM short_batch s WHERE b.id = s.id AND b.least_needed_usd IS NOT NULL
"""

_PAUSE_JOBS = f"""
WITH locked_job AS (
    SELECT id, batch_id FROM job
    WHERE id = ANY(%(ids)b::uuid[]) AND held_reason IS NULL AND state IN ('available', 'scheduled')
    ORDER BY id FOR NO KEY UPDATE
), {_BATCHES}, held_job AS (
    UPDATE job j SET state = 'scheduled', held_reason = 'batch_paused'
    FROM locked_job c JOIN batches b ON b.id = c.batch_id AND b.paused
    WHERE j.id = c.id
    RETURNING j.id, j.run
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, 'hold', %(actor)s, jsonb_build_object('held_reason', 'batch_paused') FROM held_job
)
SELECT id FROM held_job
"""

_PAUSE = "UPDATE batch SET paused = %(paused)s WHERE id = %(batch_id)s RETURNING id"

_SET_BUDGET = "UPDATE batch SET max_cost_usd = %(max_cost_usd)s WHERE id = %(batch_id)s RETURNING id"

# Every job of a batch is read, so that a page costs the same wherever the jobs to change are.
_OF_BATCH = """
SELECT id, position, finished_at IS NULL AS active FROM job
WHERE batch_id = %(batch_id)s AND position > %(after_position)s ORDER BY position LIMIT %(page)s
"""
_FIRST_POSITION = {"position": -1}

_HELD_OF_BATCH = """
SELECT id FROM job WHERE held_reason = %(reason)s AND batch_id = %(batch_id)s AND id > %(after_id)s
ORDER BY id LIMIT %(page)s
"""
_HELD_OF_ALL = """
SELECT id, batch_id FROM job WHERE held_reason = %(reason)s AND (batch_id, id) > (%(after_batch_id)s, %(after_id)s)
ORDER BY batch_id, id LIMIT %(page)s
"""
_FIRST_ID = UUID(int=0)


async def cancel_pages(db: Database, pages: AsyncIterator[Sequence[UUID]], actor: str, on_page: OnPage) -> list[UUID]:
    """Cancel those jobs of some pages that are not final; returns their ids."""
    parameters = {
        "state": "cancelled",
        "event": "cancel",
        "actor": actor,
        "message": f"cancelled by {actor}",
        "kind": FailureKind.CANCELLED.value,
    }
    return await change_pages(pages, change_by(db, _CANCEL, parameters), on_page)


class PostgresActions(Store):
    """Actions of an operator on jobs and batches.

    Each goes through many jobs in pages of ``PAGE_ROWS``, every page a short transaction of its own, and reports it to ``on_page``. An
    action that ends midway leaves whole pages behind; the same call again does the rest. A job whose row makes the statement fail
    keeps no other from being changed: it is logged, and refused in its page.
    """

    async def cancel(self, job_ids: Sequence[UUID], actor: str, on_page: OnPage = no_page) -> list[UUID]:
        """Cancel jobs that are not final, with a record; returns the ids changed."""
        return await cancel_pages(self._db, each_page(job_ids), actor, on_page)

    async def cancel_batch(self, batch_id: UUID, actor: str, on_page: OnPage = no_page) -> list[UUID]:
        """Cancel all jobs of a batch that are not final; raises ``NotFound``.

        The batch is marked first: until the last page is done no job of it is leased.
        """
        batch = {"batch_id": batch_id, "actor": actor}
        await self._change_batch(_BEGIN_CANCEL, batch)
        refused: set[UUID] = set()

        def watch(page: Page) -> None:
            refused.update(page.refused)
            on_page(page)

        cancelled = await cancel_pages(self._db, self._active(batch_id), actor, watch)
        if not refused:
            await self._db.rows(_END_CANCEL, batch)
        return cancelled

    async def retry(self, job_ids: Sequence[UUID], actor: str, on_page: OnPage = no_page) -> list[UUID]:
        """Start a new run of final jobs whose content is not erased; returns the ids changed."""
        return await change_pages(each_page(job_ids), change_by(self._db, _RETRY, {"actor": actor}), on_page)

    async def recheck(
        self, job_ids: Sequence[UUID], recheck: Recheck, actor: str, on_page: OnPage = no_page
    ) -> list[UUID]:
        """Start a new run of completed or failed jobs that have an answer (not an erased one), at its check.

        Nothing is generated. The answer is the latest one of the round that the job ended in, or the one given with the job. Returns the ids
        changed.
        """
        parameters = {
            "recheck": recheck.model_dump_json(),
            "local": None if recheck.checkers is None else CheckerName.LOCAL in recheck.checkers,
            "actor": actor,
        }
        return await change_pages(each_page(job_ids), change_by(self._db, _RECHECK, parameters), on_page)

    async def release(self, batch_id: UUID | None, reason: HeldReason, actor: str, on_page: OnPage = no_page) -> int:
        """Release held jobs of a batch (or all) that are held for this reason; returns how many."""
        # With the jobs that are held for it every paused lane goes on; its next failed call pauses it again.
        if reason is HeldReason.LANE_PAUSED:
            await self._db.rows("DELETE FROM lane_pause")
        change = change_by(self._db, _RELEASE, {"reason": reason.value, "actor": actor})
        released = len(await change_pages(self._held_ids(batch_id, reason), change, on_page))
        if reason is HeldReason.BUDGET:
            await self._db.rows(_HOLD_AGAIN, {"batch_id": batch_id})
        return released

    async def pause_batch(self, batch_id: UUID, actor: str, *, paused: bool, on_page: OnPage = no_page) -> int:
        """Pause a batch (holds its scheduled and available jobs) or resume it (releases them); returns how many.

        Raises ``NotFound``.
        """
        await self._change_batch(_PAUSE, {"batch_id": batch_id, "paused": paused})
        if not paused:
            return await self.release(batch_id, HeldReason.BATCH_PAUSED, actor, on_page)
        return len(
            await change_pages(self._active(batch_id), change_by(self._db, _PAUSE_JOBS, {"actor": actor}), on_page)
        )

    async def set_budget(
        self, batch_id: UUID, max_cost_usd: Decimal | None, actor: str, on_page: OnPage = no_page
    ) -> None:
        """Change a batch's ceiling and release the jobs held for it.

        What it has no money for is held again.
        """
        await self._change_batch(_SET_BUDGET, {"batch_id": batch_id, "max_cost_usd": max_cost_usd})
        await self.release(batch_id, HeldReason.BUDGET, actor, on_page)

    async def _change_batch(self, statement: str, parameters: dict[str, Any]) -> None:
        """Change a batch in a transaction of its own: its row is never locked while jobs are waited for."""
        if not await self._db.rows(statement, parameters):
            raise NotFound(f"no batch {parameters['batch_id']}")

    async def _active(self, batch_id: UUID) -> AsyncIterator[list[UUID]]:
        async for rows in walk(self._db, _OF_BATCH, {"batch_id": batch_id}, _FIRST_POSITION):
            yield [row.id for row in rows if row.active]

    async def _held_ids(self, batch_id: UUID | None, reason: HeldReason) -> AsyncIterator[list[UUID]]:
        if batch_id is None:
            pages = walk(self._db, _HELD_OF_ALL, {"reason": reason.value}, {"batch_id": _FIRST_ID, "id": _FIRST_ID})
        else:
            parameters = {"reason": reason.value, "batch_id": batch_id}
            pages = walk(self._db, _HELD_OF_BATCH, parameters, {"id": _FIRST_ID})
        async for rows in pages:
            yield [row.id for row in rows]
