"""Keeps the outbox: which results are to be published, and how far all of a day's have been published again."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from tasks.ports import JobView, RepublishPage
from worker.ledger.database import Store
from worker.ledger.packing import RECORD_ANSWER
from worker.ledger.pages import NOT_IN_QUARANTINE, isolate, quarantine_for
from worker.ledger.views import PUBLISHED_COLUMNS, view_of

PAGE_BYTES = 8 * 1024 * 1024
"""Most that the records of a page hold, as they are stored; but a page always has one."""

_DUTY = "publish"

# The size of a record is read from its columns' headers: nothing is fetched from out of line for it. What is packed is a fifth.
_PAGE = """
SELECT p.id, p.finished_at
FROM (SELECT j.id, j.finished_at, j.bytes, sum(j.bytes) OVER (ORDER BY j.finished_at, j.id) - j.bytes AS before
      FROM (SELECT i.id, i.finished_at, coalesce(pg_column_size(g.answer), 0) + coalesce(pg_column_size(g.citations), 0)
                + coalesce(pg_column_size(g.grounding), 0) + coalesce(pg_column_size(g.output_structured), 0)
                + 5 * coalesce(pg_column_size(g.frame), 0) AS bytes
            FROM ({jobs}) i
            LEFT JOIN generation_record g ON g.job_id = i.id AND g.run = i.run) j) p
WHERE p.before < %(bytes)s
ORDER BY p.finished_at, p.id
"""

_UNPUBLISHED = _PAGE.format(
    jobs=f"""
    SELECT j.id, j.run, j.finished_at FROM job j
    WHERE j.finished_at IS NOT NULL AND j.result_published_at IS NULL AND j.finished_at <= nightdesk_now() - %(age)s
      AND {NOT_IN_QUARANTINE}
    ORDER BY j.finished_at LIMIT %(limit)s"""
)

# Those that are in the outbox are published from there.
_REPUBLISH_PAGE = _PAGE.format(
    jobs="""
    SELECT k.* FROM dispatch d CROSS JOIN LATERAL (
        SELECT j.id, j.run, j.finished_at FROM job j
        WHERE j.finished_at >= d.republish_after AND j.finished_at <= d.republish_until
          AND (j.finished_at, j.id) > (d.republish_after, d.republish_after_id) AND j.result_published_at IS NOT NULL
        ORDER BY j.finished_at, j.id LIMIT %(limit)s
    ) k"""
)

_RESULTS = f"""
SELECT {PUBLISHED_COLUMNS}
FROM job j
JOIN job_request r ON r.job_id = j.id
LEFT JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
{RECORD_ANSWER}
WHERE j.id = ANY(%(ids)b::uuid[]) AND j.finished_at IS NOT NULL
ORDER BY j.finished_at, j.id
"""

# A result that was published is marked; one whose job has another run by now, or was erased, must not stay there.
_MARK_PUBLISHED = """
WITH input AS (
    SELECT * FROM unnest(%(ids)b::uuid[], %(runs)b::int[]) AS d(id, run)
), final_job AS (
    SELECT j.id FROM input d JOIN job j ON j.id = d.id AND j.run = d.run
    WHERE j.finished_at IS NOT NULL AND j.result_published_at IS NULL
    ORDER BY j.id FOR NO KEY UPDATE OF j
), marked_job AS (
    UPDATE job SET result_published_at = nightdesk_now() WHERE id = ANY (ARRAY(SELECT id FROM final_job))
)
SELECT d.id, d.run FROM input d LEFT JOIN job j ON j.id = d.id
WHERE j.id IS NULL OR j.run <> d.run OR j.finished_at IS NULL OR j.erased_at IS NOT NULL
"""

_SET_ASIDE = """
UPDATE job SET result_published_at = NULL WHERE id = %(id)s AND result_published_at IS NOT NULL
"""

_BEGIN = """
WITH before AS (SELECT republish_after FROM dispatch)
UPDATE dispatch SET republish_after = nightdesk_now() - %(within)s,
                    republish_after_id = '00000000-0000-0000-0000-000000000000',
                    republish_until = nightdesk_now(), republished = 0
