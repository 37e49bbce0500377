"""The life of a job: its states, steps and outcomes, and the one table of edges between states."""

from enum import StrEnum


class JobState(StrEnum):
    """The state of a job; a job is in exactly one state."""

    SCHEDULED = "scheduled"
    """Accepted; waits until ``scheduled_at``, or on hold (``held_reason``). Dispatch or a release moves it on."""
    AVAILABLE = "available"
    """Ready for its step, waiting for a worker's lease."""
    RUNNING = "running"
    """A worker holds the lease; only that worker, a cancel, an expiry or a rescue moves it on."""
    PENDING = "pending"
    """Parked inside a provider batch or a background response; the collector moves it on."""
    COMPLETED = "completed"
    """Final; ``outcome`` is the quality."""
    FAILED = "failed"
    """Final; attempts are spent or the error was terminal; the failure is stored."""
    CANCELLED = "cancelled"
    """Final; by request."""
    EXPIRED = "expired"
    """Final; by deadline."""


class Step(StrEnum):
    """A step of a job: first ``generate`` (unless the request supplies the answer), then one of the two checks."""

    GENERATE = "generate"
    CHECK = "check"
    LOCAL = "local"
    """The check with the local model; only workers with a local model lease it."""


class Outcome(StrEnum):
    """The quality of a completed job."""

    ANSWERED = "answered"
    UNVERIFIED = "unverified"
    """Nothing speaks against the answer, but a claim of it is undecided; strictness says what that means."""
    PARTIAL = "partial"
    ABSTAINED = "abstained"
    NO_EVIDENCE = "no_evidence"
    REJECTED = "rejected"
    REFUSED = "refused"

    @property
    def has_answer(self) -> bool:
        """True where the text is an answer, and not a sentence that says why there is none."""
        match self:
            case Outcome.ANSWERED | Outcome.UNVERIFIED | Outcome.PARTIAL:
                return True
            case Outcome.ABSTAINED | Outcome.NO_EVIDENCE | Outcome.REJECTED | Outcome.REFUSED:
                return False


class HeldReason(StrEnum):
    """The reason that a scheduled job waits for more than its time."""

    BUDGET = "budget"
    BATCH_PAUSED = "batch_paused"
    KEY_BUDGET = "key_budget"
    """The key that submitted it has no money left, in all or for its day; the next day goes on by itself."""
    LANE_PAUSED = "lane_paused"
    PRICE_UNKNOWN = "price_unknown"
    """Its call has no known price, so that a ceiling or budget could not be kept; accepted before that was set."""
    TENANT_BUDGET = "tenant_budget"
    """Goes on by itself when the next period of the budget begins."""
    UNKNOWN_OUTCOME = "unknown_outcome"

    @property
    def needs_person(self) -> bool:
        """True where neither time nor a worker lets the job go on."""
        match self:
            case HeldReason.BUDGET | HeldReason.BATCH_PAUSED | HeldReason.PRICE_UNKNOWN | HeldReason.UNKNOWN_OUTCOME:
                return True
            case HeldReason.KEY_BUDGET | HeldReason.LANE_PAUSED | HeldReason.TENANT_BUDGET:
                return False


FINAL_STATES = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED})

_S = JobState
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _S.SCHEDULED: frozenset({_S.AVAILABLE, _S.CANCELLED, _S.EXPIRED}),
    _S.AVAILABLE: frozenset({_S.RUNNING, _S.SCHEDULED, _S.CANCELLED, _S.EXPIRED}),
    _S.RUNNING: frozenset(_S),
    _S.PENDING: frozenset({_S.AVAILABLE, _S.SCHEDULED, _S.RUNNING, _S.CANCELLED, _S.EXPIRED}),
    **dict.fromkeys(FINAL_STATES, frozenset({_S.SCHEDULED})),
}
"""The states that may follow each; a person's retry leaves a final one."""
