"""Writes batches and their jobs in one transaction, large ones by COPY; what another job has already is kept out by unique indexes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any
from uuid import UUID

import orjson
import psycopg
from psycopg import AsyncConnection

from schemas.states import JobState, Step
from schemas.window import parse_window
from tasks.errors import IdempotencyConflict, JobsRefused, QueueFull
from tasks.ports import (
    HintKey,
    InputLine,
    NewBatch,
    NewJob,
    Receipt,
    Refused,
    Repeated,
    Submission,
    UnchangedJob,
    own_id_key,
)
from worker.ledger.batch_contents import claim_content, still_unchanged
from worker.ledger.call_windows import OPEN_WINDOWS, times_of
from worker.ledger.database import CONFLICT_TRIES, Database
from worker.ledger.key_limits import KeyRoom
from worker.ledger.packing import split_request

# ---- conflicts of ids ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Holder:
    """The job that an idempotency key names."""

    job_id: UUID
    batch_id: UUID
    request_hash: bytes


@dataclass(slots=True)
class Present:
    """The ids of jobs in the ledger, as far as new jobs bring the same."""

    keys: dict[str, Holder] = field(default_factory=dict)
    """By idempotency key of the tenant."""
    custom_ids: set[str] = field(default_factory=set)
    """Of the batch."""
    message_ids: set[str] = field(default_factory=set)
    """Of the tenant: of a job without one, its own id."""
    job_ids: set[UUID] = field(default_factory=set)

    def add(self, job: NewJob, batch_id: UUID) -> None:
        """Adds the ids of a job that is about to be written."""
        if job.idempotency_key is not None:
            self.keys[job.idempotency_key] = Holder(job.id, batch_id, job.request_hash)
        if job.custom_id is not None:
            self.custom_ids.add(job.custom_id)
        self.message_ids.add(job.record_message_id)
        self.job_ids.add(job.id)


@dataclass(slots=True)
class Sorted:
    """Jobs by their fate: new, known or refused."""

    fresh: list[NewJob] = field(default_factory=list)
    ids: list[UUID] = field(default_factory=list)
    """Of the fresh and the known ones, in order."""
    existing: dict[int, UUID] = field(default_factory=dict)
    """The ids of the known ones by position."""
    refused: list[Refused] = field(default_factory=list)
    holders: Counter[UUID] = field(default_factory=Counter)
    """Number of known jobs by the batch that holds them, this one left out."""

    def extend(self, other: "Sorted") -> None:
        """Adds the ids and counts of further jobs; the fresh ones of those are written by now."""
        self.ids += other.ids
        self.existing |= other.existing
        self.refused += other.refused
        self.holders += other.holders


def sort(
    jobs: Iterable[NewJob],
    present: Present,
    batch_id: UUID,
    *,
    priced: bool = False,
    unchanged: Mapping[int, UnchangedJob] = MappingProxyType({}),
) -> Sorted:
    """Sorts jobs; of two with the same id the first has it. ``present`` takes up the fresh ones.

    With ``priced`` new jobs whose calls have no known price are refused. ``unchanged`` are jobs of earlier batches by position.
    """
    done = Sorted()
    for job in jobs:
        holder = None if job.idempotency_key is None else present.keys.get(job.idempotency_key)
        same = holder or unchanged.get(job.position)
        if same is not None and same.request_hash == job.request_hash:
            done.ids.append(same.job_id)
            done.existing[job.position] = same.job_id
            if same.batch_id != batch_id:
                done.holders[same.batch_id] += 1
        elif (refused := _conflict_of(job, holder, present)) is not None:
            done.refused.append(refused)
        elif priced and job.unpriced is not None:
            field, message = job.unpriced
            done.refused.append(Refused(job.position, f"{field}: {message}", field, job.custom_id, job.place))
        else:
            done.fresh.append(job)
            done.ids.append(job.id)
            present.add(job, batch_id)
    return done


def _conflict_of(job: NewJob, holder: Holder | None, present: Present) -> Refused | None:
    """The reason that a job can't be written, by the field that its producer sent; None: it can."""
    if holder is not None:
        own = job.idempotency_key == own_id_key(job.id)
        field, value = ("job_id", str(job.id)) if own else ("idempotency_key", repr(job.idempotency_key))
        message = f"{value} was used before for job {holder.job_id} with a different request"
    elif job.custom_id is not None and job.custom_id in present.custom_ids:
        field, message = "custom_id", f"{job.custom_id!r} is already that of another job of the batch"
    elif job.id in present.job_ids:
        field, message = "job_id", f"{job.id} is already the id of another job"
    elif job.record_message_id in present.message_ids:
        field = "job_id" if job.message_id is None else "message_id"
        message = f"{job.record_message_id!r} is the message id of another job of the tenant, or its id; choose another"
    else:
        return None
    return Refused(job.position, f"{field}: {message}", field, job.custom_id, job.place)


