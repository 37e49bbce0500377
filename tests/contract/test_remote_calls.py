"""Provider batches by the real SDKs over HTTP: created, found again, checked, collected in any order, cancelled."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.failure import FailureKind
from schemas.generation import Lane
from tasks.errors import ProviderError
from tasks.ports import Call, Provider
from tasks.ports.remote_batches import Candidates, Intent, RemoteCall, RemoteCalls, RemoteResult
from tests.providers import ANTHROPIC, CHAT, OPENAI, Kind, plan, question
from tests.stub.server import Stub

BATCHED = (OPENAI, CHAT, ANTHROPIC)
OF_OPENAI = (OPENAI, CHAT)
every = pytest.mark.parametrize("kind", BATCHED, ids=str)
of_openai = pytest.mark.parametrize("kind", OF_OPENAI, ids=str)

Work = Callable[["Desk"], Awaitable[None]]


class Desk:
    """A provider's batches with some calls for them."""

    def __init__(self, provider: Any, count: int) -> None:
        self.remote: RemoteCalls = provider.batch_calls
        self.calls: dict[UUID, Call] = {
            uuid4(): plan(provider, question(f"When does desk {number} open?", lane=Lane.PROVIDER_BATCH))
            for number in range(count)
        }
        self.intent = Intent(uuid4(), provider.name, "m", count, datetime.now(UTC), timedelta(0))
        self.ids = frozenset(map(str, self.calls))

    async def rows(self) -> AsyncIterator[RemoteCall]:
        for attempt_id, call in self.calls.items():
            yield RemoteCall(attempt_id, call.body)

    async def create(self) -> str:
        return await self.remote.create(self.intent, self.rows())

    async def collect(self, remote_id: str) -> dict[str, RemoteResult]:
        await self.remote.check(remote_id)
        return {result.custom_id: result async for result in self.remote.collect(remote_id)}

    async def find(self, taken_ids: frozenset[str] = frozenset()) -> Candidates:
        return await self.remote.find(self.intent, taken_ids, self.ids)


def work(kind: Kind, stub: Stub, scenario: Work, count: int = 6) -> None:
    async def closed_after() -> None:
        provider: Provider = kind.at(stub)
        try:
            await scenario(Desk(provider, count))
        finally:
            await provider.close()

    asyncio.run(closed_after())


@every
def test_answers_come_back_under_their_attempts_at_half_the_price(kind: Kind, stub: Stub) -> None:
    async def scenario(desk: Desk) -> None:
        stub.remote.ends_after_s = 0
        results = await desk.collect(await desk.create())
        assert results.keys() == desk.ids
        for attempt_id, call in desk.calls.items():
            completion = desk.remote.answer(call, results[str(attempt_id)]).completion
            assert completion.text
            assert completion.snapshot.lane == call.lane == "provider_batch"
            if kind is not CHAT:
                assert completion.cost_usd is not None
                assert call.reserve_usd is not None
                assert Decimal(0) < completion.cost_usd < call.reserve_usd

    work(kind, stub, scenario)


@pytest.mark.parametrize("kind", [OPENAI, ANTHROPIC], ids=str)
def test_a_call_in_a_batch_reserves_and_costs_half(kind: Kind, stub: Stub) -> None:
    provider = kind.at(stub)
    single, batched = (plan(provider, question(lane=lane)) for lane in (Lane.STANDARD, Lane.PROVIDER_BATCH))
    assert single.reserve_usd == 2 * (batched.reserve_usd or 0)
    assert provider.expected_usd(single) == 2 * (provider.expected_usd(batched) or 0)
    assert single.body == batched.body
    asyncio.run(provider.close())


@every
def test_what_a_batch_can_not_do_is_dropped_visibly(kind: Kind, stub: Stub) -> None:
    provider = kind.at(stub, service_tier="flex")
    call = plan(provider, question(lane=Lane.PROVIDER_BATCH, stream=True))
    assert call.parameters_dropped.keys() >= {"stream", "service_tier"}
    assert b'"stream"' not in call.body
    assert not call.stream
    asyncio.run(provider.close())


