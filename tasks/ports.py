"""What the steps need from outside, as protocols and the values that pass through them.

``worker`` implements them: ``Ledger`` over Postgres (and in memory for units), ``Journal`` as group commit over a
ledger, ``Provider`` per model provider, ``Doorbell`` over Celery and Redis.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Protocol
from uuid import UUID

from celery import current_app

from schemas.batch import BatchStatus
from schemas.completion import Completion
from schemas.failure import Failure
from schemas.generation import AnswerProtocol, GenerationConfig
from schemas.job import JobRequest
from schemas.prompt import Prompt
from schemas.record import GenerationRecord
from schemas.states import HeldReason, JobState, Outcome, Step
from tasks.errors import ConfigurationError

# ---- submission ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch to be written with its jobs."""

    id: UUID
    tenant: str
    key: str | None = None
    name: str | None = None
    not_before: datetime | None = None
    deadline: datetime | None = None
    max_cost_usd: Decimal | None = None
    defaults: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewJob:
    """A validated job to be written; ``request`` is its canonical JSON, ``request_hash`` the SHA-256 of that."""

    id: UUID
    position: int
    tenant: str
    step: Step
    request: bytes
    request_hash: bytes
    contract_version: int
    custom_id: str | None = None
    message_id: str | None = None
    idempotency_key: str | None = None
    priority: int = 0
    scheduled_at: datetime | None = None
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a submission wrote or found: ``job_ids`` by position; ``created`` is False where the batch key was known.

    ``existing`` are the positions (of the jobs handed in) whose idempotency key already named a job; their ids in
    ``job_ids`` are the old ones. ``available`` are the ids that may run now, for hinting.
    """

    batch_id: UUID
    created: bool
    job_ids: tuple[UUID, ...]
    existing: frozenset[int] = frozenset()
    available: tuple[UUID, ...] = ()


# ---- leases ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredCompletion:
    """The winning completion of a (run, round, purpose): no further call is made for it."""

    attempt_id: UUID
    completion: Completion
    prompt: Prompt
    timing_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class Leased:
    """A job as a worker holds it. Ages are by the database's clock at the moment of the lease, in milliseconds."""

    job_id: UUID
    batch_id: UUID
    tenant: str
    position: int
    custom_id: str | None
    step: Step
    run: int
    round: int
    priority: int
    token: UUID
    request: JobRequest
    created_at: datetime
    deadline: datetime | None
    age_ms: float
    """Since acceptance (or ``scheduled_at``, if later)."""
    waited_ms: float
    """Since the job last became available."""
    spent: int
    """Spent failed attempts of this run and step."""
    snoozes: int
    """Closed attempts of this run and step that failed without being spent."""
    unknown: int
    """Attempts of this run and round with outcome ``unknown``."""
    attempts: int
    """All attempts of this run and round and step's purpose, whatever their outcome."""
    first_opened_ago_ms: float | None
    """Since the first attempt of this run and round was opened."""
    stored: StoredCompletion | None


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """A job id with the token that fences writes to it."""

    job_id: UUID
    token: UUID


# ---- attempts --------------------------------------------------------------------------------------------------


class Purpose(StrEnum):
    """What a paid call is made for."""

    GENERATE = "generate"
    REASK = "reask"
    CORRECT = "correct"
    JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """A provider call about to be made; written before it is made."""

    id: UUID
    job_id: UUID
    batch_id: UUID
    token: UUID
    run: int
    round: int
    purpose: Purpose
    number: int
    lane: str
    provider: str
    model: str | None
    request_hash: bytes
    reserved_usd: Decimal = Decimal(0)


