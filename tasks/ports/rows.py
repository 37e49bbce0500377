"""Values of jobs and batches in the ledger: submitted, leased, finished and read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from time import time
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from schemas.claim_error import ErrorKind
from schemas.job import JobRequest, Recheck
from schemas.model_call import Completion, Correction, Prompt
from schemas.record import GenerationRecord, JobResult
from schemas.states import JobState, Outcome, Step
from tasks.errors import Refused


@dataclass(frozen=True, slots=True)
class Submitter:
    """The key of the HTTP service that submits a batch, with its limits; None: no limit."""

    key_id: UUID
    name: str
    jobs_waiting: int | None = None
    """Most jobs of its batches that are not final."""
    jobs_per_minute: int | None = None
    jobs_per_day: int | None = None


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch to be written with its jobs."""

    id: UUID
    tenant: str
    key: str | None = None
    name: str | None = None
    not_before: datetime | None = None
    window: str | None = None
    deadline: datetime | None = None
    max_cost_usd: Decimal | None = None
    callback_url: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    max_queued: int | None = None
    """Most jobs that are not final which the tenant may have once these are accepted; not stored."""
    submitter: Submitter | None = None
    """Only the id of the key is stored."""
    unchanged: "Mapping[int, UnchangedJob]" = field(default_factory=dict)
    """By position the jobs of earlier batches that its jobs are, while they are the same; not stored as its own."""
    content: "Callable[[], Content] | None" = None
    """Called once the jobs are read; None: the batch is not found again by its content."""


class UnchangedJob(NamedTuple):
    """A job of an earlier batch that a line of another input has again."""

    job_id: UUID
    batch_id: UUID
    request_hash: bytes
    final: bool = True
    """It has its answer; otherwise it runs by its own terms, which follow."""
    priority: int = 0
    deadline: datetime | None = None
    max_cost_usd: Decimal | None = None
    """The ceiling of its batch."""

    def serves(self, job: "NewJob", batch: NewBatch) -> bool:
        """Tells whether it is as good as a new job: it has its answer, or comes as early, is tried as long and may cost as much."""
        if self.final:
            return True
        latest, ceiling = job.deadline or batch.deadline, batch.max_cost_usd
        lasts = self.deadline is None or (latest is not None and self.deadline >= latest)
        pays = self.max_cost_usd is None or (ceiling is not None and self.max_cost_usd >= ceiling)
        return lasts and pays and self.priority >= job.priority


class Content(NamedTuple):
    """SHA-256 of a batch's jobs and of what decides their answers, by which a second submission finds the first."""

    head: bytes
    """Of the first jobs alone: known before the others are read."""
    whole: bytes
    basis: bytes
    """Of what decides the answers of the first jobs, without these."""
    replaces: bool = False
    """The batch is found from now on in place of an earlier one with the same content."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The job that a job asks again; its ``prompt`` is sent as it was, None: the request is rendered anew."""

    of: UUID
    prompt: Prompt | None = None


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
    place: str | None = None
    """Its file and line, for messages; not stored."""
    replay: Replay | None = None
    unpriced: tuple[str, str] | None = None
    """The field and the message of a price that is not known: refused where the tenant has a budget; not stored."""

    @property
    def record_message_id(self) -> str:
        """The message id that the job's records bear, unique in the tenant: its own id where none is given."""
        return self.message_id or str(self.id)


def own_id_key(job_id: UUID) -> str:
    """The idempotency key of a job whose producer sent its id and no key."""
    return f"job:{job_id}"


@dataclass(frozen=True, slots=True)
class Repeated:
    """One job handed in that is known already, in another batch or at another position of its own."""

    position: int
    job_id: UUID


InputLine = Refused | Repeated
"""Something handed in with a batch that is no job of it."""


class HintKey(NamedTuple):
    """The jobs that a hint is of: those of a step, urgent or not, as urgent ones have workers of their own."""

    step: Step
    urgent: bool


