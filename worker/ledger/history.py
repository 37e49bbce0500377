"""Reads the averages of earlier calls and the keys of stored answers: the basis of an estimate."""

from collections.abc import Sequence
from uuid import UUID

from tasks.estimates.call_history import History, PastCalls
from worker.ledger.database import Store

NEWEST = 20_000
"""Attempts that are looked at, newest first, by the primary key: their ids begin with the time they were made."""

SAMPLE = 500
"""Answers of each model that count; the completions of no more are read."""

SAMPLE_OF_BATCH = 100
"""Answers of a batch among them, so that no large one speaks for all."""

_ANSWERS = """
WITH newest AS (
    (SELECT a.* FROM attempt a WHERE %(batch_id)s::uuid IS NULL ORDER BY a.id DESC LIMIT %(newest)s)
    UNION ALL
    (SELECT a.* FROM job j JOIN attempt a ON a.job_id = j.id WHERE j.batch_id = %(batch_id)s LIMIT %(newest)s)
), sample AS (
    SELECT * FROM (
        SELECT b.*, row_number() OVER (PARTITION BY provider, model, lane ORDER BY id DESC) AS place FROM (
            SELECT n.*, j.batch_id,
                   row_number() OVER (PARTITION BY n.provider, n.model, n.lane, j.batch_id ORDER BY n.id DESC) AS batch_place
            FROM newest n JOIN job j ON j.id = n.job_id AND j.tenant = %(tenant)s
            WHERE n.purpose = 'generate' AND n.outcome = 'ok' AND n.shared_from IS NULL AND n.usage IS NOT NULL
        ) b WHERE batch_place <= %(of_batch)s
    ) s CROSS JOIN LATERAL (
        SELECT coalesce(head #> '{config,checkers}' ? 'judge', false)
               OR coalesce(head #> '{config,escalate}' <> '[]', false) AS asks_more
        FROM job_request WHERE job_id = s.job_id LIMIT 1
    ) r WHERE place <= %(sample)s
)
SELECT u.provider, u.model, u.lane, count(*) AS calls,
       sum((usage ->> 'input_tokens')::float8) AS inputs, sum((usage ->> 'output_tokens')::float8) AS outputs,
       coalesce(sum((usage ->> 'cached_input_tokens')::float8), 0) AS cached,
       coalesce(sum((usage ->> 'cache_write_tokens')::float8), 0) AS written,
       coalesce(sum(extract(epoch FROM closed_at - opened_at)), 0)::float8 AS seconds,
       coalesce(sum(counted), 0)::float8 AS counted,
       coalesce(sum((usage ->> 'input_tokens')::float8) FILTER (WHERE counted > 0), 0) AS billed,
       coalesce(sum(u.cost_usd), 0)::float8 AS usd, coalesce(sum(further_usd), 0)::float8 AS further_usd, asks_more,
       c.prompt ->> 'name' AS prompt, c.prompt #>> '{snapshot,counted_by}' AS counted_by
FROM sample u JOIN completion c ON c.attempt_id = u.id
CROSS JOIN LATERAL (SELECT (c.prompt #>> '{snapshot,prompt_tokens}')::float8 AS counted) t
CROSS JOIN LATERAL (SELECT sum(f.cost_usd) AS further_usd FROM attempt f
                    WHERE f.job_id = u.job_id AND f.run = u.run AND f.purpose <> 'generate') m
GROUP BY u.provider, u.model, u.lane, asks_more, c.prompt ->> 'name', c.prompt #>> '{snapshot,counted_by}'
"""

_BY_IDEMPOTENCY_KEY = """
SELECT idempotency_key AS key FROM job WHERE tenant = %(tenant)s AND idempotency_key = ANY(%(keys)b::text[])
"""


class CallHistory(Store):
    """Averages over the newest calls of a tenant, and look-ups for an estimate; writes nothing."""

    async def past(self, tenant: str, batch_id: UUID | None = None) -> History:
        """Averages over the newest answers of a tenant, or those of one batch."""
        of_batch = SAMPLE_OF_BATCH if batch_id is None else SAMPLE
        key = {"batch_id": batch_id, "tenant": tenant, "newest": NEWEST, "sample": SAMPLE, "of_batch": of_batch}
        rows = await self._db.rows(_ANSWERS, key)
        return History(tuple(PastCalls(*row) for row in rows), trial=batch_id is not None)

    async def known_keys(self, tenant: str, keys: Sequence[str]) -> set[str]:
        """The idempotency keys that name a job of the tenant."""
        if not keys:
            return set()
        return set(await self._db.column(_BY_IDEMPOTENCY_KEY, {"tenant": tenant, "keys": list(keys)}))