@every
def test_a_batch_is_checked_until_it_ends(kind: Kind, stub: Stub) -> None:
    async def scenario(desk: Desk) -> None:
        stub.remote.ends_after_s = 60
        remote_id = await desk.create()
        assert not (await desk.remote.check(remote_id)).ended
        stub.remote.batches[remote_id].ends_at = 0
        assert (await desk.remote.check(remote_id)).ended

    work(kind, stub, scenario)


@every
def test_each_kind_of_failed_row_says_so(kind: Kind, stub: Stub) -> None:
    async def scenario(desk: Desk) -> None:
        stub.remote.ends_after_s, stub.remote.errored, stub.remote.expired = 0, 0.4, 0.3
        results = await desk.collect(await desk.create())
        assert results.keys() == desk.ids
        kinds = set()
        for attempt_id, call in desk.calls.items():
            result = results[str(attempt_id)]
            try:
                desk.remote.answer(call, result)
            except ProviderError as error:
                kinds.add(result.failure.kind if result.failure else error.kind)
            else:
                kinds.add(None)
        assert kinds == {None, FailureKind.EXPIRED, FailureKind.UNKNOWN_OUTCOME}

    work(kind, stub, scenario, 40)


@of_openai
def test_without_a_right_answer_there_is_no_output_file(kind: Kind, stub: Stub) -> None:
    async def scenario(desk: Desk) -> None:
        stub.remote.ends_after_s, stub.remote.all_errored = 0, 1
        remote_id = await desk.create()
        results = await desk.collect(remote_id)
        assert "output" not in stub.remote.batches[remote_id].files
        assert {result.status_code for result in results.values()} == {500}
        assert results.keys() == desk.ids

    work(kind, stub, scenario)


@pytest.mark.parametrize(
    ("code", "expected"),
    [("token_limit_exceeded", FailureKind.RATE_LIMITED), ("invalid_json_line", FailureKind.INVALID_REQUEST)],
)
def test_a_batch_refused_as_a_whole_says_why(code: str, expected: FailureKind, stub: Stub) -> None:
    async def scenario(desk: Desk) -> None:
        stub.remote.ends_after_s = 0
        stub.remote.refusals.append(code)
        status = await desk.remote.check(await desk.create())
        assert status.refused is not None
        assert (status.ended, status.refused.kind) == (True, expected)
        assert code in status.refused.message

    work(OPENAI, stub, scenario)


@every
def test_a_cancelled_batch_keeps_what_was_finished(kind: Kind, stub: Stub) -> None:
    async def scenario(desk: Desk) -> None:
        stub.remote.ends_after_s = 60
        remote_id = await desk.create()
        await desk.remote.cancel(remote_id)
        status = await desk.remote.check(remote_id)
        assert status.ended
        results = await desk.collect(remote_id)
        answered = [result for result in results.values() if result.failure is None]
        cancelled = [result for result in results.values() if result.failure is not None]
        assert len(answered) == 3
        if kind is ANTHROPIC:
            assert {result.failure.kind for result in cancelled if result.failure} == {FailureKind.CANCELLED}
        else:
            assert (cancelled, status.undone) == ([], FailureKind.CANCELLED)

    work(kind, stub, scenario)


@every
def test_a_batch_without_a_noted_id_is_found_again_and_no_other_is(kind: Kind, stub: Stub) -> None:
    async def scenario(desk: Desk) -> None:
        stub.remote.ends_after_s = 0
        before = await desk.find()
        assert (*before.matches, *before.open) == ()
        remote_id = await desk.create()
        # Others of the same size and time, over more than a page.
        own = desk.intent, desk.calls, desk.ids
        for _ in range(25):
            desk.intent = Intent(uuid4(), "other", "m", 6, datetime.now(UTC), timedelta(0))
            desk.calls = {uuid4(): call for call in desk.calls.values()}
            await desk.create()
        desk.intent, desk.calls, desk.ids = own
        assert list((await desk.find()).matches) == [remote_id]
        candidates = await desk.find(frozenset({remote_id}))
        assert not candidates.matches
        assert not candidates.open

    work(kind, stub, scenario)


def test_anthropic_can_not_tell_before_the_end(stub: Stub) -> None:
    async def scenario(desk: Desk) -> None:
        stub.remote.ends_after_s = 60
        remote_id = await desk.create()
        assert await desk.find() == Candidates(open=[remote_id])

    work(ANTHROPIC, stub, scenario)