@dataclass(frozen=True, slots=True)
class Receipt:
    """The rows that a submission wrote or knew.

    Attributes:
        batch_id: the batch that was written, or was there before; where all jobs were known by their own keys, and so
            nothing was written, the batch that holds most of them.
        created: whether a batch was written.
        job_ids: of the jobs that were not refused, in the order handed in.
        existing: positions of those whose idempotency key already named a job; their ids are the old ones.
        elsewhere: the old ids by position, of jobs in another batch, or at another position.
        hints: for the workers of jobs that may run now; of a small submission.
        refused: jobs that bring an id which another job has; the others were taken without them.
        submitted_at: when the batch was written first, where its key was known.
        holders: number of known jobs by the other batch that holds them.
    """

    batch_id: UUID
    created: bool
    job_ids: tuple[UUID, ...]
    existing: frozenset[int] = frozenset()
    elsewhere: Mapping[int, UUID] = field(default_factory=dict)
    hints: frozenset[HintKey] = frozenset()
    refused: tuple[Refused, ...] = ()
    submitted_at: datetime | None = None
    holders: Mapping[UUID, int] = field(default_factory=dict)

    @property
    def nothing_new(self) -> bool:
        """True if every job was known by its own key, so that there is no batch of these jobs."""
        return not self.created and self.submitted_at is None

    def ids_by_position(self, positions: Iterable[int]) -> dict[int, UUID]:
        """The ids of the jobs handed in at these positions, in this order, without those refused."""
        refused = {refusal.position for refusal in self.refused}
        accepted = [position for position in positions if position not in refused]
        return dict(zip(accepted, self.job_ids, strict=True))


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the jobs that an action goes through, committed by themselves.

    Attributes:
        jobs: jobs looked at.
        changed: the ids of those that were changed.
        refused: why some can't be changed: their rows make the statement fail.
    """

    jobs: int
    changed: Sequence[UUID]
    refused: Mapping[UUID, str] = field(default_factory=dict)


OnPage = Callable[[Page], None]
"""Takes note of each page once it is committed."""


def no_page(page: Page) -> None:
    """Take no note."""


@dataclass(frozen=True, slots=True)
class StoredCompletion:
    """The winning answer of a (run, round), whatever it was asked for with: no further call is made for it."""

    attempt_id: UUID
    completion: Completion
    prompt: Prompt
    timing_ms: dict[str, float]

    @property
    def paid_for(self) -> bool:
        """True if its call cost money, here or in the job that it is shared from."""
        return bool(self.completion.cost_usd) or self.completion.snapshot.shared_from is not None


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """A row of the ledger that no reader of this version understands, in place of what it holds.

    Attributes:
        job_id: its job.
        why: the cause, without anything of what the row holds.
    """

    job_id: UUID
    why: str

    @property
    def message(self) -> str:
        """The failure of the job, in words."""
        return (
            f"what the ledger holds of this job can't be read ({self.why}): its row is damaged, or a later version of nightdesk wrote "
            "it. Restore the row from a backup and retry the job, or submit the question again"
        )


ROUNDS_PER_LEVEL = 2
"""Rounds of a model: its first answer, and one correction. So round 2 is the first of the next model."""


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
    limited_ms: float
    """How long it was sent away by limits before, in this step and round: see ``Advance.limited``."""
    spent: int
    """Spent failed attempts of this run, step and level."""
    snoozes: int
    """Closed attempts of this run, step and level that failed without being spent."""
    unknown: int
    """Attempts of this run, round and step with outcome ``unknown``."""
    attempts: int
    """All attempts of this run and round and step's purpose, whatever their outcome."""
    cost_usd: Decimal | None
    """What the job cost so far, all attempts of all runs; None where the price of one is unknown."""
    max_cost_usd: Decimal | None
    """The ceiling of its batch."""
    first_opened_ago_ms: float | None
    """Since the first attempt of this run and round was opened."""
    stored: StoredCompletion | None
    correction: Correction | None = None
    """Why this round was begun, or why the job came back to it; None without another round."""
    recheck: Recheck | None = None
    """This run only checks the answer of an earlier one again, with these changes, which ``request`` has applied."""
    judged: StoredCompletion | None = None
    """The judge's answer of this (run, round), in the step check: it is not asked again."""
    started_ago_ms: float = 0.0
    """Since this run was first leased."""
    rescues: int = 0
    """Workers that were lost over this step and round."""
    request_bytes: int = 0
    """Size of the request as it is stored."""
    time_left: timedelta | None = None
    """Until its deadline, at the lease; None: it has none."""
    window_gap: timedelta = timedelta(0)
    """The end of that time in which no call may begin, by the window of its batch."""
    replay: Replay | None = None
    tenant_budget: bool = False
    """Its tenant has a budget for a period, so that every call needs a known price."""

    def read(self) -> "Leased":
        """The job itself, which is read already."""
        return self

    @property
    def calls_left(self) -> timedelta | None:
        """The time until its last moment for a call; None: it has no deadline."""
        return None if self.time_left is None else self.time_left - self.window_gap

    @property
    def active_correction(self) -> Correction | None:
        """The correction of the current round; None in the first round."""
        return self.correction if self.round else None

    @property
    def given_up(self) -> str | None:
        """The reason that no further round is begun, and the answer of this one is final; None while one may be."""
        return self.correction.given_up if self.correction else None

    @property
    def level(self) -> int:
        """The model of this round: 0 for that of the job, then those of ``escalate``."""
        return self.round // ROUNDS_PER_LEVEL


