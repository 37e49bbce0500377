"""The rules of the lane ``provider_batch``: pauses, what follows a failed call, and a call that is read again as it was."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import orjson
import pytest

from schemas.failure import Failure, FailureKind
from schemas.job import JobRequest
from tasks.calls.paid_call import BrokenCall
from tasks.calls.retry import Fail, Hold, Retry, Snooze
from tasks.errors import ProviderError
from tasks.estimates.estimate import first_lease
from tasks.lanes.choice import LaneChooser
from tasks.lanes.parking import call_of, document_of, open_call
from tasks.ports import Leased, NewBatch
from tasks.ports.remote_batches import Candidates, Intent, OpenBatch, PendingCall
from tasks.prompting.messages import render
from tests.builders import make_attempt
from tests.fakes.quiet import paid_calls
from tests.scripted_provider import Registry, ScriptedProvider
from worker.lanes.collection import BatchLane
from worker.lanes.pace import Work, take_turns
from worker.lanes.settlement import Settlement

K = FailureKind


def test_a_lane_without_work_is_looked_at_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [*[Work.NOTHING] * 7, Work.MORE, Work.WAITING, ValueError("?"), Work.NOTHING, Work.NOTHING]
    pauses: list[float] = []

    async def turn() -> Work:
        if not turns:
            raise asyncio.CancelledError
        work = turns.pop(0)
        if isinstance(work, ValueError):
            raise work
        return work

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("worker.lanes.pace.asyncio.sleep", note)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(take_turns("calls", turn, timedelta(seconds=2)))
    assert pauses == [2, 4, 6, 8, 10, 10, 10, 2, 2, 2, 4]


def job(**config: Any) -> Leased:
    request = JobRequest(query="When?", context=["The desk opens at nine."], config=config)
    return first_lease(uuid4(), request, NewBatch(uuid4(), "desk"))


def lane(*, fallbacks: tuple[str, ...] = (), batches: Any = None, providers: Any = None) -> BatchLane:
    def nothing(*_: Any) -> None:
        raise AssertionError

    providers_after = [ScriptedProvider(name=name) for name in fallbacks]
    registry = providers or Registry(ScriptedProvider(), *providers_after, fallbacks=fallbacks)
    calls = paid_calls(cast("Any", None))
    settlement = Settlement(cast("Any", None), cast("Any", None), calls, registry, nothing)
    return BatchLane(batches, settlement, LaneChooser(registry, cast("Any", nothing)))


def broken(kind: FailureKind, *, lane_paused: bool = False) -> BrokenCall:
    return BrokenCall(Failure(kind=kind, message="m"), None, lane_paused)


@pytest.mark.parametrize(
    ("kind", "of_call", "spent", "expected"),
    [
        (K.OVERLOADED, True, 0, Retry),
        (K.OVERLOADED, True, 3, Fail),
        (K.RATE_LIMITED, True, 0, Retry),
        (K.EXPIRED, True, 3, Snooze),
        (K.CANCELLED, True, 3, Snooze),
        (K.RATE_LIMITED, False, 3, Snooze),
        (K.UNAVAILABLE, False, 3, Snooze),
        (K.INVALID_REQUEST, True, 0, Fail),
        (K.BAD_ANSWER, True, 0, Retry),
        (K.QUOTA, False, 0, Hold),
    ],
)
def test_a_failed_call_spends_an_attempt_and_an_unmade_one_does_not(
    kind: FailureKind,
    of_call: bool,  # noqa: FBT001
    spent: int,
    expected: type,
) -> None:
    decision = lane().settlement.decide(replace(job(), spent=spent), broken(kind), of_call=of_call)
    assert isinstance(decision, expected)


def test_before_it_fails_a_job_comes_to_its_fallbacks() -> None:
    with_fallback = lane(fallbacks=("other",))
    assert with_fallback.settlement.decide(job(), broken(K.INVALID_REQUEST), of_call=True) == Retry(timedelta(0))
    assert isinstance(
        with_fallback.settlement.decide(replace(job(), spent=4), broken(K.INVALID_REQUEST), of_call=True), Fail
    )


def test_a_parked_call_is_read_again_as_it_was_and_an_erased_one_without_its_words() -> None:
    provider, trace = ScriptedProvider(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    leased = replace(job(), request=job().request.model_copy(update={"traceparent": trace}))
    call = provider.plan(leased.request, render(leased.request, provider.protocol(leased.request.config)))
    document = orjson.loads(document_of(call, {"queue": 1.0}, ["openai: refused"]))
    attempt = replace(
        make_attempt(leased),
        provider=call.provider,
        model=call.model,
        lane=call.lane,
        request_hash=call.request_hash,
        reserved_usd=call.reserve_usd,
    )
    again = call_of(PendingCall(leased, attempt, document, 0.0))
    opened = open_call(PendingCall(leased, attempt, document, 90.0), provider)
    assert (opened.job.request.traceparent, opened.ms) == (trace, 90.0), "its span is of the producer's trace"
    # The schema of the reply and the body are only for the call itself.
    prompt = call.prompt.model_copy(update={"reply_schema": None})
    assert again == replace(call, body=b"", prompt=prompt)
    erased = {name: value for name, value in document.items() if name not in {"prompt", "parameters_sent"}}
    assert call_of(PendingCall(leased, attempt, erased, 0.0)).prompt.snapshot.messages == ()


class Store:
    """Notes what is written about one intent."""

    def __init__(self) -> None:
        self.writes: list[tuple[Any, ...]] = []

    async def remote_ids(self, provider: str) -> frozenset[str]:
        return frozenset()

    async def attempt_ids(self, batch_id: UUID) -> frozenset[str]:
        return frozenset()

    async def note_created(self, batch_id: UUID, remote_id: str, look_after: timedelta) -> bool:
        self.writes.append(("created", remote_id))
        return True

    async def put_off(self, pauses: Mapping[UUID, timedelta], detail: Any = None) -> None:
        self.writes.append(("put off",))

    async def note_trouble(self, batch_id: UUID, look_after: timedelta, cause: str) -> None:
        self.writes.append(("trouble",))

    async def unanswered(self, batch_id: UUID, limit: int) -> Sequence[UUID]:
        return ()

    async def end(self, batch_id: UUID, state: str) -> None:
        self.writes.append(("end", state))


class Listing:
    """A provider whose list of batches says this."""

    def __init__(self, candidates: Candidates | None) -> None:
        self.candidates = candidates

    async def find(self, intent: Intent, taken_ids: frozenset[str], attempt_ids: frozenset[str]) -> Candidates:
        if self.candidates is None:
            raise ProviderError(K.UNAVAILABLE, "no connection")
        return self.candidates


@pytest.mark.parametrize(
    ("candidates", "minutes", "expected"),
    [
        (Candidates(["batch_1"]), 10, [("created", "batch_1")]),
        (Candidates(), 10, [("put off",)]),
        (Candidates(), 21, [("end", "abandoned")]),
        (Candidates(open=["batch_1"]), 600, [("put off",)]),
        (None, 600, [("trouble",)]),
    ],
)
def test_an_intent_is_given_up_only_when_the_list_proves_it_empty(
    candidates: Candidates | None, minutes: int, expected: list[tuple[Any, ...]]
) -> None:
    store, registry = Store(), Registry(ScriptedProvider())
    registry.remote = cast("Any", Listing(candidates))
    intent = Intent(uuid4(), "scripted", "m", 2, datetime.now(UTC), timedelta(minutes=minutes))
    batch = OpenBatch(intent, None, 1, has_jobs=True, cancelled=False)
    asyncio.run(lane(batches=store, providers=registry)._look_after(batch))
    assert store.writes == expected


def test_a_batch_that_another_worker_can_serve_is_left_to_it_at_once() -> None:
    store = Store()
    calls = lane(batches=store)
    intent = Intent(uuid4(), "gone", "m", 2, datetime.now(UTC), timedelta(minutes=5))
    batch = OpenBatch(intent, "batch_1", 1, has_jobs=True, cancelled=False)

    asyncio.run(calls._look_after(batch))

    assert (store.writes, calls.unserved.all(), calls.unserved.closed) == ([("put off",)], [], {"gone"})
    asyncio.run(calls._look_after(replace(batch, overdue=calls.pace.keep_for)))
    assert [each.provider for each in calls.unserved.all()] == ["gone"], "none took it for so long"
