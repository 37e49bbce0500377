"""Redis clients over a Redis in memory that can be away or emptied at a given moment; real servers prove the rest."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import fakeredis
import orjson
import pytest

from schemas.states import Step
from tasks.errors import BrokerUnavailable
from tasks.ports import Leased, Rendered
from tests.builders import make_attempt, make_batch, make_final, make_jobs, make_request, new_id
from tests.contract.situations import LEASE
from tests.lent_ledger import LentLedger
from worker import token_streams
from worker.limits import redis_bucket
from worker.limits.bucket import Acquire, Exchange, Release
from worker.limits.rates import Rates
from worker.limits.redis_bucket import RedisBuckets
from worker.process import doorbell
from worker.process.celery_app import make_app
from worker.process.doorbell import CeleryDoorbell
from worker.settings import Settings
from worker.token_streams import RedisTokens, TokenReader, forget, key_of

URL = "redis://in.memory:6379/0"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> fakeredis.FakeServer:
    """A Redis in memory; ``connected = False`` takes it away."""
    server = fakeredis.FakeServer()

    def from_url(_url: str, *, decode_responses: bool = False, **_options: object) -> fakeredis.FakeAsyncRedis:
        return fakeredis.FakeAsyncRedis(server=server, decode_responses=decode_responses)

    clients = SimpleNamespace(Redis=SimpleNamespace(from_url=from_url))
    for module in (doorbell, redis_bucket, token_streams):
        monkeypatch.setattr(module, "redis", clients)
    return server


def stored(server: fakeredis.FakeServer) -> fakeredis.FakeRedis:
    return fakeredis.FakeRedis(server=server)


# ---- shared limits ---------------------------------------------------------------------------------------------

TWO_AT_ONCE = Rates(concurrency=2)


def asks(count: int) -> tuple[Acquire, ...]:
    return tuple(Acquire(new_id(), urgent=False, weights=(1.0, 0.0, 0.0, 0.0)) for _ in range(count))


def exchanging(work: Callable[..., Awaitable[None]], *prefixes: str) -> None:
    async def scenario() -> None:
        workers = [RedisBuckets(URL, prefix) for prefix in prefixes]
        try:
            await work(*workers)
        finally:
            for worker in workers:
                await worker.close()

    asyncio.run(scenario())


@pytest.mark.usefixtures("server")
def test_workers_share_the_calls_at_once() -> None:
    async def work(first: RedisBuckets, second: RedisBuckets) -> None:
        requests = asks(3)
        assert (await first.exchange("p", "m", Exchange(TWO_AT_ONCE, requests))).granted == 2
        refused = await second.exchange("p", "m", Exchange(TWO_AT_ONCE, asks(1)))
        assert (refused.granted, refused.why) == (0, "slots")
        assert (await second.exchange("p", "another", Exchange(TWO_AT_ONCE, asks(1)))).granted == 1

        ended = Release(requests[0].id, 0.0, (0.0,) * 4)
        await first.exchange("p", "m", Exchange(TWO_AT_ONCE, releases=(ended,)))
        assert (await second.exchange("p", "m", Exchange(TWO_AT_ONCE, asks(2)))).granted == 1

    exchanging(work, "", "")


@pytest.mark.usefixtures("server")
def test_installations_with_a_prefix_each_have_limits_of_their_own() -> None:
    async def work(first: RedisBuckets, second: RedisBuckets) -> None:
        for worker in (first, second):
            assert (await worker.exchange("p", "m", Exchange(TWO_AT_ONCE, asks(2)))).granted == 2

    exchanging(work, "one:", "two:")


def test_an_unreachable_redis_is_an_error_and_its_limits_survive(server: fakeredis.FakeServer) -> None:
    async def work(buckets: RedisBuckets) -> None:
        assert (await buckets.exchange("p", "m", Exchange(TWO_AT_ONCE, asks(2)))).granted == 2
        server.connected = False
        with pytest.raises(BrokerUnavailable, match="limits in Redis can't be reached"):
            await buckets.exchange("p", "m", Exchange(TWO_AT_ONCE, asks(1)))
        server.connected = True
        assert (await buckets.exchange("p", "m", Exchange(TWO_AT_ONCE, asks(1)))).granted == 0

    exchanging(work, "")


# ---- streamed answers ------------------------------------------------------------------------------------------


async def leased() -> Leased:
    ledger = LentLedger()
    await ledger.submission.submit(make_batch(), [make_jobs(make_request(config={"stream": True}))])
    (job,) = await ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
    return job


def telling(work: Callable[[RedisTokens, Leased], Awaitable[None]]) -> None:
    async def scenario() -> None:
        sink = RedisTokens(URL, key_prefix="desk:", kept_s=60)
        try:
            await work(sink, await leased())
        finally:
            await sink.close()

    asyncio.run(scenario())


async def read(job: Leased) -> list[tuple[str, str]]:
    async with TokenReader(URL, key_prefix="desk:") as reader, asyncio.timeout(60):
        return [(token.kind.value, token.text) async for token in reader.follow(job.job_id, job.run)]


async def flushed(sink: RedisTokens) -> None:
    """Return when the sink has nothing left to send."""
    async with asyncio.timeout(60):
        while (sending := sink._sending) is not None:
            await asyncio.wait([sending])


def test_a_stream_during_an_outage_of_redis_is_sent_again_from_its_start(
    server: fakeredis.FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_streams, "AWAY_S", 0.01)

    async def work(sink: RedisTokens, job: Leased) -> None:
        noticed, lost = asyncio.Event(), sink._lost
        monkeypatch.setattr(sink, "_lost", lambda error: (lost(error), noticed.set()))
        attempt = make_attempt(job)
        sink.start(job, attempt)
        sink.text(attempt.id, "The desk ")
        await flushed(sink)
        server.connected = False
        sink.text(attempt.id, "opens ")
        async with asyncio.timeout(60):
            await noticed.wait()
        server.connected = True
        sink.text(attempt.id, "at nine.")
        sink.end(attempt.id, whole=True)
        await flushed(sink)
        sink.final(make_final(job).facts)

        tokens = await read(job)
        assert tokens[-4:] == [("start", ""), ("text", "The desk opens at nine."), ("end", ""), ("final", "")]

    telling(work)


def test_an_emptied_stream_is_sent_again_from_its_start(server: fakeredis.FakeServer) -> None:
    async def work(sink: RedisTokens, job: Leased) -> None:
        attempt = make_attempt(job)
        sink.start(job, attempt)
        sink.text(attempt.id, "The desk ")
        await flushed(sink)
        stored(server).flushall()
        sink.text(attempt.id, "opens.")
        sink.end(attempt.id, whole=True)
        await flushed(sink)
        sink.final(make_final(job).facts)

        assert await read(job) == [("start", ""), ("text", "The desk opens."), ("end", ""), ("final", "")]

    telling(work)


def test_the_streams_of_all_runs_are_deleted(server: fakeredis.FakeServer) -> None:
    job, other = uuid4(), uuid4()
    for key in (key_of("desk:", job, 1), key_of("desk:", job, 2), key_of("desk:", other, 1)):
        stored(server).xadd(key, {"kind": "start"})

    asyncio.run(forget(URL, "desk:", {job: 2}))

    assert stored(server).keys() == [key_of("desk:", other, 1).encode()]
    server.connected = False
    with pytest.raises(BrokerUnavailable):
        asyncio.run(forget(URL, "desk:", {other: 1}))


# ---- doorbell --------------------------------------------------------------------------------------------------


def ringing(work: Callable[[CeleryDoorbell], Awaitable[Any]], prefix: str = "") -> None:
    async def scenario() -> None:
        settings = Settings(key_prefix=prefix)
        bell = CeleryDoorbell(make_app(settings, URL), URL, key_prefix=prefix, results_kept_s=60)
        try:
            await work(bell)
        finally:
            await bell.close()

    asyncio.run(scenario())


def test_results_are_published_in_the_celery_envelope_and_can_be_deleted(
    server: fakeredis.FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "PUBLISH_KEYS", 2)
    results = [Rendered(new_id(), 1, b'{"state": "completed", "at": %d}' % number, "default") for number in range(5)]

    async def work(bell: CeleryDoorbell) -> None:
        await bell.publish(results)
        for job_id, _, result, _ in results:
            key = f"desk:celery-task-meta-{job_id}"
            envelope = orjson.loads(stored(server).get(key))
            assert (envelope["status"], envelope["task_id"]) == ("SUCCESS", str(job_id))
            assert envelope["result"] == orjson.loads(result)
            assert 0 < stored(server).ttl(key) <= 60

        await bell.forget([job_id for job_id, *_ in results[1:]])
        keys = stored(server).keys("desk:celery-task-meta-*")
        assert keys == [f"desk:celery-task-meta-{results[0][0]}".encode()]

    ringing(work, "desk:")


def test_hints_of_both_priorities_are_counted(server: fakeredis.FakeServer) -> None:
    stored(server).rpush("desk:check", "urgent")
    stored(server).rpush(f"desk:check{doorbell.PRIORITY_SEPARATOR}{doorbell.BULK}", "one", "two")
    stored(server).rpush("check", "of another installation")

    async def work(bell: CeleryDoorbell) -> None:
        assert await bell.waiting(Step.CHECK) == 3
        assert await bell.waiting(Step.GENERATE) == 0
        server.connected = False
        with pytest.raises(BrokerUnavailable):
            await bell.waiting(Step.CHECK)

    ringing(work, "desk:")
