"""The rate limiter over shares in memory in place of Redis: waits, denials, failover, estimates."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.failure import Failure, FailureKind
from schemas.generation import AnswerProtocol
from schemas.model_call import Completion, FinishReason, ProviderSnapshot, Usage
from schemas.states import Step
from tasks.errors import BrokerUnavailable
from tasks.ports import Call, Denied, DenyReason, Leased, Permit, Room
from tests.builders import make_batch, make_jobs, make_prompt, make_request, new_id
from tests.lent_ledger import LentLedger
from worker.limits import permit_queue, rate_limiter
from worker.limits.bucket import Exchange, ExchangeReply, LocalShare
from worker.limits.lanes import Lanes
from worker.limits.permit_queue import TRIP_AFTER
from worker.limits.rate_limiter import RateLimiter
from worker.provider_settings import LimitSettings, ProviderKind, ProviderSettings
from worker.settings import Settings


class Buckets:
    """The shared buckets; they can become unreachable."""

    def __init__(self) -> None:
        self.away = False
        self.buckets: dict[tuple[str, str], LocalShare] = {}
        self.orders: list[Exchange] = []
        self.order_added = asyncio.Condition()

    async def exchange(self, provider: str, model: str, order: Exchange) -> ExchangeReply:
        await asyncio.sleep(0)
        if self.away:
            raise BrokerUnavailable("gone")
        async with self.order_added:
            self.orders.append(order)
            self.order_added.notify_all()
        return self.buckets.setdefault((provider, model), LocalShare()).exchange(order)


class PausedLanes:
    """The ledger's part of lanes."""

    def __init__(self) -> None:
        self.paused: dict[tuple[str, str, str], tuple[FailureKind, str]] = {}
        self.looks = 0

    async def pause_lane(
        self, provider: str, lane: str, why: str, *, model: str = "", kind: FailureKind = FailureKind.QUOTA
    ) -> None:
        await asyncio.sleep(0.001)
        self.paused.setdefault((provider, lane, model), (kind, why))

    async def paused_lanes(self) -> Sequence[tuple[str, str, str]]:
        self.looks += 1
        await asyncio.sleep(0.001)
        return list(self.paused)

    async def retry_lanes(self, older_than: timedelta) -> Sequence[tuple[str, str, str]]:
        resumed, self.paused = list(self.paused), {}
        return resumed


class LimiterHarness:
    """A rate limiter with its ports."""

    def __init__(
        self, *, workers: int = 1, slots: int = 100, period_s: float = 60.0, settle_s: float = 0.0, **settings: Any
    ) -> None:
        make_leased()  # before anything runs by the clock
        self.buckets = Buckets()
        self.ledger = PausedLanes()
        self.lanes = Lanes(self.ledger)
        self.nudges = 0
        self.limiter = RateLimiter(
            Settings(**settings), self.buckets, self.lanes, presence=SimpleNamespace(workers=workers), slots=slots,
            on_room=self._nudged, period_s=period_s, settle_s=settle_s,
        )  # fmt: skip

    def _nudged(self) -> None:
        self.nudges += 1

    async def permit(self, *, priority: int = 0, **call: Any) -> Permit | Denied:
        return await self.limiter.permit(make_leased(priority), make_call(**call))


_LEASED: list[Leased] = []


async def _lease() -> None:
    ledger = LentLedger()
    await ledger.submission.submit(make_batch(), [make_jobs(make_request())])
    _LEASED.extend(await ledger.queue.lease(Step.GENERATE, "w", timedelta(seconds=60), 1))


def make_leased(priority: int = 0) -> Leased:
    """A lease of a job of its own; one real lease is the pattern of all."""
    if not _LEASED:
        with ThreadPoolExecutor() as threads:
            threads.submit(asyncio.run, _lease()).result()
    return replace(_LEASED[0], job_id=new_id(), priority=priority)


def make_call(provider: str = "openai", model: str = "m", body: bytes = b"x" * 300, max_tokens: int = 100) -> Call:
    request = make_request(config={"max_tokens": max_tokens})
    return Call(
        provider=provider, model=model, lane="standard", protocol=AnswerProtocol.MARKERS, body=body,
        request_hash=b"", timeout_s=5.0, reserve_usd=Decimal(0), prompt=make_prompt(), request=request,
    )  # fmt: skip


def completion(input_tokens: int = 100, output_tokens: int = 10, **headers: str) -> Completion:
    return Completion(
        text="t", finish_reason=FinishReason.STOP, protocol=AnswerProtocol.MARKERS,
        usage=Usage(input_tokens=input_tokens, output_tokens=output_tokens),
        snapshot=ProviderSnapshot(provider="openai", rate_limits={k.replace("_", "-"): v for k, v in headers.items()}),
    )  # fmt: skip


def failure(kind: FailureKind, **more: Any) -> Failure:
    return Failure(kind=kind, message="no", **more)


async def wait_until(true: Callable[[], bool]) -> None:
    """Wait until something holds, for at most 15 s."""
    for _ in range(1500):
        if true():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never held")