class Lease(Protocol):
    """A leased job, of which the event loop knows as much as it needs to hold it; ``read`` may take long."""

    @property
    def job_id(self) -> UUID:
        """Its id."""

    @property
    def tenant(self) -> str:
        """Its tenant."""

    @property
    def token(self) -> UUID:
        """Fences the writes of its holder."""

    @property
    def priority(self) -> int:
        """Above 0: urgent."""

    @property
    def rescues(self) -> int:
        """Workers that were lost over this step and round."""

    @property
    def request_bytes(self) -> int:
        """Size of the request as it is stored."""

    def read(self) -> Leased:
        """The job; raises ``Unreadable``."""


RISK_FULL = 256
"""Four to the power of the rescues after which a job runs with no other suspect."""


def risk_of(rescues: int) -> float:
    """Share of a process's room for suspects that a job takes: 1/64 after its first rescue, all of it after the fourth.

    A worker dies with all its jobs, one of which may be the cause. In ever smaller groups the others get past it.
    """
    return min(1.0, 4.0**rescues / RISK_FULL) if rescues else 0.0


@dataclass(frozen=True, slots=True)
class LeaseRoom:
    """Bounds of what a lease brings: the first job always fits by its bytes, and one without rescues by its risk."""

    request_bytes: int
    risk: float = 1.0

    @property
    def max_rescues(self) -> int:
        """Most rescues of a job that fits alone."""
        fitting = [rescues for rescues in range(5) if risk_of(rescues) <= self.risk]
        return ANY_RESCUES if risk_of(fitting[-1]) == 1.0 else fitting[-1]


ANY_RESCUES = 32_767
"""No bound: as many as the ledger can count."""


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """A job id with the token that fences writes to it."""

    job_id: UUID
    token: UUID


@dataclass(frozen=True, slots=True)
class Renewal:
    """Leases that a renewal left as they were, by job id.

    Attributes:
        lost: taken away; their work is in vain.
        locked: in the midst of another transaction; to be tried again at once.
    """

    lost: frozenset[UUID] = frozenset()
    locked: frozenset[UUID] = frozenset()


@dataclass(frozen=True, slots=True)
class FinalJob:
    """The final write of a job, fenced by its lease; ``state`` is COMPLETED or FAILED, ``ended_at`` the Unix time of its end."""

    job: Leased
    state: JobState
    outcome: Outcome | None
    record: GenerationRecord
    ended_at: float = field(default_factory=time)

    @property
    def facts(self) -> "FinalFacts":
        """Its figures."""
        job, record, grounding = self.job, self.record, self.record.grounding
        return FinalFacts(
            job_id=job.job_id,
            tenant=record.tenant,
            run=record.run,
            state=self.state,
            outcome=self.outcome,
            failure_kind=None if record.failure is None else record.failure.kind.value,
            timing_ms={part: ms for part, ms in record.timing_ms if ms},
            claims={verdict.value: count for verdict, count in grounding.counts.items() if count}
            if grounding
            else None,
            grounding_score=grounding.grounding_score if grounding else None,
            confidence=grounding.confidence if grounding else None,
            streams=job.request.config.stream,
            traceparent=job.request.traceparent,
            ended_at=self.ended_at,
        )


