"""Values of paid calls: attempts before and after the call, look-ups in the caches, and the verdicts of judges."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar
from uuid import UUID

from pydantic import ConfigDict

from schemas.failure import Failure
from schemas.model_call import Completion, Correction, Prompt
from schemas.states import HeldReason, JobState, Step


class Purpose(StrEnum):
    """Purpose of a paid call."""

    GENERATE = "generate"
    REASK = "reask"
    CORRECT = "correct"
    ESCALATE = "escalate"
    JUDGE = "judge"


_EXACT_BYTES = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
"""Where a value is kept as JSON for a while, its bytes stand there exactly."""


@dataclass(frozen=True, slots=True)
class ShareTerms:
    """On which terms a call shares its answer with identical ones of its tenant."""

    __pydantic_config__: ClassVar[ConfigDict] = _EXACT_BYTES

    key: bytes
    """What is identical: see ``tasks.calls.response_cache.share_key``."""
    within: timedelta
    """How old an answer may be that is taken; 0: none is taken, this one is only given."""
    wait: timedelta
    """For how long an identical call that is under way is waited for; 0: not at all."""


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """A provider call about to be made; written before it is made."""

    __pydantic_config__: ClassVar[ConfigDict] = _EXACT_BYTES

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
    reserved_usd: Decimal | None = Decimal(0)
    """None: the price of the call is unknown."""
    share: ShareTerms | None = None
    """None: neither takes the answer of another call nor gives its own."""
    required: bool = True
    """False: the job goes on without the call where the batch has no money for it, and is not held."""


class Opened(StrEnum):
    """Result of opening an attempt."""

    OPENED = "opened"
    LOST = "lost"
    """The lease is gone or has run out: stop quietly."""
    ON_HOLD = "on_hold"
    """The batch's budget has no room for the reservation now: the ledger holds the job until there is."""
    OVER_BUDGET = "over_budget"
    """The same for a job that goes on without the call (a second round, a call that is not required): it stays leased."""
    ANSWERED = "answered"
    """A completion for this (run, round, purpose) is stored already: no call."""
    STALE = "stale"
    """Opened, but confirmed so late that the lease may be lost: no call, and the attempt is to be closed.

    Also for an attempt of an earlier try with an unconfirmed commit, once the lease is lost."""
    DUPLICATE = "duplicate"
    """An identical call, by its terms for sharing, is under way or answered meanwhile: look again soon."""


@dataclass(frozen=True, slots=True)
class CacheLookup:
    """A call that need not be made if the answer of an identical one is stored.

    ``attempt`` has terms for sharing and the purpose ``generate``; it is written only if such an answer is taken.
    """

    attempt: NewAttempt
    prompt: Prompt
    """This job's own: the same messages may refer to the same sources in another order."""
    snapshot: dict[str, Any]
    """Of the provider snapshot what this job knows better, JSON-ready."""
    timing_ms: dict[str, float]
    then: Step
    """The step that checks the answer."""


class CacheStatus(StrEnum):
    """Result of a look-up in the response cache."""

    REUSED = "reused"
    """It is this job's answer now, at no cost, and the job goes to its check."""
    UNDER_WAY = "under_way"
    """An identical call is under way, and may be waited for."""
    NONE = "none"
    """There is none: make the call."""
    LOST = "lost"
    """The lease is gone: stop quietly."""


@dataclass(frozen=True, slots=True)
class CacheResult:
    """Result of one look-up; ``open_for`` is how long the identical call has been under way."""

    status: CacheStatus
    open_for: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Advance:
    """The next place of a running job when its attempt is closed.

    ``state`` is AVAILABLE (for ``step``), SCHEDULED (after ``delay``, or until released when ``held_reason``), or RUNNING: the
    worker keeps the job under the same lease and does ``step`` itself. It does not if another answer won: then the job is
    available, and does not count as advanced.
    """

    state: JobState
    step: Step
    round: int
    delay: timedelta = timedelta(0)
    held_reason: HeldReason | None = None
    event: str | None = None
    """Kind of the ``job_event`` to append (``retry``, ``snooze``, ``hold``); None on the straight path."""
    correction: Correction | None = None
    """Kept with the job where ``defer`` changes its round."""
    limited: bool = False
    """Sent away by a limit: the time since it was available, and the delay, are noted with the job."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A completion to be stored: the raw bytes as received and what was parsed of them."""

    __pydantic_config__: ClassVar[ConfigDict] = _EXACT_BYTES

    raw: bytes
    completion: Completion
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class CallFacts:
    """Facts of a call that its row has already, for figures and traces of it.

    Attributes:
        run: of the job.
        purpose: of the call.
        provider: that was called.
        model: asked for.
        lane: of the call.
        permit_wait_ms: its wait for a permit.
        ms: time that the call took; 0 where it was cut off.
        traceparent: W3C trace context of the producer.
        ended_at: Unix time of its end.
    """

    run: int
    purpose: Purpose
    provider: str
    model: str | None
    lane: str
    permit_wait_ms: float
    ms: float
    traceparent: str | None = None
    ended_at: float = 0.0


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
    """What came. Only with the outcome ``ok`` can it win; otherwise it is what a broken stream left, kept to be seen."""
    failure: Failure | None = None
    cost_usd: Decimal | None = None
    timing_ms: dict[str, float] = field(default_factory=dict)
    then: Advance | None = None
    facts: CallFacts | None = None
    """None: no call was made by this process."""
    opening: NewAttempt | None = None
    """What a ledger that lost the attempt gets it back from; None: it is closed by what the ledger itself says."""


OnLost = Callable[[Sequence[ClosedAttempt]], None]
"""Gets the ends of paid calls whose jobs the ledger lost."""


@dataclass(frozen=True, slots=True)
class VerdictQuery:
    """Keys (32 bytes each) of verdicts that a batch may have."""

    batch_id: UUID
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CachedVerdict:
    """A verdict in a judge's reply to an attempt, under a number."""

    attempt_id: UUID
    job_id: UUID
    number: int
    reply: str


@dataclass(frozen=True, slots=True)
class NewVerdicts:
    """Verdicts of a stored reply that later jobs may use: key and number of each claim."""

    attempt_id: UUID
    numbers: tuple[tuple[bytes, int], ...]
