"""Finds a batch by what was submitted with it, and keeps of two with the same content the later one from being found."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from tasks.errors import SameInputSubmitted
from tasks.ports import Content, NewJob, UnchangedJob
from worker.ledger.database import Store

# A cancelled batch has no answers to take; erased and pruned jobs took the content of their batch with them.
_HEADS = """
SELECT b.content_hash FROM batch b
WHERE b.tenant = %(tenant)s AND b.content_head = %(head)s AND b.cancelled_at IS NULL
"""

_FIND = """
SELECT b.id FROM batch b
WHERE b.tenant = %(tenant)s AND b.content_head = %(head)s AND b.content_hash = %(whole)s AND b.cancelled_at IS NULL
"""

_FREE = """
UPDATE batch SET content_head = NULL, content_hash = NULL
WHERE tenant = %(tenant)s AND content_head = %(head)s AND content_hash = %(whole)s
  AND (%(replaces)s OR cancelled_at IS NOT NULL)
"""

_CLAIM = """
UPDATE batch SET content_head = %(head)s, content_hash = %(whole)s, content_basis = %(basis)s WHERE id = %(id)s
"""

NEWEST = 20
"""Batches that are looked at for jobs in common."""

FIRST_LINES = 1_000
"""Lines of each that are compared with the first jobs of another input."""

MOST_LINES = 200_000
"""Lines of earlier batches whose jobs may be taken: each is held in memory."""

# Its own jobs, and those that it found in earlier batches itself.
_LINES = """
    SELECT position, id AS job_id FROM job WHERE batch_id = {batch} {and_first}
    UNION ALL
    SELECT position, job_id FROM input_line WHERE batch_id = {batch} AND job_id IS NOT NULL {and_first}
"""

_LIKE = f"""
SELECT b.id FROM (
    SELECT b.id, b.created_at FROM batch b
    WHERE b.tenant = %(tenant)s AND b.content_basis = %(basis)s AND b.content_head IS NOT NULL AND b.cancelled_at IS NULL
    ORDER BY b.created_at DESC LIMIT {NEWEST}
) b
WHERE EXISTS (
    SELECT FROM ({_LINES.format(batch="b.id", and_first=f"AND position < {FIRST_LINES}")}) l
    CROSS JOIN LATERAL (SELECT * FROM job_request WHERE job_id = l.job_id LIMIT 1) r
    WHERE r.request_hash = ANY(%(hashes)b::bytea[]))
ORDER BY b.created_at DESC
"""

# A job that failed is asked again, and one that was erased has no answer. One that is not final has to come to an answer as
# a new one would: not in a batch that is paused, cancelled or waits for its time, nor held for what would not hold a new
# job as well.
_SERVES = """
j.erased_at IS NULL AND (j.state = 'completed' OR (
    j.finished_at IS NULL AND j.key_id IS NULL AND coalesce(j.held_reason IN ('lane_paused', 'tenant_budget'), true)
    AND NOT own.paused AND own.cancelled_at IS NULL AND own.call_window IS NULL
    AND coalesce(own.not_before <= nightdesk_now(), true)))
"""

_UNCHANGED = f"""
SELECT j.id, j.batch_id, r.request_hash, j.finished_at IS NOT NULL AS final, j.priority, j.deadline, own.max_cost_usd
FROM unnest(%(ids)b::uuid[]) WITH ORDINALITY AS b(id, place)
CROSS JOIN LATERAL ({_LINES.format(batch="b.id", and_first="")}) l
JOIN job j ON j.id = l.job_id JOIN batch own ON own.id = j.batch_id JOIN job_request r ON r.job_id = l.job_id
WHERE {_SERVES}
ORDER BY b.place, l.position LIMIT {MOST_LINES}
"""

# Each by its id, whatever the statistics say of the table.
_STILL_SERVE = f"""
SELECT j.id FROM unnest(%(ids)b::uuid[]) AS d(id)
CROSS JOIN LATERAL (SELECT * FROM job WHERE id = d.id LIMIT 1) j
CROSS JOIN LATERAL (SELECT * FROM batch WHERE id = j.batch_id LIMIT 1) own
WHERE {_SERVES}
"""

FORGET = """
UPDATE batch b SET content_head = NULL, content_hash = NULL
WHERE b.content_head IS NOT NULL
  AND b.id IN (SELECT j.batch_id FROM job j WHERE j.id = ANY(%(ids)b::uuid[]) AND j.finished_at IS NOT NULL)
"""
"""For jobs that are about to lose their answers: the same input has to be answered anew."""


class BatchContents(Store):
    """Batches by the content that they were submitted with, within a tenant."""

    async def begins_like(self, tenant: str, head: bytes) -> bool:
        """Tells whether a batch begins with the same jobs, so that it is worth while to read the others."""
        return bool(await self._db.rows(_HEADS, {"tenant": tenant, "head": head}))

    async def find(self, tenant: str, content: Content) -> UUID | None:
        """The batch with this content."""
        parameters = {"tenant": tenant, "head": content.head, "whole": content.whole}
        rows = await self._db.rows(_FIND, parameters)
        return rows[0].id if rows else None

    async def like(self, tenant: str, basis: bytes, hashes: Sequence[bytes]) -> list[UUID]:
        """The batches with one of these requests among their first, whose answers were decided by the same; newest first."""
        rows = await self._db.rows(_LIKE, {"tenant": tenant, "basis": basis, "hashes": list(hashes)})
        return [row.id for row in rows]

    async def unchanged(self, batch_ids: Sequence[UUID]) -> list[UnchangedJob]:
        """The jobs of batches that have an answer or come to one as a new job would, each once, in their order."""
        rows = await self._db.rows(_UNCHANGED, {"ids": list(batch_ids)})
        return list({row.id: UnchangedJob(*row) for row in rows}.values())


async def still_unchanged(
    connection: AsyncConnection[Any], unchanged: Mapping[int, UnchangedJob], page: Sequence[NewJob]
) -> Mapping[int, UnchangedJob]:
    """Those of a page's lines whose jobs serve even now: since they were found, some may be cancelled, erased or gone."""
    matches = {job.position: unchanged[job.position] for job in page if job.position in unchanged}
    if not matches:
        return matches
    ids = [job.job_id for job in matches.values()]
    cursor = await connection.execute(_STILL_SERVE, {"ids": ids}, prepare=False)
    serving = {row.id for row in await cursor.fetchall()}
    return {position: job for position, job in matches.items() if job.job_id in serving}


async def claim_content(connection: AsyncConnection[Any], batch_id: UUID, tenant: str, content: Content) -> None:
    """Lets a new batch be found by its content, in the transaction that writes it."""
    parameters = {"id": batch_id, "tenant": tenant, **content._asdict()}
    try:
        await connection.execute(_FREE, parameters)
        await connection.execute(_CLAIM, parameters)
    except psycopg.errors.UniqueViolation as error:
        raise SameInputSubmitted(
            "another command submitted the same jobs just now; the same command again goes on with its batch"
        ) from error
