"""Windows of batches: their present and next times, and the jobs that wait for the next one.

No call begins outside of a window: the statement that opens attempts looks at the times of the batch (``attempts``), and sends the
job to the next beginning. So that not each job is leased to learn that, those that did not begin are sent there in
pages when a window ends; from then on they are due like any other job.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from schemas.window import parse_window
from worker.ledger.database import Database, columns_of
from worker.ledger.pages import lock_batches, walk

BATCHES = 200
"""Batches whose window ends in one tick."""

WINDOW_OVER = "EXISTS (SELECT FROM batch b WHERE b.closes_at <= nightdesk_now())"
"""A batch needs the times of its next window."""

_OVER = f"""
SELECT b.id, b.call_window, nightdesk_now() AS now, (
    SELECT coalesce(sum(c.jobs), 0) > 0 FROM job_count c
    WHERE c.batch_id = b.id AND c.folded = ANY ('{{false,true}}') AND c.state = 'available'
) AS has_jobs
FROM batch b WHERE b.closes_at <= nightdesk_now() ORDER BY b.id LIMIT {BATCHES}
"""

OPEN_WINDOWS = f"""
WITH input AS (
    SELECT * FROM unnest(%(id)b::uuid[], %(opens_at)b::timestamptz[], %(closes_at)b::timestamptz[],
                         %(reopens_at)b::timestamptz[]) AS d(id, opens_at, closes_at, reopens_at)
), locked_batch AS ({lock_batches("SELECT id FROM input")}
)
UPDATE batch b SET opens_at = d.opens_at, closes_at = d.closes_at, reopens_at = d.reopens_at
FROM locked_batch l JOIN input d ON d.id = l.id WHERE b.id = l.id
"""
"""Notes the times that ``times_of`` computes."""

_WAITING = """
SELECT id, position, state = 'available' AND step = 'generate' AS waits FROM job
WHERE batch_id = %(batch_id)s AND position > %(after_position)s ORDER BY position LIMIT %(page)s
"""

_CLOSE = """
WITH locked_job AS (
    SELECT j.id, b.opens_at FROM job j JOIN batch b ON b.id = j.batch_id
    WHERE j.id = ANY(%(ids)b::uuid[]) AND j.state = 'available' AND j.step = 'generate' AND b.opens_at > nightdesk_now()
    FOR NO KEY UPDATE OF j SKIP LOCKED
), closed_job AS (
    UPDATE job j SET state = 'scheduled', scheduled_at = l.opens_at FROM locked_job l WHERE j.id = l.id
    RETURNING j.id
)
SELECT count(*) AS jobs FROM closed_job
"""


def times_of(windows: Iterable[tuple[UUID, str]], now: datetime) -> dict[str, list[Any]]:
    """The present or next window of batches, as parameters of ``OPEN_WINDOWS``."""
    rows = []
    for batch_id, text in windows:
        window = parse_window(text)
        interval = window.interval(now)
        rows.append((batch_id, interval.begins_at, interval.ends_at, window.after(interval).begins_at))
    return columns_of(rows, "id", "opens_at", "closes_at", "reopens_at")


async def close_windows(db: Database) -> int:
    """Implements ``tasks.ports.Duties.close_windows``."""
    batches = await db.rows(_OVER)
    if batches:
        await db.rows(OPEN_WINDOWS, times_of(((row.id, row.call_window) for row in batches), batches[0].now))
    jobs = 0
    for batch in batches:
        if batch.has_jobs:
            async for page in walk(db, _WAITING, {"batch_id": batch.id}, {"position": -1}):
                if ids := [row.id for row in page if row.waits]:
                    jobs += int(await db.value(_CLOSE, {"ids": ids}))
    return jobs
