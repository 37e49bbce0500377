"""The duties of the leader in the in-memory ledger."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

from schemas.failure import Failure, FailureKind
from schemas.states import HeldReason, JobState, Step
from tasks.policy.asks import mark_winner
from tasks.ports import LAST_RESCUES, BatchCounts, ClosedAttempt, Duties, Outlook
from tasks.scheduling.defaults import MAX_RESCUES
from tasks.scheduling.rescue import ABANDONED_AFTER
from tests.fakes.ledger.rules import close_attempt, end, free_usd, fund, has_room, latest_answer, unpublished_jobs
from tests.fakes.ledger.tables import UNKNOWN, AttemptRow, BatchRow, JobRow, MemoryTables

_LATEST = datetime.max.replace(tzinfo=UTC)
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class MemoryDuties(Duties):
    """Duties of the leader, each over all rows."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables
        self._leader: str | None = None
        self._leads_until = datetime.min.replace(tzinfo=UTC)
        self._leader_has_broker = True

    async def attend(
        self,
        worker: str,
        lead_for: timedelta,
        publish_after: timedelta,
        check_backlog: int,
        *,
        broker: bool | None = None,
        may_lead: bool = True,
    ) -> Outlook:
        now, jobs = self._tables.now(), self._tables.jobs.values()
        better = broker is True and not self._leader_has_broker
        free = better or self._leader == worker or not now < self._leads_until <= now + 2 * lead_for
        if may_lead and free:
            self._leader, self._leads_until = worker, now + lead_for
            self._leader_has_broker = broker is not False
        available = [job.step for job in jobs if job.state is JobState.AVAILABLE]
        checks = sum(step in {Step.CHECK, Step.LOCAL} for step in available)
        leads = self._leader == worker
        scheduled = [job for job in jobs if job.state is JobState.SCHEDULED and job.held_reason is None]
        return Outlook(
            leads=leads,
            server_age=now - self._tables.started_at,
            check_behind=checks > check_backlog,
            without_broker=not leads and not self._leader_has_broker,
            available=frozenset(available),
            due=leads and any(job.scheduled_at <= now for job in scheduled),
            unsettled=leads and any(self._is_unsettled(batch) for batch in self._tables.batches.values()),
            late=leads and any(job.active and job.past_deadline(now) for job in jobs),
            lost=leads and any(self._is_lost(job, now) for job in jobs),
            unpublished=leads and bool(unpublished_jobs(self._tables, publish_after)),
            republishing=leads and self._tables.walk is not None,
        )

    def _is_unsettled(self, batch: BatchRow) -> bool:
        return batch.least_needed_usd is not None and (batch.hold_from is not None or has_room(batch))

    def _is_lost(self, job: JobRow, now: datetime) -> bool:
        ran_out = job.lease_until is not None and job.lease_until < now
        return ran_out or (job.final and any(attempt.closed_at is None for attempt in job.attempts))

    async def urgent_waits(self, older_than: timedelta) -> bool:
        before = self._tables.now() - older_than
        return any(
            job.state is JobState.AVAILABLE
            and job.step in {Step.GENERATE, Step.CHECK}
            and job.new.priority > 0
            and job.available_at < before
            for job in self._tables.jobs.values()
        )

    async def resign(self, worker: str) -> None:
        if self._leader == worker:
            self._leader, self._leads_until = None, _EARLIEST

    async def promote(self, limit: int) -> int:
        now = self._tables.now()
        due = [
            job
            for job in self._tables.jobs.values()
            if job.state is JobState.SCHEDULED
            and job.held_reason is None
            and job.scheduled_at <= now
            and not job.batch.paused
        ]
        due = sorted(due, key=lambda job: (job.scheduled_at, job.order))[:limit]
        for job in due:
            self._tables.move(job, JobState.AVAILABLE, "promote")
        return len(due)

    async def take_hints(
        self, step: Step, depth: int, limit: int, again_after: timedelta, *, min_priority: int | None = None
    ) -> list[tuple[UUID, int]]:
        now = self._tables.now()
        ready = [job for job in self._tables.jobs.values() if job.state is JobState.AVAILABLE and job.step is step]
        if min_priority is not None:
            ready = [job for job in ready if job.new.priority >= min_priority]
        since = max(now - again_after, self._tables.hints_lost_at)
        fresh = [job for job in ready if job.hinted_at is not None and job.hinted_at > since]
        rest = [job for job in ready if job not in fresh and not job.past_deadline(now)]
        rest.sort(key=_urgency)
        turns: dict[tuple[int, str], count[int]] = {}
        ranked = [
            (
                -job.new.priority,
                next(turns.setdefault((job.new.priority, job.new.tenant), count())),
                *_urgency(job),
                job,
            )
            for job in rest
        ]
        ranked.sort(key=lambda row: row[:-1])
        chosen = [row[-1] for row in ranked[: max(0, min(limit, depth - len(fresh)))]]
        for job in chosen:
            job.hinted_at = now
        return [(job.new.id, job.new.priority) for job in chosen]

    async def reassign(self, step: Step, to: Step, limit: int) -> list[UUID]:
        unserved = [job for job in self._tables.jobs.values() if job.state is JobState.AVAILABLE and job.step is step][
            :limit
        ]
        for job in unserved:
            job.step, job.hinted_at = to, None
            self._tables.note(job, "unserved", "dispatch", step=step, to=to)
        return [job.new.id for job in unserved]

    async def batch_counts(self, batch_ids: Sequence[UUID], newest: int) -> list[BatchCounts]:
        batches = sorted(self._tables.batches.items(), key=lambda item: item[1].created_at)
        chosen = [item for item in batches if item[0] in batch_ids or item in batches[-newest:]]
        rows = []
        for batch_id, batch in chosen:
            counts = BatchCounts(batch_id, batch.new.name)
            for job in self._tables.jobs.values():
                if job.batch is batch:
                    counts.add(job.state, job.outcome, job.held_reason, 1)
            rows.append(counts)
        return rows

    async def backlog(self, step: Step, at_most: int) -> int:
        ready = sum(job.state is JobState.AVAILABLE and job.step is step for job in self._tables.jobs.values())
        return min(ready, at_most)

    async def expire(self, limit: int) -> list[UUID]:
        now = self._tables.now()
        late = [job for job in self._tables.jobs.values() if job.active and job.past_deadline(now)][:limit]
        answered = [job for job in late if job.correction is not None and job.correction.asks]
        for job in answered:
            self._return_to_best(job)
        late = [job for job in late if job not in answered]
        for job in late:
            end(
                self._tables,
                job,
                JobState.EXPIRED,
                "expire",
                Failure(kind=FailureKind.EXPIRED, message="deadline passed"),
            )
            self._tables.note(job, "expire", "dispatch")
        return [job.new.id for job in late]

    def _return_to_best(self, job: JobRow) -> None:
        """A job that was asked again has an answer; its best one is checked again without a deadline."""
        job.deadline = None
        if job.correction is None or job.correction.given_up is not None:
            return
        best = max(ask.round for ask in job.correction.asks if ask.better)
        asks = mark_winner(job.correction.asks, best)
        update = {"given_up": "the deadline passed", "previous": "", "problems": (), "asks": asks}
        job.correction = job.correction.model_copy(update=update)
        if job.state is not JobState.AVAILABLE:
            self._tables.move(job, JobState.AVAILABLE, "expire")
        job.step, job.round, job.needs_usd = job.request.config.check_step, best, None
        job.limited_ms, job.rescues = 0.0, 0
        self._tables.note(job, "deadline", "dispatch")

    async def rescue(self, limit: int, unknown_reason: HeldReason | None, max_rescues: int = MAX_RESCUES) -> list[UUID]:
        now = self._tables.now()
        stale = [
            job
            for job in self._tables.jobs.values()
            if job.state is JobState.RUNNING and job.lease_until is not None and job.lease_until < now
        ][:limit]
        for job in stale:
            if _is_over(job, unknown_reason, max_rescues):
                self._give_up(job)
                continue
            job.rescues += 1
            worker, reason = job.worker, self._close_as_unknown(job, unknown_reason)
            if reason is None:
                self._tables.move(job, JobState.AVAILABLE, "rescue")
            else:
                job.scheduled_at, job.held_reason = now, reason
                self._tables.move(job, JobState.SCHEDULED, "rescue")
            self._tables.note(job, "rescue", "dispatch", from_worker=worker, held_reason=reason)
        for job in self._tables.jobs.values():
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
        end(self._tables, job, JobState.FAILED, "rescue", Failure(kind=FailureKind.WORKER_LOST, message=message))
        self._tables.note(job, "given_up", "dispatch")

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
            at=self._tables.now(),
        )
        close_attempt(
            self._tables,
            ClosedAttempt(
                attempt.new.id, job.new.id, attempt.new.token, job.step, UNKNOWN, spent=False, failure=failure
            ),
        )

    # a person's verbs

    async def fold_counts(self, rows: int) -> int:
        return 0

    async def refresh_statistics(self) -> list[str]:
        return []

    async def close_windows(self) -> int:
        return 0

    async def settle_budgets(self, rows: int) -> int:
        changed = 0
        for batch in self._tables.batches.values():
            funded = fund(self._tables, batch)
            changed += funded
            if not funded and batch.hold_from is not None:
                changed += self._hold_waiting(batch)
        return changed

    def _hold_waiting(self, batch: BatchRow) -> int:
        least = batch.least_needed_usd
        if least is None or free_usd(self._tables, batch) >= least:
            return 0
        batch.hold_from = None
        rest = [job for job in self._tables.of_batch(batch.new.id) if _not_begun(job)]
        for job in rest:
            job.needs_usd, job.scheduled_at, job.held_reason = least, self._tables.now(), HeldReason.BUDGET
            self._tables.move(job, JobState.SCHEDULED, "hold")
        return len(rest)


def _urgency(job: JobRow) -> tuple[datetime, int]:
    return job.deadline or _LATEST, job.order


def _is_over(job: JobRow, unknown_reason: HeldReason | None, max_rescues: int) -> bool:
    """Tell a job that is given up from one that is leased again."""
    if job.rescues < max_rescues or (unknown_reason is not None and job.open_attempts(job.token)):
        return False
    if job.rescues >= max_rescues + LAST_RESCUES:
        return True
    return job.step is Step.GENERATE and not job.round and latest_answer(job, None) is None


def _not_begun(job: JobRow) -> bool:
    return job.state is JobState.AVAILABLE and job.step is Step.GENERATE and job.round == 0 and job.needs_usd is None
