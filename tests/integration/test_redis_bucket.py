"""The shared limits over a real Redis: names of their own, many models at once, and an error without it; bench/limits.py measures their use."""

import asyncio
from uuid import uuid4

import pytest

from tasks.errors import BrokerUnavailable
from worker.limits import redis_bucket
from worker.limits.bucket import Acquire, Exchange, ExchangeReply
from worker.limits.rates import Rates
from worker.limits.redis_bucket import RedisBuckets


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


def test_models_are_asked_for_at_once_however_many_they_are(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_bucket, "PATIENCE_S", 30.0)

    async def work() -> list[ExchangeReply]:
        buckets = RedisBuckets(redis_url)
        try:
            return await asyncio.gather(*(buckets.exchange("p", f"m{each}", Exchange(Rates())) for each in range(150)))
        finally:
            await buckets.close()

    assert len(asyncio.run(work())) == 150
