"""Four workers' desks over one real Redis: the limit holds over all of them, and without Redis; bench/limits.py measures its use."""

import asyncio
from collections.abc import Iterator
from itertools import cycle
from time import monotonic, time
from types import SimpleNamespace
from uuid import uuid4

import pytest

from tasks.errors import BrokerUnavailable
from tasks.ports import Permit
from tests.deadlines import Deadline
from tests.unit.worker.limits.test_rate_limiter import PausedLanes, completion, make_call, make_leased
from worker.limits import redis_bucket
from worker.limits.bucket import Acquire, Exchange, ExchangeReply
from worker.limits.lanes import Lanes
from worker.limits.rate_limiter import RateLimiter
from worker.limits.rates import Rates
from worker.limits.redis_bucket import RedisBuckets
from worker.settings import Settings

WORKERS = 4
PERIOD_S = 1.0


class Switched:
    """The shared accounts, until Redis is away."""

    def __init__(self, buckets: RedisBuckets) -> None:
        self.buckets = buckets
        self.away = False

    async def exchange(self, provider: str, model: str, order: Exchange) -> ExchangeReply:
        if self.away:
            raise BrokerUnavailable("switched off")
        return await self.buckets.exchange(provider, model, order)


async def _work_on(seconds: float) -> None:
    """Lets the tasks run for a time, and for longer on a machine that leaves them less of it."""
    deadline = Deadline(seconds)
    while not deadline.is_over():  # noqa: ASYNC110 - time alone ends it
        await asyncio.sleep(0.02)


async def work(
    redis_url: str, settings: Settings, seconds: float, sizes: Iterator[int], *, cut_at_s: float
) -> list[tuple[float, int]]:
    """Four busy workers; returns when each permit was taken, by the account's clock, with the call's tokens."""
    buckets = RedisBuckets(redis_url)
    switched = Switched(buckets)
    desks = [
        RateLimiter(
            settings, switched, Lanes(PausedLanes()), presence=SimpleNamespace(workers=WORKERS), slots=100, on_room=lambda: None,
            period_s=PERIOD_S, settle_s=0.0,
        )
        for _ in range(WORKERS)
    ]  # fmt: skip
    job = make_leased()
    calls: list[tuple[float, int]] = []
    # Without Redis, permits are dated by the clock of the process.
    ahead_s = time() - monotonic()

    async def busy(limiter: RateLimiter) -> None:
        while True:
            tokens = next(sizes)
            permit = await limiter.permit(job, make_call(body=b"x" * 4 * tokens))
            if isinstance(permit, Permit):
                calls.append((permit.taken_at_s + (0.0 if permit.shared else ahead_s), tokens))
                limiter.answered(permit, completion(input_tokens=tokens))

    tasks = [asyncio.create_task(busy(limiter)) for limiter in desks for _ in range(6)]
    await _work_on(cut_at_s)
    switched.away = True
    await _work_on(seconds - cut_at_s)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for limiter in desks:
        await limiter.close()
    await buckets.close()
    return sorted(calls)


def test_no_window_over_all_workers_holds_more_than_the_limit(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_bucket, "RECONNECT_S", 60.0)
    limit = 20_000
    settings = Settings(input_tokens_per_minute=limit)
    calls = asyncio.run(work(redis_url, settings, 2.5, cycle([40, 320, 160]), cut_at_s=1.2))
    worst = max(sum(tokens for other, tokens in calls if at <= other < at + PERIOD_S) for at, _ in calls)
    assert worst <= 1.02 * limit


def test_installations_with_a_prefix_have_limits_of_their_own_and_no_redis_is_an_error(redis_url: str) -> None:
    async def granted(url: str, prefix: str) -> int:
        buckets = RedisBuckets(url, prefix)
        requests = tuple(Acquire(uuid4(), urgent=False, weights=(1.0, 0.0, 0.0, 0.0)) for _ in range(2))
        try:
            return (await buckets.exchange("p", "m", Exchange(Rates(concurrency=2), requests))).granted
        finally:
            await buckets.close()

    assert [asyncio.run(granted(redis_url, prefix)) for prefix in ("one:", "two:", "one:")] == [2, 2, 0]
    with pytest.raises(BrokerUnavailable, match="limits in Redis can't be reached"):
        asyncio.run(granted("redis://127.0.0.1:1/0", ""))


def test_models_are_asked_for_at_once_however_many_they_are(redis_url: str) -> None:
    async def work() -> list[ExchangeReply]:
        buckets = RedisBuckets(redis_url)
        try:
            return await asyncio.gather(*(buckets.exchange("p", f"m{each}", Exchange(Rates())) for each in range(150)))
        finally:
            await buckets.close()

    assert len(asyncio.run(work())) == 150
