"""The ledger in memory: the whole port without a database, for units and demonstrations of one process.

One event loop only. No verb awaits anything, so each is atomic. The clock can be set: ``MemoryLedger(now=...)`` and
``advance``.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.job import JobRequest
from schemas.states import JobState
from tasks.errors import IdempotencyConflict, JobsRefused, NotFound, QueueFull
from tasks.ports import InputLine, JobDetail, JobView, Ledger, NewBatch, NewJob, Receipt, Refused, Repeated
from tasks.submission.identity import Holder, Present, sort
from worker.ledger.memory.reading import batch_status, job_detail, job_view
from worker.ledger.memory.sharing import MemorySharing
from worker.ledger.memory.tables import BatchRow, JobRow
from worker.ledger.memory.upkeep import MemoryUpkeep


class MemoryLedger(MemorySharing, MemoryUpkeep, Ledger):
    """``tasks.ports.Ledger`` over plain dictionaries; what happens once is decided as in Postgres."""

    # submission

    async def submit(
        self,
        batch: NewBatch,
        chunks: Iterable[Sequence[NewJob]],
        *,
        strict: bool = False,
        refused: Iterable[Refused] = (),
    ) -> Receipt:
        """Write a batch with the jobs that can be written; everything is looked at before anything is written."""
        jobs = [job for chunk in chunks for job in chunk]
        known = self._known_batch(batch)
        if known is not None:
            return self._same_batch(known, jobs, strict=strict)
        done = sort(jobs, self._present(batch.tenant, batch.id), batch.id)
        if done.refused and (strict or not done.ids):
            raise JobsRefused(done.refused)
        self._refuse_too_many(batch, len(done.fresh))
        created = bool(done.fresh) or not done.existing
        row = BatchRow(new=batch, created_at=self._now(), max_cost_usd=batch.max_cost_usd)
        rows = [self._accepted(row, job, order) for order, job in enumerate(done.fresh, start=len(self._jobs))]
        if created:
            repeated = (Repeated(position, job_id) for position, job_id in done.existing.items())
            row.input_lines = sorted((*refused, *done.refused, *repeated), key=lambda line: line.position)
            self._batches[batch.id] = row
        self._jobs.update((job.new.id, job) for job in rows)
        return Receipt(
            batch_id=batch.id if created else done.holders.most_common(1)[0][0],
            created=created,
            job_ids=tuple(done.ids),
            existing=frozenset(done.existing),
            elsewhere=done.existing,
            available=tuple(job.new.id for job in rows if job.state is JobState.AVAILABLE),
            refused=tuple(done.refused),
            holders=dict(done.holders),
        )

    def _present(self, tenant: str, batch_id: UUID) -> Present:
        present = Present(job_ids=set(self._jobs))
        for row in self._jobs.values():
            if row.batch.new.id == batch_id and row.new.custom_id is not None:
                present.custom_ids.add(row.new.custom_id)
            if row.new.tenant == tenant:
                present.message_ids.add(row.message_id)
                if row.new.idempotency_key is not None:
                    holder = Holder(row.new.id, row.batch.new.id, row.new.request_hash)
                    present.keys[row.new.idempotency_key] = holder
        return present

    def _same_batch(self, known: BatchRow, jobs: Sequence[NewJob], *, strict: bool) -> Receipt:
        """The receipt of a batch that was submitted before; the jobs must be the same ones."""
        batch_id = known.new.id
        rows = {row.new.position: row.new for row in self._of_batch(batch_id)}
        outside = [job for job in jobs if job.position not in rows]
        others = sort(outside, self._present(known.new.tenant, batch_id), batch_id)
        inside = [job for job in jobs if job.position in rows]
        same = all(rows[job.position].request_hash == job.request_hash for job in inside)
        if others.fresh or not same or len(inside) != len(rows):
            raise IdempotencyConflict(f"{known.new.key!r} was used before with different jobs", field="key")
        if others.refused and strict:
            raise JobsRefused(others.refused)
        refused = {one.position for one in others.refused}
        taken = [job for job in jobs if job.position not in refused]
        old_ids = iter(others.ids)
        return Receipt(
            batch_id=batch_id,
            created=False,
            job_ids=tuple(rows[job.position].id if job.position in rows else next(old_ids) for job in taken),
            existing=frozenset(job.position for job in taken),
            elsewhere=others.existing,
            refused=tuple(others.refused),
            submitted_at=known.created_at,
            holders=dict(others.holders),
        )

    def _known_batch(self, batch: NewBatch) -> BatchRow | None:
        if batch.key is None:
            return None
        same = (row for row in self._batches.values() if (row.new.tenant, row.new.key) == (batch.tenant, batch.key))
        return next(same, None)

    def _refuse_too_many(self, batch: NewBatch, jobs: int) -> None:
        present = sum(job.active and job.new.tenant == batch.tenant for job in self._jobs.values())
        if batch.max_queued is not None and jobs and present + jobs > batch.max_queued:
            raise QueueFull(batch.tenant, batch.max_queued, present)

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

    async def input_lines(self, batch_id: UUID) -> AsyncIterator[InputLine]:
        """Entries of a batch that are no jobs of it, by position."""
        if batch_id in self._batches:
            for line in self._batches[batch_id].input_lines:
                yield line

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
