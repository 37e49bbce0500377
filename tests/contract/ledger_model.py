"""A small model of the ledger: what each verb must do, said once more; money is added up, never kept."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

from schemas.failure import FailureKind
from schemas.model_call import Correction, FinishReason
from schemas.states import FINAL_STATES, HeldReason, JobState, Outcome, Step
from tasks.calls.response_cache import MOST_FAILED
from tasks.ports import Advance, CacheStatus, ClosedAttempt, Leased, NewAttempt, Opened, Purpose
from tests.builders import closed_error, closed_ok, closed_unknown, later, make_answer, to_check, totals

_DELAY = timedelta(seconds=30)

ABANDONED_S = 60
"""After so long a final job has no call under way: whoever made it is gone."""

Key = tuple[int, int, Purpose]
"""Run, round and purpose: what is answered once."""


@dataclass
class Call:
    """An attempt as the model remembers it, with the lease it was made under."""

    leased: Leased
    attempt: NewAttempt
    outcome: str | None = None
    spent: bool = False
    cost_usd: Decimal | None = None
    answered: bool = False

    @property
    def key(self) -> Key:
        """The purpose of the call."""
        return self.attempt.run, self.attempt.round, self.attempt.purpose

    @property
    def open(self) -> bool:
        """True while the call is open."""
        return self.outcome is None


@dataclass
class Job:
    """A job as the model sees it; times are seconds since the model's start."""

    id: UUID
    batch_id: UUID
    first_step: Step
    state: JobState
    run: int
    due: float
    deadline: float | None
    step: Step = Step.GENERATE
    round: int = 0
    held: HeldReason | None = None
    needs: Decimal | None = None
    """What it waits for, or was let go with and has not reserved yet."""
    outcome: Outcome | None = None
    token: UUID | None = None
    lease_until: float = 0.0
    rechecks: bool = False
    """Its run checks the answer of an earlier one."""
    correction: Correction | None = None
    published: bool = False
    ended_at: float | None = None
    """When it was first seen final."""
    calls: list[Call] = field(default_factory=list)
    winners: dict[Key, UUID] = field(default_factory=dict)
    finals: set[int] = field(default_factory=set)

    @property
    def answer(self) -> UUID | None:
        """The answer to check: of this run and round, in a recheck of the latest run that has an answer."""
        runs = range(self.run, 0, -1) if self.rechecks else [self.run]
        return next((won for run in runs if (won := self.winners.get((run, self.round, Purpose.GENERATE)))), None)

    @property
    def active(self) -> bool:
        """True while the job is not final."""
        return self.state not in FINAL_STATES

    @property
    def cost_usd(self) -> Decimal:
        """Sum of its attempts."""
        return totals([call.cost_usd for call in self.calls])

    @property
    def shown_usd(self) -> Decimal | None:
        """The cost in reports: nothing where the price of a call is unknown."""
        unpriced = any(call.outcome is not None and call.cost_usd is None for call in self.calls)
        return None if unpriced else self.cost_usd

    def goes(self, state: JobState) -> None:
        """Change the state; only a running job has a token, only a scheduled one is held."""
        self.state = state
        if state is not JobState.RUNNING:
            self.token = None
        if state is not JobState.SCHEDULED:
            self.held = None
        if not self.active:
            self.finals.add(self.run)


