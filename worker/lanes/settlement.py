"""Stores the answers and failures of parked calls, and moves their jobs on: one way for all lanes."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from typing import Protocol

from schemas.failure import Failure, FailureKind
from schemas.generation import Lane
from schemas.states import HeldReason, JobState
from tasks.calls.paid_call import BrokenCall, PaidCalls, with_way
from tasks.calls.retry import Decision, Fail, Hold, Retry, Snooze, advance_of
from tasks.errors import failure_of
from tasks.generate import end_failed
from tasks.lanes.parking import call_of, open_call, taken_back, timing_ms, under_lease
from tasks.ports import (
    Advance,
    Answered,
    Call,
    ClosedAttempt,
    Journal,
    Leased,
    Providers,
    Purpose,
    Queue,
    UnreadableRow,
)
from tasks.ports.remote_batches import PendingCall, RemoteResult, UnreadableCall
from tasks.results import total_ms

log = logging.getLogger(__name__)

UNDONE = frozenset({FailureKind.EXPIRED, FailureKind.CANCELLED})
"""The provider ended a call before it was made: it spends no attempt."""

Answer = RemoteResult | Failure


class Reader(Protocol):
    """Parses the results of a provider."""

    def answer(self, call: Call, result: RemoteResult) -> Answered:
        """Parse a result as the answer of a single call is parsed. Raises ``ProviderError``."""


@dataclass(slots=True)
class Settlement:
    """Closes the attempts of parked calls, each together with the next state of its job."""

    queue: Queue
    journal: Journal
    calls: PaidCalls
    providers: Providers
    to_check: Callable[[Leased], None]
    """Gets each job with a committed answer, to hint its check."""

    async def readable(self, calls: Sequence[PendingCall | UnreadableCall]) -> list[PendingCall]:
        """Fails the jobs of calls whose rows can't be read; returns the other calls."""
        sorted_calls = [call if isinstance(call, UnreadableCall) else _read_call(call) for call in calls]
        unreadable = [call for call in sorted_calls if isinstance(call, UnreadableCall)]
        if unreadable:
            await asyncio.gather(*(self.journal.close_attempt(_close_unreadable(call)) for call in unreadable))
            await self.queue.fail_unreadable(
                [call.row for call in unreadable], [call.attempt.token for call in unreadable]
            )
        return [call for call in sorted_calls if isinstance(call, PendingCall)]

    async def settle(self, pending: PendingCall, answer: Answer, reader: Reader, *, spilled: bool) -> None:
        """Closes one attempt with its answer or failure, and moves its job on; ``spilled`` to another lane."""
        cost_usd = None
        if isinstance(answer, RemoteResult) and answer.failure is None:
            call = call_of(pending)
            try:
                answered = reader.answer(call, answer)
            except Exception as error:
                failure = failure_of(error, attempt=pending.attempt.number)
                if failure.kind is FailureKind.INTERNAL:
                    log.exception("the answer to job %s broke", pending.job.job_id)
            else:
                await self._store_answer(pending, answered)
                return
        elif isinstance(answer, RemoteResult):
            failure, cost_usd = answer.failure or _NO_REASON, answer.cost_usd
        else:
            failure = answer
        if failure.kind is FailureKind.UNKNOWN_OUTCOME and isinstance(answer, RemoteResult):
            # Of a single call it may have been billed; a row that says "failed" never is.
            failure = failure.model_copy(update={"kind": FailureKind.OVERLOADED})
        await self.store_failure(pending, failure, of_call=True, spilled=spilled, cost_usd=cost_usd)

    async def _store_answer(self, pending: PendingCall, answered: Answered) -> None:
        job, completion = pending.job, answered.completion
        misses, lane_reason = pending.document.get("fallback_from") or (), pending.document.get("lane_reason")
        answered = with_way(answered, misses, lane_reason)
        then = Advance(JobState.AVAILABLE, job.request.config.check_step, job.round)
        paid = open_call(pending, self.providers.get(pending.attempt.provider))
        self.calls.limits.answered(paid.permit, completion)
        close = await self.calls.close_answered(paid, answered, timing_ms(pending), then)
        if close.failure is not None and is_judge(pending):
            await self.journal.close_attempt(replace(taken_back(pending), then=then))
        elif close.failure is not None:
            await self.journal.close_attempt(taken_back(pending))
            await self._fail(pending, close.failure)
        elif close.advanced:
            self.to_check(job)

    async def store_failure(
        self,
        pending: PendingCall,
        failure: Failure,
        *,
        of_call: bool = False,
        lane_paused: bool = False,
        spilled: bool = False,
        cost_usd: Decimal | None = None,
    ) -> None:
        """Closes one attempt with its failure, and moves its job on; ``of_call``: of this call, not of all in its batch."""
        failure = failure.model_copy(update={"attempt": pending.attempt.number})
        broken = BrokenCall(failure, None, lane_paused)
        decide = self.decide_judge if is_judge(pending) else self.decide
        decision = decide(pending.job, broken, of_call=of_call)
        event = None
        if spilled and failure.kind in UNDONE:
            # The deadline is near, and the call was not made.
            decision, event = Snooze(timedelta(0)), "spill"
        then = under_lease(pending) if isinstance(decision, Fail) else advance_of(decision, pending.job)
        if event is not None and then is not None:
            then = replace(then, event=event)
        await self.calls.close_broken(
            open_call(pending, self.providers.get(pending.attempt.provider)),
            broken,
            decision,
            timing_ms(pending),
            then,
            cost_usd,
        )
        if isinstance(decision, Fail):
            await self._fail(pending, decision.failure)

    def decide(self, job: Leased, broken: BrokenCall, *, of_call: bool) -> Decision:
        """The usual rule. A call that failed in its batch spends an attempt: a snooze would last as long as a batch."""
        failure, most = broken.failure, job.request.config.max_attempts
        decision = self._usual(job, broken)
        if of_call and isinstance(decision, Snooze) and failure.kind not in UNDONE:
            decision = Retry(decision.delay) if job.spent + 1 < most else Fail(failure)
        if broken.lane_paused and job.request.config.lane is Lane.AUTO:
            # The next lease chooses another lane.
            decision = Snooze(timedelta(0))
        if isinstance(decision, Hold) and job.round:
            # There is an answer already: no person has to decide about a second one.
            decision = Fail(failure)
        if isinstance(decision, Fail) and len(self.providers.turns(job.request.config, job.level)) > max(
            1, job.spent + 2 - most
        ):
            # The next leases count the attempts, and so come to the fallbacks.
            decision = Retry(timedelta(0))
        return decision

    def decide_judge(self, job: Leased, broken: BrokenCall, *, of_call: bool) -> Decision:
        """A judge that failed in its batch is asked at once; no answer fails, or is held for a lane, because of its judge."""
        decision = self._usual(job, replace(broken, lane_paused=False))
        if of_call and broken.failure.kind not in UNDONE and isinstance(decision, Snooze):
            return Retry(timedelta(0))
        waits = isinstance(decision, Snooze) or (
            isinstance(decision, Hold) and decision.reason is HeldReason.UNKNOWN_OUTCOME
        )
        return decision if waits else Retry(timedelta(0))

    def _usual(self, job: Leased, broken: BrokenCall) -> Decision:
        """The decision on a call at once; one that was not made counts as refused by an overloaded provider."""
        if broken.failure.kind in UNDONE:
            broken = replace(broken, failure=broken.failure.model_copy(update={"kind": FailureKind.OVERLOADED}))
        return self.calls.decide(job, broken, more_providers=False)

    async def _fail(self, pending: PendingCall, failure: Failure) -> None:
        """Ends a job, whose close gave this process the lease for that."""
        timing = total_ms(pending.job, 0.0, timing_ms(pending))
        await end_failed(pending.job, failure, timing, self.queue, self.journal)


def _read_call(pending: PendingCall) -> PendingCall | UnreadableCall:
    try:
        call_of(pending)
        timing_ms(pending)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        row = UnreadableRow(pending.job.job_id, f"the document of its call: {type(error).__name__}")
        return UnreadableCall(row, pending.attempt, pending.job.step)
    return pending


def _close_unreadable(call: UnreadableCall) -> ClosedAttempt:
    """The close of a call whose job can't be read: its answer is of no use, and may have been billed."""
    attempt, message = call.attempt, call.row.message
    failure = Failure(kind=FailureKind.UNREADABLE, message=message, attempt=attempt.number)
    then = Advance(JobState.RUNNING, call.step, attempt.round)
    return ClosedAttempt(
        attempt.id, attempt.job_id, attempt.token, call.step, "unknown", spent=True, failure=failure, then=then
    )


def is_judge(pending: PendingCall) -> bool:
    """True for the call of a judge, whose job waits in its check with an answer."""
    return pending.attempt.purpose is Purpose.JUDGE


_NO_REASON = Failure(kind=FailureKind.OVERLOADED, message="the provider gives no reason")
