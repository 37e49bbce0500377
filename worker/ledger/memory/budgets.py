"""Shares the money of a batch in the in-memory ledger among the jobs that wait for it."""

from decimal import Decimal

from schemas.states import HeldReason, JobState, Step
from worker.ledger.budgets import AT_ONCE
from worker.ledger.memory.tables import BatchRow, JobRow, MemoryTables


class MemoryBudgets(MemoryTables):
    """What is held for want of money, and let go when some comes back, as in Postgres."""

    def _wait_for_money(self, job: JobRow, usd: Decimal) -> None:
        """Hold a job whose reservation was refused."""
        batch = job.batch
        if batch.least_needed_usd is None:
            batch.hold_from = 0
        batch.least_needed_usd = min(usd, batch.least_needed_usd or usd)
        job.needs_usd, job.scheduled_at, job.held_reason = usd, self._now(), HeldReason.BUDGET
        self._move(job, JobState.SCHEDULED, "open_attempts")
        self._note(job, "budget", "worker", held_reason=HeldReason.BUDGET)

    def _waiting(self, batch: BatchRow) -> list[tuple[Decimal, int, JobRow]]:
        """The jobs of a batch that wait for money, those that need the least first."""
        waiting = [
            (job.needs_usd, job.order, job)
            for job in self._of_batch(batch.new.id)
            if job.held_reason is HeldReason.BUDGET and job.needs_usd is not None
        ]
        return sorted(waiting, key=lambda row: row[:2])

    def _room(self, batch: BatchRow) -> Decimal:
        """What is neither spent, reserved nor promised."""
        if batch.max_cost_usd is None:
            return Decimal("Infinity")
        promised = [
            job.needs_usd
            for job in self._of_batch(batch.new.id)
            if job.active and job.held_reason is None and job.needs_usd is not None
        ]
        return batch.max_cost_usd - batch.reserved_usd - batch.spent_usd - sum(promised, Decimal(0))

    def _has_room(self, batch: BatchRow) -> bool:
        """Whether a job that waits may go on, unless what there is was promised to another."""
        if batch.least_needed_usd is None or batch.paused:
            return False
        if batch.max_cost_usd is None:
            return True
        return batch.max_cost_usd - batch.reserved_usd - batch.spent_usd >= batch.least_needed_usd

    def _has_room_now(self, batch: BatchRow) -> bool:
        """True if no later closing brings more money back, or what came back is worth sharing out now."""
        least, ceiling = batch.least_needed_usd, batch.max_cost_usd
        if least is None or ceiling is None or not batch.reserved_usd:
            return self._has_room(batch)
        return ceiling - batch.reserved_usd - batch.spent_usd >= least * AT_ONCE and self._has_room(batch)

    def _fund(self, batch: BatchRow) -> int:
        """Let jobs go on that there is money for."""
        if not self._has_room(batch):
            return 0
        room, funded = self._room(batch), 0
        for usd, _, job in self._waiting(batch):
            if usd > room:
                break
            room -= usd
            self._move(job, JobState.AVAILABLE, "settle_budgets")
            funded += 1
        waiting = self._waiting(batch)
        batch.least_needed_usd = waiting[0][0] if waiting else None
        return funded

    async def settle_budgets(self, rows: int) -> int:  # noqa: ARG002 - nothing waits here, so no pages
        """Let go what there is money for; hold what did not begin where there is none."""
        changed = 0
        for batch in self._batches.values():
            funded = self._fund(batch)
            changed += funded
            if not funded and batch.hold_from is not None:
                changed += self._hold_waiting(batch)
        return changed

    def _hold_waiting(self, batch: BatchRow) -> int:
        least = batch.least_needed_usd
        if least is None or self._room(batch) >= least:
            return 0
        batch.hold_from = None
        rest = [job for job in self._of_batch(batch.new.id) if _not_begun(job)]
        for job in rest:
            job.needs_usd, job.scheduled_at, job.held_reason = least, self._now(), HeldReason.BUDGET
            self._move(job, JobState.SCHEDULED, "hold")
        return len(rest)


def _not_begun(job: JobRow) -> bool:
    return job.state is JobState.AVAILABLE and job.step is Step.GENERATE and job.round == 0 and job.needs_usd is None
