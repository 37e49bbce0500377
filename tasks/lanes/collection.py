"""Sends parked calls as provider batches, looks after those batches, and stores their answers.

A batch's intent is written before it is created, and its remote id right after. Between the two nothing is created a second
time: the provider's own list says whether the batch exists.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import UUID, uuid4

from schemas.failure import Failure, FailureKind
from schemas.generation import Lane
from schemas.record import TimingMs
from schemas.states import JobState
from tasks.calls.paid_call import BrokenCall, PaidCalls, with_way
from tasks.calls.retry import Decision, Fail, Hold, Retry, Snooze, advance_of
from tasks.errors import ConfigurationError, LedgerUnavailable, ProviderError, failure_of
from tasks.lanes.choice import LaneTerms, in_words
from tasks.lanes.pace import LanePace
from tasks.lanes.parking import call_of, open_call, taken_back, timing_ms, under_lease
from tasks.policy.asks import after_failure
from tasks.ports import (
    Advance,
    Answered,
    FinalJob,
    Journal,
    Leased,
    LeaseKey,
    Permit,
    Providers,
    Queue,
)
from tasks.ports.remote_batches import (
    Intent,
    OpenBatch,
    PendingCall,
    RemoteBatches,
    RemoteCalls,
    RemoteResult,
)
from tasks.results import failed, total_ms

log = logging.getLogger(__name__)

ROWS = 200
"""Answers stored at a time."""

FULL = 50_000
"""Parked calls that are sent at once, without waiting for more."""

UNDONE = frozenset({FailureKind.EXPIRED, FailureKind.CANCELLED})
"""The provider ended the batch before the call: it spends no attempt."""

Answer = RemoteResult | Failure


@dataclass(slots=True)
class BatchLane:
    """The lane ``provider_batch`` of a process that serves the step generate.

    Every such process runs it; the ledger gives each batch to one of them at a time.
    """

    batches: RemoteBatches
    queue: Queue
    journal: Journal
    calls: PaidCalls
    providers: Providers
    to_check: Callable[[Leased], None]
    """Gets each job with a committed answer, to hint its check."""
    final: Callable[[Leased, FinalJob], None]
    """Gets each job that became final here."""
    pace: LanePace = field(default_factory=LanePace)
    terms: LaneTerms = field(default_factory=LaneTerms)
    """Times by which jobs with the lane ``auto`` leave this one."""

    async def run(self) -> None:
        """Looks after parked calls and batches until cancelled."""
        while True:
            try:
                busy = await self.turn()
            except LedgerUnavailable as error:
                log.warning("provider batches wait for the ledger: %s", error)
                busy = False
            except Exception:
                log.exception("looking after provider batches broke")
                busy = False
            if not busy:
                await asyncio.sleep(self.pace.tick.total_seconds())

    async def turn(self) -> bool:
        """Sends what is gathered and looks after one batch; True if there may be more to do at once."""
        busy = await self._withdraw()
        busy |= await self._send_gathered()
        batch = await self.batches.take_due(self.pace.keep_for)
        if batch is not None:
            await self._look_after(batch)
        return busy or batch is not None

    async def _withdraw(self) -> bool:
        """Closes the attempts of parked calls that are not to be sent: nothing is paid; True if there were any."""
        if withdrawn := await self.batches.withdrawn(ROWS):
            await asyncio.gather(*map(self.journal.close_attempt, withdrawn))
            await self.batches.forget([closed.id for closed in withdrawn])
        return bool(withdrawn)

    # ---- creation ----

    async def _send_gathered(self) -> bool:
        busy = False
        for waiting in await self.batches.waiting():
            needed = self.terms.needed(waiting.provider, waiting.model, waiting.calls, waiting.body_bytes)
            if waiting.due_in is not None and waiting.due_in <= needed:
                log.info("%d calls to %s leave the provider batch for their deadline", waiting.calls, waiting.provider)
                await self.batches.recall(waiting, needed)
                busy = True
                continue
            if not waiting.ripe(self.pace.gathering, FULL) or (remote := self._remote(waiting.provider)) is None:
                continue
            intent = await self.batches.intend(
                waiting.provider,
                waiting.model,
                waiting.due_hour,
                max_calls=remote.max_calls,
                max_bytes=remote.max_bytes,
                keep_for=self.pace.create_within,
            )
            if intent is not None:
                await self._create(intent, remote)
                busy = True
        return busy

    def _remote(self, provider: str) -> RemoteCalls | None:
        try:
            remote = self.providers.remote_calls(provider)
        except ConfigurationError as error:
            log.warning("jobs wait for a provider batch that can't be made or collected here: %s", error)
            return None
        if remote is None:
            log.warning("jobs wait for a batch of the provider %r, which has none", provider)
        return remote

    async def _create(self, intent: Intent, remote: RemoteCalls) -> None:
        try:
            async with asyncio.timeout(self.pace.create_within.total_seconds()):
                remote_id = await remote.create(intent, self.batches.calls(intent.id))
        except (ProviderError, TimeoutError) as error:
            failure = failure_of(error)
            if failure.kind is FailureKind.UNKNOWN_OUTCOME:
                log.warning(
                    "a provider batch may have been created, its provider's list will tell: %s", failure.message
                )
                await self.batches.put_off(intent.id, self.pace.first_look)
            else:
                await self._refuse(intent, failure)
            return
        if not await self.batches.note_created(intent.id, remote_id, self.pace.first_look):
            await self._disown(intent, remote_id, remote)
            return
        log.info("created the batch %s of %d calls at %s", remote_id, intent.calls, intent.provider)

    async def _disown(self, intent: Intent, remote_id: str, remote: RemoteCalls) -> None:
        """Cancels a batch whose creation took so long that its intent was given up; an adopted one goes on."""
        if remote_id in await self.batches.remote_ids(intent.provider):
            return
        log.error("the batch %s at %s was created too late, and is cancelled", remote_id, intent.provider)
        try:
            await remote.cancel(remote_id)
        except ProviderError as error:
            log.error("the batch %s could not be cancelled, cancel it by hand: %s", remote_id, error)  # noqa: TRY400 - the reason is the message

    async def _refuse(self, intent: Intent, failure: Failure) -> None:
        """Gives the calls of a batch back that its provider did not take."""
        log.warning("%s did not take a batch of %d calls: %s", intent.provider, intent.calls, failure.message)
        permit = Permit(uuid4(), intent.provider, intent.model, "provider_batch", (), 0.0, 0.0)
        lane_paused = self.calls.limits.failed(permit, failure)
        await self._give_back(intent, failure, lane_paused=lane_paused)
        await self.batches.end(intent.id, "refused")

    # ---- looking after ----

    async def _look_after(self, batch: OpenBatch) -> None:
        remote = self._remote(batch.intent.provider)
        if remote is None:
            return
        try:
            if batch.remote_id is None:
                await self._adopt(batch, remote)
            else:
                await self._check(batch, batch.remote_id, remote)
        except ProviderError as error:
            log.warning("a provider batch is looked after again later: %s", error)
            await self.batches.put_off(batch.intent.id, self._next_look(batch))

    async def _adopt(self, batch: OpenBatch, remote: RemoteCalls) -> None:
        """Finds the batch of an intent without a remote id, or gives its calls back once it is proven not to exist."""
        intent = batch.intent
        taken_ids = await self.batches.remote_ids(intent.provider)
        candidates = await remote.find(intent, taken_ids, await self.batches.attempt_ids(intent.id))
        if candidates.matches:
            if len(candidates.matches) > 1:
                log.error("%s lists several batches of one intent: %s", intent.provider, ", ".join(candidates.matches))
            await self.batches.note_created(intent.id, candidates.matches[0], timedelta(0))
            log.info("adopted the batch %s of %d calls at %s", candidates.matches[0], intent.calls, intent.provider)
        elif candidates.open or intent.age < 2 * self.pace.create_within:
            await self.batches.put_off(intent.id, self._next_look(batch))
        else:
            log.warning("a batch of %d calls was never created at %s", intent.calls, intent.provider)
            message = "the batch was not created: its worker ended before that, and the provider lists none"
            failure = Failure(kind=FailureKind.UNAVAILABLE, message=message)
            await self._give_back(intent, failure)
            await self.batches.end(intent.id, "abandoned")

    async def _check(self, batch: OpenBatch, remote_id: str, remote: RemoteCalls) -> None:
        status = await remote.check(remote_id)
        intent = batch.intent
        if status.refused is not None:
            await self._refuse(intent, status.refused)
        elif status.ended:
            await self.batches.put_off(intent.id, self.pace.keep_for, status.detail)
            await self._collect(batch, remote_id, remote, status.undone)
        else:
            spill_in = self._spill_in(batch)
            late = spill_in is not None and spill_in <= timedelta(0)
            if not batch.cancelled and (late or not batch.has_jobs):
                await self._cancel(batch, remote_id, remote)
            await self.batches.put_off(intent.id, self._next_look(batch), status.detail)

    def _spill_in(self, batch: OpenBatch) -> timedelta | None:
        """The time until the calls of a batch have to be made at once to meet their deadline."""
        if batch.due_in is None:
            return None
        intent = batch.intent
        return batch.due_in - self.terms.needed(intent.provider, intent.model, intent.calls, intent.body_bytes)

    def _next_look(self, batch: OpenBatch) -> timedelta:
        """The pause before the next look: the moment to leave the batch is not slept through."""
        pause, spill_in = self.pace.next_look(batch.looks), self._spill_in(batch)
        if spill_in is None:
            return pause
        return min(pause, spill_in if spill_in > timedelta(0) else self.pace.first_look)

    async def _cancel(self, batch: OpenBatch, remote_id: str, remote: RemoteCalls) -> None:
        """Asks the provider to end a batch. What was meant is written before, so that it is known after any crash."""
        intent = batch.intent
        why = "no job waits for it"
        if batch.has_jobs:
            why = f"{in_words(batch.due_in or timedelta(0))} are left to the deadline of its jobs"
            await self.batches.note_spilled(intent.id)
        await remote.cancel(remote_id)
        await self.batches.note_cancelled(intent.id)
        log.info("cancelled the batch %s of %d calls at %s: %s", remote_id, intent.calls, intent.provider, why)

    # ---- answers ----

    async def _collect(self, batch: OpenBatch, remote_id: str, remote: RemoteCalls, undone: FailureKind) -> None:
        """Stores every result; collected a second time, what was stored before is passed over."""
        intent = batch.intent
        page: dict[UUID, Answer] = {}
        async for result in remote.collect(remote_id):
            if (attempt_id := _uuid(result.custom_id)) is None:
                log.warning("the batch %s has a result of no attempt: %r", remote_id, result.custom_id[:64])
                continue
            page[attempt_id] = result
            if len(page) >= ROWS:
                await self._store(intent, page, remote)
                await self.batches.put_off(intent.id, self.pace.keep_for)
                page = {}
        await self._store(intent, page, remote)
        await self._give_back(intent, Failure(kind=undone, message=_undone(batch, remote_id, undone)))
        await self.batches.end(intent.id, "collected")
        log.info("collected the batch %s of %d calls at %s", remote_id, intent.calls, intent.provider)

    async def _give_back(self, intent: Intent, failure: Failure, *, lane_paused: bool = False) -> None:
        """Ends the calls of a batch that are still open with one failure."""
        while attempt_ids := await self.batches.unanswered(intent.id, ROWS):
            pending = await self.batches.pending(intent.id, attempt_ids)
            if not pending:
                return
            await asyncio.gather(
                *(
                    self._store_failure(call, failure, lane_paused=lane_paused, spilled=intent.spilled)
                    for call in pending
                )
            )
            await self.batches.put_off(intent.id, self.pace.keep_for)

    async def _store(self, intent: Intent, answers: dict[UUID, Answer], remote: RemoteCalls) -> None:
        pending = await self.batches.pending(intent.id, list(answers)) if answers else ()
        await asyncio.gather(*(self._settle(intent, call, answers[call.attempt.id], remote) for call in pending))

    async def _settle(self, intent: Intent, pending: PendingCall, answer: Answer, remote: RemoteCalls) -> None:
        """Closes one attempt with its answer or failure, and moves its job on."""
        if isinstance(answer, RemoteResult) and answer.failure is None:
            call = call_of(pending)
            try:
                answered = remote.answer(call, answer)
            except Exception as error:
                failure = failure_of(error, attempt=pending.attempt.number)
                if failure.kind is FailureKind.INTERNAL:
                    log.exception("the answer to job %s broke", pending.job.job_id)
            else:
                await self._store_answer(pending, answered)
                return
        else:
            failure = answer.failure or _NO_REASON if isinstance(answer, RemoteResult) else answer
        if failure.kind is FailureKind.UNKNOWN_OUTCOME:
            # Of a single call it may have been billed; a row that says "failed" never is.
            failure = failure.model_copy(update={"kind": FailureKind.OVERLOADED})
        await self._store_failure(pending, failure, of_call=True, spilled=intent.spilled)

    async def _store_answer(self, pending: PendingCall, answered: Answered) -> None:
        job, completion = pending.job, answered.completion
        misses, lane_reason = pending.document.get("fallback_from") or (), pending.document.get("lane_reason")
        answered = with_way(answered, misses, lane_reason)
        then = Advance(JobState.AVAILABLE, job.request.config.check_step, job.round)
        paid = open_call(pending, self.providers.get(pending.attempt.provider))
        self.calls.limits.answered(paid.permit, completion)
        close = await self.calls.close_answered(paid, answered, timing_ms(pending), then)
        if close.failure is not None:
            await self.journal.close_attempt(taken_back(pending))
            await self._fail(pending, close.failure)
        elif close.advanced:
            self.to_check(job)

    async def _store_failure(
        self,
        pending: PendingCall,
        failure: Failure,
        *,
        of_call: bool = False,
        lane_paused: bool = False,
        spilled: bool = False,
    ) -> None:
        failure = failure.model_copy(update={"attempt": pending.attempt.number})
        broken = BrokenCall(failure, None, lane_paused)
        decision = self._decide(pending.job, broken, of_call=of_call)
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
        )
        if isinstance(decision, Fail):
            await self._fail(pending, decision.failure)

    def _decide(self, job: Leased, broken: BrokenCall, *, of_call: bool) -> Decision:
        """The usual rule. A call that failed in its batch spends an attempt: a snooze would last as long as a batch."""
        failure = broken.failure
        if failure.kind in UNDONE:
            broken = BrokenCall(failure.model_copy(update={"kind": FailureKind.OVERLOADED}), None, broken.lane_paused)
        decision = self.calls.decide(job, broken, more_providers=False)
        most = job.request.config.max_attempts
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

    async def _fail(self, pending: PendingCall, failure: Failure) -> None:
        """Ends a job; of a later round only the round. Its close gave this process the lease for that."""
        job = pending.job
        if job.round:
            then = after_failure(job, f"the call failed: {failure.message}")
            await self.queue.defer(LeaseKey(job.job_id, job.token), then)
            return
        final = failed(job, failure, total_ms(job, 0.0, TimingMs(**timing_ms(pending))))
        if await self.journal.finish(final):
            self.final(job, final)


_NO_REASON = Failure(kind=FailureKind.OVERLOADED, message="the provider gives no reason")


def _undone(batch: OpenBatch, remote_id: str, kind: FailureKind) -> str:
    """The reason that a call of a batch has no result."""
    if kind not in UNDONE:
        return f"the results of the batch {remote_id} don't mention it"
    end = "was cancelled" if kind is FailureKind.CANCELLED else "expired at the provider"
    why = " for the deadline of its jobs" if batch.intent.spilled else ""
    return f"the batch {remote_id} {end}{why} before this call was made"


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
