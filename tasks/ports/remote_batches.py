"""Provider batches and responses in a provider's background: the provider's side makes calls at a lower price, the ledger's parks them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

from schemas.failure import Failure, FailureKind
from schemas.generation import Lane
from schemas.states import Step
from tasks.ports.attempt_rows import NewAttempt
from tasks.ports.provider import Answered, Call
from tasks.ports.rows import Leased, UnreadableRow

# ---- the provider ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """One call of a provider batch: the attempt's id, under which its answer comes back, and the body of the request."""

    attempt_id: UUID
    body: bytes


@dataclass(frozen=True, slots=True)
class RemoteStatus:
    """The state of a batch at its provider.

    Attributes:
        ended: results can be collected; nothing changes any more.
        detail: state and counts in the provider's own words, for people.
        refused: the provider did none of its calls, for this reason.
        undone: the kind of failure of a call that the results don't mention.
        results: the number of them that the provider counts.
    """

    ended: bool
    detail: Mapping[str, Any]
    refused: Failure | None = None
    undone: FailureKind = FailureKind.UNKNOWN_OUTCOME
    results: int = 0


@dataclass(frozen=True, slots=True)
class RemoteResult:
    """One row of the results: an answer as a single call gets it (status and body), or a failure without one."""

    custom_id: str
    status_code: int = 200
    body: bytes = b""
    request_id: str | None = None
    failure: Failure | None = None
    cost_usd: Decimal | None = None
    """Cost of a call that failed, where the provider names its usage; None: it cost nothing."""


@dataclass(frozen=True, slots=True)
class UnreadableResult:
    """A row of the results that can't be read, so that nobody knows whose it is; ``problem`` says which and why."""

    problem: str


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch about to be created, or perhaps created by a process that ended before it could note it."""

    id: UUID
    provider: str
    model: str
    calls: int
    intended_at: datetime
    age: timedelta
    """Time since by the ledger's clock."""
    body_bytes: int = 0
    spilled: bool = False
    """It is to end for the deadline of its jobs, which go on by another lane."""
    lane: Lane = Lane.PROVIDER_BATCH


@dataclass(frozen=True, slots=True)
class Candidates:
    """Batches in the provider's list that are, or may be, an intent's.

    Attributes:
        matches: ids of batches that are proven to be this intent's.
        open: ids of batches that may be: to be matched by their results when they end.
    """

    matches: Sequence[str] = ()
    open: Sequence[str] = ()


class RemoteCalls(Protocol):
    """The batches of one provider. Every method raises ``ProviderError`` only; none tries again."""

    max_calls: int
    max_bytes: int

    async def create(self, intent: Intent, calls: AsyncIterator[RemoteCall]) -> str:
        """Create a batch of these calls; returns its remote id.

        ``UNKNOWN_OUTCOME`` is the one failure after which it may exist.
        """

    async def check(self, remote_id: str) -> RemoteStatus:
        """Ask how far a batch is."""

    def collect(self, remote_id: str) -> AsyncIterator[RemoteResult | UnreadableResult]:
        """Read the results of a batch that ended, in any order; the same again when asked again.

        What can be read comes before any error: of two files, one may be gone.
        """

    async def cancel(self, remote_id: str) -> None:
        """Ask the provider to end a batch early; what it finished can be collected, and is paid for."""

    async def find(self, intent: Intent, taken_ids: frozenset[str], attempt_ids: frozenset[str]) -> Candidates:
        """List the batches that may be an intent's, without the ``taken_ids`` of other intents."""

    def answer(self, call: Call, result: RemoteResult) -> Answered:
        """Parse a result as the answer of a single call is parsed. Raises ``ProviderError``."""


class RemoteResponses(Protocol):
    """The background of one provider; a response is created by ``Provider.call``.

    Every method raises ``ProviderError`` only; none tries again. ``NOT_FOUND``: the provider has no such response any more.
    """

    async def check(self, remote_id: str) -> RemoteResult | None:
        """Fetch a response; None: it is under way."""

    async def cancel(self, remote_id: str) -> RemoteResult | None:
        """Ask the provider to end a response early; returns what it came to, or None while that is open."""

    async def forget(self, remote_id: str) -> None:
        """Remove a response from the provider's store."""

    def answer(self, call: Call, result: RemoteResult) -> Answered:
        """Parse a result as the answer of a single call is parsed. Raises ``ProviderError``."""


# ---- the ledger --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParkedCall:
    """A planned call whose job is to wait for a provider batch; its attempt is open."""

    attempt_id: UUID
    job_id: UUID
    token: UUID
    provider: str
    model: str
    body: bytes
    document: bytes
    """The rest of the call as JSON, to be read again when its answer comes."""
    due_at: datetime | None = None
    """Deadline, or end of the last window, before which its job is moved to another lane; None: it stays."""
    lane: str = Lane.PROVIDER_BATCH
    remote_id: str | None = None
    """The provider's id of a response in its background."""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A parked call with its job as it is now, read for its answer."""

    job: Leased
    attempt: NewAttempt
    document: Mapping[str, Any]
    parked_ms: float
    """Since it was parked."""


@dataclass(frozen=True, slots=True)
class UnreadableCall:
    """A parked call whose job, or whose own document, can't be read; its attempt can."""

    row: UnreadableRow
    attempt: NewAttempt
    step: Step


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A provider batch that a worker looks after for a while; or a response in the background, under the id of its attempt."""

    intent: Intent
    remote_id: str | None
    """None: it may have been created, or not."""
    looks: int
    """Number of times that it was looked after, this time included."""
    has_jobs: bool
    """Some job still waits for it."""
    cancelled: bool
    """The provider was asked to end it."""
    due_in: timedelta | None = None
    """Until the earliest deadline of its jobs that may be moved to another lane."""
    overdue: timedelta = timedelta(0)
    """Time since it was due to be looked after."""
    failed_looks: int = 0
    """Looks in a row that failed."""
    failing_for: timedelta = timedelta(0)
    """Time since the first of them."""
    closed: bool = False
    """The attempt of a response is closed: its answer is stored, or its outcome was given up as unknown."""

    @property
    def id(self) -> UUID:
        """Its id in the ledger."""
        return self.intent.id


@dataclass(frozen=True, slots=True)
class Gathering:
    """The moment at which parked calls are made a batch.

    Attributes:
        quiet: no further call was parked for so long.
        longest: or the first waits for so long.
    """

    quiet: timedelta = timedelta(seconds=15)
    longest: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class WaitingCalls:
    """Parked calls that go into one batch: of one model, and of deadlines within the same hour.

    Attributes:
        due_hour: that hour; None for calls that stay in their lane.
        quiet: since the last one was parked.
        oldest: since the first one was parked.
        due_in: until the earliest deadline.
    """

    provider: str
    model: str
    due_hour: datetime | None
    calls: int
    body_bytes: int
    quiet: timedelta
    oldest: timedelta
    due_in: timedelta | None = None

    def ripe(self, gathering: Gathering, full: int) -> bool:
        """True if they are to be sent now."""
        return self.quiet >= gathering.quiet or self.oldest >= gathering.longest or self.calls >= full


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Seconds that the last batches of a model took, or its responses in the background.

    Attributes:
        ended_s: from their intents to their answers; of one that was spilled until then.
        open_s: ages of those that are open.
    """

    ended_s: Sequence[float] = ()
    open_s: Sequence[float] = ()
