"""Decides the next step after a failed attempt: a pure function of the failure, the earlier attempts, and the policy."""

from dataclasses import dataclass
from datetime import timedelta

from schemas.failure import Failure, FailureKind
from schemas.states import HeldReason, JobState
from tasks.ports import Advance, Leased

_K = FailureKind

SNOOZED = frozenset({_K.RATE_LIMITED, _K.OVERLOADED, _K.UNAVAILABLE})
"""The provider did no work: later, without spending an attempt."""

REFUSED_LANE = frozenset({_K.AUTHENTICATION, _K.PERMISSION, _K.NOT_FOUND, _K.PARAMETER})
"""The provider refuses the key, the access, the model or a parameter: it would refuse the next job, too."""

TERMINAL = frozenset({
    _K.INVALID_REQUEST, _K.CONTEXT_EXCEEDED, _K.CONFIGURATION, _K.UNSTORABLE, _K.REFUSED, _K.ATTEMPTS_SPENT,
})  # fmt: skip
"""The same call would fail again: another provider, or the end."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays and limits; the same for all jobs of a process."""

    base: timedelta = timedelta(seconds=2)
    """Ceiling of the first delay; doubles with every failure."""
    ceiling: timedelta = timedelta(minutes=5)
    """Most that a delay grows to."""
    longest_retry_after: timedelta = timedelta(hours=1)
    """A provider's Retry-After beyond this is cut to it: the ledger asks again then."""
    max_snoozes: int = 200
    """Snoozes of a step before the job fails, or is held; at the ceiling they span about 16 hours."""
    snoozes_before_fallback: int = 8
    """The same where another provider can be asked; with the doubling ceiling about four minutes."""
    hold_unknown: bool = False
    """Hold a job after an unknown outcome for a person to decide, instead of calling (and perhaps paying) again."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Call again after ``delay``; an attempt is spent."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class Snooze:
    """Call again after ``delay``; no attempt is spent."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait for a person or a change."""

    reason: HeldReason


@dataclass(frozen=True, slots=True)
class Fallback:
    """Go to the next provider now; this one's attempt is spent."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The end: the job fails with this failure."""

    failure: Failure


Decision = Retry | Snooze | Hold | Fallback | Fail


def decide(  # noqa: PLR0911 - a row of the decision table each
    failure: Failure,
    *,
    spent: int,
    snoozes: int,
    max_attempts: int,
    more_providers: bool,
    policy: RetryPolicy,
    jitter: float,
    lane_paused: bool = False,
) -> Decision:
    """Decides what follows a failure.

    Args:
        failure: what went wrong just now.
        spent: attempts of this run and step spent before it.
        snoozes: snoozes of this run and step before it.
        max_attempts: spent attempts allowed per step.
        more_providers: whether another provider can be called that was not asked yet.
        policy: delays and limits.
        jitter: uniform in [0, 1); the delay is that share of its ceiling ("full jitter", so that jobs that failed
            together do not come back together).
        lane_paused: whether the lane was paused because of this failure.

    >>> decide(Failure(kind=FailureKind.INTERNAL, message="m"), spent=0, snoozes=0, max_attempts=4,
    ...        more_providers=False, policy=RetryPolicy(), jitter=0.5)
    Retry(delay=datetime.timedelta(seconds=1))
    """
    if lane_paused or failure.kind is _K.QUOTA:
        return Fallback() if more_providers else Hold(HeldReason.LANE_PAUSED)
    if failure.kind in REFUSED_LANE:
        return Fallback() if more_providers else _refused(failure, snoozes, policy, jitter)
    if failure.kind is _K.UNAVAILABLE and not more_providers and snoozes >= policy.max_snoozes:
        return Hold(HeldReason.LANE_PAUSED)
    if failure.kind in SNOOZED:
        if snoozes < (policy.snoozes_before_fallback if more_providers else policy.max_snoozes):
            return Snooze(_wait(failure, snoozes, policy, jitter))
        return Fallback() if more_providers else Fail(failure)
    if failure.kind in TERMINAL:
        return Fallback() if more_providers else Fail(failure)
    if failure.kind is _K.UNKNOWN_OUTCOME and policy.hold_unknown:
        return Hold(HeldReason.UNKNOWN_OUTCOME)
    if spent + 1 < max_attempts:
        return Retry(_wait(failure, spent, policy, jitter))
    return Fallback() if more_providers else Fail(failure)


def _refused(failure: Failure, snoozes: int, policy: RetryPolicy, jitter: float) -> Decision:
    """Come back soon: by then the lane is paused, or others were answered.

    A key or a model is refused for every job alike. An access or a parameter may be refused for what one request says: that
    job fails.
    """
    own = failure.kind in {_K.PERMISSION, _K.PARAMETER}
    if snoozes < (policy.snoozes_before_fallback if own else policy.max_snoozes):
        return Snooze(_wait(failure, snoozes, policy, jitter))
    return Fail(failure) if own else Hold(HeldReason.LANE_PAUSED)


def _wait(failure: Failure, before: int, policy: RetryPolicy, jitter: float) -> timedelta:
    """Full jitter under a doubling ceiling, on top of what the provider asked for."""
    # Beyond 2**32 the doubling has long passed any ceiling; the cap keeps the arithmetic finite.
    ceiling = min(policy.base * (1 << min(before, 32)), policy.ceiling)
    # Cut before it becomes a timedelta, which holds no more than some million years.
    retry_after_s = min(failure.retry_after_s or 0.0, policy.longest_retry_after.total_seconds())
    return timedelta(seconds=retry_after_s) + ceiling * jitter


def advance_of(decision: Decision, job: Leased) -> Advance | None:
    """The next state of a running job; None where the job stays (to fail, or to call the next provider)."""
    match decision:
        case Retry(delay):
            return Advance(JobState.SCHEDULED, job.step, job.round, delay, event="retry")
        case Snooze(delay):
            return Advance(JobState.SCHEDULED, job.step, job.round, delay, event="snooze")
        case Hold(reason):
            return Advance(JobState.SCHEDULED, job.step, job.round, held_reason=reason, event="hold")
        case Fallback() | Fail():
            return None
