"""Sends parked calls as provider batches, looks after those batches, and stores their answers.

A batch's intent is written before it is created, and its remote id right after. Between the two nothing is created a second
time: the provider's own list says whether the batch exists.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

from schemas.failure import Failure, FailureKind
from schemas.generation import Lane
from tasks.errors import ProviderError, failure_of
from tasks.lanes.choice import LaneChooser, SentCalls, in_words
from tasks.ports import Permit
from tasks.ports.remote_batches import (
    Intent,
    OpenBatch,
    RemoteCalls,
    RemoteStatus,
    UnreadableResult,
    WaitingCalls,
)
from worker.lanes.pace import LanePace, Work, take_turns
from worker.lanes.settlement import UNDONE, Answer, Settlement
from worker.lanes.unserved import UnservedLane
from worker.ledger.provider_batches import PostgresRemoteBatches

log = logging.getLogger(__name__)

ROWS = 200
"""Answers stored at a time."""

STAYS = frozenset({
    FailureKind.BAD_ANSWER, FailureKind.NOT_FOUND, FailureKind.PERMISSION, FailureKind.INVALID_REQUEST, FailureKind.CONFIGURATION,
    FailureKind.PARAMETER,
})  # fmt: skip
"""Failures of a look that another one hardly cures: results that can't be read, are gone, or are refused."""

MOST_LOOKS = 12
"""Looks that fail so before the calls of a batch end as unknown: within an hour, by the pauses between them."""

LONGEST_TROUBLE = timedelta(hours=24)
"""Time of failed looks, for whatever reason, before they do: providers keep results for a month, but jobs don't wait that long."""

FULL = 50_000
"""Parked calls that are sent at once, without waiting for more."""


