"""Callbacks of batches that are settled: which are due, their tries, and their ends."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from schemas.batch import BatchStatus
from worker.ledger.database import Database
from worker.ledger.views import STATUS

KEPT_FOR = timedelta(minutes=2)
"""The time after which another worker tries a callback again whose worker died in the midst."""

LOOK_AFTER = timedelta(seconds=5)
"""Between two looks at whether a batch is settled."""

MOST = 20
"""Callbacks that are taken at once."""

# A batch is settled when the counts that triggers keep have no job that may still move: no job is read.
_TAKE = f"""
WITH due AS (
    SELECT c.batch_id, NOT EXISTS (
        SELECT FROM job_count n
        WHERE n.batch_id = c.batch_id AND n.folded = ANY ('{{false,true}}')
          AND n.state IN ('available', 'pending', 'running', 'scheduled')
        GROUP BY n.state HAVING sum(n.jobs) <> 0) AS settled
    FROM callback c WHERE c.ended_at IS NULL AND c.next_at <= nightdesk_now()
    ORDER BY c.next_at LIMIT {MOST} FOR NO KEY UPDATE OF c SKIP LOCKED
), callback_due AS (
    UPDATE callback c SET next_at = nightdesk_now() + CASE WHEN d.settled THEN %(keep_for)s ELSE %(look_after)s END,
                          settled_at = CASE WHEN d.settled THEN coalesce(c.settled_at, nightdesk_now()) END
    FROM due d WHERE c.batch_id = d.batch_id
    RETURNING c.batch_id, c.url, c.tries, c.settled_at, d.settled
)
SELECT batch_id, url, tries, settled_at FROM callback_due WHERE settled
"""

_NOTE = """
UPDATE callback SET tries = tries + %(tried)s, last_error = %(error)s, next_at = nightdesk_now() + coalesce(%(pause)s, interval '0'),
                    ended_at = CASE WHEN %(pause)s::interval IS NULL THEN nightdesk_now() END
WHERE batch_id = %(batch_id)s AND ended_at IS NULL
"""

_STATUS = STATUS + "WHERE b.id = %(batch_id)s"


@dataclass(frozen=True, slots=True)
class DueCallback:
    """A callback to be delivered; ``tries`` were made before."""

    batch_id: UUID
    url: str
    tries: int
    settled_at: datetime


class Callbacks:
    """The callbacks of all batches."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def take(self) -> list[DueCallback]:
        """Callbacks of settled batches whose time has come; no other worker takes them for a while."""
        rows = await self._db.rows(_TAKE, {"keep_for": KEPT_FOR, "look_after": LOOK_AFTER})
        return [DueCallback(*row) for row in rows]

    async def status(self, batch_id: UUID) -> BatchStatus:
        """The batch as the callback tells it."""
        (row,) = await self._db.rows(_STATUS, {"batch_id": batch_id})
        return BatchStatus(**row._asdict())

    async def note(self, batch_id: UUID, error: str | None, pause: timedelta | None, *, tried: bool = True) -> None:
        """Notes a try: its error, and the time until the next; without one the callback has ended."""
        values = {"batch_id": batch_id, "error": error, "pause": pause, "tried": int(tried)}
        await self._db.rows(_NOTE, values)


def cost_text(usd: Decimal | None) -> str | None:
    """An amount as JSON carries it; None where it is not known."""
    return None if usd is None else f"{usd.normalize():f}"