FEW_JOBS = 50
"""Most jobs of a submission that is hinted at once."""

PAGE_JOBS = 2_000
"""Jobs that one COPY writes: each has a savepoint and a count of its own."""

PAGE_BYTES = 8_000_000
"""Of requests, from which a page has fewer jobs; one is written and one read at a time."""

# ---- statements ------------------------------------------------------------------------------------------------------


_INSERT_BATCH = """
INSERT INTO batch (id, key, name, tenant, not_before, call_window, deadline, max_cost_usd, defaults, key_id)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s)
ON CONFLICT (tenant, key) WHERE key IS NOT NULL DO NOTHING
RETURNING nightdesk_now() AS now, EXISTS (
    SELECT FROM tenant_budget b WHERE b.tenant = batch.tenant AND (b.key_id IS NULL OR b.key_id = batch.key_id)) AS has_budget
"""

_JOBS_OF_KEY = """
SELECT b.id AS batch_id, b.created_at, j.id, j.position, r.request_hash
FROM batch b LEFT JOIN job j ON j.batch_id = b.id LEFT JOIN job_request r ON r.job_id = j.id
WHERE b.tenant = %s AND b.key = %s
ORDER BY j.position
"""

# One look for all ids that the jobs of a chunk bring. Each id is a subquery of its own that only its unique index serves,
# and the hash of a request is read by the job's id: joined with the list of ids, or with the requests, the planner walks
# all jobs wherever statistics taken while the table was empty, or still uncommitted, say that there are none. The order
# keeps a custom id from the index of positions, which begins with the batch as well.
_PRESENT = """
SELECT 'key' AS what, j.* FROM unnest(%(keys)s::text[]) AS d(value) CROSS JOIN LATERAL (
    SELECT idempotency_key AS value, id, batch_id,
           (SELECT r.request_hash FROM job_request r WHERE r.job_id = job.id) AS request_hash
    FROM job WHERE tenant = %(tenant)s AND idempotency_key = d.value LIMIT 1
) j
UNION ALL
SELECT 'custom_id', j.* FROM unnest(%(custom_ids)s::text[]) AS d(value) CROSS JOIN LATERAL (
    SELECT custom_id, id, batch_id, NULL::bytea
    FROM job WHERE batch_id = %(batch_id)s AND custom_id >= d.value AND custom_id <= d.value ORDER BY custom_id LIMIT 1
) j
UNION ALL
SELECT 'message_id', j.* FROM unnest(%(message_ids)s::text[]) AS d(value) CROSS JOIN LATERAL (
    SELECT coalesce(message_id, id::text), id, batch_id, NULL::bytea
    FROM job WHERE tenant = %(tenant)s AND coalesce(message_id, id::text) = d.value AND erased_at IS NULL LIMIT 1
) j
UNION ALL
SELECT 'job_id', NULL, j.* FROM unnest(%(job_ids)s::uuid[]) AS d(id) CROSS JOIN LATERAL (
    SELECT id, batch_id, NULL::bytea FROM job WHERE id = d.id LIMIT 1
) j
"""

_LOCK_TENANT = "SELECT pg_advisory_xact_lock(hashtextextended('nightdesk:queued:' || %s, 0))"
"""Until the end of the transaction: of two submissions of a tenant at once the second counts what the first wrote."""

# Each part by the index of its state, and none further than the cap. Only that of jobs parked at a provider is kept for
# this count and that of a key alone: jobs which are not parked are never in it.
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
    UNION ALL
    (SELECT FROM job WHERE state = 'pending' AND tenant = %(tenant)s LIMIT %(most)s)
    LIMIT %(most)s
) queued
"""

_COPY_JOBS = """
COPY job (id, batch_id, position, custom_id, message_id, tenant, key_id, idempotency_key, state, step, request_bytes, priority,
          scheduled_at, available_at, deadline, created_at, replay_of)
