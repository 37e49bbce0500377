"""Looks after responses in a provider's background, and stores their answers.

A response is created by the step generate, as a call at once is: its attempt is the intent, and the id is written right after.
A worker that dies between the two leaves an unknown outcome, for there is no list of responses to find it in.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from schemas.failure import Failure, FailureKind
from schemas.generation import Lane
from tasks.errors import ProviderError, failure_of
from tasks.lanes.choice import LaneChooser, SentCalls
from tasks.ports.remote_batches import OpenBatch, RemoteResponses, RemoteResult
from worker.lanes.pace import LanePace, Work, take_turns
from worker.lanes.settlement import Answer, Settlement
from worker.lanes.unserved import UnservedLane
from worker.ledger.provider_batches import PostgresRemoteBatches

log = logging.getLogger(__name__)

PAGE = 200
"""Responses looked after at a time."""

AT_ONCE = 32
"""Requests under way to a provider."""

GONE_AFTER = 3
"""Looks before a response that the provider does not know is gone: a new one may not be known everywhere."""


@dataclass(slots=True)
class BackgroundLane:
    """The lanes ``background`` and ``background_2h`` of a process that serves the step generate.

    Every such process runs it; the ledger gives each response to one of them at a time.
    """

    batches: PostgresRemoteBatches
    settlement: Settlement
    lanes: LaneChooser
    """Tells when jobs with the lane ``auto`` leave this one."""
    pace: LanePace = field(default_factory=LanePace)
    unserved: UnservedLane = field(default_factory=lambda: UnservedLane(Lane.BACKGROUND.value))
    _loads: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    async def run(self) -> None:
        """Looks after responses until cancelled."""
        await take_turns("background responses", self.turn, self.pace.tick)

    async def turn(self) -> Work:
        """Looks after a page of responses."""
        page = await self.batches.take_due(PAGE, self.pace.keep_for, self.unserved.closed, responses=True)
        by_provider: dict[str, list[OpenBatch]] = defaultdict(list)
        for response in page:
            by_provider[response.intent.provider].append(response)
        if any(response.due_in is not None for response in page):
            self._loads = await self.batches.loads()
            for key in {(response.intent.provider, response.intent.model) for response in page}:
                await self.lanes.refresh_times(*key)
        for provider, responses in by_provider.items():
            # Those that others left so long are served by none of them.
            is_late = max(response.overdue for response in responses) >= self.pace.keep_for
            open_remote = self.settlement.providers.remote_responses
            if (remote := self.unserved.open(provider, open_remote, "background", report=is_late)) is not None:
                await self._look_after(responses, remote)
            else:
                await self.batches.put_off({response.id: timedelta(0) for response in responses})
        if not page:
            return Work.NOTHING
        return Work.MORE if len(page) == PAGE else Work.WAITING

    async def _look_after(self, responses: Sequence[OpenBatch], remote: RemoteResponses) -> None:
        leave = [each for each in responses if not each.cancelled and self._leaves(each)]
        # Written before the provider is asked, so that it is known after any crash.
        spilled = {each.id for each in leave if each.has_jobs}
        await self.batches.note_spilled(list(spilled))
        spilled |= {each.id for each in responses if each.intent.spilled}
        cancels, limit = {each.id for each in leave}, asyncio.Semaphore(AT_ONCE)

        async def ask(response: OpenBatch) -> Answer | ProviderError | None:
            async with limit:
                return await _state(response, remote, cancel=response.id in cancels)

        states = dict(zip(responses, await asyncio.gather(*map(ask, responses)), strict=True))
        provider = responses[0].intent.provider
        if errors := [error for error in states.values() if isinstance(error, ProviderError)]:
            log.warning("%d responses at %s are looked after again later: %s", len(errors), provider, errors[0])
        if cancels:
            log.info("asked %s to end %d responses before their time", provider, len(cancels))
            await self.batches.note_cancelled(
                [each.id for each in leave if not isinstance(states[each], ProviderError)]
            )
        answers = {each: state for each, state in states.items() if isinstance(state, RemoteResult | Failure)}
        under_way = states.keys() - answers.keys()
        await self.batches.put_off(
            {each.id: self.pace.next_look(each.looks, self._leave_in(each)) for each in under_way}
        )
        await self._settle(answers, spilled, remote)

    async def _settle(self, answers: Mapping[OpenBatch, Answer], spilled: set[UUID], remote: RemoteResponses) -> None:
        """Stores answers; collected a second time, what was stored before is passed over."""
        if not answers:
            return
        by_id = {response.id: answer for response, answer in answers.items()}
        pending = await self.settlement.readable(await self.batches.pending(list(by_id)))
        settle = self.settlement.settle
        await asyncio.gather(
            *(settle(call, by_id[call.attempt.id], remote, spilled=call.attempt.id in spilled) for call in pending)
        )
        ended = await self.batches.end_responses(list(by_id))
        limit = asyncio.Semaphore(AT_ONCE)

        async def forget(response: OpenBatch) -> None:
            async with limit:
                await _forget(response, remote)

        await asyncio.gather(*(forget(response) for response in answers if response.id in ended))

    # ---- moments ----

    def _leaves(self, response: OpenBatch) -> bool:
        """True if a response is to be cancelled: no job waits for it, or its job has to go on by another lane."""
        if not response.has_jobs:
            return True
        leave_in = self._leave_in(response)
        return leave_in is not None and leave_in <= timedelta(0)

    def _leave_in(self, response: OpenBatch) -> timedelta | None:
        if response.due_in is None:
            return None
        # Those of the same model are called at once together.
        intent = response.intent
        calls, body_bytes = self._loads.get((intent.provider, intent.model), (1, 0))
        group = SentCalls(intent.provider, intent.model, intent.lane, intent.age, calls, body_bytes)
        return self.lanes.leave_in(group, response.due_in)


async def _state(response: OpenBatch, remote: RemoteResponses, *, cancel: bool) -> Answer | ProviderError | None:
    """The end of a response; None while it is under way, an error where the provider can't tell now."""
    assert response.remote_id is not None
    try:
        return await (remote.cancel if cancel else remote.check)(response.remote_id)
    except ProviderError as error:
        if error.kind is FailureKind.NOT_FOUND and response.looks > GONE_AFTER:
            message = f"the response {response.remote_id} is not at its provider any more"
            return Failure(kind=FailureKind.UNKNOWN_OUTCOME, message=message)
        if response.closed:
            # Nothing depends on it.
            return RemoteResult(str(response.id), failure=failure_of(error))
        return error


async def _forget(response: OpenBatch, remote: RemoteResponses) -> None:
    assert response.remote_id is not None
    try:
        await remote.forget(response.remote_id)
    except ProviderError as error:
        # The provider removes it by itself, in time.
        log.info("the response %s was not removed at its provider: %s", response.remote_id, error)
