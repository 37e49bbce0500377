"""Writes batches and their jobs: all or none, by COPY, with idempotency kept by unique indexes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from uuid import UUID

import orjson
import psycopg
from psycopg import AsyncConnection

from schemas.states import JobState
from tasks.errors import IdempotencyConflict, InputError, MessageTaken, QueueFull
from tasks.ports import NewBatch, NewJob, Receipt
from worker.ledger.database import CONFLICT_TRIES, Database

_INSERT_BATCH = """
INSERT INTO batch (id, key, name, tenant, not_before, deadline, max_cost_usd, defaults)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s::jsonb)
ON CONFLICT (tenant, key) WHERE key IS NOT NULL DO NOTHING
RETURNING nightdesk_now() AS now
"""

_JOBS_OF_KEY = """
SELECT b.id AS batch_id, j.id, j.position, r.request_hash
FROM batch b LEFT JOIN job j ON j.batch_id = b.id LEFT JOIN job_request r ON r.job_id = j.id
WHERE b.tenant = %s AND b.key = %s
ORDER BY j.position
"""

_JOBS_OF_IDEMPOTENCY_KEYS = """
SELECT j.idempotency_key, j.id, r.request_hash
FROM job j JOIN job_request r ON r.job_id = j.id
WHERE j.tenant = %s AND j.idempotency_key = ANY(%s)
"""

_LOCK_TENANT = "SELECT pg_advisory_xact_lock(hashtextextended('nightdesk:queued:' || %s, 0))"
"""Until the end of the transaction: of two submissions of a tenant at once the second counts what the first wrote."""

# Each part by the index of its state, and none further than the cap: no index is kept for this alone. Jobs that are
# parked at a provider are left out.
_QUEUED = """
SELECT count(*) AS jobs FROM (
    (SELECT FROM job WHERE state = 'available' AND step = 'generate' AND tenant = %(tenant)s LIMIT %(most)s)
    UNION ALL
    (SELECT FROM job WHERE state = 'available' AND step = 'check' AND tenant = %(tenant)s LIMIT %(most)s)
    UNION ALL
    (SELECT FROM job WHERE state = 'available' AND step = 'local' AND tenant = %(tenant)s LIMIT %(most)s)
    UNION ALL
    (SELECT FROM job WHERE state = 'scheduled' AND held_reason IS NULL AND tenant = %(tenant)s LIMIT %(most)s)
    UNION ALL
    (SELECT FROM job WHERE held_reason IS NOT NULL AND tenant = %(tenant)s LIMIT %(most)s)
    UNION ALL
    (SELECT FROM job WHERE state = 'running' AND tenant = %(tenant)s LIMIT %(most)s)
    LIMIT %(most)s
) queued
"""

_COPY_JOBS = """
COPY job (id, batch_id, position, custom_id, message_id, tenant, idempotency_key, state, step, request_bytes, priority,
          scheduled_at, available_at, deadline, created_at)
FROM STDIN (FORMAT BINARY)
"""
_JOB_TYPES = [
    "uuid", "uuid", "int4", "text", "text", "text", "text", "text", "text", "int4", "int2",
    "timestamptz", "timestamptz", "timestamptz", "timestamptz",
]  # fmt: skip

_COPY_REQUESTS = "COPY job_request (job_id, request, request_hash, contract_version) FROM STDIN (FORMAT BINARY)"
_REQUEST_TYPES = ["uuid", "bytea", "bytea", "int2"]
_JSONB_VERSION = b"\x01"
"""What precedes the JSON text in PostgreSQL's binary form of jsonb; so the bytes go through as they are."""

_UNIQUE_FIELDS = {"job_custom_id": "custom_id", "job_pkey": "job_id"}
"""Unique indexes of what a caller chooses, and the field to name when one is violated."""


class Submission:
    """The submitting verb of the PostgreSQL ledger."""

    _db: Database

    async def submit(self, batch: NewBatch, chunks: Iterable[Sequence[NewJob]]) -> Receipt:
        """See ``tasks.ports.Ledger.submit``. ``chunks`` is read once, chunk by chunk, inside the transaction.

        A repeated try after a lost race needs the chunks again, so only a list or tuple of them is tried again.
        """
        repeatable = isinstance(chunks, list | tuple)
        for remaining in reversed(range(CONFLICT_TRIES if repeatable else 1)):
            try:
                async with self._db.connection() as connection, connection.transaction():
                    return await _write(connection, batch, chunks)
            except psycopg.errors.UniqueViolation as error:
                _explain_unique(error)
                if not remaining:
                    raise IdempotencyConflict(
                        "another submission with the same idempotency keys is being written now; submit again"
                    ) from error
        raise AssertionError("unreachable")


def _explain_unique(error: psycopg.errors.UniqueViolation) -> None:
    """Raise what the caller did wrong; return where another submission merely was quicker with the same keys."""
    field = _UNIQUE_FIELDS.get(error.diag.constraint_name or "")
    if field is not None:
        detail = (error.diag.message_detail or "").removeprefix("Key ")
        scope = {"custom_id": "in the batch", "job_id": "in the ledger"}[field]
        raise InputError(f"must be unique {scope}: {detail}", field=field) from error


def _refuse_taken_message(error: psycopg.errors.UniqueViolation, jobs: Sequence[NewJob]) -> None:
    """Name the job and its field when the message id of one of these jobs is that of another job; else return."""
    if error.diag.constraint_name != "job_message_id":
        return
    detail = error.diag.message_detail or ""
    for job in reversed(jobs):
        if f"=({job.tenant}, {job.record_message_id})" in detail:
            raise MessageTaken(job.record_message_id, own_id=job.message_id is None) from error


