"""Views, counts and audit rows made of the in-memory ledger's rows."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

from pydantic_core import to_jsonable_python

from schemas.batch import BatchStatus
from schemas.claim_error import ErrorKind
from tasks.errors import NotFound
from tasks.ports import (
    InputLine,
    JobDetail,
    JobView,
    Reading,
    ResultLine,
    StoredResult,
)
from tasks.results import result_of
from tests.fakes.ledger.tables import OK, UNKNOWN, AttemptRow, BatchRow, JobRow, MemoryTables


class MemoryReading(Reading):
    """Views of the rows."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def views(self, job_ids: Sequence[UUID]) -> list[JobView]:
        return [job_view(job) for job in self._tables.find(job_ids)]

    async def batch_views(self, batch_id: UUID) -> AsyncIterator[JobView]:
        for job in self._tables.of_batch(batch_id):
            yield job_view(job)

    async def results(self, job_ids: Sequence[UUID]) -> list[StoredResult]:
        return [_stored_result(view) for view in await self.views(job_ids)]

    async def batch_results(self, batch_id: UUID) -> AsyncIterator[list[ResultLine]]:
        async for view in self.batch_views(batch_id):
            yield [_stored_result(view).line()]

    async def input_lines(self, batch_id: UUID) -> AsyncIterator[InputLine]:
        if batch_id in self._tables.batches:
            for line in self._tables.batches[batch_id].input_lines:
                yield line

    async def batch_status(self, batch_id: UUID) -> BatchStatus:
        return batch_status(self._tables.batch(batch_id), self._tables.of_batch(batch_id))

    async def error_kinds(self, batch_id: UUID) -> dict[ErrorKind, int]:
        kinds = Counter[ErrorKind]()
        async for view in self.batch_views(batch_id):
            if view.record is not None and view.record.grounding is not None:
                kinds.update(view.record.grounding.errors)
        return dict(sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0])))

    async def batches(self, limit: int, before: UUID | None = None) -> list[BatchStatus]:
        newest = list(reversed(self._tables.batches))
        newest = newest[newest.index(before) + 1 if before else 0 :][:limit]
        return [await self.batch_status(batch_id) for batch_id in newest]

    async def job_detail(self, job_id: UUID) -> JobDetail:
        if job_id not in self._tables.jobs:
            raise NotFound(f"no job {job_id}")
        return job_detail(self._tables.jobs[job_id])

    async def locate(self, batch_id: UUID, name: str) -> UUID:
        for job in self._tables.of_batch(batch_id):
            if name in {job.new.custom_id, str(job.new.position)}:
                return job.new.id
        raise NotFound(f"batch {batch_id} has no job with custom id or position {name!r}")


def _stored_result(view: JobView) -> StoredResult:
    grounding = view.record.grounding if view.record is not None else None
    return StoredResult(result_of(view), grounding.errors if grounding is not None else {})


def job_view(job: JobRow) -> JobView:
    """The job's row with its request and, when final, its record."""
    return JobView(
        job_id=job.new.id,
        batch_id=job.batch.new.id,
        tenant=job.new.tenant,
        position=job.new.position,
        custom_id=job.new.custom_id,
        state=job.state,
        step=job.step,
        run=job.run,
        round=job.round,
        outcome=job.outcome,
        held_reason=job.held_reason,
        created_at=job.created_at,
        scheduled_at=job.scheduled_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        published_at=job.published_at,
        cost_usd=job.known_cost_usd,
        request=job.request,
        record=job.records.get(job.run) if job.final else None,
        replay_of=job.new.replay.of if job.new.replay else None,
    )


def batch_status(batch: BatchRow, jobs: Sequence[JobRow]) -> BatchStatus:
    """Counts and cost of a batch from its rows."""
    return BatchStatus(
        batch_id=batch.new.id,
        key=batch.new.key,
        name=batch.new.name,
        tenant=batch.new.tenant,
        created_at=batch.created_at,
        not_before=batch.new.not_before,
        deadline=batch.new.deadline,
        paused=batch.paused,
        cancelled_at=batch.cancelled_at,
        max_cost_usd=batch.max_cost_usd,
        reserved_usd=batch.reserved_usd,
        spent_usd=None if any(job.known_cost_usd is None for job in jobs) else batch.spent_usd,
        jobs=len(jobs),
        states=Counter(job.state for job in jobs),
        outcomes=Counter(job.outcome for job in jobs if job.outcome is not None),
        held=Counter(job.held_reason.value for job in jobs if job.held_reason is not None),
        unpublished=sum(job.final and job.published_at is None for job in jobs),
        possibly_billed_twice=sum(_called_again(job) for job in jobs),
    )


def _called_again(job: JobRow) -> int:
    """Number of the job's calls that were made again: unknown ones beside others, and answers that came too late."""
    attempts = [attempt for attempt in job.attempts if attempt.shared_from is None]
    calls = [(attempt.new.run, attempt.new.round, attempt.new.purpose) for attempt in attempts]
    answered = {call for call, attempt in zip(calls, attempts, strict=True) if attempt.outcome == OK}
    return sum(
        not attempt.won
        if attempt.outcome == OK
        else attempt.outcome == UNKNOWN and (call in answered or call in calls[at + 1 :])
        for at, (call, attempt) in enumerate(zip(calls, attempts, strict=True))
    )


def job_detail(job: JobRow) -> JobDetail:
    """Everything known of a job, as JSON-ready rows, oldest first."""
    answered = [attempt for attempt in job.attempts if attempt.answer is not None]
    return JobDetail(
        view=job_view(job),
        attempts=tuple(_attempt(attempt) for attempt in job.attempts),
        completions=tuple(_completion(attempt) for attempt in answered),
        events=tuple(to_jsonable_python(event) for event in job.events),
        records=tuple(record for _, record in sorted(job.records.items())),
    )


def _attempt(row: AttemptRow) -> dict[str, Any]:
    usage = row.answer.completion.usage if row.answer is not None and row.shared_from is None else None
    plain: dict[str, Any] = to_jsonable_python(
        {
            "id": row.new.id,
            "job_id": row.new.job_id,
            "run": row.new.run,
            "round": row.new.round,
            "purpose": row.new.purpose,
            "number": row.new.number,
            "lane": row.new.lane,
            "provider": row.new.provider,
            "model": row.new.model,
            "request_hash": row.new.request_hash.hex(),
            "lease_token": row.new.token,
            "opened_at": row.opened_at,
            "closed_at": row.closed_at,
            "outcome": row.outcome,
            "spent": row.spent,
            "failure": row.failure,
            "usage": usage,
            "reserved_usd": row.new.reserved_usd,
            "cost_usd": row.cost_usd,
            "timing_ms": row.timing_ms,
            "shared_from": row.shared_from,
        }
    )
    return plain


def _completion(row: AttemptRow) -> dict[str, Any]:
    assert row.answer is not None
    plain: dict[str, Any] = to_jsonable_python(
        {
            "attempt_id": row.new.id,
            "run": row.new.run,
            "round": row.new.round,
            "purpose": row.new.purpose,
            "won": row.won,
            "finish_reason": row.answer.completion.finish_reason,
            "raw": row.answer.raw.decode("utf-8", errors="replace"),
            "completion": row.answer.completion,
            "prompt": row.answer.prompt,
        }
    )
    return plain