FROM STDIN (FORMAT BINARY)
"""
_JOB_TYPES = [
    "uuid", "uuid", "int4", "text", "text", "text", "uuid", "text", "text", "text", "int4", "int2",
    "timestamptz", "timestamptz", "timestamptz", "timestamptz", "uuid",
]  # fmt: skip

_COPY_REQUESTS = """
COPY job_request (job_id, head, frame, request_hash, contract_version, prompt) FROM STDIN (FORMAT BINARY)
"""
_REQUEST_TYPES = ["uuid", "bytea", "bytea", "bytea", "int2", "bytea"]
_JSONB_VERSION = b"\x01"
"""What precedes the JSON text in PostgreSQL's binary form of jsonb; so the bytes go through as they are."""

MOST_CHARACTERS = {"place": 300, "field": 300, "message": 2_000, "custom_id": 256}
"""Length of each text of a refused line; a longer one is cut. So a line takes a few kilobytes, whatever it quotes."""

_COPY_INPUT_LINES = "COPY input_line (batch_id, position, job_id, place, field, message, custom_id) FROM STDIN"


class PostgresSubmission(Submission):
    """Batches written in one transaction each, by COPY."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def submit(
        self,
        batch: NewBatch,
        chunks: Iterable[Sequence[NewJob]],
        *,
        strict: bool = False,
        refused: Iterable[Refused] = (),
    ) -> Receipt:
        # A stream of chunks is read once, one by one, inside the transaction.
        async with self._db.connection() as connection, connection.transaction() as transaction:
            receipt = await _write(connection, batch, chunks, strict=strict)
            if receipt.created:
                repeated = (Repeated(position, job_id) for position, job_id in receipt.elsewhere.items())
                await _write_input_lines(connection, batch.id, chain(refused, receipt.refused, repeated))
                if batch.content is not None:
                    await claim_content(connection, batch.id, batch.tenant, batch.content())
            elif receipt.nothing_new:
                # The batch would be empty.
                raise psycopg.Rollback(transaction)
        return receipt


async def _write(
    connection: AsyncConnection[Any], batch: NewBatch, chunks: Iterable[Sequence[NewJob]], *, strict: bool
) -> Receipt:
    parameters = (
        batch.id, batch.key, batch.name, batch.tenant, batch.not_before, batch.window, batch.deadline, batch.max_cost_usd,
        orjson.dumps(batch.defaults).decode(), batch.submitter and batch.submitter.key_id,
    )  # fmt: skip
    batch_row = await (await connection.execute(_INSERT_BATCH, parameters)).fetchone()
    if batch_row is None:
        return await _known_batch(connection, batch, chunks, strict=strict)
    if batch.window is not None:
        await connection.execute(OPEN_WINDOWS, times_of([(batch.id, batch.window)], batch_row.now))
    if batch.callback_url is not None:
        await connection.execute("INSERT INTO callback (batch_id, url) VALUES (%s, %s)", (batch.id, batch.callback_url))
    room = await _room(connection, batch)
    all_jobs = Sorted()
    hints: set[HintKey] = set()
    fresh = 0

    async def write(page: Sequence[NewJob]) -> None:
        nonlocal fresh
        sorted_jobs, ready = await _write_page(connection, batch, page, room, batch_row)
        all_jobs.extend(sorted_jobs)
        hints.update(ready)
        fresh += len(sorted_jobs.fresh)

    await _read_ahead(_pages(chunks), write)
    if all_jobs.refused and (strict or not all_jobs.ids):
        raise JobsRefused(all_jobs.refused)
    created = fresh > 0 or not all_jobs.existing
    return Receipt(
        batch.id if created else all_jobs.holders.most_common(1)[0][0],
        created=created,
        job_ids=tuple(all_jobs.ids),
        existing=frozenset(all_jobs.existing),
        elsewhere=all_jobs.existing,
        hints=frozenset(hints if fresh <= FEW_JOBS else ()),
        refused=tuple(all_jobs.refused),
        holders=dict(all_jobs.holders),
    )


async def _pages(chunks: Iterable[Sequence[NewJob]]) -> AsyncIterator[Sequence[NewJob]]:
    """Chunks put together to as many jobs as a COPY is worth; lets other tasks go on after each chunk."""
    page: list[NewJob] = []
    weight = 0
    for chunk in chunks:
        page.extend(chunk)
        weight += sum(len(job.request) for job in chunk)
        if len(page) >= PAGE_JOBS or weight >= PAGE_BYTES:
            yield page
            page, weight = [], 0
        else:
            await asyncio.sleep(0)
    if page:
        yield page


async def _read_ahead(
    pages: AsyncIterator[Sequence[NewJob]], write: Callable[[Sequence[NewJob]], Coroutine[Any, Any, None]]
) -> None:
    """Write pages one after the other, and read the next while the server writes one."""
    writing: asyncio.Task[None] | None = None
    try:
        async for page in pages:
            if writing is not None:
                await writing
            writing = asyncio.create_task(write(page))
        if writing is not None:
            await writing
    finally:
        # Where reading failed, the connection must be at rest before its transaction is rolled back.
        if writing is not None:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)


async def _write_page(
    connection: AsyncConnection[Any], batch: NewBatch, page: Sequence[NewJob], room: "_Room", batch_row: Any
) -> tuple[Sorted, set[HintKey]]:
    """Write what of a page is new; looks again at all its ids where another job has one after all."""
    unchanged = await still_unchanged(connection, batch.unchanged, page)
    for remaining in reversed(range(CONFLICT_TRIES)):
        everything = remaining < CONFLICT_TRIES - 1
        present = await _present(connection, batch.tenant, batch.id, page, everything=everything)
        sorted_jobs = sort(page, present, batch.id, priced=batch_row.has_budget, unchanged=unchanged)
        room.check(len(sorted_jobs.fresh))
        try:
            # A savepoint: what was written of other chunks stays.
            async with connection.transaction():
                hints = await _copy(connection, batch, sorted_jobs.fresh, batch_row.now)
        except psycopg.errors.UniqueViolation as error:
            if not remaining:
                raise IdempotencyConflict(
                    "another submission with the same ids is being written now; submit again"
                ) from error
            continue
        room.accepted += len(sorted_jobs.fresh)
        if room.key is not None:
            await room.key.take(len(sorted_jobs.fresh))
        return sorted_jobs, hints
    raise AssertionError("unreachable")


async def _present(
    connection: AsyncConnection[Any], tenant: str, batch_id: UUID, jobs: Sequence[NewJob], *, everything: bool
) -> Present:
    """Ids of jobs that the ledger has already: those that hold outside the batch and their producers chose, or all.

    Custom ids hold in the batch alone, so a new batch finds none: its unique index tells of two chunks with the same one.
    """
    ids: dict[str, Any] = {
        "keys": [job.idempotency_key for job in jobs if job.idempotency_key is not None],
        "custom_ids": [job.custom_id for job in jobs if everything and job.custom_id is not None],
        "message_ids": [job.record_message_id for job in jobs if everything or job.message_id is not None],
        "job_ids": [job.id for job in jobs] if everything else [],
    }
    present = Present()
    if not any(ids.values()):
        return present
    # Planned anew each time: the plan for a table that was empty at the first chunk reads all of it for each later one.
    cursor = await connection.execute(_PRESENT, {**ids, "tenant": tenant, "batch_id": batch_id}, prepare=False)
    for row in await cursor.fetchall():
        match row.what:
            case "key":
                present.keys[row.value] = Holder(row.id, row.batch_id, row.request_hash)
            case "custom_id":
                present.custom_ids.add(row.value)
            case "message_id":
                present.message_ids.add(row.value)
            case _:
                present.job_ids.add(row.id)
    return present


@dataclass(slots=True)
class _Room:
    """Room under the cap on a tenant's queued jobs; ``present`` is counted up to one over the cap."""

    tenant: str
    cap: int | None
    key: KeyRoom | None
    present: int = 0
    accepted: int = 0

    def check(self, jobs: int) -> None:
        """Raise ``QueueFull`` where there is no room for so many more."""
        if self.cap is not None and jobs and self.present + self.accepted + jobs > self.cap:
            raise QueueFull(self.tenant, self.cap, self.present)


