"""Keeps a job that makes a duty's statement fail out of that duty's way, and lets the duty try it again later."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from worker.ledger.database import Database
from worker.ledger.pages import Refuse, isolate, reason

log = logging.getLogger(__name__)

NOT_IN_QUARANTINE = """NOT EXISTS (
    SELECT FROM quarantine q WHERE q.job_id = j.id AND q.duty = %(duty)s AND q.until > nightdesk_now()
)"""
"""Condition on ``job j`` for the statement by which a duty finds its jobs; takes the parameter ``duty``.

Without it a bad row that is first in the order would be tried at every tick, and enough of them would fill the page.
"""

LEASING = "lease"
"""The duty of leases and of the hints that lead to them."""

NOT_BARRED = f"""j.id <> ALL (ARRAY(
    SELECT job_id FROM quarantine WHERE duty = '{LEASING}' AND until > nightdesk_now()
))"""
"""Condition on ``job j`` for leases and hints: the table, nearly always empty, is read once a statement, not once a row."""

# A minute, two, four, up to an hour: a cause that is mended is noticed soon, one that stays costs nothing.
_ADD = """
INSERT INTO quarantine AS q (job_id, duty, reason, until)
VALUES (%(job_id)s, %(duty)s, %(reason)s, nightdesk_now() + interval '1 minute')
ON CONFLICT (job_id, duty) DO UPDATE
SET reason = excluded.reason, tries = q.tries + 1,
    until = nightdesk_now() + least(interval '1 minute' * 2 ^ least(q.tries, 6), interval '1 hour')
"""


def quarantine_for(db: Database, duty: str) -> Refuse:
    """Give a duty the way to refuse a job: it is logged, and not tried again for a while."""

    async def refuse(job_id: UUID, error: Exception) -> None:
        log.error("job %s can't be changed by %s and is tried again later: %s", job_id, duty, reason(error))
        await db.rows(_ADD, {"job_id": job_id, "duty": duty, "reason": reason(error)[:500]})

    return refuse


async def quarantine_bad(
    db: Database, duty: str, job_ids: Sequence[UUID], statement: str, parameters: Mapping[str, Any]
) -> list[UUID]:
    """Try a statement that takes ``ids`` on ever smaller parts of some jobs, undo it, and quarantine those that make it fail."""
    bad: list[UUID] = []
    quarantine = quarantine_for(db, duty)

    async def attempt(ids: Sequence[UUID]) -> list[UUID]:
        async with db.connection() as connection, connection.transaction(force_rollback=True):
            await connection.execute(statement, {**parameters, "ids": list(ids)})
        return []

    async def refuse(job_id: UUID, error: Exception) -> None:
        bad.append(job_id)
        await quarantine(job_id, error)

    await isolate(job_ids, attempt, refuse)
    return bad
