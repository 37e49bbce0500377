"""The attempts of a job, whatever they are made for: how they are written before a call and what is written after it."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from uuid_utils.compat import uuid7

from schemas.failure import Failure, FailureKind
from schemas.states import JobState
from tasks.errors import ConfigurationError, InputError, ProviderError, Unstorable
from tasks.ports import Advance, Call, ClosedAttempt, Journal, Leased, Limits, NewAttempt, Opened, Permit, Purpose
from tasks.retry import Decision, Fail, Fallback, Hold, Retry, Snooze

BUDGET_WAIT = timedelta(seconds=5)
"""How long a job waits for other reservations of its batch to be settled before it asks for its own again."""

OVERTIME_S = 0.25
"""Seconds beyond a call's time limit: adapters keep it themselves, and know what a stream brought before it was up."""

MAX_UNKNOWN = 10
"""Unknown outcomes of a round before no more calls are made: a job that takes its worker down must not do so for ever."""


def new_attempt(job: Leased, call: Call, purpose: Purpose, number: int) -> NewAttempt:
    """The attempt of a call about to be made."""
    return NewAttempt(
        id=uuid7(),
        job_id=job.job_id,
        batch_id=job.batch_id,
        token=job.token,
        run=job.run,
        round=job.round,
        purpose=purpose,
        number=number,
        lane=call.lane,
        provider=call.provider,
        model=call.model,
        request_hash=call.request_hash,
        reserved_usd=call.reserve_usd or Decimal(0),
    )


async def opened(journal: Journal, limits: Limits, permit: Permit, job: Leased, attempt: NewAttempt) -> Opened:
    """Write an attempt before its call; one that is cut off here was never called, and is closed so.

    A permit that no call follows is given back.
    """
    opening = asyncio.ensure_future(journal.open_attempt(attempt))
    status = None
    try:
        status = await asyncio.shield(opening)
    except asyncio.CancelledError:
        # The row may be on its way; left open it would be taken for a call that was cut off.
        if await opening is Opened.OPENED:
            await journal.close_attempt(_never_called(job, attempt))
        raise
    finally:
        if status is not Opened.OPENED:
            limits.unused(permit)
    return status


def cost_of(failure: Failure, attempt: NewAttempt) -> Decimal | None:
    """What a failed call is taken to have cost: a broken answer was probably billed, so all that was reserved.

    None for an unknown outcome: the ledger charges what was reserved until the answer is known.
    """
    if failure.kind is FailureKind.UNKNOWN_OUTCOME:
        return None
    return attempt.reserved_usd if failure.kind is FailureKind.BAD_ANSWER else Decimal(0)


def _never_called(job: Leased, attempt: NewAttempt) -> ClosedAttempt:
    failure = Failure(kind=FailureKind.CANCELLED, message="stopped before the call was made", attempt=attempt.number)
    return ClosedAttempt(
        id=attempt.id,
        job_id=job.job_id,
        token=job.token,
        step=job.step,
        outcome=f"error:{failure.kind.value}",
        spent=False,
        failure=failure,
        cost_usd=Decimal(0),
        then=Advance(JobState.AVAILABLE, job.step, job.round),
    )


def cut_off(job: Leased, attempt: NewAttempt) -> ClosedAttempt:
    """The end of an attempt whose worker stopped, or lost the lease, while the call was under way."""
    failure = Failure(
        kind=FailureKind.UNKNOWN_OUTCOME,
        message="cut off while the call was under way",
        attempt=attempt.number,
        at=datetime.now(UTC),
    )
    # Back to the queue in the same write, if the lease is still ours (a stopping worker).
    then = Advance(JobState.AVAILABLE, job.step, job.round, event="cut_off")
    return ClosedAttempt(
        attempt.id, job.job_id, job.token, job.step, "unknown", spent=False, failure=failure, then=then
    )  # fmt: skip


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


def failure_of(error: BaseException, *, attempt: int | None = None) -> Failure:
    """The failure that is stored for an error; what was not raised on purpose is a defect of ours."""
    at = datetime.now(UTC)
    match error:
        case ProviderError():
            return Failure(
                kind=error.kind,
                message=str(error),
                attempt=attempt,
                at=at,
                provider_request_id=error.provider_request_id,
                retry_after_s=error.retry_after_s,
                status_code=error.status_code,
            )
        case TimeoutError():
            message = "no answer within the time allowed"
            return Failure(kind=FailureKind.UNKNOWN_OUTCOME, message=message, attempt=attempt, at=at)
        case ConfigurationError() | InputError():
            return Failure(kind=FailureKind.CONFIGURATION, message=str(error), attempt=attempt, at=at)
        case Unstorable():
            return Failure(kind=FailureKind.UNSTORABLE, message=str(error), attempt=attempt, at=at)
        case _:
            message = f"{type(error).__name__}: {error}"
            return Failure(kind=FailureKind.INTERNAL, message=message, attempt=attempt, at=at)
