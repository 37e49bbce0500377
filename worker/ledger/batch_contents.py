"""Finds a batch by what was submitted with it, and keeps of two with the same content the later one from being found."""

from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from tasks.errors import SameInputSubmitted
from tasks.ports import Content
from worker.ledger.database import Database

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

_CLAIM = "UPDATE batch SET content_head = %(head)s, content_hash = %(whole)s WHERE id = %(id)s"

FORGET = """
UPDATE batch b SET content_head = NULL, content_hash = NULL
WHERE b.content_head IS NOT NULL
  AND b.id IN (SELECT j.batch_id FROM job j WHERE j.id = ANY(%(ids)b::uuid[]) AND j.finished_at IS NOT NULL)
"""
"""For jobs that are about to lose their answers: the same input has to be answered anew."""


class BatchContents:
    """Batches by the content that they were submitted with, within a tenant."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def begins_like(self, tenant: str, head: bytes) -> bool:
        """Tells whether a batch begins with the same jobs, so that it is worth while to read the others."""
        return bool(await self._db.rows(_HEADS, {"tenant": tenant, "head": head}))

    async def find(self, tenant: str, content: Content) -> UUID | None:
        """The batch with this content."""
        parameters = {"tenant": tenant, "head": content.head, "whole": content.whole}
        rows = await self._db.rows(_FIND, parameters)
        return rows[0].id if rows else None


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
