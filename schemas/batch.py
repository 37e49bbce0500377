"""A batch: jobs from one submission, with their joint options, counts and cost."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import AfterValidator, Field

from schemas.base import Contract, Moment, Submitted
from schemas.budget import BudgetStatus
from schemas.claim_error import ErrorKind
from schemas.failure import FailureKind
from schemas.generation import Lane
from schemas.job import Key, Word
from schemas.model_call import Usd
from schemas.states import JobState, Outcome
from schemas.window import WindowText

MOST_UNPRICED = 1_000
"""Jobs of unknown price up to which a status counts them."""


def _callback_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError("must be an address whose host and port can be read; a port is a number up to 65535") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or not url.isascii() or not url.isprintable():
        raise ValueError("must be an address that begins with https:// or http:// and names a host, in ASCII")
    if parts.username or parts.password:
        raise ValueError("must not hold credentials: the signature proves the sender")
    return url


class BatchRequest(Submitted):
    """The options of a batch; another submission with the same ``key`` returns the same jobs by position."""

    key: Key | None = None
    name: Word | None = None
    not_before: Moment | None = None
    window: WindowText | None = Field(
        default=None,
        description="hours in which its jobs may be called, such as '22:00-06:00 Europe/Berlin', with weekdays if wanted: "
        "'mon-fri 22:00-06:00 Europe/Berlin'",
    )
    deadline: Moment | None = None
    max_cost_usd: Annotated[Decimal, Field(ge=0, max_digits=12, decimal_places=6)] | None = None
    callback_url: Annotated[str, Field(max_length=2_000), AfterValidator(_callback_url)] | None = Field(
        default=None, description="told by a signed POST when all jobs are final"
    )
    defaults: dict[str, Any] = Field(default_factory=dict, description="config fields for jobs that do not set them")


class LaneStatus(Contract):
    """A lane of a provider without calls: paused, or its provider is out of reach or can't be asked now."""

    provider: str
    lane: str
    model: str = Field(description="empty: all models")
    since: datetime
    kind: FailureKind
    why: str
    paused: bool = Field(description="false: workers can't reach or can't ask the provider now, and its jobs wait")
    remedy: str = Field(description="what to do")


class RemoteBatchStatus(Contract):
    """Calls that wait for a provider batch, or are in one, or are answered in a provider's background."""

    provider: str
    model: str
    lane: Lane = Lane.PROVIDER_BATCH
    calls: int
    remote_id: str | None = Field(
        description="the provider's id of the batch; null: not created yet, or not noted, or in the background"
    )
    sent_at: datetime | None = Field(description="null: the calls wait to be sent")
    expected_at: datetime | None = Field(description="its end by earlier batches; null where none was observed")
    due_at: datetime | None = Field(description="earliest deadline of jobs that leave it in time (lane auto)")
    spilled_at: datetime | None = Field(description="when it was cancelled for that deadline")
    detail: dict[str, Any] = Field(description="state and counts in the provider's words")
    trouble: str | None = Field(default=None, description="the cause for which the last look at it failed")
    next_look_at: datetime | None = Field(default=None, description="when it is looked at again")


class FailureCause(Contract):
    """The failed jobs of a batch with one cause."""

    kind: FailureKind
    jobs: int
    position: int = Field(description="of the first of them")
    example: str = Field(description="the message of one of them, at most 300 characters")


class CallbackStatus(Contract):
    """The request that tells a receiver that a batch is settled."""

    url: str = Field(description="without its query")
    state: Literal["waiting", "delivered", "given_up"]
    tries: int
    last_error: str | None
    next_at: datetime | None = Field(description="the next try, or the next look at the batch; null: none")


class BatchStatus(Contract):
    """Counts and cost of a batch at one moment."""

    batch_id: UUID
    key: str | None
    name: str | None
    tenant: str
    created_at: datetime
    not_before: datetime | None
    window: str | None = Field(default=None, description="hours in which its jobs may be called")
    opens_at: datetime | None = Field(default=None, description="beginning of the present or else the next window")
    closes_at: datetime | None = Field(default=None, description="its end")
    deadline: datetime | None
    paused: bool
    cancelled_at: datetime | None
    cancelling: bool = Field(default=False, description="its cancel is not through all of its jobs yet")
    erased_at: datetime | None = Field(default=None, description="when the content of its last job was erased")
    max_cost_usd: Usd | None
    reserved_usd: Usd
    spent_usd: Usd | None = Field(description="null where the price of a call is unknown, never 0 for it")
    priced_usd: Usd = Field(description="cost of the calls whose price is known")
    unpriced_jobs: int = Field(description=f"jobs with a call of unknown price, counted up to {MOST_UNPRICED:,}")
    jobs: int
    states: dict[JobState, int]
    outcomes: dict[Outcome, int]
    held: dict[str, int]
    unpublished: int = Field(description="final jobs whose result is not yet in the result backend")
    possibly_billed_twice: int = Field(
        description="attempts with an unknown or a late outcome whose step was called again"
    )
    refused_lines: int | None = Field(
        default=None,
        description="lines of its input that were no valid jobs; filled in by 'nightdesk status BATCH', else null",
    )
    errors: dict[ErrorKind, int] | None = Field(
        default=None,
        description="unsupported and contradicted claims of its answers by the kind of their error; filled in by "
        "'nightdesk status BATCH', else null",
    )
    failures: tuple[FailureCause, ...] | None = Field(
        default=None, description="its failed jobs by cause; filled in by 'nightdesk status BATCH', else null"
    )
    provider_batches: tuple[RemoteBatchStatus, ...] | None = Field(
        default=None,
        description="where its pending jobs wait; filled in by 'nightdesk status BATCH', else null",
    )
    spilled: int | None = Field(
        default=None,
        description="jobs that left a provider batch to meet their deadline; filled in by 'nightdesk status BATCH', else null",
    )
    budgets: tuple[BudgetStatus, ...] | None = Field(
        default=None,
        description="of its tenant and its key, that its held jobs wait for; filled in by 'nightdesk status BATCH' and GET of the "
        "batch, else null",
    )
    callback: CallbackStatus | None = None
    lanes: tuple[LaneStatus, ...] = Field(
        default=(), description="lanes of all batches without calls now; filled in by the commands"
    )

    @property
    def final(self) -> int:
        """Number of jobs in a final state."""
        return sum(self.states.get(state, 0) for state in ("completed", "failed", "cancelled", "expired"))  # type: ignore[call-overload]
