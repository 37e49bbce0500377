"""What workers do in the in-memory ledger: take leases, open and close attempts, write finals."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from uuid import UUID, uuid4

from schemas.job import JobRequest
from schemas.states import HeldReason, JobState, Step
from tasks.ports import (
    Advance,
    CachedVerdict,
    ClosedAttempt,
    FinalJob,
    Leased,
    LeaseKey,
    LeaseRoom,
    NewAttempt,
    NewVerdicts,
    Opened,
    Purpose,
    StoredCompletion,
    VerdictQuery,
    risk_of,
)
from worker.ledger.memory.budgets import MemoryBudgets
from worker.ledger.memory.tables import OK, PURPOSES, UNKNOWN, AttemptRow, BatchRow, JobRow
from worker.ledger.memory.twins import MemoryTwins

_MS = timedelta(milliseconds=1)


class MemoryRunning(MemoryBudgets, MemoryTwins):
    """The fenced verbs, and the one that is never fenced: closing an attempt."""

    # leases

    async def lease(
        self,
        step: Step,
        worker: str,
        lease_for: timedelta,
        limit: int,
        *,
        ids: Sequence[UUID] | None = None,
        min_priority: int | None = None,
        room: LeaseRoom | None = None,
    ) -> list[Leased]:
        """Take available jobs of a step, under one new token."""
        now, token = self._now(), uuid4()
        jobs = list(self._jobs.values()) if ids is None else self._found(ids)
        for job in jobs:
            if job.state is JobState.AVAILABLE and job.step is step and job.batch.cancelling_by is not None:
                self._cancel([job], job.batch.cancelling_by)
        free = [
            job
            for job in jobs
            if job.state is JobState.AVAILABLE
            and job.step is step
            and not job.past_deadline(now)
            and (min_priority is None or job.new.priority >= min_priority)
            and (room is None or job.rescues <= room.max_rescues)
        ]
        if ids is None:
            free.sort(key=lambda job: (-job.new.priority, job.order))
        taken = _fitting(free[:limit], room)
        for job in taken:
            self._move(job, JobState.RUNNING, "lease")
            job.token, job.lease_until, job.worker = token, now + lease_for, worker
            job.started_at = job.started_at or now
        return [self._leased(job, token) for job in taken]

    def _leased(self, job: JobRow, token: UUID) -> Leased:
        now = self._now()
        of_step = [one for one in job.attempts if one.new.run == job.run and one.new.purpose in PURPOSES[job.step]]
        failed = [one for one in of_step if one.closed_at is not None and one.outcome != OK]
        of_round = [one for one in of_step if one.new.round == job.round]
        first_opened = min((one.opened_at for one in of_round), default=None)
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
            request=_asked(job),
            created_at=job.created_at,
            deadline=job.deadline,
            age_ms=(now - max(job.created_at, job.due_at)) / _MS,
            waited_ms=(now - job.available_at) / _MS,
            limited_ms=job.limited_ms,
            spent=sum(one.spent for one in failed),
            snoozes=sum(not one.spent and one.outcome != UNKNOWN for one in failed),
            unknown=sum(one.outcome == UNKNOWN for one in of_round),
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
        )

    async def renew(self, leases: Sequence[LeaseKey], lease_for: timedelta) -> set[UUID]:
        """Renew leases; returns the job ids whose lease is lost."""
        lost = set()
        for lease in leases:
            job = self._held(lease)
            if job is None:
                lost.add(lease.job_id)
            else:
                job.lease_until = self._now() + lease_for
        return lost

    async def hand_back(self, leases: Sequence[LeaseKey]) -> set[UUID]:
        """Make running jobs without an open attempt available again."""
        changed = set()
        for lease in leases:
            job = self._held(lease)
            if job is not None and not job.open_attempts(lease.token):
                self._move(job, JobState.AVAILABLE, "hand_back")
                changed.add(lease.job_id)
        return changed

    async def defer(self, lease: LeaseKey, advance: Advance) -> bool:
        """Move a running job without an open attempt to ``scheduled``."""
        job = self._held(lease)
        if job is None or job.open_attempts(lease.token):
            return False
        if job.round != advance.round:
            job.correction = advance.correction
        self._advance(job, advance, "defer")
        return True

    def _held(self, lease: LeaseKey) -> JobRow | None:
        job = self._jobs.get(lease.job_id)
        return job if job is not None and job.held_by(lease.token) else None

    def _advance(self, job: JobRow, advance: Advance, verb: str) -> None:
        if (job.step, job.round) != (advance.step, advance.round):
            job.limited_ms, job.rescues = 0.0, 0
        elif advance.limited:
            job.limited_ms += (self._now() - job.available_at + advance.delay) / _MS
        if job.step is not advance.step:
            job.needs_usd = None
        job.step, job.round = advance.step, advance.round
        if advance.state is JobState.SCHEDULED:
            job.scheduled_at = self._now() + advance.delay
            job.held_reason = advance.held_reason
        self._move(job, advance.state, verb)
        if advance.event is not None:
            delay_s = advance.delay.total_seconds()
            self._note(job, advance.event, "worker", held_reason=advance.held_reason, delay_s=delay_s)

    # attempts

    async def open_attempts(self, attempts: Sequence[NewAttempt]) -> list[Opened]:
        """Write attempts before their calls, reserving budget in order."""
        return [self._open(attempt) for attempt in attempts]

    def _open(self, new: NewAttempt) -> Opened:
        job = self._jobs.get(new.job_id)
        if job is None or not job.held_by(new.token) or job.lease_until is None or job.lease_until <= self._now():
            return Opened.STALE if new.id in self._attempts else Opened.LOST
        if new.id in self._attempts:
            return Opened.OPENED
        if job.winner(new.run, new.round, new.purpose) is not None:
            return Opened.ANSWERED
        if new.share is not None and (self._shareable(job, new.share) or self._under_way(job, new.share)):
            return Opened.DUPLICATE
        return self._reserve(job, new)

    def _reserve(self, job: JobRow, new: NewAttempt) -> Opened:
        batch = job.batch
        reserve_usd = new.reserved_usd or Decimal(0)
        committed = batch.reserved_usd + batch.spent_usd + reserve_usd
        if batch.max_cost_usd is not None and reserve_usd and committed > batch.max_cost_usd:
            if new.purpose not in {Purpose.GENERATE, Purpose.JUDGE} or job.open_attempts(new.token):
                return Opened.OVER_BUDGET
            self._wait_for_money(job, reserve_usd)
            return Opened.HELD
        row = AttemptRow(new=new, opened_at=self._now())
        self._attempts[new.id] = row
        job.attempts.append(row)
        batch.reserved_usd += reserve_usd
        job.needs_usd = None
        return Opened.OPENED

    async def close_attempts(self, closed: Sequence[ClosedAttempt]) -> set[UUID]:
        """Close attempts by id alone; move jobs on where the lease still holds."""
        advanced = set()
        paid: dict[UUID, BatchRow] = {}
        for one in closed:
            self._close(one)
            job = self._jobs.get(one.job_id)
            if job is not None:
                paid[job.batch.new.id] = job.batch
            if one.then is not None and job is not None and job.held_by(one.token, one.step):
                self._advance(job, one.then, "close_attempts")
                if job.state is JobState.AVAILABLE:
                    job.hinted_at = self._now()  # whoever closes the attempt sends the hint right after
                advanced.add(one.job_id)
        for batch in paid.values():
            if self._has_room_now(batch):
                self._fund(batch)
        return advanced

    def _close(self, closed: ClosedAttempt) -> None:
        row = self._attempts.get(closed.id)
        if row is None or row.outcome not in {None, UNKNOWN}:
            return
        job, new = self._jobs[row.new.job_id], row.new
        if row.outcome == UNKNOWN and closed.outcome == OK:
            self._free(job, new, closed.step)
        if row.closed_at is None:
            job.batch.reserved_usd -= new.reserved_usd or Decimal(0)
        worst_case = closed.outcome == UNKNOWN and closed.cost_usd is None
        cost_usd = new.reserved_usd if worst_case else closed.cost_usd
        job.batch.spent_usd += (cost_usd or Decimal(0)) - (row.cost_usd or Decimal(0))
        row.closed_at, row.outcome, row.spent = self._now(), closed.outcome, closed.spent
        row.cost_usd, row.failure, row.timing_ms = cost_usd, closed.failure, dict(closed.timing_ms)
        if closed.answer is not None and (row.answer is None or closed.outcome == OK):
            row.answer = closed.answer
            row.won = closed.outcome == OK and job.winner(new.run, new.round, new.purpose) is None

    def _free(self, job: JobRow, attempt: NewAttempt, step: Step) -> None:
        """Release a job that is held for the outcome of this attempt."""
        waits_for = (job.held_reason, job.run, job.round, job.step)
        if waits_for != (HeldReason.UNKNOWN_OUTCOME, attempt.run, attempt.round, step):
            return
        self._note(job, "release", "worker", reason=job.held_reason)
        job.held_reason = HeldReason.BATCH_PAUSED if job.batch.paused else None
        if job.held_reason is None:
            self._move(job, JobState.AVAILABLE, "close_attempts")

    # what judges said

    async def find_verdicts(self, queries: Sequence[VerdictQuery]) -> list[dict[bytes, CachedVerdict]]:
        """What judges said of these keys in these batches."""
        return [
            {key: self._heard_at(*self._heard[query.batch_id, key]) for key in query.keys
             if (query.batch_id, key) in self._heard}
            for query in queries
        ]  # fmt: skip

    def _heard_at(self, attempt_id: UUID, number: int) -> CachedVerdict:
        row = self._attempts[attempt_id]
        assert row.answer is not None
        return CachedVerdict(attempt_id, row.new.job_id, number, row.answer.completion.text)

    async def store_verdicts(self, heard: Sequence[NewVerdicts]) -> None:
        """Let the batches of these attempts remember what was heard."""
        for one in heard:
            row = self._attempts.get(one.attempt_id)
            if row is None or row.answer is None or row.new.purpose is not Purpose.JUDGE:
                continue
            for key, number in one.numbers:
                self._heard.setdefault((row.new.batch_id, key), (one.attempt_id, number))

    # finals

    async def finish(self, finals: Sequence[FinalJob]) -> set[UUID]:
        """Write final states with their records."""
        written = set()
        for final in finals:
            job = self._jobs.get(final.job_id)
            if job is None or not job.held_by(final.token, final.step):
                continue
            self._move(job, final.state, "finish")
            job.outcome = final.outcome
            job.records[job.run] = final.record.model_copy(update={"created_at": self._now()})
            written.add(final.job_id)
        return written


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


def _asked(job: JobRow) -> JobRequest:
    """The request, with what a recheck changes of its config."""
    if job.recheck is None:
        return job.request
    return job.request.model_copy(update={"config": job.recheck.apply(job.request.config)})


def latest_answer(job: JobRow, up_to: int | None) -> AttemptRow | None:
    """The winning answer of the job's round: of its run, or of the latest run ``up_to`` that has one."""
    runs = [job.run] if up_to is None else range(up_to, 0, -1)
    purposes = [purpose for purpose in Purpose if purpose in PURPOSES[Step.GENERATE]]
    winners = (job.winner(run, job.round, purpose) for run in runs for purpose in purposes)
    return next((one for one in winners if one is not None), None)


def _stored(job: JobRow, winner: AttemptRow | None) -> StoredCompletion | None:
    if winner is None or winner.answer is None:
        return None
    return StoredCompletion(
        attempt_id=winner.new.id,
        completion=winner.answer.completion,
        prompt=winner.answer.prompt,
        timing_ms=dict(winner.timing_ms) if winner.new.run == job.run else {},
    )