class Opened(StrEnum):
    """What became of an attempt that should be opened."""

    OPENED = "opened"
    LOST = "lost"
    """The lease is gone: stop quietly."""
    OVER_BUDGET = "over_budget"
    """The batch's budget has no room for the reservation now."""
    ANSWERED = "answered"
    """A completion for this (run, round, purpose) is stored already: no call."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Where a running job goes when its attempt is closed.

    ``state`` is AVAILABLE (for ``step``), or SCHEDULED (after ``delay``, or until released when ``held_reason``).
    """

    state: JobState
    step: Step
    round: int
    delay: timedelta = timedelta(0)
    held_reason: HeldReason | None = None
    event: str | None = None
    """Kind of the ``job_event`` to append (``retry``, ``snooze``, ``hold``); None on the straight path."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A completion to be stored: the raw bytes as received and what was parsed of them."""

    raw: bytes
    completion: Completion
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class ClosedAttempt:
    """The end of an attempt. Never fenced: money spent is always recorded.

    ``then`` (fenced by ``token`` and the step the job is in) moves the job on in the same transaction.
    """

    id: UUID
    job_id: UUID
    token: UUID
    step: Step
    outcome: str
    """``ok``, ``unknown`` or ``error:<kind>``."""
    spent: bool
    answer: StoredAnswer | None = None
    failure: Failure | None = None
    cost_usd: Decimal | None = None
    timing_ms: dict[str, float] = field(default_factory=dict)
    then: Advance | None = None


# ---- finals ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FinalJob:
    """The final write of a job: fenced by token and step; ``state`` is COMPLETED or FAILED."""

    job_id: UUID
    token: UUID
    step: Step
    state: JobState
    outcome: Outcome | None
    record: GenerationRecord


@dataclass(frozen=True, slots=True)
class JobView:
    """A job's row joined with its request and, when final, the record of its latest run; results are made of it."""

    job_id: UUID
    batch_id: UUID
    tenant: str
    position: int
    custom_id: str | None
    state: JobState
    step: Step
    run: int
    round: int
    outcome: Outcome | None
    held_reason: str | None
    created_at: datetime
    scheduled_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    published_at: datetime | None
    cost_usd: Decimal | None
    request: JobRequest
    record: GenerationRecord | None


@dataclass(frozen=True, slots=True)
class JobDetail:
    """Everything the ledger knows of one job, for audit: JSON-ready rows, oldest first."""

    view: JobView
    attempts: tuple[dict[str, Any], ...]
    completions: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    records: tuple[GenerationRecord, ...]


# ---- the ledger ------------------------------------------------------------------------------------------------