@dataclass(slots=True)
class BatchLane:
    """The lane ``provider_batch`` of a process that serves the step generate.

    Every such process runs it; the ledger gives each batch to one of them at a time.
    """

    batches: PostgresRemoteBatches
    settlement: Settlement
    lanes: LaneChooser
    """Tells when jobs with the lane ``auto`` leave this one."""
    pace: LanePace = field(default_factory=LanePace)
    unserved: UnservedLane = field(default_factory=lambda: UnservedLane(Lane.PROVIDER_BATCH.value))

    async def run(self) -> None:
        """Looks after parked calls and batches until cancelled."""
        await take_turns("provider batches", self.turn, self.pace.tick)

    async def turn(self) -> Work:
        """Sends what is gathered and looks after one batch."""
        busy = await self._withdraw()
        waiting = await self.batches.waiting()
        busy |= await self._send_gathered(waiting)
        due = await self.batches.take_due(1, self.pace.keep_for, self.unserved.closed)
        for batch in due:
            await self._look_after(batch)
        if busy or due:
            return Work.MORE
        return Work.WAITING if waiting else Work.NOTHING

    async def _withdraw(self) -> bool:
        """Closes the attempts of parked calls that are not to be sent: nothing is paid; True if there were any."""
        if withdrawn := await self.batches.withdrawn(ROWS):
            await asyncio.gather(*map(self.settlement.journal.close_attempt, withdrawn))
            await self.batches.forget([closed.id for closed in withdrawn])
        return bool(withdrawn)

    # ---- creation ----

    async def _send_gathered(self, gathered: Sequence[WaitingCalls]) -> bool:
        busy = False
        for waiting in gathered:
            needed = self.lanes.terms.needed(waiting.provider, waiting.model, waiting.calls, waiting.body_bytes)
            if waiting.due_in is not None and waiting.due_in <= needed:
                log.info("%d calls to %s leave the provider batch for their deadline", waiting.calls, waiting.provider)
                await self.batches.recall(waiting, needed)
                busy = True
                continue
            if not waiting.ripe(self.pace.gathering, FULL):
                continue
            # Another worker may have the key, and send younger ones in this second.
            remote = self._remote(waiting.provider, report=waiting.oldest >= self.pace.unserved_after)
            if remote is None:
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

    def _remote(self, provider: str, *, report: bool) -> RemoteCalls | None:
        return self.unserved.open(provider, self.settlement.providers.remote_calls, "batches", report=report)

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
                await self.batches.put_off({intent.id: self.pace.first_look})
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
        lane_paused = self.settlement.calls.limits.failed(permit, failure)
        await self._give_back(intent, failure, lane_paused=lane_paused)
        await self.batches.end(intent.id, "refused")

    # ---- looking after ----

    async def _look_after(self, batch: OpenBatch) -> None:
        # One that others left so long is served by none of them.
        remote = self._remote(batch.intent.provider, report=batch.overdue >= self.pace.keep_for)
        if remote is None:
            await self.batches.put_off({batch.id: timedelta(0)})
            return
        if batch.due_in is not None:
            await self.lanes.refresh_times(batch.intent.provider, batch.intent.model)
        try:
            if batch.remote_id is None:
                await self._adopt(batch, remote)
            else:
                await self._check(batch, batch.remote_id, remote)
        except ProviderError as error:
            await self._try_again(batch, error)

    async def _try_again(self, batch: OpenBatch, error: ProviderError) -> None:
        """Looks after a batch again later, or ends its calls as unknown once that has failed for too long."""
        intent, looks, spill_in = batch.intent, batch.failed_looks + 1, self._spill_in(batch)
        late = spill_in is not None and spill_in <= timedelta(0)
        hopeless = error.kind in STAYS and (late or looks >= MOST_LOOKS)
        if not hopeless and batch.failing_for < LONGEST_TROUBLE:
            log.warning("a provider batch is looked after again later: %s", error)
            await self.batches.note_trouble(intent.id, self._next_look(batch), str(error))
            return
        name = batch.remote_id or "without an id"
        log.error("the calls of the batch %s at %s end as unknown: %s", name, intent.provider, error)
        message = (
            f"the batch {name} could not be collected in {looks} looks within {in_words(batch.failing_for)}: {error}"
        )
        await self._give_back(intent, Failure(kind=FailureKind.UNKNOWN_OUTCOME, message=message))
        await self.batches.end(intent.id, "abandoned" if batch.remote_id is None else "collected")

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
            await self.batches.put_off({intent.id: self._next_look(batch)})
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
            await self.batches.put_off({intent.id: self.pace.keep_for}, status.detail)
            await self._collect(batch, remote_id, remote, status)
        else:
            spill_in = self._spill_in(batch)
            late = spill_in is not None and spill_in <= timedelta(0)
            if not batch.cancelled and (late or not batch.has_jobs):
                await self._cancel(batch, remote_id, remote)
            await self.batches.put_off({intent.id: self._next_look(batch)}, status.detail)
            if batch.failed_looks:
                await self.batches.note_progress(intent.id)

    def _spill_in(self, batch: OpenBatch) -> timedelta | None:
        """The time until the calls of a batch have to be made in another lane to meet their deadline."""
        if batch.due_in is None:
            return None
        i = batch.intent
        calls = SentCalls(i.provider, i.model, i.lane, i.age, i.calls, i.body_bytes)
        return self.lanes.leave_in(calls, batch.due_in)

    def _next_look(self, batch: OpenBatch) -> timedelta:
        return self.pace.next_look(batch.looks, self._spill_in(batch))

    async def _cancel(self, batch: OpenBatch, remote_id: str, remote: RemoteCalls) -> None:
        """Asks the provider to end a batch. What was meant is written before, so that it is known after any crash."""
        intent = batch.intent
        why = "no job waits for it"
        if batch.has_jobs:
            why = f"{in_words(batch.due_in or timedelta(0))} are left to the deadline of its jobs"
            await self.batches.note_spilled([intent.id])
        await remote.cancel(remote_id)
        await self.batches.note_cancelled([intent.id])
        log.info("cancelled the batch %s of %d calls at %s: %s", remote_id, intent.calls, intent.provider, why)

    # ---- answers ----

    async def _collect(self, batch: OpenBatch, remote_id: str, remote: RemoteCalls, status: RemoteStatus) -> None:
        """Stores every result; collected a second time, what was stored before is passed over.

        Raises: ``ProviderError`` for results that can't be read, once those that can are stored.
        """
        intent = batch.intent
        page: dict[UUID, Answer] = {}
        problems: list[str] = []
        results = 0
        try:
            async for result in remote.collect(remote_id):
                results += 1
                if isinstance(result, UnreadableResult):
                    problems.append(result.problem)
                    continue
                if (attempt_id := _uuid(result.custom_id)) is None:
                    log.warning("the batch %s has a result of no attempt: %r", remote_id, result.custom_id[:64])
                    continue
                page[attempt_id] = result
                if len(page) >= ROWS:
                    await self._store(intent, page, remote)
                    await self.batches.put_off({intent.id: self.pace.keep_for})
                    page = {}
        except ProviderError:
            await self._store(intent, page, remote)
            raise
        await self._store(intent, page, remote)
        if results < status.results:
            problems.append(f"{results:,} of {status.results:,} are there")
        if problems and await self.batches.unanswered(intent.id, 1):
            more = f", and {len(problems) - 1:,} more" if len(problems) > 1 else ""
            problem = f"{intent.provider} wrote results that can't be read: {problems[0]}{more}"
            raise ProviderError(FailureKind.BAD_ANSWER, problem)
        undone = status.undone
        await self._give_back(intent, Failure(kind=undone, message=_undone(batch, remote_id, undone)))
        await self.batches.end(intent.id, "collected")
        log.info("collected the batch %s of %d calls at %s", remote_id, intent.calls, intent.provider)

    async def _give_back(self, intent: Intent, failure: Failure, *, lane_paused: bool = False) -> None:
        """Ends the calls of a batch that are still open with one failure."""
        while attempt_ids := await self.batches.unanswered(intent.id, ROWS):
            calls = await self.batches.pending(attempt_ids, intent.id)
            if not calls:
                return
            pending = await self.settlement.readable(calls)
            await asyncio.gather(
                *(
                    self.settlement.store_failure(call, failure, lane_paused=lane_paused, spilled=intent.spilled)
                    for call in pending
                )
            )
            await self.batches.put_off({intent.id: self.pace.keep_for})

    async def _store(self, intent: Intent, answers: dict[UUID, Answer], remote: RemoteCalls) -> None:
        if not answers:
            return
        pending = await self.settlement.readable(await self.batches.pending(list(answers), intent.id))
        await asyncio.gather(
            *(
                self.settlement.settle(call, answers[call.attempt.id], remote, spilled=intent.spilled)
                for call in pending
            )
        )


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
