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
from tasks.ports.remote_batches import RemoteResult
from tasks.ports.remote_responses import OpenResponse, RemoteResponses, ResponseLoad
from worker.lanes.pace import LanePace, Work, take_turns
from worker.lanes.settlement import Answer, Settlement
from worker.lanes.unserved import UnservedLane
from worker.ledger.background_responses import PostgresResponses

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

    responses: PostgresResponses
    settlement: Settlement
    lanes: LaneChooser
    """Tells when jobs with the lane ``auto`` leave this one."""
    pace: LanePace = field(default_factory=LanePace)
    unserved: UnservedLane = field(default_factory=lambda: UnservedLane(Lane.BACKGROUND.value))
    _loads: Mapping[tuple[str, str], ResponseLoad] = field(default_factory=dict)

    async def run(self) -> None:
        """Looks after responses until cancelled."""
        await take_turns("background responses", self.turn, self.pace.tick)

    async def turn(self) -> Work:
        """Looks after a page of responses."""
        page = await self.responses.take_due(PAGE, self.pace.keep_for, self.unserved.closed)
        by_provider: dict[str, list[OpenResponse]] = defaultdict(list)
        for response in page:
            by_provider[response.provider].append(response)
        if any(response.due_in is not None for response in page):
            self._loads = await self.responses.loads()
            for key in {(response.provider, response.model) for response in page}:
                await self.lanes.refresh_times(*key)
        for provider, responses in by_provider.items():
            # Those that others left so long are served by none of them.
            is_late = max(response.overdue for response in responses) >= self.pace.keep_for
            open_remote = self.settlement.providers.remote_responses
            if (remote := self.unserved.open(provider, open_remote, "background", report=is_late)) is not None:
                await self._look_after(responses, remote)
            else:
                await self.responses.put_off({response.id: timedelta(0) for response in responses})
        if not page:
            return Work.NOTHING
        return Work.MORE if len(page) == PAGE else Work.WAITING

    async def _look_after(self, responses: Sequence[OpenResponse], remote: RemoteResponses) -> None:
        leave = [each for each in responses if not each.cancelled and self._leaves(each)]
        # Written before the provider is asked, so that it is known after any crash.
        spilled = {each.id for each in leave if each.has_job}
        await self.responses.note_spilled(list(spilled))
        spilled |= {each.id for each in responses if each.spilled}
        cancels, limit = {each.id for each in leave}, asyncio.Semaphore(AT_ONCE)

        async def ask(response: OpenResponse) -> Answer | ProviderError | None:
            async with limit:
                return await _state(response, remote, cancel=response.id in cancels)

        states = dict(zip(responses, await asyncio.gather(*map(ask, responses)), strict=True))
        provider = responses[0].provider
        if errors := [error for error in states.values() if isinstance(error, ProviderError)]:
            log.warning("%d responses at %s are looked after again later: %s", len(errors), provider, errors[0])
        if cancels:
            log.info("asked %s to end %d responses before their time", provider, len(cancels))
            await self.responses.note_cancelled(
                [each.id for each in leave if not isinstance(states[each], ProviderError)]
            )
        answers = {each: state for each, state in states.items() if isinstance(state, RemoteResult | Failure)}
        under_way = states.keys() - answers.keys()
        await self.responses.put_off(
            {each.id: self.pace.next_look(each.looks, self._leave_in(each)) for each in under_way}
        )
        await self._settle(answers, spilled, remote)

    async def _settle(
        self, answers: Mapping[OpenResponse, Answer], spilled: set[UUID], remote: RemoteResponses
    ) -> None:
        """Stores answers; collected a second time, what was stored before is passed over."""
        if not answers:
            return
        by_id = {response.id: answer for response, answer in answers.items()}
        pending = await self.settlement.readable(await self.responses.pending(list(by_id)))
        settle = self.settlement.settle
        await asyncio.gather(
            *(settle(call, by_id[call.attempt.id], remote, spilled=call.attempt.id in spilled) for call in pending)
        )
        ended = await self.responses.end(list(by_id))
        limit = asyncio.Semaphore(AT_ONCE)

        async def forget(response: OpenResponse) -> None:
            async with limit:
                await _forget(response, remote)

        await asyncio.gather(*(forget(response) for response in answers if response.id in ended))

    # ---- moments ----

    def _leaves(self, response: OpenResponse) -> bool:
        """True if a response is to be cancelled: no job waits for it, or its job has to go on by another lane."""
        if not response.has_job:
            return True
        leave_in = self._leave_in(response)
        return leave_in is not None and leave_in <= timedelta(0)

    def _leave_in(self, response: OpenResponse) -> timedelta | None:
        if response.due_in is None:
            return None
        # Those of the same model are called at once together.
        load = self._loads.get((response.provider, response.model), ResponseLoad(1, 0))
        calls = SentCalls(response.provider, response.model, response.lane, response.age, load.calls, load.body_bytes)
        return self.lanes.leave_in(calls, response.due_in)


async def _state(response: OpenResponse, remote: RemoteResponses, *, cancel: bool) -> Answer | ProviderError | None:
    """The end of a response; None while it is under way, an error where the provider can't tell now."""
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


async def _forget(response: OpenResponse, remote: RemoteResponses) -> None:
    try:
        await remote.forget(response.remote_id)
    except ProviderError as error:
        # The provider removes it by itself, in time.
        log.info("the response %s was not removed at its provider: %s", response.remote_id, error)
