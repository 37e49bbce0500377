"""The ledger in memory: the whole port without a database, for units and demonstrations of one process.

One event loop only. No verb awaits anything, so each is atomic. The clock can be set: ``MemoryLedger(now=...)`` and
``advance``.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.job import JobRequest
from schemas.states import JobState
from tasks.errors import IdempotencyConflict, InputError, MessageTaken, NotFound, QueueFull
from tasks.ports import JobDetail, JobView, Ledger, NewBatch, NewJob, Receipt
from worker.ledger.memory.reading import batch_status, job_detail, job_view
from worker.ledger.memory.sharing import MemorySharing
from worker.ledger.memory.tables import BatchRow, JobRow
from worker.ledger.memory.upkeep import MemoryUpkeep


class MemoryLedger(MemorySharing, MemoryUpkeep, Ledger):
    """``tasks.ports.Ledger`` over plain dictionaries; what happens once is decided as in Postgres."""

    # submission

    async def submit(self, batch: NewBatch, chunks: Iterable[Sequence[NewJob]]) -> Receipt:
        """Write a batch and its jobs, all or none; everything is looked at before anything is written."""
        jobs = sorted((job for chunk in chunks for job in chunk), key=lambda job: job.position)
        known = self._known_batch(batch)
        if known is not None:
            return _same_batch(known, jobs)
        old = self._already_named(jobs)
        new = [job for job in jobs if job.position not in old]
        self._refuse_duplicates(new)
        self._refuse_too_many(batch, len(new))
        row = BatchRow(
            new=batch,
            created_at=self._now(),
            max_cost_usd=batch.max_cost_usd,
            job_ids=tuple(old.get(job.position, job.id) for job in jobs),
            hashes=tuple(job.request_hash for job in jobs),
        )
        rows = [self._accepted(row, job, order) for order, job in enumerate(new, start=len(self._jobs))]
        self._batches[batch.id] = row
        self._jobs.update((job.new.id, job) for job in rows)
        return Receipt(
            batch_id=batch.id,
            created=True,
            job_ids=row.job_ids,
            existing=frozenset(old),
            available=tuple(job.new.id for job in rows if job.state is JobState.AVAILABLE),
        )

    def _known_batch(self, batch: NewBatch) -> BatchRow | None:
        if batch.key is None:
            return None
        same = (row for row in self._batches.values() if (row.new.tenant, row.new.key) == (batch.tenant, batch.key))
        return next(same, None)

    def _already_named(self, jobs: Sequence[NewJob]) -> dict[int, UUID]:
        """The ids of jobs that their idempotency key names already, by position in this submission."""
        named = {(row.new.tenant, row.new.idempotency_key): row.new for row in self._jobs.values()}
        old: dict[int, UUID] = {}
        for job in jobs:
            if job.idempotency_key is None:
                continue
            first = named.setdefault((job.tenant, job.idempotency_key), job)
            if first is job:
                continue
            if first.request_hash != job.request_hash:
                raise IdempotencyConflict(
                    f"{job.idempotency_key!r} was used before with a different request",
                    field="idempotency_key",
                )
            old[job.position] = first.id
        return old

    def _refuse_too_many(self, batch: NewBatch, jobs: int) -> None:
        present = sum(job.active and job.new.tenant == batch.tenant for job in self._jobs.values())
        if batch.max_queued is not None and jobs and present + jobs > batch.max_queued:
            raise QueueFull(batch.tenant, batch.max_queued, present)

    def _refuse_duplicates(self, jobs: Sequence[NewJob]) -> None:
        custom_ids: set[str] = set()
        message_ids = {(row.new.tenant, row.message_id) for row in self._jobs.values()}
        job_ids = set(self._jobs)
        for job in jobs:
            message = (job.tenant, job.record_message_id)
            if job.id in job_ids:
                raise InputError(f"{job.id} is the id of another job", field="job_id")
            if job.custom_id in custom_ids:
                raise InputError(f"{job.custom_id!r} stands twice in the batch", field="custom_id")
            if message in message_ids:
                raise MessageTaken(job.record_message_id, own_id=job.message_id is None)
            job_ids.add(job.id)
            message_ids.add(message)
            if job.custom_id is not None:
                custom_ids.add(job.custom_id)

    def _accepted(self, batch: BatchRow, job: NewJob, order: int) -> JobRow:
        now = self._now()
        scheduled_at = job.scheduled_at or batch.new.not_before or now
        return JobRow(
            new=job,
            batch=batch,
            request=JobRequest.model_validate_json(job.request),
            order=order,
            created_at=now,
            due_at=scheduled_at,
            scheduled_at=scheduled_at,
            available_at=now,
            deadline=job.deadline or batch.new.deadline,
            state=JobState.SCHEDULED if scheduled_at > now else JobState.AVAILABLE,
            step=job.step,
        )

    # reading

    async def views(self, job_ids: Sequence[UUID]) -> list[JobView]:
        """The jobs that exist among ``job_ids``, in that order."""
        return [job_view(job) for job in self._found(job_ids)]

    async def batch_views(self, batch_id: UUID) -> AsyncIterator[JobView]:
        """All jobs of a batch by position."""
        for job in self._of_batch(batch_id):
            yield job_view(job)

    async def batch_status(self, batch_id: UUID) -> BatchStatus:
        """Counts and cost of a batch."""
        return batch_status(self._batch(batch_id), self._of_batch(batch_id))

    async def batches(self, limit: int) -> list[BatchStatus]:
        """The newest batches, newest first."""
        newest = list(reversed(self._batches))[:limit]
        return [await self.batch_status(batch_id) for batch_id in newest]

    async def job_detail(self, job_id: UUID) -> JobDetail:
        """Everything known of a job."""
        if job_id not in self._jobs:
            raise NotFound(f"no job {job_id}")
        return job_detail(self._jobs[job_id])

    async def server_age(self) -> timedelta:
        """How long this ledger exists, by its clock."""
        return self._now() - self._started_at


def _same_batch(known: BatchRow, jobs: Sequence[NewJob]) -> Receipt:
    """The receipt of a batch that was submitted before; the jobs must be the same ones."""
    if tuple(job.request_hash for job in jobs) != known.hashes:
        raise IdempotencyConflict(f"{known.new.key!r} was used before with different jobs", field="key")
    positions = frozenset(job.position for job in jobs)
    return Receipt(batch_id=known.new.id, created=False, job_ids=known.job_ids, existing=positions)
