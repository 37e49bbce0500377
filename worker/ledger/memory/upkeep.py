"""The verbs that end, rescue, retry and hold jobs in the in-memory ledger."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from uuid import UUID

from schemas.failure import Failure, FailureKind
from schemas.generation import Recheck
from schemas.states import HeldReason, JobState, Step
from tasks.ports import LAST_RESCUES, MAX_RESCUES, ClosedAttempt, OnPage, Page, no_page
from tasks.scheduling.rescue import ABANDONED_AFTER
from worker.ledger.memory.duties import MemoryDuties
from worker.ledger.memory.running import latest_answer
from worker.ledger.memory.tables import UNKNOWN, AttemptRow, JobRow
from worker.ledger.pages import PAGE_ROWS


class MemoryUpkeep(MemoryDuties):
    """The verbs that need no lease."""

    # dispatch

    async def expire(self, limit: int) -> list[UUID]:
        """Finish jobs past their deadline as ``expired``."""
        now = self._now()
        late = [job for job in self._jobs.values() if job.active and job.past_deadline(now)][:limit]
        for job in late:
            self._end(job, JobState.EXPIRED, "expire", Failure(kind=FailureKind.EXPIRED, message="deadline passed"))
            self._note(job, "expire", "dispatch")
        return [job.new.id for job in late]

    async def rescue(self, limit: int, unknown_reason: HeldReason | None, max_rescues: int = MAX_RESCUES) -> list[UUID]:
        """Take jobs whose lease ran out from their holders."""
        now = self._now()
        stale = [
            job
            for job in self._jobs.values()
            if job.state is JobState.RUNNING and job.lease_until is not None and job.lease_until < now
        ][:limit]
        for job in stale:
            if _is_over(job, unknown_reason, max_rescues):
                self._give_up(job)
                continue
            job.rescues += 1
            worker, reason = job.worker, self._close_as_unknown(job, unknown_reason)
            if reason is None:
                self._move(job, JobState.AVAILABLE, "rescue")
            else:
                job.scheduled_at, job.held_reason = now, reason
                self._move(job, JobState.SCHEDULED, "rescue")
            self._note(job, "rescue", "dispatch", from_worker=worker, held_reason=reason)
        for job in self._jobs.values():
            if job.finished_at is not None and job.finished_at < now - ABANDONED_AFTER:
                for attempt in job.attempts:
                    if attempt.closed_at is None:
                        self._close_one_as_unknown(job, attempt)
        return [job.new.id for job in stale]

    def _give_up(self, job: JobRow) -> None:
        earlier = {event["detail"]["from_worker"] for event in job.events if event["kind"] == "rescue"}
        workers = ", ".join(sorted(earlier | {job.worker or "?"}))
        message = (
            f"its worker was lost {job.rescues + 1} times while it had this job, which may be the cause ({workers})"
        )
        self._end(job, JobState.FAILED, "rescue", Failure(kind=FailureKind.WORKER_LOST, message=message))
        self._note(job, "given_up", "dispatch")

    def _close_as_unknown(self, job: JobRow, reason: HeldReason | None) -> HeldReason | None:
        """Close the open attempts of the lost lease; the reason to hold the job for, if there was any."""
        lost = job.open_attempts(job.token)
        for attempt in lost:
            self._close_one_as_unknown(job, attempt)
        return reason if lost else None

    def _close_one_as_unknown(self, job: JobRow, attempt: AttemptRow) -> None:
        failure = Failure(
            kind=FailureKind.UNKNOWN_OUTCOME,
            message="the lease ran out while the call was open",
            attempt=attempt.new.number,
            at=self._now(),
        )
        self._close(
            ClosedAttempt(
                attempt.new.id, job.new.id, attempt.new.token, job.step, UNKNOWN, spent=False, failure=failure
            )
        )

    # a person's verbs

    async def cancel(self, job_ids: Sequence[UUID], actor: str, on_page: OnPage = no_page) -> list[UUID]:
        """Cancel jobs that are not final."""
        return _by_page(self._found(job_ids), lambda jobs: self._cancel(jobs, actor), on_page)

    async def cancel_batch(self, batch_id: UUID, actor: str, on_page: OnPage = no_page) -> list[UUID]:
        """Cancel all jobs of a batch that are not final."""
        batch = self._batch(batch_id)
        batch.cancelled_at = batch.cancelled_at or self._now()
        batch.cancelling_by = actor
        cancelled = _by_page(self._of_batch(batch_id), lambda jobs: self._cancel(jobs, actor), on_page)
        batch.cancelling_by = None
        return cancelled

    async def retry(self, job_ids: Sequence[UUID], actor: str, on_page: OnPage = no_page) -> list[UUID]:
        """Start a new run of final jobs; a deadline that has passed is dropped."""
        return _by_page(self._found(job_ids), lambda jobs: self._retry(jobs, actor), on_page)

    def _retry(self, jobs: Sequence[JobRow], actor: str) -> list[UUID]:
        final = [job for job in jobs if job.final]
        for job in final:
            self._move(job, JobState.SCHEDULED, "retry")
            job.round, job.step, job.recheck = 0, job.new.step, None
            self._begin_anew(job)
            self._note(job, "retry", actor)
        return [job.new.id for job in final]

    async def recheck(
        self, job_ids: Sequence[UUID], recheck: Recheck, actor: str, on_page: OnPage = no_page
    ) -> list[UUID]:
        """Start a new run of jobs that have an answer, at its check."""
        return _by_page(self._found(job_ids), lambda jobs: self._recheck(jobs, recheck, actor), on_page)

    def _recheck(self, jobs: Sequence[JobRow], recheck: Recheck, actor: str) -> list[UUID]:
        chosen = [
            job
            for job in jobs
            if job.state in {JobState.COMPLETED, JobState.FAILED}
            and (job.request.check_only or latest_answer(job, job.run) is not None)
        ]
        for job in chosen:
            self._move(job, JobState.SCHEDULED, "recheck")
            job.step, job.recheck = recheck.apply(job.request.config).check_step, recheck
            self._begin_anew(job)
            self._note(job, "recheck", actor, **recheck.model_dump(mode="json"))
        return [job.new.id for job in chosen]

    def _begin_anew(self, job: JobRow) -> None:
        now = self._now()
        job.run, job.correction, job.limited_ms, job.rescues, job.needs_usd = job.run + 1, None, 0.0, 0, None
        job.due_at = job.scheduled_at = now
        job.outcome = job.started_at = job.finished_at = job.published_at = None
        if job.past_deadline(now):
            job.deadline = None

    async def release(self, batch_id: UUID | None, reason: HeldReason, actor: str, on_page: OnPage = no_page) -> int:
        """Release held jobs of a batch (or all) that are held for this reason."""
        jobs = list(self._jobs.values()) if batch_id is None else self._of_batch(batch_id)
        return len(_by_page(jobs, lambda page: self._release(page, reason, actor), on_page))

    def _release(self, jobs: Sequence[JobRow], reason: HeldReason, actor: str) -> list[UUID]:
        for job in jobs if reason is HeldReason.BUDGET else ():
            if job.batch.least_needed_usd is not None:
                job.batch.hold_from = 0
        held = [job for job in jobs if job.state is JobState.SCHEDULED and job.held_reason is reason]
        for job in held:
            if reason is HeldReason.BUDGET:
                job.needs_usd = None
            job.held_reason = HeldReason.BATCH_PAUSED if job.batch.paused else None
            if job.held_reason is None and job.scheduled_at <= self._now():
                self._move(job, JobState.AVAILABLE, "release")
            self._note(job, "release", actor, reason=reason)
        return [job.new.id for job in held]

    async def pause_batch(self, batch_id: UUID, actor: str, *, paused: bool, on_page: OnPage = no_page) -> int:
        """Hold a batch's waiting jobs that are not held yet, or release those held by a pause."""
        batch = self._batch(batch_id)
        batch.paused = paused
        if not paused:
            return await self.release(batch_id, HeldReason.BATCH_PAUSED, actor, on_page)
        return len(_by_page(self._of_batch(batch_id), lambda jobs: self._hold(jobs, actor), on_page))

    def _hold(self, jobs: Sequence[JobRow], actor: str) -> list[UUID]:
        waiting = [
            job for job in jobs if job.state in {JobState.SCHEDULED, JobState.AVAILABLE} and job.held_reason is None
        ]
        for job in waiting:
            if job.state is JobState.AVAILABLE:
                self._move(job, JobState.SCHEDULED, "hold")
            job.held_reason = HeldReason.BATCH_PAUSED
            self._note(job, "hold", actor, held_reason=job.held_reason)
        return [job.new.id for job in waiting]

    async def set_budget(self, batch_id: UUID, max_cost_usd: Decimal | None, actor: str) -> None:
        """Change a batch's ceiling and release the jobs held for it."""
        self._batch(batch_id).max_cost_usd = max_cost_usd
        self._release(self._of_batch(batch_id), HeldReason.BUDGET, actor)


def _is_over(job: JobRow, unknown_reason: HeldReason | None, max_rescues: int) -> bool:
    """Whether a job whose lease ran out is not taken up again."""
    if job.rescues < max_rescues or (unknown_reason is not None and job.open_attempts(job.token)):
        return False
    if job.rescues >= max_rescues + LAST_RESCUES:
        return True
    return job.step is Step.GENERATE and not job.round and latest_answer(job, None) is None


def _by_page(jobs: Sequence[JobRow], change: Callable[[Sequence[JobRow]], list[UUID]], on_page: OnPage) -> list[UUID]:
    """Change jobs page by page; returns the ids changed."""
    changed: list[UUID] = []
    for at in range(0, len(jobs), PAGE_ROWS):
        page = jobs[at : at + PAGE_ROWS]
        done = change(page)
        changed += done
        on_page(Page(len(page), done))
    return changed
