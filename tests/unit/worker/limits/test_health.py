"""Refused keys, unknown models and servers that are not there: few calls, a paused lane, and who is told."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from schemas.failure import FailureKind
from tasks.ports import Denied, DenyReason, Permit
from tests.unit.worker.limits.test_desk import Counter, completion, failure, make_call, make_leased
from worker.limits import provider_health as health_module
from worker.limits.provider_health import ALL_MODELS, FIRST_CALLS, REFUSALS_TO_PAUSE, LaneHealth

K = FailureKind
JOBS = 100


def scenario(told: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(told, 20))


async def call_all(counter: Counter, kind: FailureKind, jobs: int = JOBS, model: str = "m") -> tuple[int, list[Denied]]:
    """Let jobs call at once, with every call failing; returns the number of calls, and the denials."""
    calls = 0

    async def one() -> Denied | None:
        nonlocal calls
        permit = await counter.limiter.permit(await make_leased(), make_call(model=model))
        if isinstance(permit, Denied):
            return permit
        calls += 1
        await asyncio.sleep(0.01)
        counter.limiter.failed(permit, failure(kind))
        return None

    denials = await asyncio.gather(*(one() for _ in range(jobs)))
    return calls, [denial for denial in denials if denial is not None]


@pytest.mark.parametrize(
    ("kind", "lane"),
    [
        (K.AUTHENTICATION, ("openai", "standard", ALL_MODELS)),
        (K.NOT_FOUND, ("openai", "standard", "m")),
        (K.PERMISSION, ("openai", "standard", "m")),
    ],
)
def test_of_a_hundred_jobs_few_call_where_nobody_is_served(kind: FailureKind, lane: tuple[str, str, str]) -> None:
    async def told() -> None:
        counter = Counter()
        calls, denials = await call_all(counter, kind)
        assert REFUSALS_TO_PAUSE <= calls <= FIRST_CALLS
        assert len(denials) == JOBS - calls
        assert {denial.why for denial in denials} == {DenyReason.LANE_PAUSED}
        assert counter.ledger.paused == {lane: (kind, "no")}
        await counter.limiter.close()

    scenario(told())


def test_an_unknown_model_holds_back_no_other() -> None:
    async def told() -> None:
        counter = Counter()
        await call_all(counter, K.NOT_FOUND, model="nonsense")
        assert isinstance(await counter.permit(model="good"), Permit)
        assert isinstance(await counter.permit(model="nonsense"), Denied)
        await counter.limiter.close()

    scenario(told())


def test_a_refused_key_holds_back_every_model() -> None:
    async def told() -> None:
        counter = Counter()
        await call_all(counter, K.AUTHENTICATION, model="a")
        assert isinstance(await counter.permit(model="b"), Denied)
        assert isinstance(await counter.permit(provider="anthropic"), Permit)
        await counter.limiter.close()

    scenario(told())


def test_after_a_release_few_calls_show_whether_it_is_mended() -> None:
    async def told() -> None:
        counter = Counter()
        await call_all(counter, K.AUTHENTICATION)
        counter.ledger.paused.clear()
        calls, _ = await call_all(counter, K.AUTHENTICATION)
        assert calls <= FIRST_CALLS
        assert counter.ledger.paused, "the first refusal pauses the lane again"

        counter.ledger.paused.clear()
        permit = await counter.permit()
        assert isinstance(permit, Permit)
        counter.limiter.answered(permit, completion())
        permits = await asyncio.gather(*(counter.permit() for _ in range(JOBS)))
        assert all(isinstance(permit, Permit) for permit in permits)
        await counter.limiter.close()

    scenario(told())


def test_refusals_with_answers_between_pause_nothing() -> None:
    health = LaneHealth(60.0)
    for _ in range(3 * REFUSALS_TO_PAUSE):
        assert health.failed("p", "m", failure(K.PERMISSION)) is None
        health.answered("p", "m")


def test_slow_answers_do_not_keep_the_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "FIRST_CALLS_S", 0.05)

    async def told() -> None:
        counter = Counter()
        permits = await asyncio.gather(*(counter.permit() for _ in range(JOBS)))
        assert all(isinstance(permit, Permit) for permit in permits)
        await counter.limiter.close()

    scenario(told())


def test_a_server_that_is_not_there_is_tried_by_few_and_people_are_told() -> None:
    async def told() -> None:
        counter = Counter()
        calls, denials = await call_all(counter, K.UNAVAILABLE)
        assert calls <= FIRST_CALLS
        assert {denial.why for denial in denials} == {DenyReason.BREAKER}
        assert [(one.provider, one.why) for one in counter.limiter.unreachable()] == [("openai", "no")]
        assert counter.ledger.paused == {}
        await counter.limiter.close()

    scenario(told())


def test_after_its_time_a_server_that_is_not_there_pauses_the_lane() -> None:
    now = 0.0
    health = LaneHealth(3_600.0, clock=lambda: now)
    for minute in range(60):
        now = minute * 60.0
        assert health.failed("p", "m", failure(K.UNAVAILABLE)) is None
    now = 3_600.0
    assert health.failed("p", "other", failure(K.UNAVAILABLE)) == ALL_MODELS
    health.answered("p", "m")
    assert health.unreachable() == ()
    assert health.failed("p", "m", failure(K.UNAVAILABLE)) is None