async def wait_for_waiting(harness: LimiterHarness, count: int) -> None:
    """Wait until so many calls wait for their permits."""
    await wait_until(
        lambda: sum(len(queue.urgent) + len(queue.bulk) for queue in harness.limiter._queues.values()) == count
    )


async def test_without_limits_every_call_goes_and_nothing_holds_leases_back() -> None:
    # No call is answered here: the slow start doubles them each so often.
    harness = LimiterHarness()
    permits = await asyncio.gather(*(harness.permit() for _ in range(200)))
    assert all(isinstance(permit, Permit) for permit in permits)
    assert harness.limiter.room() is None
    # Asked for in blocks: far fewer round trips than calls.
    assert len(harness.buckets.orders) < 20
    await harness.limiter.close()


async def test_the_end_of_a_call_and_the_permit_of_the_next_one_are_one_exchange() -> None:
    harness = LimiterHarness()
    leased = make_leased()
    permit = await harness.limiter.permit(leased, make_call())
    assert isinstance(permit, Permit)
    # Long enough for the queue to come to rest.
    await asyncio.sleep(2 * rate_limiter.GATHER_S)
    harness.limiter.answered(permit, completion())
    # The job that gets the slot has a task of its own, which begins in the next turn of the loop.
    assert isinstance(await asyncio.create_task(harness.limiter.permit(leased, make_call())), Permit)
    assert [(len(order.releases), len(order.acquires)) for order in harness.buckets.orders] == [(0, 1), (1, 1)]
    await harness.limiter.close()


async def test_the_offline_provider_needs_no_permit() -> None:
    harness = LimiterHarness(providers={"mine": ProviderSettings(kind=ProviderKind.EXTRACTIVE)})
    for name in ("extractive", "mine"):
        permit = await harness.permit(provider=name)
        assert isinstance(permit, Permit)
        harness.limiter.answered(permit, completion())
    assert harness.buckets.orders == []
    await harness.limiter.close()


async def test_a_limit_lets_jobs_wait_and_says_how_many_more_may() -> None:
    harness = LimiterHarness(requests_per_minute=60)
    assert harness.limiter.room() == Room(rate_limiter.FIRST_LEASES, rate_limiter.FIRST_LEASES)
    assert isinstance(await harness.permit(), Permit)
    waiting = [asyncio.create_task(harness.permit()) for _ in range(2)]
    await wait_for_waiting(harness, 2)
    # Two at a call a second.
    await wait_until(lambda: harness.limiter.room() == Room(2, 0))
    urgent = await harness.permit(priority=5)
    assert isinstance(urgent, Permit)
    assert urgent.waited_ms > 100
    assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await harness.limiter.close()


async def test_jobs_that_would_wait_too_long_are_denied_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.limits.lanes.FIRST_CALLS", 100)

    harness = LimiterHarness(requests_per_minute=6)
    assert isinstance(await harness.permit(), Permit)
    waiting = [asyncio.create_task(harness.permit()) for _ in range(2)]
    await wait_for_waiting(harness, 2)
    first, second = await harness.permit(), await harness.permit()
    assert isinstance(first, Denied)
    assert isinstance(second, Denied)
    assert first.why is DenyReason.LIMIT
    assert second.delay - first.delay == pytest.approx(timedelta(seconds=10), abs=timedelta(seconds=1))
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await harness.limiter.close()


async def test_a_job_waits_in_place_for_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permit_queue, "PATIENCE_S", 0.0)
    monkeypatch.setattr(permit_queue, "LONGEST_PATIENCE_S", 0.0)

    harness = LimiterHarness(max_concurrency=1)
    permit = await harness.permit()
    assert isinstance(permit, Permit)
    waiting = asyncio.create_task(harness.permit())
    await wait_until(lambda: len(harness.buckets.orders) > 4)
    assert not waiting.done()
    harness.limiter.answered(permit, completion())
    assert isinstance(await waiting, Permit)
    await harness.limiter.close()


async def test_a_job_cancelled_at_its_grant_returns_the_permit() -> None:
    harness = LimiterHarness(max_concurrency=1)
    permit = await harness.permit()
    assert isinstance(permit, Permit)
    task = asyncio.create_task(harness.permit())
    await wait_for_waiting(harness, 1)
    harness.limiter.unused(permit)
    task.cancel()
    await asyncio.wait([task])
    assert isinstance(await harness.permit(), Permit)
    await harness.limiter.close()


async def test_a_call_granted_without_redis_is_counted_there_when_it_is_back() -> None:
    harness = LimiterHarness(max_concurrency=1)
    harness.buckets.away = True
    permit = await harness.permit()
    assert isinstance(permit, Permit)
    assert not permit.shared
    harness.buckets.away = False
    async with harness.buckets.order_added:
        await harness.buckets.order_added.wait_for(
            lambda: any(permit.id in order.active for order in harness.buckets.orders)
        )
    harness.limiter.answered(permit, completion())
    async with harness.buckets.order_added:
        await harness.buckets.order_added.wait_for(
            lambda: any(ended.id == permit.id for order in harness.buckets.orders for ended in order.releases)
        )
    await harness.limiter.close()


