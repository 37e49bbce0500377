"""Counts the jobs that a key of the HTTP service submits, and refuses those beyond the limits of the key."""

from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from tasks.errors import KeyLimitReached
from tasks.ports import NewBatch, Submitter

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('nightdesk:key:' || %(key_id)s, 0))"
"""Until the end of the transaction: of two submissions with a key at once the second counts what the first wrote."""

# By the indexes of jobs that are not final, as the cap on a tenant's is counted. By batch first: with hundreds of thousands of
# another key's jobs, a look at the batch of each would take four times as long as these jobs themselves.
_UNFINISHED = """
SELECT coalesce(sum(j.jobs), 0)::bigint AS jobs FROM (
    SELECT batch_id, count(*) AS jobs FROM (
        (SELECT batch_id FROM job WHERE state = 'available' AND step = 'generate' AND tenant = %(tenant)s)
        UNION ALL
        (SELECT batch_id FROM job WHERE state = 'available' AND step = 'check' AND tenant = %(tenant)s)
        UNION ALL
        (SELECT batch_id FROM job WHERE state = 'available' AND step = 'local' AND tenant = %(tenant)s)
        UNION ALL
        (SELECT batch_id FROM job WHERE state = 'scheduled' AND held_reason IS NULL AND tenant = %(tenant)s)
        UNION ALL
        (SELECT batch_id FROM job WHERE held_reason IS NOT NULL AND tenant = %(tenant)s)
        UNION ALL
        (SELECT batch_id FROM job WHERE state = 'running' AND tenant = %(tenant)s)
        UNION ALL
        (SELECT batch_id FROM job WHERE state = 'pending' AND tenant = %(tenant)s)
    ) unfinished GROUP BY batch_id
) j JOIN batch b ON b.id = j.batch_id AND b.key_id = %(key_id)s::uuid
"""

_COUNT = """
INSERT INTO api_key_use AS u (key_id, day, jobs, minute, minute_jobs)
VALUES (%(key_id)s::uuid, (nightdesk_now() AT TIME ZONE 'UTC')::date, %(jobs)s, date_trunc('minute', nightdesk_now()), %(jobs)s)
ON CONFLICT (key_id, day) DO UPDATE SET
    jobs = u.jobs + excluded.jobs,
    minute_jobs = excluded.minute_jobs + CASE WHEN u.minute = excluded.minute THEN u.minute_jobs ELSE 0 END,
    minute = excluded.minute
RETURNING jobs, minute_jobs,
          ceil(extract(epoch FROM minute + interval '1 minute' - nightdesk_now()))::int AS minute_ends_s,
          ceil(extract(epoch FROM (day + 1)::timestamp AT TIME ZONE 'UTC' - nightdesk_now()))::int AS day_ends_s
"""

WAIT_S = 60
"""Seconds after which a caller may ask whether jobs of its key ended."""


@dataclass(slots=True)
class KeyRoom:
    """Room under the limits of the key that submits a batch; without limits nothing is counted."""

    connection: AsyncConnection[Any]
    batch: NewBatch
    submitter: Submitter
    present: int = 0
    """Jobs of the key that are not final."""

    async def count(self) -> None:
        """Counts the jobs of the key before the first of the batch is written."""
        submitter = self.submitter
        if submitter.jobs_waiting is None:
            return
        parameters = {"key_id": str(submitter.key_id), "tenant": self.batch.tenant}
        await self.connection.execute(_LOCK, parameters)
        row = await (await self.connection.execute(_UNFINISHED, parameters)).fetchone()
        assert row is not None
        self.present = row.jobs

    async def take(self, jobs: int) -> None:
        """Adds so many jobs; raises ``KeyLimitReached`` where there is no room, and the transaction takes all back."""
        submitter = self.submitter
        if not jobs:
            return
        self.present += jobs
        if submitter.jobs_waiting is not None and self.present > submitter.jobs_waiting:
            raise KeyLimitReached(submitter.name, f"{submitter.jobs_waiting:,} jobs that are not final", WAIT_S)
        if submitter.jobs_per_minute is not None or submitter.jobs_per_day is not None:
            await self._take_of_time(submitter, jobs)

    async def _take_of_time(self, submitter: Submitter, jobs: int) -> None:
        parameters = {"key_id": str(submitter.key_id), "jobs": jobs}
        row = await (await self.connection.execute(_COUNT, parameters)).fetchone()
        assert row is not None
        if submitter.jobs_per_day is not None and row.jobs > submitter.jobs_per_day:
            raise KeyLimitReached(submitter.name, f"{submitter.jobs_per_day:,} jobs a day (UTC)", row.day_ends_s)
        if submitter.jobs_per_minute is not None and row.minute_jobs > submitter.jobs_per_minute:
            raise KeyLimitReached(submitter.name, f"{submitter.jobs_per_minute:,} jobs a minute", row.minute_ends_s)