class Ledger(Protocol):
    """The truth about jobs. Every verb is one transaction; list verbs are the unit of group commit.

    All raise ``LedgerUnavailable`` when the database can't be reached.
    """

    # submission
    async def submit(self, batch: NewBatch, chunks: Iterable[Sequence[NewJob]]) -> Receipt:
        """Write a batch and its jobs, all or none.

        A known ``batch.key`` writes nothing and returns the old jobs. Raises ``IdempotencyConflict`` when an
        idempotency key (or the batch key's jobs) names a different request, ``InputError`` for a duplicate
        ``custom_id`` or ``message_id``.
        """
        ...

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
    ) -> list[Leased]:
        """Take up to ``limit`` available jobs of a step: those among ``ids``, or by priority when ids is None.

        Skips jobs that others hold, that are not available, or are past their deadline.
        """
        ...

    async def renew(self, leases: Sequence[LeaseKey], lease_for: timedelta) -> set[UUID]:
        """Renew leases; returns the job ids whose lease is lost."""
        ...

    async def hand_back(self, leases: Sequence[LeaseKey]) -> set[UUID]:
        """Make running jobs without an open attempt available again at once; returns the ids changed."""
        ...

    async def defer(self, lease: LeaseKey, advance: Advance) -> bool:
        """Move a running job without an open attempt to ``scheduled`` (budget, policy); False if the lease is lost."""
        ...

    # attempts
    async def open_attempts(self, attempts: Sequence[NewAttempt]) -> list[Opened]:
        """Write attempts before their calls; one status per attempt, in order. Reserves budget in the same statement."""
        ...

    async def close_attempts(self, closed: Sequence[ClosedAttempt]) -> set[UUID]:
        """Close attempts, store answers, charge budgets, and advance jobs; returns the job ids that advanced.

        The first completion of a (run, round, purpose) wins; a later one is kept beside it. Closing again is
        harmless: only an open or ``unknown`` attempt changes.
        """
        ...

    # finals
    async def finish(self, finals: Sequence[FinalJob]) -> set[UUID]:
        """Write final states with their records; returns the job ids written (others lost their lease)."""
        ...

    async def unpublished(self, limit: int, older_than: timedelta) -> list[JobView]:
        """Final jobs whose result is not in the result backend, oldest first."""
        ...

    async def mark_published(self, job_ids: Sequence[UUID]) -> None:
        """Note that the results are in the result backend."""
        ...

    async def republish(self, finished_within: timedelta) -> int:
        """Put all results finished within that time back in the outbox (Redis lost its data) and forget all hints."""
        ...

    # dispatch
    async def promote(self, limit: int) -> int:
        """Make due, unheld scheduled jobs available; returns how many."""
        ...

    async def expire(self, limit: int) -> list[UUID]:
        """Finish jobs past their deadline as ``expired`` with a record; returns their ids."""
        ...

    async def take_hints(self, step: Step, depth: int, limit: int, again_after: timedelta) -> list[tuple[UUID, int]]:
        """Choose available jobs to hint, by priority, tenant fairness and deadline, and note it (``hinted_at``).

        Tops up to ``depth`` jobs hinted within ``again_after``; older hints count as lost. Returns (id, priority).
        """
        ...

    async def backlog(self, step: Step, at_most: int) -> int:
        """How many jobs are available for a step, counted up to ``at_most``."""
        ...

    async def rescue(self, limit: int, unknown_reason: HeldReason | None) -> list[UUID]:
        """Take jobs whose lease ran out from their holders.

        Closes their open attempts as ``unknown`` and makes the jobs available, or holds those that had an open
        attempt when ``unknown_reason`` is given. Returns the job ids.
        """
        ...

    # a person's verbs
    async def cancel(self, job_ids: Sequence[UUID], actor: str) -> list[UUID]:
        """Cancel jobs that are not final, with a record; returns the ids changed."""
        ...

    async def cancel_batch(self, batch_id: UUID, actor: str) -> list[UUID]:
        """Cancel all jobs of a batch that are not final."""
        ...

    async def retry(self, job_ids: Sequence[UUID], actor: str) -> list[UUID]:
        """Start a new run of final jobs; returns the ids changed."""
        ...

    async def release(self, batch_id: UUID | None, reason: HeldReason, actor: str) -> int:
        """Release held jobs of a batch (or all) that are held for this reason; returns how many."""
        ...

    async def pause_batch(self, batch_id: UUID, actor: str, *, paused: bool) -> int:
        """Pause a batch (holds its scheduled and available jobs) or resume it (releases them); returns how many."""
        ...

    async def set_budget(self, batch_id: UUID, max_cost_usd: Decimal | None, actor: str) -> None:
        """Change a batch's ceiling and release the jobs held for it."""
        ...

    # reading
    async def views(self, job_ids: Sequence[UUID]) -> list[JobView]:
        """The jobs that exist among ``job_ids``, in that order."""
        ...

    def batch_views(self, batch_id: UUID) -> AsyncIterator[JobView]:
        """All jobs of a batch by position, streamed."""
        ...

    async def batch_status(self, batch_id: UUID) -> BatchStatus:
        """Counts and cost of a batch; raises ``NotFound``."""
        ...

    async def batches(self, limit: int) -> list[BatchStatus]:
        """The newest batches, newest first."""
        ...

    async def job_detail(self, job_id: UUID) -> JobDetail:
        """Everything known of a job; raises ``NotFound``."""
        ...

    async def server_age(self) -> timedelta:
        """How long the database server has been up; also the cheapest proof that it can be reached."""
        ...


