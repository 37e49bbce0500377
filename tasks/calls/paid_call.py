"""Makes one paid call: permit, attempt recorded before the call, the call itself, and the attempt's close."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from time import monotonic, time
from typing import Any, TypeVar

from uuid_utils.compat import uuid7

from schemas.failure import Failure, FailureKind
from schemas.job import JobRequest
from schemas.model_call import Prompt
from schemas.states import JobState
from tasks.answers.stream_text import StreamText
from tasks.calls.retry import Decision, Hold, RetryPolicy, Snooze, decide
from tasks.errors import UNPRICED, ProviderError, Unstorable, failure_of
from tasks.ports import (
    READ_FIRST_S,
    STALL_S,
    Advance,
    Answered,
    Call,
    CallFacts,
    ClosedAttempt,
    Denied,
    Journal,
    Leased,
    Limits,
    Listener,
    NewAttempt,
    Opened,
    Permit,
    Provider,
    Purpose,
    ShareTerms,
    StoredAnswer,
    TokenSink,
)

log = logging.getLogger(__name__)

OVERTIME_S = 0.25
"""Seconds beyond a call's time limit: adapters keep it themselves, and know the part of a stream that came in time."""

MAX_UNKNOWN = 10
"""Unknown outcomes of a round before no more calls are made: a job that takes its worker down must not do so for ever."""

Result = TypeVar("Result")


