"""The attempts of the in-memory ledger, and the answers and verdicts of earlier calls."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from uuid import UUID

from schemas.model_call import Completion, SharedFrom, Usage
from schemas.states import JobState, Step
from tasks.ports import (
    AnswerCache,
    Attempts,
    CachedVerdict,
    CacheLookup,
    CacheResult,
    CacheStatus,
    ClosedAttempt,
    NewAttempt,
    NewVerdicts,
    OnLost,
    Opened,
    Purpose,
    StoredAnswer,
    VerdictQuery,
)
from tests.fakes.ledger.rules import (
    close_attempt,
    fund,
    has_room_now,
    move_on,
    shareable,
    under_way,
    wait_for_money,
)
from tests.fakes.ledger.tables import OK, AttemptRow, BatchRow, JobRow, MemoryTables


class MemoryAttempts(Attempts):
    """Attempts are closed by id alone; the job moves where the lease still holds."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def open_attempts(self, attempts: Sequence[NewAttempt]) -> list[Opened]:
        return [self._open(attempt) for attempt in attempts]

    def _open(self, new: NewAttempt) -> Opened:
        job = self._tables.jobs.get(new.job_id)
        if (
            job is None
            or not job.held_by(new.token)
            or job.lease_until is None
            or job.lease_until <= self._tables.now()
        ):
            return Opened.STALE if new.id in self._tables.attempts else Opened.LOST
        if new.id in self._tables.attempts:
            return Opened.OPENED
        if job.winner(new.run, new.round, new.purpose) is not None:
            return Opened.ANSWERED
        if new.share is not None and (
            shareable(self._tables, job, new.share) or under_way(self._tables, job, new.share)
        ):
            return Opened.DUPLICATE
        return self._reserve(job, new)

    def _reserve(self, job: JobRow, new: NewAttempt) -> Opened:
        batch = job.batch
        reserve_usd = new.reserved_usd or Decimal(0)
        committed = batch.reserved_usd + batch.spent_usd + reserve_usd
        if batch.max_cost_usd is not None and reserve_usd and committed > batch.max_cost_usd:
            holds = new.required and new.purpose in {Purpose.GENERATE, Purpose.JUDGE}
            if not holds or job.open_attempts(new.token):
                return Opened.OVER_BUDGET
            wait_for_money(self._tables, job, reserve_usd)
            return Opened.ON_HOLD
        row = AttemptRow(new=new, opened_at=self._tables.now())
        self._tables.attempts[new.id] = row
        job.attempts.append(row)
        batch.reserved_usd += reserve_usd
        job.needs_usd = None
        return Opened.OPENED

    async def put_back(self, attempts: Sequence[NewAttempt]) -> None:
        raise NotImplementedError("this ledger loses nothing")

    async def close_attempts(self, closed: Sequence[ClosedAttempt], on_lost: OnLost | None = None) -> set[UUID]:
        advanced = set()
        paid: dict[UUID, BatchRow] = {}
        for closing in closed:
            job = self._tables.jobs.get(closing.job_id)
            row = self._tables.attempts.get(closing.id)
            beaten = job is not None and row is not None and job.winner(row.new.run, row.new.round, row.new.purpose)
            close_attempt(self._tables, closing)
            if job is not None:
                paid[job.batch.new.id] = job.batch
            if closing.then is None or job is None:
                continue
            keeps = closing.then.state is JobState.RUNNING
            if keeps and closing.then.step is not closing.step and job.held_by(closing.token, closing.then.step):
                advanced.add(closing.job_id)  # an earlier try wrote it
            elif keeps and beaten and job.held_by(closing.token, closing.step):
                move_on(self._tables, job, replace(closing.then, state=JobState.AVAILABLE), "close_attempts")
            elif job.held_by(closing.token, closing.step):
                move_on(self._tables, job, closing.then, "close_attempts")
                if job.state is JobState.AVAILABLE:
                    job.hinted_at = self._tables.now()  # whoever closes the attempt sends the hint right after
                advanced.add(closing.job_id)
        for batch in paid.values():
            if has_room_now(batch):
                fund(self._tables, batch)
        return advanced


class MemoryAnswerCache(AnswerCache):
    """Stored answers by share key, and verdicts of judges by batch and key."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def share(self, lookups: Sequence[CacheLookup]) -> list[CacheResult]:
        return [self._share(lookup) for lookup in lookups]

    def _share(self, lookup: CacheLookup) -> CacheResult:
        new = lookup.attempt
        if new.id in self._tables.attempts:
            return CacheResult(CacheStatus.REUSED)
        job = self._tables.jobs.get(new.job_id)
        if job is None or not job.held_by(new.token, Step.GENERATE):
            return CacheResult(CacheStatus.LOST)
        if new.share is None or job.winner(new.run, new.round, new.purpose) is not None:
            return CacheResult(CacheStatus.NONE)
        if (source := shareable(self._tables, job, new.share)) is not None:
            self._take(job, lookup, source)
            return CacheResult(CacheStatus.REUSED)
        if (since := under_way(self._tables, job, new.share)) is not None:
            return CacheResult(CacheStatus.UNDER_WAY, self._tables.now() - since)
        return CacheResult(CacheStatus.NONE)

    def _take(self, job: JobRow, lookup: CacheLookup, source: AttemptRow) -> None:
        assert source.answer is not None
        assert source.closed_at is not None
        now, new = self._tables.now(), lookup.attempt
        shared_from = SharedFrom(job_id=source.new.job_id, attempt_id=source.new.id, answered_at=source.closed_at)
        answer = source.answer.completion.model_dump() | {"usage": Usage(), "cost_usd": Decimal(0)}
        answer["snapshot"] |= lookup.snapshot | {"shared_from": shared_from}
        row = AttemptRow(
            # What was taken is not given on: others take it from whom it came.
            new=replace(new, share=None, reserved_usd=Decimal(0)),
            opened_at=now,
            closed_at=now,
            outcome=OK,
            answer=StoredAnswer(source.answer.raw, Completion.model_validate(answer), lookup.prompt),
            won=True,
            cost_usd=Decimal(0),
            timing_ms=dict(lookup.timing_ms),
            shared_from=source.new.id,
        )
        self._tables.attempts[new.id] = row
        job.attempts.append(row)
        job.step, job.rescues, job.needs_usd = lookup.then, 0, None
        self._tables.move(job, JobState.AVAILABLE, "share")
        job.hinted_at = now  # whoever takes it sends the hint right after

    async def find_verdicts(self, queries: Sequence[VerdictQuery]) -> list[dict[bytes, CachedVerdict]]:
        return [
            {key: self._verdict_at(*self._tables.verdicts[query.batch_id, key]) for key in query.keys
             if (query.batch_id, key) in self._tables.verdicts}
            for query in queries
        ]  # fmt: skip

    def _verdict_at(self, attempt_id: UUID, number: int) -> CachedVerdict:
        row = self._tables.attempts[attempt_id]
        assert row.answer is not None
        return CachedVerdict(attempt_id, row.new.job_id, number, row.answer.completion.text)

    async def store_verdicts(self, verdicts: Sequence[NewVerdicts]) -> None:
        for reply in verdicts:
            row = self._tables.attempts.get(reply.attempt_id)
            if row is None or row.answer is None or row.new.purpose is not Purpose.JUDGE:
                continue
            for key, number in reply.numbers:
                self._tables.verdicts.setdefault((row.new.batch_id, key), (reply.attempt_id, number))
