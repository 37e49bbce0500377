"""The doorbell over a real Redis: queues are counted, results are found by Celery, a restart is noticed."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import redis
from celery import Celery
from celery.result import AsyncResult
from kombu.transport.redis import Channel

from schemas.states import Step
from tasks.errors import BrokerUnavailable
from tasks.ports import Rendered
from tests.celery_client import celery_client
from tests.deadlines import scale_to_load
from tests.faults.proxy import running_proxy
from worker.process import doorbell as doorbell_module
from worker.process.doorbell import CeleryDoorbell, ring
from worker.settings import CANARY, Settings


def ringing(redis_url: str, work: Callable[[CeleryDoorbell], Awaitable[None]], **settings: Any) -> None:
    async def scenario() -> None:
        async with ring(Settings(**settings), redis_url) as doorbell:
            await work(doorbell)

    asyncio.run(scenario())


async def waiting(doorbell: CeleryDoorbell) -> int:
    """The number of hints in the queue of checks, of both priorities."""
    keys = (f"{doorbell._prefix}{key}" for key in ("check", f"check{Channel.sep}{doorbell_module.BULK}"))
    return sum([await doorbell._redis.llen(key) for key in keys])


@pytest.mark.parametrize("prefix", ["", "desk:"])
def test_hints_wait_in_their_queue_until_they_are_taken(redis_url: str, prefix: str) -> None:
    async def work(doorbell: CeleryDoorbell) -> None:
        await doorbell.hint(Step.CHECK)
        await doorbell.hint(Step.CHECK, urgent=True)
        assert await waiting(doorbell) == 2

    ringing(redis_url, work, key_prefix=prefix)


@pytest.fixture
def app(redis_url: str) -> Iterator[Celery]:
    with celery_client(redis_url) as client:
        yield client


def test_a_result_is_found_by_a_stock_client_until_it_is_forgotten(redis_url: str, app: Celery) -> None:
    job_id = uuid4()

    async def work(doorbell: CeleryDoorbell) -> None:
        await doorbell.publish([Rendered(job_id, 1, b'{"state": "failed", "response": "none"}', "default")])
        # A failed job returns as well: get() never raises or hangs.
        assert AsyncResult(str(job_id), app=app).get(timeout=scale_to_load(5))["state"] == "failed"
        await doorbell.publish([Rendered(job_id, 1, b'{"state": "completed"}', "default")])
        assert AsyncResult(str(job_id), app=app).get(timeout=scale_to_load(5)) == {"state": "completed"}
        await doorbell.forget([job_id])
        assert AsyncResult(str(job_id), app=app).state == "PENDING"

    ringing(redis_url, work)


def test_many_results_are_published_in_pages_for_a_time(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell_module, "PUBLISH_KEYS", 2)
    ids = [uuid4() for _ in range(5)]

    async def work(doorbell: CeleryDoorbell) -> None:
        await doorbell.publish([Rendered(job_id, 1, b"{}", "default") for job_id in ids])
        with redis.Redis.from_url(redis_url) as client:
            assert all(0 < client.ttl(f"desk:celery-task-meta-{job_id}") <= 60 for job_id in ids)
            await doorbell.forget(ids[1:])
            assert client.keys("desk:celery-task-meta-*") == [f"desk:celery-task-meta-{ids[0]}".encode()]

    ringing(redis_url, work, key_prefix="desk:", results_kept_s=60)


def test_the_result_of_a_later_run_stays(redis_url: str, app: Celery) -> None:
    job_id = uuid4()

    async def work(doorbell: CeleryDoorbell) -> None:
        await doorbell.publish([Rendered(job_id, 2, b'{"answer": "new"}', "default")])
        assert await doorbell.publish([Rendered(job_id, 1, b'{"answer": "old"}', "default")]) == {}
        await doorbell.withdraw([(job_id, 1)])
        assert AsyncResult(str(job_id), app=app).get(timeout=scale_to_load(5)) == {"answer": "new"}
        await doorbell.publish([Rendered(job_id, 10, b'{"answer": "newest"}', "default")])
        assert AsyncResult(str(job_id), app=app).get(timeout=scale_to_load(5)) == {"answer": "newest"}
        await doorbell.withdraw([(job_id, 10)])
        assert AsyncResult(str(job_id), app=app).state == "PENDING"

    ringing(redis_url, work)


def test_a_result_that_redis_refuses_is_named_and_the_others_are_published(redis_url: str, app: Celery) -> None:
    first, second = uuid4(), uuid4()

    async def work(doorbell: CeleryDoorbell) -> None:
        with redis.Redis.from_url(redis_url) as client:
            client.rpush(app.backend.get_key_for_task(str(first)), "of another type")
        refused = await doorbell.publish(
            [Rendered(first, 1, b"{}", "default"), Rendered(second, 1, b'{"a": 1}', "default")]
        )
        assert list(refused) == [first]
        assert AsyncResult(str(second), app=app).get(timeout=scale_to_load(5)) == {"a": 1}

    ringing(redis_url, work)


def test_an_emptied_redis_is_noticed_until_it_is_remembered_again(redis_url: str) -> None:
    async def work(doorbell: CeleryDoorbell) -> None:
        assert await doorbell.lost_its_data()
        await doorbell.remember()
        assert not await doorbell.lost_its_data()
        with redis.Redis.from_url(redis_url) as client:
            client.flushall()
        assert await doorbell.lost_its_data()

    ringing(redis_url, work)


def test_what_another_program_writes_in_its_place_takes_redis_for_no_more_than_emptied(redis_url: str) -> None:
    async def work(doorbell: CeleryDoorbell) -> None:
        with redis.Redis.from_url(redis_url) as client:
            client.rpush(CANARY, "x")
        assert await doorbell.lost_its_data()
        await doorbell.remember()
        assert not await doorbell.lost_its_data()

    ringing(redis_url, work)


def test_an_unreachable_redis_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell_module, "REST_S", 0.0)

    async def work(doorbell: CeleryDoorbell) -> None:
        for actions in (
            doorbell.hint(Step.CHECK),
            doorbell.publish([Rendered(uuid4(), 1, b"{}", "default")]),
            doorbell.remember(),
        ):
            with pytest.raises(BrokerUnavailable):
                await actions

    ringing("redis://127.0.0.1:1/0", work)


def test_a_hint_that_redis_refuses_is_told_with_the_reason(redis_url: str) -> None:
    async def work(doorbell: CeleryDoorbell) -> None:
        with pytest.raises(BrokerUnavailable, match="workers could not be woken over Redis: Redis refuses the login"):
            await doorbell.hint(Step.CHECK)

    parts = urlsplit(redis_url)
    ringing(parts._replace(netloc=f":wrong@{parts.hostname}:{parts.port}").geturl(), work)


def test_nothing_waits_long_for_a_redis_that_is_silent(redis_url: str) -> None:
    async def work(doorbell: CeleryDoorbell) -> None:
        await doorbell.hint(Step.CHECK)
        await doorbell.remember()
        proxy.stall()
        hints: list[Awaitable[object]] = [doorbell.hint(Step.CHECK) for _ in range(1000)]
        hints += [doorbell.publish([Rendered(uuid4(), 1, b"{}", "default")]), doorbell.unread_submissions()]
        async with asyncio.timeout(3 * doorbell_module.ANSWER_S):
            refused = await asyncio.gather(*hints, return_exceptions=True)
        assert {type(error) for error in refused} == {BrokerUnavailable}

    with running_proxy(redis_url) as proxy:
        ringing(proxy.url, work)