class Journal(Protocol):
    """Single-row verbs whose rows are committed in groups; each returns when its row is committed.

    A row that can't be stored raises ``Unstorable`` to its own caller only.
    """

    async def open_attempt(self, attempt: NewAttempt) -> Opened:
        """Open one attempt."""
        ...

    async def close_attempt(self, closed: ClosedAttempt) -> bool:
        """Close one attempt; True if the job advanced."""
        ...

    async def finish(self, final: FinalJob) -> bool:
        """Finish one job; True if it was still ours."""
        ...


# ---- providers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """A provider call ready to be made: everything pure is done, so its hash is known before it is sent.

    ``body`` is what goes on the wire (without credentials); ``dropped`` says why a parameter asked for is not in it.
    """

    provider: str
    model: str | None
    lane: str
    protocol: AnswerProtocol
    body: bytes
    request_hash: bytes
    timeout_s: float
    reserve_usd: Decimal | None
    """Worst-case cost; None: the price is unknown."""
    prompt: Prompt
    request: JobRequest
    parameters_sent: dict[str, Any] = field(default_factory=dict)
    parameters_dropped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    """A provider's answer: the bytes as received and what the adapter parsed of them."""

    raw: bytes
    completion: Completion


class Provider(Protocol):
    """One way to call a model. Adapters know no prompt wording; steps know no SDK."""

    name: str

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:
        """The answer protocol this provider serves best for this config."""
        ...

    def plan(self, request: JobRequest, prompt: Prompt) -> Call:
        """Turn a rendered prompt into a call. Pure; raises ``ProviderError`` when the config can't be served."""
        ...

    async def call(self, call: Call) -> Answered:
        """Make the call once; no retries inside. Raises ``ProviderError`` only."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class Providers(Protocol):
    """The providers configured in this process, by name."""

    def get(self, name: str | None) -> Provider:
        """The named provider, or the default for None; raises ``ConfigurationError`` naming those that exist."""
        ...

    async def close(self) -> None:
        """Close those that were used."""
        ...


# ---- waking and publishing -------------------------------------------------------------------------------------


class Doorbell(Protocol):
    """Short-lived signals. Every one may be lost without effect on correctness; all raise ``BrokerUnavailable``."""

    async def hint(self, step: Step, job_ids: Sequence[UUID], *, urgent: bool = False) -> None:
        """Say that these jobs are available for a step."""
        ...

    async def publish(self, results: Sequence[tuple[UUID, bytes]]) -> None:
        """Put compact results (JSON) under their job ids into the result backend."""
        ...

    async def forget(self, job_ids: Sequence[UUID]) -> None:
        """Remove published results (a new run starts)."""
        ...

    async def lost_its_data(self) -> bool:
        """Whether Redis was emptied, replaced or restarted since ``remember`` was last called by any process."""
        ...

    async def remember(self) -> None:
        """Note that what is published from now on can be found."""
        ...


# ---- the process -----------------------------------------------------------------------------------------------


class Runtime(Protocol):
    """What a Celery door hands its message to: the process's one event loop and all that is wired to it."""

    def admit(self, step: Step, job_ids: Sequence[UUID], *, urgent: bool) -> None:
        """Block until the jobs are admitted (or found to be taken); returns at once when the worker stops."""
        ...

    def submit(self, raw_jobs: Sequence[Any], batch: dict[str, Any]) -> dict[str, Any]:
        """Write jobs and return the JSON answer of ``nightdesk.submit``."""
        ...

    def poll(self, raw_ids: Sequence[Any]) -> list[dict[str, Any] | None]:
        """Results as JSON, as they stand now."""
        ...


def wired() -> Runtime:
    """The runtime that the worker attached to the current Celery app.

    Raises: ConfigurationError in a process that is no worker.
    """
    runtime: Runtime | None = getattr(current_app, "runtime", None)
    if runtime is None:
        raise ConfigurationError("no runtime is attached to the Celery app: start it with 'nightdesk worker'")
    return runtime