@dataclass
class Model:
    """All jobs and ceilings, and the time."""

    now: float = 0.0
    jobs: dict[UUID, Job] = field(default_factory=dict)
    ceilings: dict[UUID, Decimal | None] = field(default_factory=dict)
    paused: set[UUID] = field(default_factory=set)
    """Batches."""
    least: dict[UUID, Decimal] = field(default_factory=dict)
    """What a job of these batches needs at least, when it was last looked at."""
    unheld: set[UUID] = field(default_factory=set)
    """Batches whose jobs that did not begin are still to be held."""

    def of_batch(self, batch_id: UUID) -> list[Job]:
        """The jobs of a batch."""
        return [job for job in self.jobs.values() if job.batch_id == batch_id]

    def late(self, job: Job) -> bool:
        """True if its deadline has passed."""
        return job.deadline is not None and job.deadline < self.now

    def free(self, step: Step) -> set[UUID]:
        """The jobs that can be leased for a step."""
        return {
            job.id
            for job in self.jobs.values()
            if job.state is JobState.AVAILABLE and job.step is step and not self.late(job)
        }

    def holder(self, leased: Leased) -> Job | None:
        """The job if this lease still holds it."""
        job = self.jobs[leased.job_id]
        return job if job.state is JobState.RUNNING and job.token == leased.token else None

    def reserved_usd(self, batch_id: UUID) -> Decimal:
        """The reserved cost of the open attempts of a batch."""
        calls = [call for job in self.of_batch(batch_id) for call in job.calls]
        return totals([call.attempt.reserved_usd or Decimal(0) for call in calls if call.open])

    def spent_usd(self, batch_id: UUID) -> Decimal:
        """The cost of the closed attempts of a batch."""
        return totals([job.cost_usd for job in self.of_batch(batch_id)])

    # ---- verbs -------------------------------------------------------------------------------------------------

    def lease(self, leased: Leased, lease_for: timedelta) -> None:
        """A worker took the job."""
        job = self.jobs[leased.job_id]
        job.goes(JobState.RUNNING)
        job.token, job.lease_until = leased.token, self.now + lease_for.total_seconds()

    def open(self, leased: Leased, new: NewAttempt) -> tuple[Opened, Call]:
        """The expected state of an attempt; remembers it when it is opened."""
        call = Call(leased, new)
        job, ceiling = self.holder(leased), self.ceilings[new.batch_id]
        if job is None or job.lease_until is None or job.lease_until <= self.now:
            return Opened.LOST, call
        if call.key in job.winners:
            return Opened.ANSWERED, call
        if new.share is not None and (self.shareable() or self.under_way(job)):
            return Opened.DUPLICATE, call
        total = self.reserved_usd(job.batch_id) + self.spent_usd(job.batch_id) + (new.reserved_usd or Decimal(0))
        if ceiling is not None and new.reserved_usd and total > ceiling:
            if any(call.open and call.attempt.token == job.token for call in job.calls):
                return Opened.OVER_BUDGET, call
            self._wait(job, new.reserved_usd)
            return Opened.ON_HOLD, call
        job.needs = None
        job.calls.append(call)
        return Opened.OPENED, call

    # ---- jobs that wait for money

    def _wait(self, job: Job, usd: Decimal) -> None:
        if job.batch_id not in self.least:
            self.unheld.add(job.batch_id)
        self.least[job.batch_id] = min(usd, self.least.get(job.batch_id, usd))
        self._hold(job, usd)

    def _hold(self, job: Job, usd: Decimal) -> None:
        job.goes(JobState.SCHEDULED)
        job.held, job.needs, job.due = HeldReason.BUDGET, usd, self.now

    def _left(self, batch_id: UUID) -> Decimal:
        ceiling = self.ceilings[batch_id]
        if ceiling is None:
            return Decimal("Infinity")
        return ceiling - self.reserved_usd(batch_id) - self.spent_usd(batch_id)

    def _unpromised(self, batch_id: UUID) -> Decimal:
        promised = [job.needs for job in self.of_batch(batch_id) if job.active and job.held is None]
        return self._left(batch_id) - totals(promised)

    def _waiting(self, batch_id: UUID) -> list[tuple[Decimal, UUID, Job]]:
        jobs = [job for job in self.of_batch(batch_id) if job.held is HeldReason.BUDGET]
        return sorted((job.needs, job.id, job) for job in jobs if job.needs is not None)

    def settle(self) -> int:
        """Let jobs go on as far as there is money; hold what did not begin where there is none; how many."""
        changed = 0
        for batch_id in self.ceilings:
            funded = self._fund(batch_id)
            if not funded and batch_id in self.unheld and batch_id in self.least:
                funded = self._hold_rest(batch_id)
            changed += funded
        return changed

    def _fund(self, batch_id: UUID) -> int:
        least = self.least.get(batch_id)
        if least is None or batch_id in self.paused or self._left(batch_id) < least:
            return 0
        funded = 0
        for usd, _, job in self._waiting(batch_id):
            if usd > self._unpromised(batch_id):
                break
            job.goes(JobState.AVAILABLE)
            funded += 1
        self.least.pop(batch_id)
        if waiting := self._waiting(batch_id):
            self.least[batch_id] = waiting[0][0]
        return funded

    def _hold_rest(self, batch_id: UUID) -> int:
        if self._unpromised(batch_id) >= self.least[batch_id]:
            return 0
        self.unheld.discard(batch_id)
        rest = [
            job
            for job in self.of_batch(batch_id)
            if (job.state, job.step, job.round, job.needs) == (JobState.AVAILABLE, Step.GENERATE, 0, None)
        ]
        for job in rest:
            self._hold(job, self.least[batch_id])
        return len(rest)

    # ---- answers that are shared

    def _sharing(self) -> list[tuple[Job, Call]]:
        """The calls that share their answers: they are all identical here."""
        return [(job, call) for job in self.jobs.values() for call in job.calls if call.attempt.share is not None]

    def shareable(self) -> bool:
        """True if a call has an answer that other jobs may use."""
        return any(job.winners.get(call.key) == call.attempt.id for job, call in self._sharing())

    def under_way(self, job: Job) -> bool:
        """True if the job may wait for a call; jobs with a deadline never wait, for a wait has no end here."""
        others = [call for other, call in self._sharing() if other is not job]
        failed = sum(call.spent or call.outcome == "unknown" for call in others)
        answered = any(call.outcome == "ok" for call in others)
        waits = job.deadline is None and failed < MOST_FAILED and not answered
        return waits and any(call.open for call in others)

    def share(self, leased: Leased, new: NewAttempt) -> CacheStatus:
        """The expected reply to a look for an answer; uses the answer if there is one."""
        job = self.holder(leased)
        if job is None or job.step is not Step.GENERATE:
            return CacheStatus.LOST
        call = Call(leased, replace(new, share=None), "ok", cost_usd=Decimal(0), answered=True)
        if call.key in job.winners:
            return CacheStatus.NONE
        if not self.shareable():
            return CacheStatus.UNDER_WAY if self.under_way(job) else CacheStatus.NONE
        job.calls.append(call)
        job.winners[call.key] = new.id
        job.step, job.needs = Step.CHECK, None
        job.goes(JobState.AVAILABLE)
        return CacheStatus.REUSED

    def close(self, call: Call, closed: ClosedAttempt) -> bool:
        """Close a call, late or again; whether the job moves on."""
        job = self.jobs[call.leased.job_id]
        if call.outcome == "unknown" and closed.outcome == "ok":
            self.lift(job, call, closed)
        if call.outcome in {None, "unknown"}:
            worst_case = closed.outcome == "unknown"
            call.outcome, call.spent = closed.outcome, closed.spent
            call.cost_usd = call.attempt.reserved_usd if worst_case else closed.cost_usd
            if closed.answer is not None:
                call.answered = True
            if closed.outcome == "ok":
                job.winners.setdefault(call.key, call.attempt.id)
        if closed.then is None or self.holder(call.leased) is None or job.step is not closed.step:
            return False
        self.advance(job, closed.then)
        return True

    def lift(self, job: Job, call: Call, closed: ClosedAttempt) -> None:
        """Release a job that is held for the outcome of a call."""
        attempt = call.attempt
        if job.held is HeldReason.UNKNOWN_OUTCOME and (job.run, job.round, job.step) == (
            attempt.run,
            attempt.round,
            closed.step,
        ):
            job.held = HeldReason.BATCH_PAUSED if job.batch_id in self.paused else None
            if job.held is None:
                job.goes(JobState.AVAILABLE)

    def advance(self, job: Job, then: Advance) -> None:
        """Move a running job on."""
        if job.round != then.round and then.state is JobState.SCHEDULED:
            job.correction = then.correction
        if job.step is not then.step:
            job.needs = None
        job.step, job.round = then.step, then.round
        if then.state is JobState.SCHEDULED:
            job.due = self.now + then.delay.total_seconds()
        job.goes(then.state)
        if then.state is JobState.SCHEDULED:
            job.held = then.held_reason

    def rescue(self, reason: HeldReason | None) -> set[UUID]:
        """Free the jobs whose lease ran out; what was left open of jobs long final is closed."""
        for job in self.jobs.values():
            if job.ended_at is not None and job.ended_at < self.now - ABANDONED_S:
                for call in job.calls:
                    if call.open:
                        call.outcome, call.cost_usd = "unknown", call.attempt.reserved_usd
        stale = [job for job in self.jobs.values() if job.state is JobState.RUNNING and job.lease_until < self.now]
        for job in stale:
            lost = [call for call in job.calls if call.open and call.attempt.token == job.token]
            for call in lost:
                call.outcome, call.cost_usd = "unknown", call.attempt.reserved_usd
            job.goes(JobState.SCHEDULED if lost and reason else JobState.AVAILABLE)
            job.held, job.due = (reason, self.now) if lost and reason else (None, job.due)
        return {job.id for job in stale}

    def promote(self) -> int:
        """Make what is due available."""
        due = [
            job
            for job in self.jobs.values()
            if job.state is JobState.SCHEDULED
            and job.held is None
            and job.due <= self.now
            and job.batch_id not in self.paused
        ]
        for job in due:
            job.goes(JobState.AVAILABLE)
        return len(due)

    def release(self, reason: HeldReason, batch_id: UUID | None = None) -> int:
        """Lift this hold from all jobs, or a batch's; whether dispatch has to promote them first is left open."""
        if reason is HeldReason.BUDGET:
            self.unheld |= self.least.keys() & (self.ceilings.keys() if batch_id is None else {batch_id})
        jobs = [job for job in self.jobs.values() if job.held is reason and batch_id in {None, job.batch_id}]
        for job in jobs:
            if reason is HeldReason.BUDGET:
                job.needs = None
            # In a batch that is paused a job goes on only when the batch does.
            job.held = HeldReason.BATCH_PAUSED if job.batch_id in self.paused else None
        return len(jobs)

    def pause(self, batch_id: UUID) -> int:
        """Hold what waits in a batch."""
        self.paused.add(batch_id)
        waiting = {JobState.AVAILABLE, JobState.SCHEDULED}
        jobs = [job for job in self.of_batch(batch_id) if job.held is None and job.state in waiting]
        for job in jobs:
            job.goes(JobState.SCHEDULED)
            job.held = HeldReason.BATCH_PAUSED
        return len(jobs)

    def resume(self, batch_id: UUID) -> int:
        """Let a batch go on."""
        self.paused.discard(batch_id)
        return self.release(HeldReason.BATCH_PAUSED, batch_id)

    def end(self, job_ids: set[UUID], state: JobState) -> None:
        """Cancel or expire."""
        for job_id in job_ids:
            self.jobs[job_id].goes(state)

    def retry(self, job: Job) -> None:
        """Start a new run."""
        job.goes(JobState.SCHEDULED)
        job.run, job.round, job.step, job.due, job.outcome = job.run + 1, 0, job.first_step, self.now, None
        job.correction, job.published, job.rechecks, job.needs = None, False, False, None

    def recheck(self, job: Job) -> bool:
        """Check the answer again in a new run; whether there is one."""
        before, job.rechecks = job.rechecks, True
        if job.state not in {JobState.COMPLETED, JobState.FAILED} or not (
            job.first_step is Step.CHECK or job.answer is not None
        ):
            job.rechecks = before
            return False
        job.goes(JobState.SCHEDULED)
        job.run, job.step, job.due, job.outcome = job.run + 1, Step.CHECK, self.now, None
        job.correction, job.published, job.needs = None, False, None
        return True


