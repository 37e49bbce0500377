"""The attempts of a job, whatever they are made for: how they are opened before a call, and what a failed one says."""

import asyncio
from datetime import UTC, datetime

from uuid_utils.compat import uuid7

from schemas.failure import Failure, FailureKind
from tasks.calls.cancelling import finish_first
from tasks.calls.closing import never_called
from tasks.errors import ConfigurationError, InputError, ProviderError, Unstorable
from tasks.ports import Call, Journal, Leased, Limits, NewAttempt, Opened, Permit, Purpose, ShareTerms

OVERTIME_S = 0.25
"""Seconds beyond a call's time limit: adapters keep it themselves, and know what a stream brought before it was up."""

UNPRICED = (
    "the price of model {} at {} is unknown, so the batch's ceiling could not be kept; "
    "take a model whose price is known, or submit without a ceiling"
)

MAX_UNKNOWN = 10
"""Unknown outcomes of a round before no more calls are made: a job that takes its worker down must not do so for ever."""


def new_attempt(job: Leased, call: Call, purpose: Purpose, number: int, share: ShareTerms | None = None) -> NewAttempt:
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
        reserved_usd=call.reserve_usd,
        share=share,
    )


async def opened(journal: Journal, limits: Limits, permit: Permit, job: Leased, attempt: NewAttempt) -> Opened:
    """Write an attempt before its call; one that is cut off here, or stale, was never called, and is closed so.

    A permit that no call follows is given back.
    """
    opening = asyncio.ensure_future(journal.open_attempt(attempt))
    status = None
    try:
        status = await asyncio.shield(opening)
    except asyncio.CancelledError:
        await finish_first(_withdraw(journal, job, attempt, opening))
        raise
    finally:
        if status is not Opened.OPENED:
            limits.unused(permit)
    if status is Opened.STALE:
        # A worker that was frozen meanwhile: another may be calling by now.
        await journal.close_attempt(never_called(job, attempt))
        return Opened.LOST
    return status


async def _withdraw(journal: Journal, job: Leased, attempt: NewAttempt, opening: asyncio.Future[Opened]) -> None:
    """Close an attempt whose row may be on its way: left open it would be taken for a call that was cut off."""
    if await opening in {Opened.OPENED, Opened.STALE}:
        await journal.close_attempt(never_called(job, attempt))


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
