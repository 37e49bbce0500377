"""Shares the answers of identical calls in the in-memory ledger."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from schemas.completion import Completion, SharedFrom, Usage
from schemas.states import JobState, Step
from tasks.ports import CacheLookup, CacheResult, CacheStatus, StoredAnswer
from worker.ledger.memory.running import MemoryRunning
from worker.ledger.memory.tables import OK, AttemptRow, JobRow


class MemorySharing(MemoryRunning):
    """The verb that shares answers."""

    async def share(self, wanted: Sequence[CacheLookup]) -> list[CacheResult]:
        """Give jobs the answers of identical calls, where they are stored."""
        return [self._share(one) for one in wanted]

    def _share(self, wanted: CacheLookup) -> CacheResult:
        new = wanted.attempt
        if new.id in self._attempts:
            return CacheResult(CacheStatus.TAKEN)
        job = self._jobs.get(new.job_id)
        if job is None or not job.held_by(new.token, Step.GENERATE):
            return CacheResult(CacheStatus.LOST)
        if new.share is None or job.winner(new.run, new.round, new.purpose) is not None:
            return CacheResult(CacheStatus.NONE)
        if (found := self._shareable(job, new.share)) is not None:
            self._take(job, wanted, found)
            return CacheResult(CacheStatus.TAKEN)
        if (since := self._under_way(job, new.share)) is not None:
            return CacheResult(CacheStatus.UNDER_WAY, self._now() - since)
        return CacheResult(CacheStatus.NONE)

    def _take(self, job: JobRow, wanted: CacheLookup, found: AttemptRow) -> None:
        assert found.answer is not None
        assert found.closed_at is not None
        now, new = self._now(), wanted.attempt
        shared_from = SharedFrom(job_id=found.new.job_id, attempt_id=found.new.id, answered_at=found.closed_at)
        told = found.answer.completion.model_dump() | {"usage": Usage(), "cost_usd": Decimal(0)}
        told["snapshot"] |= wanted.snapshot | {"shared_from": shared_from}
        row = AttemptRow(
            # What was taken is not given on: others take it from whom it came.
            new=replace(new, share=None, reserved_usd=Decimal(0)),
            opened_at=now,
            closed_at=now,
            outcome=OK,
            answer=StoredAnswer(found.answer.raw, Completion.model_validate(told), wanted.prompt),
            won=True,
            cost_usd=Decimal(0),
            timing_ms=dict(wanted.timing_ms),
            shared_from=found.new.id,
        )
        self._attempts[new.id] = row
        job.attempts.append(row)
        job.step, job.rescues, job.needs_usd = wanted.then, 0, None
        self._move(job, JobState.AVAILABLE, "share")
        job.hinted_at = now  # whoever takes it sends the hint right after
