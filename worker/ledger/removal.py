"""Removes the content of final jobs for good, or the jobs altogether, and finds those that are old enough."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from schemas.job import JobRequest
from schemas.model_call import total_usd
from schemas.states import JobState
from tasks.ports import OnPage, no_page
from worker.ledger.batch_contents import FORGET
from worker.ledger.database import Store
from worker.ledger.pages import PAGE_ROWS, change_pages, each_page, lock_batches, walk

TOMBSTONE = JobRequest(query="[erased]")
"""The request of an erased job, the least that is valid: all that its producer wrote is gone."""


def _tombstone() -> dict[str, Any]:
    # Only an erasure needs what validates submissions.
    from tasks.submit import canonical  # noqa: PLC0415

    stored, request_hash = canonical(TOMBSTONE)
    return {"request": stored.decode(), "hash": request_hash}


# A closing that has such a lock may have stored an answer that a statement begun before its commit doesn't see.
_LOCK = "SELECT FROM job WHERE id = ANY(%(ids)b::uuid[]) ORDER BY id FOR UPDATE"

_ERASE = """
WITH locked_job AS (
    SELECT id FROM job WHERE id = ANY(%(ids)b::uuid[]) AND finished_at IS NOT NULL AND erased_at IS NULL
    ORDER BY id FOR UPDATE
), removed_job AS (
    UPDATE job j SET erased_at = nightdesk_now(), custom_id = NULL, message_id = NULL, idempotency_key = NULL,
                     correction = NULL, errors = NULL, standing = NULL
    FROM locked_job c WHERE j.id = c.id
    RETURNING j.id, j.run
), requests AS (
    UPDATE job_request r SET head = %(request)s::jsonb, frame = NULL, request_hash = %(hash)b, prompt = NULL
    FROM removed_job g WHERE r.job_id = g.id
), answers AS (
    -- By way of the attempts: no index of jobs has the answers that did not win.
    DELETE FROM completion c USING removed_job g, attempt a WHERE a.job_id = g.id AND c.attempt_id = a.id
), calls AS (
    UPDATE attempt a SET request_hash = '', share_key = NULL, failure = a.failure || '{"message": "[erased]"}'
    FROM removed_job g WHERE a.job_id = g.id
), parked_calls AS (
    -- A provider may still have it: what comes is priced without its prompt.
    UPDATE provider_batch_call p SET body = NULL, call = p.call - 'prompt' - 'parameters_sent' - 'parameters_dropped'
    FROM removed_job g WHERE p.job_id = g.id
), records AS (
    UPDATE generation_record r
    SET message_id = r.job_id::text, retrieval_record_id = NULL, trace_id = NULL, request_id = NULL,
        messages_snapshot = NULL, output_raw = NULL, output_structured = NULL, canonical = NULL, answer = '', attempt_id = NULL,
        frame = NULL,
        citations = '[]', grounding = NULL, quality = '{}', asks = NULL,
        -- Parameters hold stop sequences and output schemas, too.
        provider_snapshot = coalesce(r.provider_snapshot, (
            SELECT c.parsed -> 'snapshot' FROM completion c WHERE c.attempt_id = r.attempt_id
        )) - 'parameters_sent' - 'parameters_dropped',
        usage = coalesce(r.usage, (
            SELECT nullif(c.parsed -> 'usage', 'null') FROM completion c WHERE c.attempt_id = r.attempt_id)),
        error_message = CASE WHEN r.error_message IS NOT NULL THEN '[erased]' END,
        failure = r.failure || '{"message": "[erased]"}'
    FROM removed_job g WHERE r.job_id = g.id
), events AS (
    UPDATE job_event e SET detail = '{}' FROM removed_job g WHERE e.job_id = g.id AND e.detail <> '{}'
), quarantine_row AS (
    -- An error may quote what it could not read.
    DELETE FROM quarantine q USING removed_job g WHERE q.job_id = g.id
), people AS (
    DELETE FROM label l USING removed_job g WHERE l.job_id = g.id
), erasure_event AS (
    INSERT INTO job_event (job_id, run, kind, actor) SELECT id, run, 'erased', %(actor)s FROM removed_job
)
SELECT id, run FROM removed_job
"""

_UNHEARD = """
SELECT count(*) AS calls FROM unnest(%(ids)b::uuid[]) AS d(id)
CROSS JOIN LATERAL (SELECT outcome FROM attempt WHERE job_id = d.id OFFSET 0) a
WHERE a.outcome IS NULL OR a.outcome = 'unknown'
"""

_DELETE = f"""
WITH locked_job AS (
    SELECT j.id, EXISTS (SELECT FROM attempt a WHERE a.job_id = j.id AND a.cost_usd IS NULL) AS unpriced FROM job j
    WHERE j.id = ANY(%(ids)b::uuid[]) AND j.finished_at IS NOT NULL
      -- The cost of a call that is open has nowhere else to go.
      AND NOT EXISTS (SELECT FROM attempt a WHERE a.job_id = j.id AND a.closed_at IS NULL)
    ORDER BY j.id FOR UPDATE
), calls AS (
    SELECT count(*) AS attempts, coalesce(sum((a.usage ->> 'input_tokens')::bigint), 0) AS input_tokens,
           coalesce(sum((a.usage ->> 'output_tokens')::bigint), 0) AS output_tokens
    -- Job by job: a merge join would read the whole index.
    FROM locked_job c CROSS JOIN LATERAL (SELECT usage FROM attempt WHERE job_id = c.id OFFSET 0) a
), removed_job AS (
    DELETE FROM job j USING locked_job c WHERE j.id = c.id RETURNING j.id, j.batch_id, j.run, j.cost_usd, c.unpriced
), response AS (
    DELETE FROM provider_batch b
    -- Each response in the background is a batch of its own, under the id of its attempt.
    USING locked_job c CROSS JOIN LATERAL (SELECT id FROM attempt WHERE job_id = c.id AND provider_batch_id = id OFFSET 0) a
    WHERE b.id = a.id
), quarantine_row AS (
    DELETE FROM quarantine q USING removed_job g WHERE q.job_id = g.id
), batch_sum AS (
    SELECT batch_id, sum(cost_usd) AS usd, bool_or(unpriced) AS unpriced FROM removed_job GROUP BY batch_id
), locked_batch AS (
    {lock_batches("SELECT batch_id FROM batch_sum WHERE usd <> 0 OR unpriced")}
), account AS (
    UPDATE batch b SET pruned_usd = b.pruned_usd + d.usd, pruned_unpriced = b.pruned_unpriced OR d.unpriced
    FROM locked_batch k JOIN batch_sum d ON d.batch_id = k.id
    WHERE b.id = k.id
)
SELECT g.id, g.run, CASE WHEN NOT g.unpriced THEN g.cost_usd END AS cost_usd, c.attempts, c.input_tokens, c.output_tokens FROM removed_job g CROSS JOIN calls c
"""

_SEAL = """
WITH sealed_batch AS (
    UPDATE batch b SET erased_at = nightdesk_now(), key = NULL, name = NULL, defaults = '{}'
    WHERE b.id = %(batch_id)s AND b.erased_at IS NULL
      AND NOT EXISTS (SELECT FROM job j WHERE j.batch_id = b.id AND j.erased_at IS NULL)
    RETURNING b.id
), lines AS (
    DELETE FROM input_line l USING sealed_batch s WHERE l.batch_id = s.id
), uploads AS (
    DELETE FROM upload u USING sealed_batch s WHERE u.batch_id = s.id
)
SELECT EXISTS (SELECT FROM sealed_batch) AS now
"""

_PAGE = """
SELECT j.id, j.position, j.run, j.state, j.erased_at IS NOT NULL AS erased,
       j.finished_at <= nightdesk_now() - %(older_than)s AS due