@dataclass(frozen=True, slots=True)
class FinalFacts:
    """The figures of a job that became final, without its texts.

    Attributes:
        timing_ms: the parts of its time that are not 0.
        claims: number of its claims by verdict; None: nothing was checked.
        streams: readers may follow its text.
        traceparent: W3C trace context of the producer.
        ended_at: Unix time of its end.
    """

    job_id: UUID
    tenant: str
    run: int
    state: JobState
    outcome: Outcome | None
    failure_kind: str | None
    timing_ms: Mapping[str, float]
    claims: Mapping[str, int] | None
    grounding_score: float | None
    confidence: float | None
    streams: bool
    traceparent: str | None
    ended_at: float


@dataclass(frozen=True, slots=True)
class PackedFinal:
    """A final write as another process made it: the event loop passes it on and reads none of its texts.

    Attributes:
        columns: its values in the ledger.
        facts: its figures.
        result: its compact result, for the result backend.
    """

    columns: Mapping[str, Any]
    facts: FinalFacts
    result: bytes


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
    erased_at: datetime | None = None
    """When its content was removed for good; request and record are what is left of them."""
    replay_of: UUID | None = None
    """The job that it asks again."""
    unreadable: str | None = None
    """The reason that its request or its record can't be read: a damaged request is empty here, a damaged record a failure that
    says so."""

    @property
    def ending(self) -> str:
        """The outcome; without one the state."""
        return self.outcome.value if self.outcome is not None else self.state.value


class ResultLine(NamedTuple):
    """A line of output: a result as JSON, with the state of its job."""

    position: int
    state: str
    content: bytes
    errors: Mapping[ErrorKind, int]
    """Claims of the answer by the kind of their error."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The result of a job as its row and record make it, final or not."""

    result: JobResult
    errors: Mapping[ErrorKind, int]
    """Claims of the answer by the kind of their error."""

    @classmethod
    def of(cls, view: JobView, result: JobResult) -> "StoredResult":
        """The result that was made of a view."""
        grounding = view.record.grounding if view.record is not None else None
        return cls(result, grounding.errors if grounding is not None else {})

    def line(self, position: int | None = None) -> ResultLine:
        """The result as a line of output, at its job's position or at another one."""
        result = self.result
        content = result.model_dump_json().encode()
        return ResultLine(result.position if position is None else position, result.state.value, content, self.errors)


@dataclass(frozen=True, slots=True)
class RepublishPage:
    """Results to publish again; ``until`` names the walk they belong to."""

    until: datetime
    through: tuple[datetime, UUID] | None
    """End and id of the last one; None: the walk is at its end."""
    views: tuple[JobView, ...]
    published: int
    """Results of the walk so far, with these."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The state of the duties as a worker sees it. A worker that does not lead sees no work but ``available``."""

    leads: bool
    server_age: timedelta
    """How long the database server has been up."""
    check_behind: bool = False
    """So many answers wait for their check that no more are to be generated."""
    without_broker: bool = False
    """Another worker leads and can't reach Redis: one that can should take over."""
    available: frozenset[Step] = frozenset()
    """Steps with available jobs."""
    due: bool = False
    unsettled: bool = False
    """A batch has jobs that wait for money and may go on, or jobs to be held for want of it."""
    window_over: bool = False
    """A window of a batch has ended."""
    unfolded: bool = False
    """Counts of jobs were changed so often that reading them takes longer."""
    outgrown: bool = False
    """The database's statistics of a table are of less than half of its rows."""
    late: bool = False
    lost: bool = False
    """A lease ran out, or a job that ended has an open attempt."""
    unpublished: bool = False
    republishing: bool = False


@dataclass(frozen=True, slots=True)
class JobDetail:
    """Everything the ledger knows of one job, for audit: JSON-ready rows, oldest first."""

    view: JobView
    attempts: tuple[dict[str, Any], ...]
    completions: tuple[dict[str, Any], ...]
    events: tuple[dict[str, Any], ...]
    records: tuple[GenerationRecord, ...]
    labels: tuple[dict[str, Any], ...] = ()
    """Of people, on the answer or on a claim."""
    replays: tuple[UUID, ...] = ()
    """Jobs that ask it again."""
