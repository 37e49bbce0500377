"""The rules that several stores of the in-memory ledger share: ending jobs, money, closing attempts, identical calls."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from schemas import CONTRACT_VERSION
from schemas.failure import Failure, FailureKind
from schemas.model_call import FinishReason
from schemas.record import GenerationRecord, RecordStatus
from schemas.states import HeldReason, JobState, Step
from tasks.calls.response_cache import MOST_FAILED
from tasks.ports import Advance, ClosedAttempt, LeaseKey, NewAttempt, Purpose, ShareTerms
from tests.fakes.ledger.tables import OK, PURPOSES, UNKNOWN, AttemptRow, BatchRow, JobRow, MemoryTables
from worker.ledger.budgets import AT_ONCE

_MS = timedelta(milliseconds=1)


def cancel(tables: MemoryTables, jobs: Sequence[JobRow], actor: str) -> list[UUID]:
    active = [job for job in jobs if job.active]
    for job in active:
        failure = Failure(kind=FailureKind.CANCELLED, message=f"cancelled by {actor}")
        end(tables, job, JobState.CANCELLED, "cancel", failure)
        tables.note(job, "cancel", actor)
    return [job.new.id for job in active]


def end(tables: MemoryTables, job: JobRow, state: JobState, verb: str, failure: Failure) -> None:
    """Finish a job without an answer, with the least record."""
    now, request = tables.now(), job.request
    tables.move(job, state, verb)
    job.records[job.run] = GenerationRecord(
        job_id=job.new.id,
        run=job.run,
        tenant=job.new.tenant,
        message_id=job.message_id,
        retrieval_record_id=request.retrieval_record_id,
        trace_id=request.trace_id,
        request_id=request.request_id,
        contract_version=CONTRACT_VERSION,
        output_format=request.config.output_format,
        status=RecordStatus.FAILED,
        error_message=failure.message,
        failure=failure.model_copy(update={"at": now}),
        created_at=now,
        replay_of=job.new.replay.of if job.new.replay else None,
    )


def wait_for_money(tables: MemoryTables, job: JobRow, usd: Decimal) -> None:
    """Hold a job whose reservation was refused."""
    batch = job.batch
    if batch.least_needed_usd is None:
        batch.hold_from = 0
    batch.least_needed_usd = min(usd, batch.least_needed_usd or usd)
    job.needs_usd, job.scheduled_at, job.held_reason = usd, tables.now(), HeldReason.BUDGET
    tables.move(job, JobState.SCHEDULED, "open_attempts")
    tables.note(job, "budget", "worker", held_reason=HeldReason.BUDGET)


def waiting_jobs(tables: MemoryTables, batch: BatchRow) -> list[tuple[Decimal, int, JobRow]]:
    """The jobs of a batch that wait for money, those that need the least first."""
    waiting = [
        (job.needs_usd, job.order, job)
        for job in tables.of_batch(batch.new.id)
        if job.held_reason is HeldReason.BUDGET and job.needs_usd is not None
    ]
    return sorted(waiting, key=lambda row: row[:2])


def free_usd(tables: MemoryTables, batch: BatchRow) -> Decimal:
    """Money that is neither spent, reserved nor promised."""
    if batch.max_cost_usd is None:
        return Decimal("Infinity")
    promised = [
        job.needs_usd
        for job in tables.of_batch(batch.new.id)
        if job.active and job.held_reason is None and job.needs_usd is not None
    ]
    return batch.max_cost_usd - batch.reserved_usd - batch.spent_usd - sum(promised, Decimal(0))


def has_room(batch: BatchRow) -> bool:
    """Tell whether a waiting job may go on, unless the money is promised to another."""
    if batch.least_needed_usd is None or batch.paused:
        return False
    if batch.max_cost_usd is None:
        return True
    return batch.max_cost_usd - batch.reserved_usd - batch.spent_usd >= batch.least_needed_usd


def has_room_now(batch: BatchRow) -> bool:
    """True if no later closing brings more money back, or what came back is worth sharing out now."""
    least, ceiling = batch.least_needed_usd, batch.max_cost_usd
    if least is None or ceiling is None or not batch.reserved_usd:
        return has_room(batch)
    return ceiling - batch.reserved_usd - batch.spent_usd >= least * AT_ONCE and has_room(batch)


def fund(tables: MemoryTables, batch: BatchRow) -> int:
    """Let jobs go on that there is money for."""
    if not has_room(batch):
        return 0
    room, funded = free_usd(tables, batch), 0
    for usd, _, job in waiting_jobs(tables, batch):
        if usd > room:
            break
        room -= usd
        tables.move(job, JobState.AVAILABLE, "settle_budgets")
        funded += 1
    waiting = waiting_jobs(tables, batch)
    batch.least_needed_usd = waiting[0][0] if waiting else None
    return funded


def close_attempt(tables: MemoryTables, closed: ClosedAttempt) -> None:
    row = tables.attempts.get(closed.id)
    if row is None or row.outcome not in {None, UNKNOWN}:
        return
    job, new = tables.jobs[row.new.job_id], row.new
    if row.outcome == UNKNOWN and closed.outcome == OK:
        free(tables, job, new, closed.step)
    if row.closed_at is None:
        job.batch.reserved_usd -= new.reserved_usd or Decimal(0)
    worst_case = closed.outcome == UNKNOWN and closed.cost_usd is None
    cost_usd = new.reserved_usd if worst_case else closed.cost_usd
    job.batch.spent_usd += (cost_usd or Decimal(0)) - (row.cost_usd or Decimal(0))
    row.closed_at, row.outcome, row.spent = tables.now(), closed.outcome, closed.spent
    row.cost_usd, row.failure, row.timing_ms = cost_usd, closed.failure, dict(closed.timing_ms)
    if closed.answer is not None and (row.answer is None or closed.outcome == OK):
        row.answer = closed.answer
        row.won = closed.outcome == OK and job.winner(new.run, new.round, new.purpose) is None


def free(tables: MemoryTables, job: JobRow, attempt: NewAttempt, step: Step) -> None:
    """Release a job that is held for the outcome of this attempt."""
    waits_for = (job.held_reason, job.run, job.round, job.step)
    if waits_for != (HeldReason.UNKNOWN_OUTCOME, attempt.run, attempt.round, step):
        return
    tables.note(job, "release", "worker", reason=job.held_reason)
    job.held_reason = HeldReason.BATCH_PAUSED if job.batch.paused else None
    if job.held_reason is None:
        tables.move(job, JobState.AVAILABLE, "close_attempts")


def held_job(tables: MemoryTables, lease: LeaseKey) -> JobRow | None:
    job = tables.jobs.get(lease.job_id)
    return job if job is not None and job.held_by(lease.token) else None


def move_on(tables: MemoryTables, job: JobRow, advance: Advance, verb: str) -> None:
    if (job.step, job.round) != (advance.step, advance.round):
        job.limited_ms, job.rescues = 0.0, 0
    elif advance.limited:
        job.limited_ms += (tables.now() - job.available_at + advance.delay) / _MS
    if job.step is not advance.step:
        job.needs_usd = None
    job.step, job.round = advance.step, advance.round
    if advance.state is JobState.SCHEDULED:
        job.scheduled_at = tables.now() + advance.delay
        job.held_reason = advance.held_reason
    tables.move(job, advance.state, verb)
    if advance.event is not None:
        delay_s = advance.delay.total_seconds()
        tables.note(job, advance.event, "worker", held_reason=advance.held_reason, delay_s=delay_s)


def identical_calls(tables: MemoryTables, job: JobRow, terms: ShareTerms) -> Iterator[AttemptRow]:
    """The calls that other jobs of the tenant made for the same, and those for it that are not too old."""
    oldest = tables.now() - terms.within
    for row in tables.attempts.values():
        job_of_row = tables.jobs[row.new.job_id]
        if (
            row.new.share is not None
            and row.new.share.key == terms.key
            and job_of_row.new.tenant == job.new.tenant
            and (row.closed_at is None or row.closed_at > oldest)
        ):
            yield row


def shareable(tables: MemoryTables, job: JobRow, terms: ShareTerms) -> AttemptRow | None:
    """The newest answer that the job may take."""
    answers = [
        (row.closed_at, row)
        for row in identical_calls(tables, job, terms)
        if row.closed_at is not None
        and row.outcome == OK
        and row.won
        and row.answer is not None
        and row.answer.completion.finish_reason is FinishReason.STOP
    ]
    return max(answers, key=lambda pair: pair[0])[1] if answers else None


def under_way(tables: MemoryTables, job: JobRow, terms: ShareTerms) -> datetime | None:
    """Since when a call is under way that the job may wait for."""
    now = tables.now()
    if not terms.wait or job.past_deadline(now + terms.wait):
        return None
    twins = [row for row in identical_calls(tables, job, terms) if row.new.job_id != job.new.id]
    failed = sum(row.spent or row.outcome == UNKNOWN for row in twins)
    if failed >= MOST_FAILED or any(row.outcome == OK for row in twins):
        return None
    since = [row.opened_at for row in twins if row.closed_at is None and row.opened_at > now - terms.wait]
    return min(since, default=None)


def unpublished_jobs(tables: MemoryTables, older_than: timedelta) -> list[JobRow]:
    now = tables.now()
    due = [
        (job.finished_at, job.order, job)
        for job in tables.jobs.values()
        if job.published_at is None and job.finished_at is not None and job.finished_at <= now - older_than
        if job.aside_until is None or job.aside_until <= now
    ]
    return [job for _, _, job in sorted(due, key=lambda row: row[:2])]


def latest_answer(job: JobRow, up_to: int | None) -> AttemptRow | None:
    """The winning answer of the job's round: of its run, or of the latest run ``up_to`` that has one."""
    runs = [job.run] if up_to is None else range(up_to, 0, -1)
    purposes = [purpose for purpose in Purpose if purpose in PURPOSES[Step.GENERATE]]
    winners = (job.winner(run, job.round, purpose) for run in runs for purpose in purposes)
    return next((row for row in winners if row is not None), None)