FROM job j WHERE j.batch_id = %(batch_id)s AND j.position > %(after_position)s ORDER BY j.position LIMIT %(page)s
"""

# Page by page through all batches of the age: those that hold nothing any more are passed over outside of the statement.
_BATCHES = """
WITH next_batch AS (
    SELECT b.id, b.created_at, b.erased_at FROM batch b
    -- A job can't have ended before its batch was there.
    WHERE b.created_at <= nightdesk_now() - %(older_than)s
      AND (%(tenant)s::text IS NULL OR b.tenant = %(tenant)s)
      AND b.created_at >= coalesce(%(after_created_at)s::timestamptz, '-infinity')
      AND (%(after_created_at)s::timestamptz IS NULL OR (b.created_at, b.id) > (%(after_created_at)s, %(after_id)s::uuid))
    ORDER BY b.created_at, b.id LIMIT %(page)s
)
SELECT n.id, n.created_at, n.created_at < nightdesk_now() - %(late_commits)s AS is_complete,
       CASE WHEN %(rows)s THEN EXISTS (SELECT FROM job j WHERE j.batch_id = n.id) ELSE n.erased_at IS NULL END AS holds
FROM next_batch n ORDER BY n.created_at, n.id
"""

LATE_COMMITS = timedelta(days=1)
"""The time after which no batch appears any more that was begun before."""

# A batch whose callback is still tried is left to a later round.
_DELETE_BATCHES = f"""
WITH locked_batch AS ({
    lock_batches('''
    SELECT b.id FROM batch b
    WHERE b.id = ANY (%(ids)b::uuid[]) AND NOT EXISTS (SELECT FROM job j WHERE j.batch_id = b.id)
      AND NOT EXISTS (SELECT FROM callback c WHERE c.batch_id = b.id AND c.ended_at IS NULL)
''')
}
), counts AS (
    DELETE FROM job_count n USING locked_batch k WHERE n.batch_id = k.id
), verdicts AS (
    DELETE FROM judge_verdict v USING locked_batch k WHERE v.batch_id = k.id
), uploads AS (
    DELETE FROM upload u USING locked_batch k WHERE u.batch_id = k.id
)
DELETE FROM batch b USING locked_batch k WHERE b.id = k.id RETURNING b.id
"""

_DELETE_SUMS = (
    """
    DELETE FROM api_key_use WHERE (key_id, day) IN (
        SELECT key_id, day FROM api_key_use WHERE day < (nightdesk_now() - %(older_than)s)::date LIMIT %(page)s) RETURNING day
    """,
    """
    DELETE FROM budget_period WHERE id IN (
        SELECT id FROM budget_period
        WHERE ends_at < nightdesk_now() - %(older_than)s AND NOT live AND reserved_usd = 0 LIMIT %(page)s) RETURNING id
    """,
    """
    DELETE FROM provider_batch WHERE id IN (
        SELECT b.id FROM provider_batch b
        WHERE b.ended_at < nightdesk_now() - %(older_than)s
          AND NOT EXISTS (SELECT FROM provider_batch_call c WHERE c.provider_batch_id = b.id) LIMIT %(page)s) RETURNING id
    """,
)
"""Rows of a day, a period and a provider's batch, each statement a page of them."""


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job of a batch: ``due`` when it has been final for as long as was asked for."""

    job_id: UUID
    run: int
    state: JobState
    due: bool
    erased: bool


@dataclass(slots=True)
class Deleted:
    """Runs of deleted jobs, and the sums of their rows."""

    runs: dict[UUID, int] = field(default_factory=dict)
    attempts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Decimal | None = Decimal(0)
    """None: the price of a call is unknown."""

    def add(self, rows: Sequence[Any]) -> None:
        """Add the rows of one statement; each bears the sums of all of them."""
        for row in rows[:1]:
            self.attempts += row.attempts
            self.input_tokens += int(row.input_tokens)
            self.output_tokens += int(row.output_tokens)
        for row in rows:
            self.runs[row.id] = row.run
            self.cost_usd = total_usd(self.cost_usd, row.cost_usd)


JobPage = tuple[UUID, list[StoredJob]]
"""A batch, and some of its jobs."""


@dataclass(slots=True)
class Passed:
    """The last batch, in the order of their creation, up to which a walk found nothing left to remove."""

    created_at: datetime | None = None
    batch_id: UUID | None = None


class Erasure(Store):
    """Removal of content and of jobs, and pages of those that are old enough."""

    async def erase(self, job_ids: Sequence[UUID], actor: str, on_page: OnPage = no_page) -> dict[UUID, int]:
        """Remove the content of jobs that are final, page by page; returns the last run of those changed."""
        parameters = {"actor": actor, **_tombstone()}
        runs: dict[UUID, int] = {}

        async def change(ids: Sequence[UUID]) -> list[UUID]:
            page = {**parameters, "ids": list(ids)}
            await self._db.rows(FORGET, {"ids": list(ids)})
            erased = {row.id: row.run for row in await self._db.rows(_ERASE, page, first=(_LOCK, page))}
            runs.update(erased)
            return list(erased)

        await change_pages(each_page(job_ids), change, on_page)
        return runs

    async def uncertain_calls(self, job_ids: Sequence[UUID]) -> int:
        """Count the calls of these jobs that are open or ended unknown: their answers may lie on the disk of a worker."""
        return int(await self._db.value(_UNHEARD, {"ids": list(job_ids)}))

    async def delete(self, job_ids: Sequence[UUID], on_page: OnPage = no_page) -> Deleted:
        """Delete jobs that are final and have no call open, page by page, with all that hangs on them."""
        deleted = Deleted()

        async def change(ids: Sequence[UUID]) -> list[UUID]:
            await self._db.rows(FORGET, {"ids": list(ids)})
            rows = await self._db.rows(_DELETE, {"ids": list(ids)})
            deleted.add(rows)
            return [row.id for row in rows]

        await change_pages(each_page(job_ids), change, on_page)
        return deleted

    async def seal(self, batch_id: UUID) -> bool:
        """Remove key, name, defaults and refused lines of a batch none of whose jobs has content left; True if that was done now."""
        return bool(await self._db.value(_SEAL, {"batch_id": batch_id}))

    async def job_pages(self, batch_id: UUID, older_than: timedelta) -> AsyncIterator[list[StoredJob]]:
        """All jobs of a batch, page by page in the order of their positions."""
        parameters = {"batch_id": batch_id, "older_than": older_than}
        async for rows in walk(self._db, _PAGE, parameters, {"position": -1}):
            yield [StoredJob(row.id, row.run, JobState(row.state), bool(row.due), row.erased) for row in rows]

    async def due_pages(
        self, batches: AsyncIterator[UUID], older_than: timedelta, *, rows: bool
    ) -> AsyncIterator[JobPage]:
        """The jobs old enough to erase (or, with ``rows``, to delete), in pages; a batch ends with an empty page."""
        async for batch_id in batches:
            async for jobs in self.job_pages(batch_id, older_than):
                if page := [job for job in jobs if job.due and (rows or not job.erased)]:
                    yield batch_id, page
            yield batch_id, []

    async def old_batches(
        self, tenant: str | None, older_than: timedelta, *, rows: bool, passed: "Passed | None" = None
    ) -> AsyncIterator[UUID]:
        """Batches at least so old, oldest first, that hold content (or, with ``rows``, jobs).

        Args:
            tenant: whose batches; None: everybody's.
            older_than: age of the batch.
            rows: look for jobs, not for content.
            passed: the batches that an earlier walk found empty; they are left out, and those found now are added.
        """
        async for batches in self._walk_batches(tenant, older_than, passed or Passed(), rows=rows):
            for row in batches:
                if row.holds:
                    yield row.id

    async def _walk_batches(
        self, tenant: str | None, older_than: timedelta, passed: "Passed", *, rows: bool
    ) -> AsyncIterator[list[Any]]:
        parameters = {"tenant": tenant, "older_than": older_than, "rows": rows, "late_commits": LATE_COMMITS}
        begin = {"created_at": passed.created_at, "id": passed.batch_id}
        only_empty = True
        async for batches in walk(self._db, _BATCHES, parameters, begin):
            for row in batches:
                only_empty = only_empty and row.is_complete and not row.holds
                if only_empty:
                    passed.created_at, passed.batch_id = row.created_at, row.id
            yield batches

    async def delete_batches(self, older_than: timedelta) -> int:
        """Delete batches at least so old without a job, and the sums of days, periods and provider batches of that age."""
        count = 0
        async for batches in self._walk_batches(None, older_than, Passed(), rows=True):
            ids = [row.id for row in batches if not row.holds]
            count += len(await self._db.rows(_DELETE_BATCHES, {"ids": ids}))
        for statement in _DELETE_SUMS:
            page = {"older_than": older_than, "page": PAGE_ROWS}
            while len(await self._db.rows(statement, page)) == PAGE_ROWS:
                pass
        return count