RETURNING (SELECT republish_after IS NOT NULL FROM before) AS again
"""

_WALK = "SELECT republish_until, republished FROM dispatch WHERE republish_until IS NOT NULL"

_NOTE = """
UPDATE dispatch SET republish_after = %(after)s, republish_after_id = %(after_id)s, republished = %(jobs)s
WHERE republish_until = %(until)s AND (republish_after, republish_after_id) < (%(after)s, %(after_id)s)
"""

_END = "UPDATE dispatch SET republish_until = NULL WHERE republish_until = %(until)s"


class PostgresOutbox(Store):
    """Results on their way to the result backend: those to publish, and how far a republication is."""

    async def unpublished(self, limit: int, older_than: timedelta) -> list[JobView]:
        """Final jobs whose result is not in the result backend, oldest first, with as much as a result is made of.

        A page of bounded bytes. A job that can't be read is set aside.
        """
        parameters = {"limit": limit, "age": older_than, "bytes": PAGE_BYTES, "duty": _DUTY}
        return await self._results(await self._db.column(_UNPUBLISHED, parameters))

    async def _results(self, job_ids: Sequence[UUID]) -> list[JobView]:
        views = []
        for row in await isolate(job_ids, self._read_results, self.set_aside):
            try:
                views.append(view_of(row))
            except Exception as error:  # noqa: BLE001 - damaged bytes make each layer of the readers fail in its own way
                await self.set_aside(row.id, error)
        return views

    async def _read_results(self, job_ids: Sequence[UUID]) -> list[Any]:
        return await self._db.rows(_RESULTS, {"ids": list(job_ids)})

    async def mark_published(self, results: Sequence[tuple[UUID, int]]) -> list[tuple[UUID, int]]:
        """Note that the results of these jobs and runs are in the result backend.

        Returns those that must not stay there: their job is erased, or has another run by now.
        """
        if not results:
            return []
        ordered = sorted(results)
        parameters = {"ids": [job_id for job_id, _ in ordered], "runs": [run for _, run in ordered]}
        return [(row.id, row.run) for row in await self._db.rows(_MARK_PUBLISHED, parameters)]

    async def set_aside(self, job_id: UUID, error: Exception) -> None:
        """Keep a job whose result can't be published out of the others' way; it is tried again ever later."""
        await self._db.rows(_SET_ASIDE, {"id": job_id})
        await quarantine_for(self._db, _DUTY)(job_id, error)

    async def begin_republishing(self, finished_within: timedelta) -> bool:
        """Begin to publish all results finished within that time again (Redis lost its data).

        Starts again where it was under way. False for the first time in the life of the ledger: a new Redis lost nothing.
        """
        return bool(await self._db.value(_BEGIN, {"within": finished_within}))

    async def republish_page(self, limit: int) -> RepublishPage | None:
        """The next results to publish again; None when there is nothing to publish again."""
        walk = await self._db.rows(_WALK)
        if not walk:
            return None
        until, done = walk[0]
        rows = await self._db.rows(_REPUBLISH_PAGE, {"limit": limit, "bytes": PAGE_BYTES})
        if not rows:
            await self._db.rows(_END, {"until": until})
            return RepublishPage(until, None, (), done)
        views = await self._results([row.id for row in rows])
        return RepublishPage(until, (rows[-1].finished_at, rows[-1].id), tuple(views), done + len(rows))

    async def note_republished(self, page: RepublishPage) -> None:
        """Note that a page is in the result backend: the next one follows it."""
        if page.through is not None:
            after, after_id = page.through
            parameters = {"after": after, "after_id": after_id, "jobs": page.published, "until": page.until}
            await self._db.rows(_NOTE, parameters)
