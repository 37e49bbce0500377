"""The rows of the in-memory ledger, its clock, and the one guarded way to change a job's state."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from schemas.failure import Failure
from schemas.job import JobRequest, Recheck
from schemas.model_call import Correction
from schemas.record import GenerationRecord
from schemas.states import ACTIVE_STATES, FINAL_STATES, TRANSITIONS, HeldReason, JobState, Outcome, Step
from tasks.errors import NotFound
from tasks.ports import InputLine, NewAttempt, NewBatch, NewJob, Purpose, StoredAnswer

OK = "ok"
UNKNOWN = "unknown"

PURPOSES: dict[Step, frozenset[Purpose]] = {
    Step.GENERATE: frozenset({Purpose.GENERATE, Purpose.REASK, Purpose.CORRECT, Purpose.ESCALATE}),
    Step.CHECK: frozenset({Purpose.JUDGE}),
    Step.LOCAL: frozenset({Purpose.JUDGE}),
}
"""The purposes whose attempts count for a step."""


def wall_clock() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


@dataclass(slots=True)
class BatchRow:
    """A batch and its money."""

    new: NewBatch
    created_at: datetime
    max_cost_usd: Decimal | None
    reserved_usd: Decimal = Decimal(0)
    spent_usd: Decimal = Decimal(0)
    least_needed_usd: Decimal | None = None
    """The least that a job needs which waits for money; None: none waits."""
    hold_from: int | None = None
    """Not None: jobs that did not begin are still to be held."""
    paused: bool = False
    cancelled_at: datetime | None = None
    cancelling_by: str | None = None
    """The person who cancels, until the last page is done."""
    input_lines: list[InputLine] = field(default_factory=list)
    """What was handed in with it and is no job of it."""


@dataclass(slots=True)
class AttemptRow:
    """An attempt with, once it got an answer, its completion."""

    new: NewAttempt
    opened_at: datetime
    closed_at: datetime | None = None
    outcome: str | None = None
    spent: bool = False
    answer: StoredAnswer | None = None
    won: bool = False
    failure: Failure | None = None
    cost_usd: Decimal | None = None
    timing_ms: dict[str, float] = field(default_factory=dict)
    shared_from: UUID | None = None
    """The attempt whose answer was taken; no call was made."""


@dataclass(slots=True)
class JobRow:
    """A job with everything that hangs on it."""

    new: NewJob
    batch: BatchRow
    request: JobRequest
    order: int
    """Place in the order of acceptance."""
    created_at: datetime
    due_at: datetime
    """When this run was due at first: later delays move ``scheduled_at`` only."""
    scheduled_at: datetime
    available_at: datetime
    deadline: datetime | None
    state: JobState
    step: Step
    run: int = 1
    round: int = 0
    rescues: int = 0
    correction: Correction | None = None
    recheck: Recheck | None = None
    limited_ms: float = 0.0
    held_reason: HeldReason | None = None
    needs_usd: Decimal | None = None
    """What it wants reserved: of a job that waits for money, or was let go and has not begun."""
    hinted_at: datetime | None = None
    token: UUID | None = None
    lease_until: datetime | None = None
    worker: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    published_at: datetime | None = None
    aside_until: datetime | None = None
    """Until then its result is not published: it could not be."""
    aside_reason: str | None = None
    outcome: Outcome | None = None
    attempts: list[AttemptRow] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    records: dict[int, GenerationRecord] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """True in a final state."""
        return self.state in FINAL_STATES

    @property
    def active(self) -> bool:
        """True until the job reaches a final state."""
        return self.state in ACTIVE_STATES

    @property
    def message_id(self) -> str:
        """The message id given, else the job id."""
        return self.new.record_message_id

    @property
    def cost_usd(self) -> Decimal:
        """Sum over all attempts of all runs; an unknown price adds nothing."""
        return sum((attempt.cost_usd or Decimal(0) for attempt in self.attempts), Decimal(0))

    @property
    def known_cost_usd(self) -> Decimal | None:
        """The cost; None where the price of a call is unknown."""
        unpriced = any(attempt.closed_at is not None and attempt.cost_usd is None for attempt in self.attempts)
        return None if unpriced else self.cost_usd

    def held_by(self, token: UUID, step: Step | None = None) -> bool:
        """True while the lease with this token holds the job (in this step, if one is named)."""
        return self.state is JobState.RUNNING and self.token == token and (step is None or self.step is step)

    def past_deadline(self, now: datetime) -> bool:
        """True from the deadline on."""
        return self.deadline is not None and self.deadline <= now

    def open_attempts(self, token: UUID | None) -> list[AttemptRow]:
        return [attempt for attempt in self.attempts if attempt.closed_at is None and attempt.new.token == token]

    def winner(self, run: int, number: int, purpose: Purpose) -> AttemptRow | None:
        """The attempt whose completion won this run, round (``number``) and purpose."""
        for attempt in self.attempts:
            if attempt.won and (attempt.new.run, attempt.new.round, attempt.new.purpose) == (run, number, purpose):
                return attempt
        return None


@dataclass(slots=True)
class Walk:
    """The results that are published again, as far as they are."""

    after: tuple[datetime, UUID]
    until: datetime
    published: int = 0


class MemoryTables:
    """The tables and the clock; every change of a job's state goes through ``_move``."""

    def __init__(self, now: Callable[[], datetime] = wall_clock) -> None:
        self._clock = now
        self._advanced = timedelta(0)
        self.batches: dict[UUID, BatchRow] = {}
        self.jobs: dict[UUID, JobRow] = {}
        self.attempts: dict[UUID, AttemptRow] = {}
        self.verdicts: dict[tuple[UUID, bytes], tuple[UUID, int]] = {}
        """Attempt and number, by batch and key."""
        self.started_at = self.now()
        self.hints_lost_at = datetime.min.replace(tzinfo=UTC)
        self.walk: Walk | None = None

    def advance(self, delta: timedelta) -> None:
        """Set the ledger's clock forward."""
        self._advanced += delta

    def now(self) -> datetime:
        return self._clock() + self._advanced

    def find(self, job_ids: Iterable[UUID]) -> list[JobRow]:
        """The rows of the jobs that exist, each once, in the order given."""
        return [self.jobs[job_id] for job_id in dict.fromkeys(job_ids) if job_id in self.jobs]

    def batch(self, batch_id: UUID) -> BatchRow:
        if batch_id not in self.batches:
            raise NotFound(f"no batch {batch_id}")
        return self.batches[batch_id]

    def of_batch(self, batch_id: UUID) -> list[JobRow]:
        rows = [job for job in self.jobs.values() if job.batch.new.id == batch_id]
        return sorted(rows, key=lambda job: job.new.position)

    def move(self, job: JobRow, state: JobState, verb: str) -> None:
        """Change a job's state along an edge of ``TRANSITIONS`` and keep what belongs to the state in step with it."""
        permitted = TRANSITIONS.get((job.state, state), frozenset())
        if verb not in permitted:
            raise AssertionError(f"{verb} may not move a job from {job.state} to {state}")
        job.state = state
        if state is not JobState.RUNNING:
            job.token = job.lease_until = job.worker = None
        if state is not JobState.SCHEDULED:
            job.held_reason = None
        if state is JobState.AVAILABLE:
            job.available_at = self.now()
            job.hinted_at = None
        if job.final:
            job.finished_at = self.now()

    def note(self, job: JobRow, kind: str, actor: str, **detail: Any) -> None:
        """Append an event to the job's history."""
        job.events.append(
            {"job_id": job.new.id, "run": job.run, "at": self.now(), "kind": kind, "actor": actor, "detail": detail}
        )
