"""Writes a batch of a few new jobs in one statement, which spares an interactive job eight round trips to a busy server."""

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import psycopg

from schemas.states import JobState
from tasks.ports import NewBatch, NewJob, Receipt, Refused
from worker.ledger.database import Database, arrays
from worker.ledger.packing import split_request

FEW_JOBS = 50
"""Most jobs of such a batch; with an urgent one among them it goes over the connection for urgent statements: it is theirs for some
milliseconds."""

# Nothing is written where the batch, one of its idempotency keys or a budget without a price needs a closer look.
_SUBMIT = f"""
WITH new_batch AS (
    INSERT INTO batch (id, key, name, tenant, not_before, deadline, max_cost_usd, defaults, estimate)
    SELECT %(batch_id)s, %(key)s, %(name)s, %(tenant)s, %(not_before)s::timestamptz, %(deadline)s::timestamptz,
           %(max_cost_usd)s, %(defaults)s::jsonb, %(estimate)s::jsonb
    WHERE NOT EXISTS (SELECT FROM job WHERE tenant = %(tenant)s AND idempotency_key = ANY(%(idempotency_key)s::text[]))
      AND NOT (%(unpriced)s AND EXISTS (SELECT FROM tenant_budget WHERE tenant = %(tenant)s AND key_id IS NULL))
    ON CONFLICT (tenant, key) WHERE key IS NOT NULL DO NOTHING
    RETURNING id, not_before, deadline, nightdesk_now() AS now
), due AS (
    SELECT d.*, b.id AS batch_id, b.now, coalesce(d.deadline, b.deadline) AS ends_at,
           coalesce(d.scheduled_at, b.not_before, b.now) AS due_at
    FROM new_batch b CROSS JOIN unnest(
        %(id)s::uuid[], %(position)s::int4[], %(custom_id)s::text[], %(message_id)s::text[], %(idempotency_key)s::text[],
        %(steps)s::text[], %(sizes)s::int4[], %(priority)s::int2[], %(scheduled_at)s::timestamptz[], %(deadlines)s::timestamptz[]
    ) AS d(id, position, custom_id, message_id, idempotency_key, step, request_bytes, priority, scheduled_at, deadline)
), requests AS (
    INSERT INTO job_request (job_id, head, frame, request_hash, contract_version)
    SELECT r.id, r.head::jsonb, r.frame, r.request_hash, r.contract_version
    FROM new_batch CROSS JOIN unnest(
        %(id)s::uuid[], %(heads)s::text[], %(frames)s::bytea[], %(request_hash)s::bytea[], %(contract_version)s::int2[]
    ) AS r(id, head, frame, request_hash, contract_version)
)
INSERT INTO job (id, batch_id, position, custom_id, message_id, tenant, idempotency_key, state, step, request_bytes, priority,
                 scheduled_at, available_at, deadline, created_at)
SELECT id, batch_id, position, custom_id, message_id, %(tenant)s, idempotency_key,
       CASE WHEN due_at <= now THEN '{JobState.AVAILABLE.value}' ELSE '{JobState.SCHEDULED.value}' END, step, request_bytes, priority,
       greatest(due_at, now), CASE WHEN due_at <= now THEN now END, ends_at, now
FROM due
RETURNING id, state
"""


def is_small(batch: NewBatch, chunks: Iterable[Sequence[NewJob]], refused: Iterable[Refused]) -> bool:
    """Tells whether a submission is of a few jobs at hand, with nothing beside them that is written or counted."""
    if not isinstance(chunks, list) or not isinstance(refused, Sequence) or refused:
        return False
    beside = (batch.window, batch.callback_url, batch.submitter, batch.max_queued, batch.content)
    jobs = sum(map(len, chunks))
    return (
        0 < jobs <= FEW_JOBS
        and not batch.unchanged
        and all(part is None for part in beside)
        and all(job.replay is None for chunk in chunks for job in chunk)
    )


async def submit_small(database: Database, batch: NewBatch, jobs: Sequence[NewJob], *, urgent: bool) -> Receipt | None:
    """Writes a batch with its jobs; None: nothing was written, since some of it may be known or refused."""
    try:
        async with database.connection(urgent=urgent) as connection:
            rows = await (await connection.execute(_SUBMIT, _parameters(batch, jobs))).fetchall()
    except psycopg.errors.UniqueViolation:
        return None
    if not rows:
        return None
    available = {row.id for row in rows if row.state == JobState.AVAILABLE}
    return Receipt(
        batch.id,
        created=True,
        job_ids=tuple(job.id for job in jobs),
        available=tuple(job.id for job in jobs if job.id in available),
    )


def _parameters(batch: NewBatch, jobs: Sequence[NewJob]) -> dict[str, Any]:
    requests = [split_request(job.request) for job in jobs]
    return {
        "batch_id": batch.id,
        "key": batch.key,
        "name": batch.name,
        "tenant": batch.tenant,
        "not_before": batch.not_before,
        "deadline": batch.deadline,
        "max_cost_usd": batch.max_cost_usd,
        "defaults": orjson.dumps(batch.defaults).decode(),
        "estimate": batch.estimate and orjson.dumps(batch.estimate).decode(),
        "unpriced": any(job.unpriced is not None for job in jobs),
        **arrays(jobs, "id", "position", "custom_id", "message_id", "idempotency_key", "priority", "scheduled_at"),
        **arrays(jobs, "request_hash", "contract_version"),
        "steps": [job.step.value for job in jobs],
        "sizes": [len(job.request) for job in jobs],
        "deadlines": [job.deadline for job in jobs],
        "heads": [head.decode() for head, _ in requests],
        "frames": [frame for _, frame in requests],
    }
