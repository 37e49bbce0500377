"""The submission of the in-memory ledger."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from schemas.job import JobRequest
from schemas.states import JobState
from tasks.errors import IdempotencyConflict, JobsRefused, QueueFull
from tasks.ports import NewBatch, NewJob, Receipt, Refused, Repeated, Submission
from tests.fakes.ledger.tables import BatchRow, JobRow, MemoryTables
from worker.ledger.submission import Holder, Present, sort


class MemorySubmission(Submission):
    """Everything is read before anything is written."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def submit(
        self,
        batch: NewBatch,
        chunks: Iterable[Sequence[NewJob]],
        *,
        strict: bool = False,
        refused: Iterable[Refused] = (),
    ) -> Receipt:
        jobs = [job for chunk in chunks for job in chunk]
        earlier = self._known_batch(batch)
        if earlier is not None:
            return self._same_batch(earlier, jobs, strict=strict)
        done = sort(jobs, self._present(batch.tenant, batch.id), batch.id)
        if done.refused and (strict or not done.ids):
            raise JobsRefused(done.refused)
        self._refuse_too_many(batch, len(done.fresh))
        created = bool(done.fresh) or not done.existing
        row = BatchRow(new=batch, created_at=self._tables.now(), max_cost_usd=batch.max_cost_usd)
        rows = [self._accepted(row, job, order) for order, job in enumerate(done.fresh, start=len(self._tables.jobs))]
        if created:
            repeated = (Repeated(position, job_id) for position, job_id in done.existing.items())
            row.input_lines = sorted((*refused, *done.refused, *repeated), key=lambda line: line.position)
            self._tables.batches[batch.id] = row
        self._tables.jobs.update((job.new.id, job) for job in rows)
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
        present = Present(job_ids=set(self._tables.jobs))
        for row in self._tables.jobs.values():
            if row.batch.new.id == batch_id and row.new.custom_id is not None:
                present.custom_ids.add(row.new.custom_id)
            if row.new.tenant == tenant:
                present.message_ids.add(row.message_id)
                if row.new.idempotency_key is not None:
                    holder = Holder(row.new.id, row.batch.new.id, row.new.request_hash)
                    present.keys[row.new.idempotency_key] = holder
        return present

    def _same_batch(self, earlier: BatchRow, jobs: Sequence[NewJob], *, strict: bool) -> Receipt:
        """The receipt of a batch that was submitted before; the jobs must be the same ones."""
        batch_id = earlier.new.id
        rows = {row.new.position: row.new for row in self._tables.of_batch(batch_id)}
        outside = [job for job in jobs if job.position not in rows]
        outside_jobs = sort(outside, self._present(earlier.new.tenant, batch_id), batch_id)
        inside = [job for job in jobs if job.position in rows]
        same = all(rows[job.position].request_hash == job.request_hash for job in inside)
        if outside_jobs.fresh or not same or len(inside) != len(rows):
            raise IdempotencyConflict(f"{earlier.new.key!r} was used before with different jobs", field="key")
        if outside_jobs.refused and strict:
            raise JobsRefused(outside_jobs.refused)
        refused = {refusal.position for refusal in outside_jobs.refused}
        accepted = [job for job in jobs if job.position not in refused]
        old_ids = iter(outside_jobs.ids)
        return Receipt(
            batch_id=batch_id,
            created=False,
            job_ids=tuple(rows[job.position].id if job.position in rows else next(old_ids) for job in accepted),
            existing=frozenset(job.position for job in accepted),
            elsewhere=outside_jobs.existing,
            refused=tuple(outside_jobs.refused),
            submitted_at=earlier.created_at,
            holders=dict(outside_jobs.holders),
        )

    def _known_batch(self, batch: NewBatch) -> BatchRow | None:
        if batch.key is None:
            return None
        same = (
            row for row in self._tables.batches.values() if (row.new.tenant, row.new.key) == (batch.tenant, batch.key)
        )
        return next(same, None)

    def _refuse_too_many(self, batch: NewBatch, jobs: int) -> None:
        present = sum(job.active and job.new.tenant == batch.tenant for job in self._tables.jobs.values())
        if batch.max_queued is not None and jobs and present + jobs > batch.max_queued:
            raise QueueFull(batch.tenant, batch.max_queued, present)

    def _accepted(self, batch: BatchRow, job: NewJob, order: int) -> JobRow:
        now = self._tables.now()
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
