"""Reads the averages of earlier calls and the keys of stored answers: the basis of an estimate."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from tasks.estimates.call_history import History, PastCalls
from worker.ledger.database import Store

NEWEST = 20_000
"""Attempts that are looked at, newest first, by the primary key: their ids begin with the time they were made."""

SAMPLE = 500
"""Attempts of each model and purpose that count; the completions of no more are read."""

SAMPLE_OF_BATCH = 100
"""Attempts of a batch among them, so that no large one speaks for all."""

_RECENT = """
WITH newest AS (
    (SELECT a.* FROM attempt a WHERE %(batch_id)s::uuid IS NULL AND a.id < %(before)s ORDER BY a.id DESC LIMIT %(newest)s)
    UNION ALL
    (SELECT a.* FROM job j JOIN attempt a ON a.job_id = j.id WHERE j.batch_id = %(batch_id)s AND a.id < %(before)s
     LIMIT %(newest)s)
), sample AS (
    SELECT * FROM (
        SELECT b.*, row_number() OVER (PARTITION BY provider, model, lane, purpose ORDER BY id DESC) AS place FROM (
            SELECT n.*, j.batch_id,
                   row_number() OVER (PARTITION BY n.provider, n.model, n.lane, n.purpose, j.batch_id ORDER BY n.id DESC) AS batch_place
            FROM newest n JOIN job j ON j.id = n.job_id AND j.tenant = %(tenant)s
            WHERE n.outcome = 'ok' AND n.shared_from IS NULL AND n.usage IS NOT NULL
        ) b WHERE batch_place <= %(of_batch)s
    ) s CROSS JOIN LATERAL (
        SELECT coalesce(head #> '{config,checkers}' ? 'judge', false) AS judge FROM job_request WHERE job_id = s.job_id LIMIT 1
    ) r WHERE place <= %(sample)s
), used AS (
    SELECT s.*, (usage ->> 'input_tokens')::float8 AS input, (usage ->> 'output_tokens')::float8 AS output,
           (usage ->> 'cached_input_tokens')::float8 AS cached, (usage ->> 'cache_write_tokens')::float8 AS written,
           extract(epoch FROM closed_at - opened_at)::float8 AS seconds
    FROM sample s
)
"""

_ANSWERS = (
    _RECENT
    + """
SELECT u.provider, u.model, u.lane, u.purpose, count(*) AS calls, sum(input) AS inputs, sum(output) AS outputs,
       sum(cached) AS cached, sum(written) AS written, sum(seconds) AS seconds,
       coalesce(sum(counted), 0)::float8 AS counted, coalesce(sum(input) FILTER (WHERE counted > 0), 0) AS billed,
       judge, c.prompt ->> 'name' AS prompt, c.prompt #>> '{snapshot,counted_by}' AS counted_by
FROM used u JOIN completion c ON c.attempt_id = u.id
CROSS JOIN LATERAL (SELECT (c.prompt #>> '{snapshot,prompt_tokens}')::float8 AS counted) t
WHERE u.purpose = 'generate'
GROUP BY u.provider, u.model, u.lane, u.purpose, judge, c.prompt ->> 'name', c.prompt #>> '{snapshot,counted_by}'
"""
)

_FOLLOW_UPS = (
    _RECENT
    + """
SELECT f.provider, f.model, f.lane, f.purpose, count(*) AS calls,
       sum((f.usage ->> 'input_tokens')::float8) AS inputs, sum((f.usage ->> 'output_tokens')::float8) AS outputs,
       sum((f.usage ->> 'cached_input_tokens')::float8) AS cached,
       sum((f.usage ->> 'cache_write_tokens')::float8) AS written,
       sum(extract(epoch FROM f.closed_at - f.opened_at))::float8 AS seconds,
       g.judge, g.provider AS answer_provider, g.model AS answer_model
FROM used g JOIN attempt f ON f.job_id = g.job_id AND f.run = g.run
WHERE g.purpose = 'generate' AND f.purpose <> 'generate' AND f.outcome = 'ok' AND f.usage IS NOT NULL
GROUP BY f.provider, f.model, f.lane, f.purpose, g.judge, g.provider, g.model
"""
)

_BY_IDEMPOTENCY_KEY = """
SELECT idempotency_key AS key FROM job WHERE tenant = %(tenant)s AND idempotency_key = ANY(%(keys)b::text[])
"""

_USED = """
SELECT a.provider, a.model, a.lane, a.purpose, count(*) AS calls,
       coalesce(sum((a.usage ->> 'input_tokens')::int8), 0)::int8 AS input_tokens,
       coalesce(sum((a.usage ->> 'output_tokens')::int8), 0)::int8 AS output_tokens,
       CASE WHEN bool_and(a.cost_usd IS NOT NULL) THEN sum(a.cost_usd) END AS cost_usd,
       extract(epoch FROM max(a.closed_at) - min(a.opened_at))::float8 AS seconds
FROM job j JOIN attempt a ON a.job_id = j.id
WHERE j.batch_id = %(batch_id)s AND a.closed_at IS NOT NULL AND a.shared_from IS NULL
GROUP BY a.provider, a.model, a.lane, a.purpose ORDER BY 4, 1, 2, 3
"""

_LAST_ID = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class UsedCalls:
    """The use of the calls of a batch, by model, lane and purpose; ``cost_usd`` is None for an unknown price."""

    provider: str
    model: str | None
    lane: str
    purpose: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    seconds: float


class CallHistory(Store):
    """Averages over the newest calls of a tenant, and look-ups for an estimate; writes nothing."""

    async def past(self, tenant: str, before: datetime | None = None, batch_id: UUID | None = None) -> History:
        """Averages over the newest calls of a tenant, before a moment or of one batch if they are given."""
        key = {
            **_scope(tenant, before, batch_id),
            "sample": SAMPLE,
            "of_batch": SAMPLE_OF_BATCH if batch_id is None else SAMPLE,
        }
        calls = [
            _past(row, prompt=row.prompt, counted_by=row.counted_by, counted=row.counted, billed=row.billed)
            for row in await self._db.rows(_ANSWERS, key)
        ]
        calls += [
            _past(row, answer=(row.answer_provider, row.answer_model)) for row in await self._db.rows(_FOLLOW_UPS, key)
        ]
        return History(tuple(calls), trial=batch_id is not None)

    async def known_keys(self, tenant: str, keys: Sequence[str]) -> set[str]:
        """The idempotency keys that name a job of the tenant."""
        if not keys:
            return set()
        return set(await self._db.column(_BY_IDEMPOTENCY_KEY, {"tenant": tenant, "keys": list(keys)}))

    async def used(self, batch_id: UUID) -> list[UsedCalls]:
        """The use of the calls of a batch so far."""
        return [UsedCalls(*row) for row in await self._db.rows(_USED, {"batch_id": batch_id})]


def _scope(tenant: str, before: datetime | None, batch_id: UUID | None) -> dict[str, Any]:
    last = _LAST_ID if before is None else UUID(int=int(before.timestamp() * 1000) << 80)
    return {"batch_id": batch_id, "tenant": tenant, "before": last, "newest": NEWEST}


def _past(row: Any, **more: Any) -> PastCalls:
    return PastCalls(
        row.provider,
        row.model,
        row.lane,
        row.purpose,
        row.calls,
        row.inputs,
        row.outputs,
        cached=row.cached or 0.0,
        cache_written=row.written or 0.0,
        seconds=row.seconds or 0.0,
        judge=row.judge,
        **more,
    )
