"""How the attempts of a job are closed, and where the job goes then; pure."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from schemas.failure import Failure, FailureKind
from schemas.states import HeldReason, JobState
from tasks.calls.retry import Decision, Fail, Fallback, Hold, Retry, Snooze
from tasks.ports import Advance, ClosedAttempt, Denied, DenyReason, Leased, NewAttempt
from tasks.prompting.correction import give_up


def closed(job: Leased, attempt: NewAttempt, outcome: str, *, spent: bool = False, **more: Any) -> ClosedAttempt:
    """The end of an attempt; ``more`` are the further fields of ``ClosedAttempt``."""
    return ClosedAttempt(attempt.id, job.job_id, job.token, job.step, outcome, spent=spent, **more)


def outcome_of(failure: Failure) -> str:
    """What an attempt that failed so is closed as."""
    return "unknown" if failure.kind is FailureKind.UNKNOWN_OUTCOME else f"error:{failure.kind.value}"


def spent_of(job: Leased) -> Failure:
    """The failure of a job that may not be called for any more."""
    told = f"{job.spent} attempts failed and {job.unknown} ended unknown; no more are allowed"
    return Failure(kind=FailureKind.ATTEMPTS_SPENT, message=told)


def cost_of(failure: Failure, attempt: NewAttempt) -> Decimal | None:
    """What a failed call is taken to have cost: a broken answer was probably billed, so all that was reserved.

    None for an unknown outcome: the ledger charges what was reserved until the answer is known.
    """
    if failure.kind is FailureKind.UNKNOWN_OUTCOME:
        return None
    return attempt.reserved_usd if failure.kind is FailureKind.BAD_ANSWER else Decimal(0)


def never_called(job: Leased, attempt: NewAttempt) -> ClosedAttempt:
    """The end of an attempt that was opened by a process that then had to stop."""
    failure = Failure(kind=FailureKind.CANCELLED, message="stopped before the call was made", attempt=attempt.number)
    then = Advance(JobState.AVAILABLE, job.step, job.round)
    return closed(job, attempt, outcome_of(failure), failure=failure, cost_usd=Decimal(0), then=then)


def cut_off(job: Leased, attempt: NewAttempt) -> ClosedAttempt:
    """The end of an attempt whose call was under way; it may have been billed."""
    failure = Failure(
        kind=FailureKind.UNKNOWN_OUTCOME,
        message="cut off while the call was under way",
        attempt=attempt.number,
        at=datetime.now(UTC),
    )
    # Back to the queue in the same write, if the lease is still ours (a stopping worker).
    then = Advance(JobState.AVAILABLE, job.step, job.round, event="cut_off")
    return closed(job, attempt, outcome_of(failure), failure=failure, then=then)


def advance_of(decision: Decision, job: Leased) -> Advance | None:
    """Where a decision sends a running job; None where the job stays (to fail, or to call the next provider)."""
    match decision:
        case Retry(delay):
            return Advance(JobState.SCHEDULED, job.step, job.round, delay, event="retry")
        case Snooze(delay):
            return Advance(JobState.SCHEDULED, job.step, job.round, delay, event="snooze")
        case Hold(reason):
            return Advance(JobState.SCHEDULED, job.step, job.round, held_reason=reason, event="hold")
        case Fallback() | Fail():
            return None


def not_now(job: Leased, told: Denied, *, called: bool = False) -> Advance:
    """Where a job waits that may not be called for now; no attempt was made for this, none is spent.

    What follows its first attempt (``called``) counts as the wait for another one.
    """
    held = HeldReason.LANE_PAUSED if told.why is DenyReason.LANE_PAUSED else None
    if held and job.round:
        # There is an answer already: nobody has to mend a lane for a second one.
        return give_up(job, "no calls were made to the provider: its lane is paused")
    # Sent away by a limit, thousands of jobs come and go: that is the straight path, not an event of each.
    event = None if told.why is DenyReason.LIMIT else "hold" if held else told.why.value
    limited = not held and not called and not job.attempts
    return Advance(JobState.SCHEDULED, job.step, job.round, told.delay, held, event, limited=limited)
