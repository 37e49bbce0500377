"""The leases of the in-memory ledger."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from schemas.job import JobRequest
from schemas.states import JobState, Step
from schemas.window import gap_before
from tasks.ports import (
    ROUNDS_PER_LEVEL,
    Advance,
    FinalJob,
    Lease,
    Leased,
    LeaseKey,
    LeaseRoom,
    PackedFinal,
    Purpose,
    Queue,
    Renewal,
    StoredCompletion,
    UnreadableRow,
    risk_of,
)
from tests.fakes.ledger.rules import (
    cancel,
    held_job,
    latest_answer,
    move_on,
)
from tests.fakes.ledger.tables import OK, PURPOSES, UNKNOWN, AttemptRow, JobRow, MemoryTables

_MS = timedelta(milliseconds=1)


class MemoryQueue(Queue):
    """Leases under one new token each."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def lease(
        self,
        step: Step,
        worker: str,
        lease_for: timedelta,
        limit: int,
        *,
        ids: Sequence[UUID] | None = None,
        min_priority: int | None = None,
        max_priority: int | None = None,
        room: LeaseRoom | None = None,
    ) -> list[Leased]:
        now, token = self._tables.now(), uuid4()
        jobs = list(self._tables.jobs.values()) if ids is None else self._tables.find(ids)
        for job in jobs:
            if job.state is JobState.AVAILABLE and job.step is step and job.batch.cancelling_by is not None:
                cancel(self._tables, [job], job.batch.cancelling_by)
        free = [
            job
            for job in jobs
            if job.state is JobState.AVAILABLE
            and job.step is step
            and not job.past_deadline(now)
            and (min_priority is None or job.new.priority >= min_priority)
            and (max_priority is None or job.new.priority <= max_priority)
            and (room is None or job.rescues <= room.max_rescues)
        ]
        if ids is None:
            free.sort(key=lambda job: (-job.new.priority, job.order))
        chosen = _fitting(free[:limit], room)
        for job in chosen:
            self._tables.move(job, JobState.RUNNING, "lease")
            job.token, job.lease_until, job.worker = token, now + lease_for, worker
            job.started_at = job.started_at or now
        return [self._leased(job, token) for job in chosen]

    async def lease_unread(self, *arguments: Any, **terms: Any) -> Sequence[Lease]:
        return await self.lease(*arguments, **terms)

    def _leased(self, job: JobRow, token: UUID) -> Leased:
        now = self._tables.now()
        of_step = [
            attempt
            for attempt in job.attempts
            if attempt.new.run == job.run and attempt.new.purpose in PURPOSES[job.step]
        ]
        of_level = [a for a in of_step if a.new.round // ROUNDS_PER_LEVEL == job.round // ROUNDS_PER_LEVEL]
        failed = [attempt for attempt in of_level if attempt.closed_at is not None and attempt.outcome != OK]
        of_round = [attempt for attempt in of_step if attempt.new.round == job.round]
        first_opened = min((attempt.opened_at for attempt in of_round), default=None)
        return Leased(
            job_id=job.new.id,
            batch_id=job.batch.new.id,
            tenant=job.new.tenant,
            position=job.new.position,
            custom_id=job.new.custom_id,
            step=job.step,
            run=job.run,
            round=job.round,
            priority=job.new.priority,
            token=token,
            request=_request_of(job),
            created_at=job.created_at,
            deadline=job.deadline,
            age_ms=(now - max(job.created_at, job.due_at)) / _MS,
            waited_ms=(now - job.available_at) / _MS,
            limited_ms=job.limited_ms,
            spent=sum(attempt.spent for attempt in failed),
            snoozes=sum(not attempt.spent and attempt.outcome != UNKNOWN for attempt in failed),
            unknown=sum(attempt.outcome == UNKNOWN for attempt in of_round),
            attempts=len(of_round),
            cost_usd=job.known_cost_usd,
            max_cost_usd=job.batch.max_cost_usd,
            first_opened_ago_ms=None if first_opened is None else (now - first_opened) / _MS,
            stored=_stored(job, latest_answer(job, job.run if job.recheck else None)),
            correction=job.correction,
            recheck=job.recheck,
            judged=None if job.step is Step.GENERATE else _stored(job, job.winner(job.run, job.round, Purpose.JUDGE)),
            started_ago_ms=(now - (job.started_at or now)) / _MS,
            rescues=job.rescues,
            request_bytes=len(job.new.request),
            replay=job.new.replay,
            time_left=None if job.deadline is None else job.deadline - now,
            window_gap=gap_before(window, job.deadline)
            if (window := job.batch.new.window) and job.deadline
            else timedelta(0),
        )

    async def fail_unreadable(self, rows: Sequence[UnreadableRow], tokens: Sequence[UUID]) -> None:
        assert not rows, "in memory every row can be read"

    async def renew(self, leases: Sequence[LeaseKey], lease_for: timedelta) -> Renewal:
        lost = set()
        for lease in leases:
            job = held_job(self._tables, lease)
            if job is None:
                lost.add(lease.job_id)
            else:
                job.lease_until = self._tables.now() + lease_for
        return Renewal(lost=frozenset(lost))

    async def hand_back(self, leases: Sequence[LeaseKey]) -> set[UUID]:
        changed = set()
        for lease in leases:
            job = held_job(self._tables, lease)
            if job is not None and not job.open_attempts(lease.token):
                self._tables.move(job, JobState.AVAILABLE, "hand_back")
                changed.add(lease.job_id)
        return changed

    async def defer(self, lease: LeaseKey, advance: Advance) -> bool:
        job = held_job(self._tables, lease)
        if job is None or job.open_attempts(lease.token):
            return False
        if job.round != advance.round:
            job.correction = advance.correction
        move_on(self._tables, job, advance, "defer")
        return True

    async def finish(self, finals: Sequence[FinalJob | PackedFinal]) -> set[UUID]:
        finished = set()
        for final in finals:
            assert isinstance(final, FinalJob)
            job = self._tables.jobs.get(final.job_id)
            if job is None or not job.held_by(final.token, final.step):
                continue
            self._tables.move(job, final.state, "finish")
            job.outcome = final.outcome
            job.records[job.run] = final.record.model_copy(update={"created_at": self._tables.now()})
            finished.add(final.job_id)
        return finished


def _fitting(jobs: Sequence[JobRow], room: LeaseRoom | None) -> list[JobRow]:
    """Those of the jobs, in order, that a lease has room for."""
    if room is None:
        return list(jobs)
    fitting, weight, risk = [], 0, 0.0
    for position, job in enumerate(jobs):
        weight += len(job.new.request)
        risk += risk_of(job.rescues)
        if (not position or weight <= room.request_bytes) and (not job.rescues or risk <= room.risk):
            fitting.append(job)
    return fitting


def _request_of(job: JobRow) -> JobRequest:
    """The request, with what a recheck changes of its config."""
    if job.recheck is None:
        return job.request
    return job.request.model_copy(update={"config": job.recheck.apply(job.request.config)})


def _stored(job: JobRow, winner: AttemptRow | None) -> StoredCompletion | None:
    if winner is None or winner.answer is None:
        return None
    return StoredCompletion(
        attempt_id=winner.new.id,
        completion=winner.answer.completion,
        prompt=winner.answer.prompt,
        timing_ms=dict(winner.timing_ms) if winner.new.run == job.run else {},
    )
