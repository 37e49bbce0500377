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
TRANSITIONS: dict[tuple[JobState, JobState], frozenset[str]] = {
    (_S.SCHEDULED, _S.AVAILABLE): frozenset({"promote", "release", "settle_budgets", "close_attempts", "expire"}),
    (_S.SCHEDULED, _S.CANCELLED): frozenset({"cancel"}),
    (_S.SCHEDULED, _S.EXPIRED): frozenset({"expire"}),
    (_S.AVAILABLE, _S.RUNNING): frozenset({"lease"}),
    (_S.AVAILABLE, _S.SCHEDULED): frozenset({"hold"}),
    (_S.AVAILABLE, _S.CANCELLED): frozenset({"cancel"}),
    (_S.AVAILABLE, _S.EXPIRED): frozenset({"expire"}),
    (_S.RUNNING, _S.RUNNING): frozenset({"close_attempts"}),
    (_S.RUNNING, _S.AVAILABLE): frozenset({"close_attempts", "share", "hand_back", "rescue", "expire"}),
    (_S.RUNNING, _S.SCHEDULED): frozenset({"close_attempts", "open_attempts", "defer", "rescue"}),
    (_S.RUNNING, _S.PENDING): frozenset({"park"}),
    (_S.RUNNING, _S.COMPLETED): frozenset({"finish"}),
    (_S.RUNNING, _S.FAILED): frozenset({"finish", "rescue"}),
    (_S.RUNNING, _S.CANCELLED): frozenset({"cancel"}),
    (_S.RUNNING, _S.EXPIRED): frozenset({"expire"}),
    (_S.PENDING, _S.AVAILABLE): frozenset({"close_attempts", "expire"}),
    (_S.PENDING, _S.SCHEDULED): frozenset({"close_attempts"}),
    (_S.PENDING, _S.RUNNING): frozenset({"close_attempts"}),
    (_S.PENDING, _S.CANCELLED): frozenset({"cancel"}),
    (_S.PENDING, _S.EXPIRED): frozenset({"expire"}),
    (_S.COMPLETED, _S.SCHEDULED): frozenset({"retry", "recheck"}),
    (_S.FAILED, _S.SCHEDULED): frozenset({"retry", "recheck"}),
    (_S.CANCELLED, _S.SCHEDULED): frozenset({"retry"}),
    (_S.EXPIRED, _S.SCHEDULED): frozenset({"retry"}),
}
"""Every permitted edge with the ledger verbs that may use it; a missing pair is forbidden. ``hold``: a pause, a closed window, money."""