async def _room(connection: AsyncConnection[Any], batch: NewBatch) -> _Room:
    key = KeyRoom(connection, batch, batch.submitter) if batch.submitter is not None else None
    if key is not None:
        await key.count()
    if batch.max_queued is None:
        return _Room(batch.tenant, None, key)
    await connection.execute(_LOCK_TENANT, (batch.tenant,))
    cursor = await connection.execute(_QUEUED, {"tenant": batch.tenant, "most": batch.max_queued + 1})
    row = await cursor.fetchone()
    assert row is not None
    return _Room(batch.tenant, batch.max_queued, key, row.jobs)


async def _known_batch(
    connection: AsyncConnection[Any], batch: NewBatch, chunks: Iterable[Sequence[NewJob]], *, strict: bool
) -> Receipt:
    """The receipt of a batch that was submitted before; the jobs must be the same ones."""
    rows = await (await connection.execute(_JOBS_OF_KEY, (batch.tenant, batch.key))).fetchall()
    batch_id = rows[0].batch_id
    inside = {row.position: UnchangedJob(row.id, batch_id, row.request_hash) for row in rows if row.id is not None}
    jobs = list(chain.from_iterable(chunks))
    # Jobs that the first submission found by their own key stand in other batches, and those it refused nowhere.
    present = await _present(
        connection, batch.tenant, batch_id, [job for job in jobs if job.position not in inside], everything=True
    )
    sorted_jobs = sort(jobs, present, batch_id, unchanged=inside)
    if sorted_jobs.fresh or inside.keys() - sorted_jobs.existing.keys():
        raise IdempotencyConflict(
            f"batch key {batch.key!r} was used before with other jobs; use a new key", field="key"
        )
    if sorted_jobs.refused and strict:
        raise JobsRefused(sorted_jobs.refused)
    return Receipt(
        batch_id,
        created=False,
        job_ids=tuple(sorted_jobs.ids),
        existing=frozenset(sorted_jobs.existing),
        elsewhere={position: job_id for position, job_id in sorted_jobs.existing.items() if position not in inside},
        refused=tuple(sorted_jobs.refused),
        submitted_at=rows[0].created_at,
        holders=dict(sorted_jobs.holders),
    )