def ending(call: Call, how: str, cost_usd: Decimal | None) -> ClosedAttempt:
    """The end of a call: ``ok`` (the job goes on), ``stay``, ``retry``, ``snooze``, ``hold`` or ``unknown``.

    What is known to be unknown can only turn out well, or stay unknown.
    """
    leased, attempt = call.leased, call.attempt
    if call.outcome == "unknown" and how != "unknown":
        how = "ok"
    if how in {"ok", "stay"}:
        again = Advance(state=JobState.AVAILABLE, step=Step.GENERATE, round=leased.round + 1)
        then = to_check(leased) if leased.step is Step.GENERATE else again
        answer = make_answer(f"answer {attempt.number}", cost_usd=cost_usd)
        return closed_ok(leased, attempt, answer=answer, then=then if how == "ok" else None)
    if how == "unknown":
        part = (
            make_answer("answ", finish_reason=FinishReason.INTERRUPTED, cost_usd=None) if attempt.number % 2 else None
        )
        return closed_unknown(leased, attempt, answer=part, then=later(leased, delay=_DELAY, event="retry"))
    if how == "retry":
        return closed_error(leased, attempt, then=later(leased, delay=_DELAY, event="retry"))
    then = later(leased, held_reason=HeldReason.LANE_PAUSED if how == "hold" else None, event=how)
    return closed_error(leased, attempt, FailureKind.RATE_LIMITED, spent=False, then=then)