def _stream_text(call: Call, emit: Callable[[str], None]) -> StreamText:
    request = call.request
    return StreamText(
        emit,
        call.protocol,
        [request.context[index].content for index in call.prompt.snapshot.shown],
        show_markers=request.config.include_citations,
        allow_html=request.config.allow_html,
    )


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call ready to be made, with its provider."""

    provider: Provider
    call: Call
    lane_reason: str | None = None
    """Reason of its lane, where the job left that open."""

    @property
    def model_name(self) -> str:
        """``provider:model``."""
        return f"{self.call.provider}:{self.call.model}"


def plan_call(job: Leased, provider: Provider, request: JobRequest, prompt: Prompt) -> PlannedCall:
    """Plans a call. Raises ``ProviderError``, also for an unknown price under a ceiling or budget."""
    call = provider.plan(request, prompt)
    if call.reserve_usd is None and (job.max_cost_usd is not None or job.tenant_budget):
        raise ProviderError(FailureKind.BUDGET, UNPRICED.format(call.model, call.provider))
    return PlannedCall(provider, call)


@dataclass(slots=True)
class OpenCall:
    """A call whose attempt is open in the ledger; ``ms`` is the time that the call took."""

    job: Leased
    plan: PlannedCall
    attempt: NewAttempt
    permit: Permit
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class BrokenCall:
    """The failure of a call, and the part of its stream that came; ``lane_paused`` by this failure."""

    failure: Failure
    partial_answer: StoredAnswer | None
    lane_paused: bool


@dataclass(frozen=True, slots=True)
class AnsweredClose:
    """The close of an answered call.

    Attributes:
        advanced: the same write moved the job on.
        failure: the ledger can't keep the answer; the attempt has its cost.
    """

    advanced: bool
    failure: Failure | None = None


@dataclass(slots=True)
class PaidCalls:
    """Makes the paid calls of a step: ``open``, ``make``, then ``close_answered`` or ``close_broken``.

    A call that another transport makes is opened and closed in the same way.
    """

    journal: Journal
    policy: RetryPolicy
    jitter: Callable[[], float]
    limits: Limits
    """Permits each call."""
    tokens: TokenSink
    """Gets the text of streamed calls."""

    async def open(
        self,
        job: Leased,
        plan: PlannedCall,
        purpose: Purpose,
        number: int,
        share: ShareTerms | None = None,
        *,
        required: bool = True,
    ) -> OpenCall | Denied | Opened:
        """Gets a permit and records the attempt. Without a permit, or without the attempt, returns the status.

        Without money in the batch the job is held, unless the call is not ``required``. A cancellation meanwhile, or an answer of the ledger that comes too late, closes the attempt: nothing was called.
        """
        permit = await self.limits.permit(job, plan.call)
        if isinstance(permit, Denied):
            return permit
        paid = OpenCall(job, plan, new_attempt(job, plan.call, purpose, number, share, required=required), permit)
        opening = asyncio.ensure_future(self.journal.open_attempt(paid.attempt))
        status = None
        try:
            status = await asyncio.shield(opening)
        except asyncio.CancelledError:
            await finish_first(self._withdraw(paid, opening))
            raise
        finally:
            if status is not Opened.OPENED:
                self.limits.unused(permit)
        if status is Opened.STALE:
            # This worker was frozen meanwhile: another may be calling by now.
            await self.journal.close_attempt(_never_called(paid))
            return Opened.LOST
        return paid if status is Opened.OPENED else status

    async def _withdraw(self, paid: OpenCall, opening: asyncio.Future[Opened]) -> None:
        """Closes an attempt whose row may be on its way: an open one counts as a call that was cut off."""
        if await opening in {Opened.OPENED, Opened.STALE}:
            await self.journal.close_attempt(_never_called(paid))

    async def make(self, paid: OpenCall) -> Answered | BrokenCall:
        """Makes the call once. A cancellation closes the attempt as unknown: the provider may have served it."""
        call = paid.plan.call
        listener = None
        if call.stream:
            self.tokens.start(paid.job, paid.attempt)
            stream_text = _stream_text(call, partial(self.tokens.text, paid.attempt.id))
            listener = Listener(stream_text.feed, stream_text.close)
        started = monotonic()
        try:
            answered = await answer_within(paid.plan.provider.call(call, listener), call.timeout_s + OVERTIME_S)
        except asyncio.CancelledError:
            self.limits.failed(paid.permit, Failure(kind=FailureKind.CANCELLED, message="cut off"))
            await asyncio.shield(self._close(_cut_off(paid), self._partial_answer(paid, listener)))
            raise
        except Exception as error:
            failure = failure_of(error, attempt=paid.attempt.number)
            if failure.kind is FailureKind.INTERNAL:
                log.exception("the %s call of job %s broke", paid.attempt.purpose, paid.job.job_id)
            lane_paused = self.limits.failed(paid.permit, failure)
            return BrokenCall(failure, self._partial_answer(paid, listener), lane_paused)
        finally:
            paid.ms = (monotonic() - started) * 1000
        self.limits.answered(paid.permit, answered.completion)
        if listener is not None:
            listener.on_end()
            self.tokens.end(paid.attempt.id, whole=True)
        return answered

    def _partial_answer(self, paid: OpenCall, listener: Listener | None) -> StoredAnswer | None:
        if listener is None:
            return None
        listener.on_end()
        self.tokens.end(paid.attempt.id, whole=False)
        came = listener.so_far()
        return None if came is None else StoredAnswer(came.raw, came.completion, paid.plan.call.prompt)

    def decide(self, job: Leased, broken: BrokenCall, *, more_providers: bool) -> Decision:
        """Decides by the retry policy what follows a failed call."""
        return decide(
            broken.failure,
            spent=job.spent,
            snoozes=job.snoozes,
            max_attempts=job.request.config.max_attempts,
            more_providers=more_providers,
            policy=self.policy,
            jitter=self.jitter(),
            lane_paused=broken.lane_paused,
        )

    async def close_answered(
        self, paid: OpenCall, answered: Answered, timing_ms: dict[str, float], then: Advance | None = None
    ) -> AnsweredClose:
        """Closes the attempt with its answer, and in the same write moves the job on, if it is to move."""
        completion = answered.completion
        answer = StoredAnswer(answered.raw, completion, paid.plan.call.prompt)
        cost_usd = completion.cost_usd
        done = _closed(paid, answer=answer, cost_usd=cost_usd, timing_ms=timing_ms, then=then)
        try:
            return AnsweredClose(await self.journal.close_attempt(done))
        except Unstorable as error:
            failure = failure_of(error, attempt=paid.attempt.number)
            await self.journal.close_attempt(_closed(paid, failure, spent=True, cost_usd=cost_usd))
            return AnsweredClose(advanced=False, failure=failure)

    async def close_broken(  # noqa: PLR0917 - the close has these parts
        self,
        paid: OpenCall,
        broken: BrokenCall,
        decision: Decision,
        timing_ms: dict[str, float],
        then: Advance | None,
        used_usd: Decimal | None = None,
    ) -> Decimal | None:
        """Closes the attempt of a failed call, which cost ``used_usd`` by its usage; returns its cost, None for an unknown one."""
        # A broken answer was probably billed. The ledger charges an unknown outcome with the reservation meanwhile.
        unknown = broken.failure.kind is FailureKind.UNKNOWN_OUTCOME
        billed = unknown or broken.failure.kind is FailureKind.BAD_ANSWER
        cost_usd = paid.attempt.reserved_usd if billed else used_usd or Decimal(0)
        spent = not isinstance(decision, Snooze | Hold)
        charge = None if unknown else cost_usd
        done = _closed(paid, broken.failure, spent=spent, cost_usd=charge, timing_ms=timing_ms, then=then)
        await self._close(done, broken.partial_answer)
        return cost_usd

    async def _close(self, done: ClosedAttempt, partial_answer: StoredAnswer | None) -> None:
        try:
            await self.journal.close_attempt(replace(done, answer=partial_answer))
        except Unstorable as error:
            if partial_answer is None:
                raise
            log.warning("the broken stream of job %s can't be kept: %s", done.job_id, error)
            await self.journal.close_attempt(done)


def with_way(answered: Answered, misses: Sequence[str], lane_reason: str | None) -> Answered:
    """An answer that names the providers in whose place it came, and the reason of its lane."""
    if not misses and lane_reason is None:
        return answered
    way = {"fallback_from": tuple(misses), "lane_reason": lane_reason}
    completion = answered.completion
    snapshot = completion.snapshot.model_copy(update=way)
    return Answered(answered.raw, completion.model_copy(update={"snapshot": snapshot}))


# ---- attempts ----------------------------------------------------------------------------------------------------


def new_attempt(
    job: Leased, call: Call, purpose: Purpose, number: int, share: ShareTerms | None = None, *, required: bool = True
) -> NewAttempt:
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
        required=required,
    )


def _closed(paid: OpenCall, failure: Failure | None = None, *, spent: bool = False, **fields: Any) -> ClosedAttempt:
    """The close of an attempt; ``fields`` are the further fields of ``ClosedAttempt``."""
    outcome = "ok"
    if failure is not None:
        outcome = "unknown" if failure.kind is FailureKind.UNKNOWN_OUTCOME else f"error:{failure.kind.value}"
    job, call, permit = paid.job, paid.attempt, paid.permit
    facts = CallFacts(
        job.run,
        call.purpose,
        call.provider,
        call.model,
        call.lane,
        permit.waited_ms,
        paid.ms,
        job.request.traceparent,
        time(),
    )
    return ClosedAttempt(
        call.id,
        job.job_id,
        job.token,
        job.step,
        outcome,
        spent=spent,
        failure=failure,
        facts=facts,
        opening=call,
        **fields,
    )


def _never_called(paid: OpenCall) -> ClosedAttempt:
    """The close of an attempt that was opened by a process that then had to stop."""
    job, number = paid.job, paid.attempt.number
    failure = Failure(kind=FailureKind.CANCELLED, message="stopped before the call was made", attempt=number)
    return _closed(paid, failure, cost_usd=Decimal(0), then=Advance(JobState.AVAILABLE, job.step, job.round))


def _cut_off(paid: OpenCall) -> ClosedAttempt:
    """The close of an attempt whose call was under way; it may have been billed."""
    job, message = paid.job, "cut off while the call was under way"
    failure = Failure(
        kind=FailureKind.UNKNOWN_OUTCOME, message=message, attempt=paid.attempt.number, at=datetime.now(UTC)
    )
    # Back to the queue in the same write, if the lease is still ours (a stopping worker).
    return _closed(paid, failure, then=Advance(JobState.AVAILABLE, job.step, job.round, event="cut_off"))


# ---- cancellation ------------------------------------------------------------------------------------------------


async def answer_within(call: Coroutine[Any, Any, Result], within_s: float) -> Result:
    """Returns the answer of a call, or raises ``TimeoutError``; an answer that lies ready is never dropped.

    A cancellation in the same turn of the loop as the answer is taken back: the paid answer is stored first, and the
    caller that stops the process, or took the job, sees to the rest. The call has a task of its own, for a cancellation
    would take the place of the answer in the task that it wakes.
    """
    calling = asyncio.ensure_future(call)
    end = monotonic() + within_s
    try:
        await asyncio.wait({calling}, timeout=within_s)
        if not calling.done() and monotonic() - end > STALL_S:
            # The process stood still; a call that keeps its time limit itself takes as long to read.
            await asyncio.wait({calling}, timeout=READ_FIRST_S + OVERTIME_S)
    except asyncio.CancelledError:
        if not await _answered(calling):
            raise
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        return calling.result()
    if not calling.done() and not await _answered(calling):
        raise TimeoutError
    return calling.result()


async def _answered(calling: "asyncio.Future[Any]") -> bool:
    """Gives a call the turn of the loop in which a ready answer arrives, then cuts it off."""
    try:
        await asyncio.sleep(0)
    finally:
        calling.cancel()
    await asyncio.wait({calling})
    return not calling.cancelled() and calling.exception() is None


async def finish_first(work: Coroutine[Any, Any, Result]) -> Result:
    """Returns the result of some work; a cancellation meanwhile is raised only when the work is done.

    A second cancellation ends the wait, not the work: with the ledger away a process must still come to its end.
    """
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        raise