async def test_estimates_follow_what_calls_use() -> None:
    harness = LimiterHarness(output_tokens_per_minute=1_000_000)
    permit = await harness.permit(body=b"x" * 300, max_tokens=500)
    assert isinstance(permit, Permit)
    assert permit.reserved == (1, 100, 500, 600)
    harness.limiter.answered(permit, completion(input_tokens=75, output_tokens=20))
    second = await harness.permit(body=b"x" * 400, max_tokens=500)
    assert isinstance(second, Permit)
    assert second.reserved == pytest.approx((1, 100, 20, 120))
    (settled,) = [release for order in harness.buckets.orders for release in order.releases]
    assert settled.more == pytest.approx((0, -25, -480, -505))
    await harness.limiter.close()


async def test_a_429_lowers_the_rate_and_its_retry_after_stops_all_calls() -> None:
    harness = LimiterHarness(requests_per_minute=6_000)
    permit = await harness.permit()
    assert isinstance(permit, Permit)
    harness.limiter.failed(permit, failure(FailureKind.RATE_LIMITED, retry_after_s=30.0))
    await wait_until(lambda: any(order.feedback.rate_limited for order in harness.buckets.orders))
    denial = await harness.permit()
    assert isinstance(denial, Denied)
    assert denial.why is DenyReason.LIMIT
    assert 15 < denial.delay.total_seconds() <= 30
    # Nothing but a look now and then is leased for it.
    assert harness.limiter.room() == Room(50, rate_limiter.PEEK)
    assert harness.limiter.room() == Room(50, 0)
    await harness.limiter.close()


async def test_many_failures_in_a_row_open_the_breaker_and_an_answer_closes_it() -> None:
    harness = LimiterHarness()
    for _ in range(TRIP_AFTER):
        permit = await harness.permit()
        assert isinstance(permit, Permit)
        harness.limiter.failed(permit, failure(FailureKind.OVERLOADED))
    while not isinstance(denial := await harness.permit(), Denied):
        harness.limiter.unused(denial)
    assert denial.why is DenyReason.BREAKER
    await asyncio.sleep(denial.delay.total_seconds())
    probe = await harness.permit()
    assert isinstance(probe, Permit)
    harness.limiter.answered(probe, completion())
    async with harness.buckets.order_added:
        await harness.buckets.order_added.wait_for(lambda: harness.buckets.orders[-1].feedback.well)
    permits = await asyncio.gather(*(harness.permit() for _ in range(5)))
    assert all(isinstance(permit, Permit) for permit in permits)
    await harness.limiter.close()


async def test_a_used_up_quota_pauses_the_lane_until_its_release() -> None:
    harness = LimiterHarness()
    permit = await harness.permit()
    assert isinstance(permit, Permit)
    harness.limiter.failed(permit, failure(FailureKind.QUOTA))
    await harness.lanes.close()
    assert harness.ledger.paused == {("openai", "standard", ""): (FailureKind.QUOTA, "no")}
    denial = await harness.permit()
    assert denial == Denied(DenyReason.LANE_PAUSED, timedelta(0))
    assert isinstance(await harness.permit(provider="anthropic"), Permit)

    # A release takes the row away; a job that is leased after it is not held again for what was known before.
    harness.ledger.paused.clear()
    assert isinstance(await harness.permit(), Permit)
    await harness.limiter.close()


async def test_without_redis_a_new_worker_waits_until_the_others_count_it() -> None:
    harness = LimiterHarness(requests_per_minute=600, settle_s=0.05)
    harness.buckets.away = True
    permit = await harness.permit()
    assert isinstance(permit, Permit)
    assert permit.waited_ms >= 45
    await harness.limiter.close()


async def test_buckets_of_unused_models_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "MOST_QUEUES", 5)
    monkeypatch.setattr(rate_limiter, "IDLE_S", 0.0)

    harness = LimiterHarness()
    for number in range(50):
        permit = await harness.permit(model=f"m{number}")
        assert isinstance(permit, Permit)
        harness.limiter.answered(permit, completion())
    queues = harness.limiter._queues.values()
    await wait_until(lambda: not any(queue.waiting or queue.unsent or queue.active for queue in queues))
    assert isinstance(await harness.permit(model="last"), Permit)
    assert len(harness.limiter._queues) <= 5
    await harness.limiter.close()


async def test_a_model_without_a_limit_does_not_wait_behind_one_that_has() -> None:
    slow = ProviderSettings(kind=ProviderKind.OPENAI, limits=LimitSettings(requests_per_minute=6))
    harness = LimiterHarness(providers={"slow": slow})
    assert isinstance(await harness.permit(provider="slow"), Permit)
    assert isinstance(await harness.permit(), Permit)
    waiting = [asyncio.create_task(harness.permit(provider="slow")) for _ in range(2)]
    await wait_for_waiting(harness, 2)
    assert harness.limiter.room() == Room(50, 48)
    denial = await harness.permit(provider="slow")
    assert isinstance(denial, Denied)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await harness.limiter.close()
