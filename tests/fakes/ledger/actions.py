"""The actions of an operator on the in-memory ledger."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from uuid import UUID

from schemas.job import Recheck
from schemas.states import HeldReason, JobState
from tasks.ports import Actions, OnPage, Page, no_page
from tests.fakes.ledger.rules import (
    cancel,
    latest_answer,
)
from tests.fakes.ledger.tables import JobRow, MemoryTables
from worker.ledger.pages import PAGE_ROWS


class MemoryActions(Actions):
    """Actions in pages, as in PostgreSQL."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def cancel(self, job_ids: Sequence[UUID], actor: str, on_page: OnPage = no_page) -> list[UUID]:
        return _by_page(self._tables.find(job_ids), lambda jobs: cancel(self._tables, jobs, actor), on_page)

    async def cancel_batch(self, batch_id: UUID, actor: str, on_page: OnPage = no_page) -> list[UUID]:
        batch = self._tables.batch(batch_id)
        batch.cancelled_at = batch.cancelled_at or self._tables.now()
        batch.cancelling_by = actor
        cancelled = _by_page(self._tables.of_batch(batch_id), lambda jobs: cancel(self._tables, jobs, actor), on_page)
        batch.cancelling_by = None
        return cancelled

    async def retry(self, job_ids: Sequence[UUID], actor: str, on_page: OnPage = no_page) -> list[UUID]:
        return _by_page(self._tables.find(job_ids), lambda jobs: self._retry(jobs, actor), on_page)

    def _retry(self, jobs: Sequence[JobRow], actor: str) -> list[UUID]:
        final = [job for job in jobs if job.final]
        for job in final:
            self._tables.move(job, JobState.SCHEDULED, "retry")
            job.round, job.step, job.recheck = 0, job.new.step, None
            self._begin_again(job)
            self._tables.note(job, "retry", actor)
        return [job.new.id for job in final]

    async def recheck(
        self, job_ids: Sequence[UUID], recheck: Recheck, actor: str, on_page: OnPage = no_page
    ) -> list[UUID]:
        return _by_page(self._tables.find(job_ids), lambda jobs: self._recheck(jobs, recheck, actor), on_page)

    def _recheck(self, jobs: Sequence[JobRow], recheck: Recheck, actor: str) -> list[UUID]:
        chosen = [
            job
            for job in jobs
            if job.state in {JobState.COMPLETED, JobState.FAILED}
            and (job.request.check_only or latest_answer(job, job.run) is not None)
        ]
        for job in chosen:
            self._tables.move(job, JobState.SCHEDULED, "recheck")
            job.step, job.recheck = recheck.apply(job.request.config).check_step, recheck
            self._begin_again(job)
            self._tables.note(job, "recheck", actor, **recheck.model_dump(mode="json"))
        return [job.new.id for job in chosen]

    def _begin_again(self, job: JobRow) -> None:
        now = self._tables.now()
        job.run, job.correction, job.limited_ms, job.rescues, job.needs_usd = job.run + 1, None, 0.0, 0, None
        job.due_at = job.scheduled_at = now
        job.outcome = job.started_at = job.finished_at = job.published_at = None
        if job.past_deadline(now):
            job.deadline = None

    async def release(self, batch_id: UUID | None, reason: HeldReason, actor: str, on_page: OnPage = no_page) -> int:
        jobs = list(self._tables.jobs.values()) if batch_id is None else self._tables.of_batch(batch_id)
        return len(_by_page(jobs, lambda page: self._release(page, reason, actor), on_page))

    def _release(self, jobs: Sequence[JobRow], reason: HeldReason, actor: str) -> list[UUID]:
        for job in jobs if reason is HeldReason.BUDGET else ():
            if job.batch.least_needed_usd is not None:
                job.batch.hold_from = 0
        waiting = [job for job in jobs if job.state is JobState.SCHEDULED and job.held_reason is reason]
        for job in waiting:
            if reason is HeldReason.BUDGET:
                job.needs_usd = None
            job.held_reason = HeldReason.BATCH_PAUSED if job.batch.paused else None
            if job.held_reason is None and job.scheduled_at <= self._tables.now():
                self._tables.move(job, JobState.AVAILABLE, "release")
            self._tables.note(job, "release", actor, reason=reason)
        return [job.new.id for job in waiting]

    async def pause_batch(self, batch_id: UUID, actor: str, *, paused: bool, on_page: OnPage = no_page) -> int:
        batch = self._tables.batch(batch_id)
        batch.paused = paused
        if not paused:
            return await self.release(batch_id, HeldReason.BATCH_PAUSED, actor, on_page)
        return len(_by_page(self._tables.of_batch(batch_id), lambda jobs: self._hold(jobs, actor), on_page))

    def _hold(self, jobs: Sequence[JobRow], actor: str) -> list[UUID]:
        waiting = [
            job for job in jobs if job.state in {JobState.SCHEDULED, JobState.AVAILABLE} and job.held_reason is None
        ]
        for job in waiting:
            if job.state is JobState.AVAILABLE:
                self._tables.move(job, JobState.SCHEDULED, "hold")
            job.held_reason = HeldReason.BATCH_PAUSED
            self._tables.note(job, "hold", actor, held_reason=job.held_reason)
        return [job.new.id for job in waiting]

    async def set_budget(self, batch_id: UUID, max_cost_usd: Decimal | None, actor: str) -> None:
        self._tables.batch(batch_id).max_cost_usd = max_cost_usd
        self._release(self._tables.of_batch(batch_id), HeldReason.BUDGET, actor)


def _by_page(jobs: Sequence[JobRow], change: Callable[[Sequence[JobRow]], list[UUID]], on_page: OnPage) -> list[UUID]:
    """Change jobs page by page; returns the ids changed."""
    changed: list[UUID] = []
    for at in range(0, len(jobs), PAGE_ROWS):
        page = jobs[at : at + PAGE_ROWS]
        done = change(page)
        changed += done
        on_page(Page(len(page), done))
    return changed