async def _copy(connection: AsyncConnection[Any], batch: NewBatch, jobs: Sequence[NewJob], now: Any) -> set[HintKey]:
    hints: set[HintKey] = set()
    if not jobs:
        return hints
    window = None if batch.window is None else parse_window(batch.window)
    key_id = batch.submitter and batch.submitter.key_id
    cursor = connection.cursor()
    async with cursor.copy(_COPY_JOBS) as copy:
        copy.set_types(_JOB_TYPES)
        for job in jobs:
            due = job.scheduled_at or batch.not_before or now
            if window is not None and job.step is Step.GENERATE:
                due = window.opening(max(due, now))
            ready = due <= now
            # Not for the step local, which may have no worker: those there are look by themselves.
            if ready and job.step is not Step.LOCAL:
                hints.add(HintKey(job.step, job.priority > 0))
            await copy.write_row((
                job.id, batch.id, job.position, job.custom_id, job.message_id, job.tenant, key_id, job.idempotency_key,
                JobState.AVAILABLE.value if ready else JobState.SCHEDULED.value, job.step.value, len(job.request), job.priority,
                now if ready else due, now if ready else None, job.deadline or batch.deadline, now,
                job.replay.of if job.replay else None,
            ))  # fmt: skip
    async with cursor.copy(_COPY_REQUESTS) as copy:
        copy.set_types(_REQUEST_TYPES)
        for job in jobs:
            head, frame = split_request(job.request)
            await copy.write_row((
                job.id, _JSONB_VERSION + head, frame, job.request_hash, job.contract_version, _prompt_of(job),
            ))  # fmt: skip
    return hints


def _prompt_of(job: NewJob) -> bytes | None:
    if job.replay is None or job.replay.prompt is None:
        return None
    return _JSONB_VERSION + job.replay.prompt.model_dump_json().encode()


async def _write_input_lines(connection: AsyncConnection[Any], batch_id: UUID, lines: Iterable[InputLine]) -> None:
    """Write lines of a batch in the transaction of its submission, as a stream; no statement where there are none."""
    rows = (_input_line(batch_id, line) for line in lines)
    first = next(rows, None)
    if first is None:
        return
    async with connection.cursor().copy(_COPY_INPUT_LINES) as copy:
        await copy.write_row(first)
        for row in rows:
            await copy.write_row(row)


def _input_line(batch_id: UUID, line: InputLine) -> tuple[Any, ...]:
    if isinstance(line, Repeated):
        return (batch_id, line.position, line.job_id, None, None, None, None)
    texts = (_bounded(getattr(line, name), limit) for name, limit in MOST_CHARACTERS.items())
    return (batch_id, line.position, None, *texts)


def _bounded(text: str | None, limit: int) -> str | None:
    """The beginning of a text, with a mark in the place of what PostgreSQL can't store."""
    if text is None:
        return None
    storable = text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
    return storable if len(storable) <= limit else f"{storable[: limit - 1]}…"
