"""A Redis that answers "no" is as one that is away: no worker ends, and messages are taken again once it serves."""

from collections.abc import Iterator

import pytest
import redis

from tests.acceptance.conftest import System, questions
from tests.celery_client import celery_client
from tests.deadlines import scale_to_load
from tests.faults.proxy import Proxy, running_proxy

REFUSALS = [
    ("READONLY You can't write against a read only replica.", {"pings": True}),
    ("CLUSTERDOWN The cluster is down", {"pings": True}),
    ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", {}),
    ("LOADING Redis is loading the dataset in memory", {}),
    ("WRONGPASS invalid username-password pair or user is disabled.", {"logins": False}),
    ("ERR max number of clients reached", {"logins": False}),
]


@pytest.fixture
def proxy(system: System) -> Iterator[Proxy]:
    with running_proxy(system.redis_url) as proxy:
        yield proxy


@pytest.mark.parametrize(("refusal", "obeys"), REFUSALS, ids=lambda value: str(value).split()[0])
def test_a_worker_waits_for_a_redis_that_refuses(
    system: System, proxy: Proxy, refusal: str, obeys: dict[str, bool]
) -> None:
    text = refusal.partition(" ")[2]
    first = system.start_worker(redis_url=proxy.url)
    with celery_client(system.redis_url) as producer:

        def submit(number: int) -> None:
            job = questions(number + 1)[number]
            answer = producer.send_task("nightdesk.submit", args=[[job]], queue="submit").get(timeout=scale_to_load(60))
            assert answer["errors"] == []

        submit(0)
        proxy.refuse(refusal, **obeys)
        second = system.start_worker(redis_url=proxy.url)
        system.until(lambda: all(text in system.log(number) for number in (0, 1)), what="both workers were refused")
        # Work goes on from PostgreSQL alone.
        system.submit(questions(3)[1:])
        system.until_final(3, published=False)
        assert (first.poll(), second.poll()) == (None, None)
        proxy.serve_again()
        submit(3)
        system.until_final(4)
    system.until(
        lambda: all("ready: takes jobs" in system.log(number) for number in (0, 1)), what="both workers listen"
    )
    assert (first.poll(), second.poll()) == (None, None)
    with redis.Redis.from_url(system.redis_url) as client:
        assert client.llen("submit") == 0