async def _write(connection: AsyncConnection[Any], batch: NewBatch, chunks: Iterable[Sequence[NewJob]]) -> Receipt:
    parameters = (
        batch.id, batch.key, batch.name, batch.tenant, batch.not_before, batch.deadline, batch.max_cost_usd,
        orjson.dumps(batch.defaults).decode(),
    )  # fmt: skip
    written = await (await connection.execute(_INSERT_BATCH, parameters)).fetchone()
    if written is None:
        return await _known_batch(connection, batch, chunks)
    room = await _room(connection, batch)
    ids: list[UUID] = []
    existing: set[int] = set()
    available: list[UUID] = []
    for chunk in chunks:
        known = await _known_jobs(connection, batch.tenant, chunk)
        fresh = []
        for job in chunk:
            # A key that stands twice in one chunk names one job, too.
            old_id = _same(known, job)
            ids.append(old_id or job.id)
            if old_id is not None:
                existing.add(job.position)
                continue
            fresh.append(job)
            if job.idempotency_key is not None:
                known[job.idempotency_key] = (job.id, job.request_hash)
        room.take(len(fresh))
        try:
            available.extend(await _copy(connection, batch, fresh, written.now))
        except psycopg.errors.UniqueViolation as error:
            _refuse_taken_message(error, fresh)
            raise
    return Receipt(batch.id, created=True, job_ids=tuple(ids), existing=frozenset(existing), available=tuple(available))


@dataclass(slots=True)
class _Room:
    """How many jobs more the tenant may have; ``present`` is counted up to one over the cap."""

    tenant: str
    cap: int | None
    present: int = 0
    taken: int = 0

    def take(self, jobs: int) -> None:
        """Raises ``QueueFull``."""
        self.taken += jobs
        if self.cap is not None and jobs and self.present + self.taken > self.cap:
            raise QueueFull(self.tenant, self.cap, self.present)


async def _room(connection: AsyncConnection[Any], batch: NewBatch) -> _Room:
    if batch.max_queued is None:
        return _Room(batch.tenant, None)
    await connection.execute(_LOCK_TENANT, (batch.tenant,))
    found = await connection.execute(_QUEUED, {"tenant": batch.tenant, "most": batch.max_queued + 1})
    row = await found.fetchone()
    assert row is not None
    return _Room(batch.tenant, batch.max_queued, row.jobs)


async def _known_batch(
    connection: AsyncConnection[Any], batch: NewBatch, chunks: Iterable[Sequence[NewJob]]
) -> Receipt:
    rows = await (await connection.execute(_JOBS_OF_KEY, (batch.tenant, batch.key))).fetchall()
    by_position = {row.position: row for row in rows if row.id is not None}
    jobs = list(chain.from_iterable(chunks))
    # Jobs that the first submission found by their own key stand in other batches.
    elsewhere = await _known_jobs(connection, batch.tenant, [job for job in jobs if job.position not in by_position])
    batch_id = rows[0].batch_id
    ids: list[UUID] = []
    for job in jobs:
        row = by_position.pop(job.position, None)
        old_id = _same(elsewhere, job) if row is None else row.id
        if old_id is None or (row is not None and row.request_hash != job.request_hash):
            break
        ids.append(old_id)
    if len(ids) != len(jobs) or by_position:
        raise IdempotencyConflict(
            f"batch key {batch.key!r} was used before with other jobs; use a new key", field="key"
        )
    return Receipt(batch_id, created=False, job_ids=tuple(ids), existing=frozenset(job.position for job in jobs))


_Known = dict[str, tuple[UUID, bytes]]
"""Jobs by their idempotency key: id and hash of the request."""


def _same(known: _Known, job: NewJob) -> UUID | None:
    """The id of the job that a job's key already names; raises ``IdempotencyConflict`` when it is another request."""
    if job.idempotency_key is None or job.idempotency_key not in known:
        return None
    job_id, request_hash = known[job.idempotency_key]
    if request_hash != job.request_hash:
        raise IdempotencyConflict(
            f"{job.idempotency_key!r} was used before for job {job_id} with a different request",
            field="idempotency_key",
        )
    return job_id


async def _known_jobs(connection: AsyncConnection[Any], tenant: str, jobs: Sequence[NewJob]) -> _Known:
    keys = [job.idempotency_key for job in jobs if job.idempotency_key is not None]
    if not keys:
        return {}
    rows = await (await connection.execute(_JOBS_OF_IDEMPOTENCY_KEYS, (tenant, keys))).fetchall()
    return {row.idempotency_key: (row.id, row.request_hash) for row in rows}


async def _copy(connection: AsyncConnection[Any], batch: NewBatch, jobs: Sequence[NewJob], now: Any) -> list[UUID]:
    if not jobs:
        return []
    available: list[UUID] = []
    cursor = connection.cursor()
    async with cursor.copy(_COPY_JOBS) as copy:
        copy.set_types(_JOB_TYPES)
        for job in jobs:
            due = job.scheduled_at or batch.not_before or now
            ready = due <= now
            if ready:
                available.append(job.id)
            await copy.write_row((
                job.id, batch.id, job.position, job.custom_id, job.message_id, job.tenant, job.idempotency_key,
                JobState.AVAILABLE.value if ready else JobState.SCHEDULED.value, job.step.value, len(job.request), job.priority,
                now if ready else due, now if ready else None, job.deadline or batch.deadline, now,
            ))  # fmt: skip
    async with cursor.copy(_COPY_REQUESTS) as copy:
        copy.set_types(_REQUEST_TYPES)
        for job in jobs:
            await copy.write_row((job.id, _JSONB_VERSION + job.request, job.request_hash, job.contract_version))
    return available
