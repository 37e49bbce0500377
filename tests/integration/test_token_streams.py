"""Streamed answers in a real Redis: replayed from the start by any number of readers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import uuid4

import pytest
import redis
from redis import asyncio as async_redis

from schemas.states import Step
from tasks.errors import BrokerUnavailable
from tasks.ports import Leased, NewAttempt
from tests.builders import make_attempt, make_batch, make_final, make_jobs, make_request
from tests.contract.situations import LEASE
from tests.deadlines import scale_to_load
from tests.lent_ledger import LentLedger
from worker import token_streams
from worker.token_streams import Kind, RedisTokens, Token, TokenReader, forget, key_of


async def leased() -> Leased:
    ledger = LentLedger()
    await ledger.submission.submit(make_batch(), [make_jobs(make_request(config={"stream": True}))])
    (job,) = await ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
    return job


def telling(redis_url: str, work: Callable[[RedisTokens, Leased], Coroutine[Any, Any, None]]) -> None:
    async def scenario() -> None:
        sink = RedisTokens(redis_url, key_prefix="desk:", kept_s=60)
        try:
            await work(sink, await leased())
        finally:
            await sink.close()

    asyncio.run(scenario())


async def read(redis_url: str, job: Leased, **how: Any) -> list[Token]:
    async with TokenReader(redis_url, key_prefix="desk:") as reader, asyncio.timeout(scale_to_load(20)):
        return [token async for token in reader.follow(job.job_id, job.run, **how)]


def pairs_of(tokens: list[Token]) -> list[tuple[str, str]]:
    """Kinds, and the texts between them put together: how they were cut is nobody's business."""
    pairs: list[tuple[str, str]] = []
    for token in tokens:
        if token.kind is Kind.TEXT and pairs and pairs[-1][0] == "text":
            pairs[-1] = ("text", pairs[-1][1] + token.text)
        else:
            pairs.append((token.kind.value, token.text))
    return pairs


def say(sink: RedisTokens, attempt: NewAttempt, text: str) -> None:
    for piece in text.split(" "):
        sink.text(attempt.id, f"{piece} ")


async def in_redis(redis_url: str, job: Leased, entries: int = 2) -> None:
    """Return when the stream holds so many."""
    async with asyncio.timeout(scale_to_load(20)), TokenReader(redis_url, key_prefix="desk:") as reader:
        async for _ in reader.follow(job.job_id, job.run):
            entries -= 1
            if not entries:
                return


def test_readers_see_the_same_whenever_they_come(redis_url: str) -> None:
    async def work(sink: RedisTokens, job: Leased) -> None:
        early = asyncio.create_task(read(redis_url, job))
        first = make_attempt(job)
        sink.start(job, first)
        say(sink, first, "The desk")
        await in_redis(redis_url, job)
        late = asyncio.create_task(read(redis_url, job))
        sink.end(first.id, whole=False)
        second = make_attempt(job, number=2)
        sink.start(job, second)
        say(sink, second, "It opens at nine ünd")
        sink.end(second.id, whole=True)
        sink.final(make_final(job).facts)

        early_tokens = await early
        assert pairs_of(early_tokens) == [
            ("start", ""), ("text", "The desk "), ("broken", ""), ("start", ""), ("text", "It opens at nine ünd "),
            ("end", ""), ("final", ""),
        ]  # fmt: skip
        assert early_tokens == await late == await read(redis_url, job)
        assert (early_tokens[0].attempt, early_tokens[0].run, early_tokens[0].round, early_tokens[0].number) == (
            first.id,
            job.run,
            0,
            1,
        )
        assert (early_tokens[-1].state, early_tokens[-1].outcome) == ("completed", "answered")
        middle = early_tokens[2].entry_id
        assert await read(redis_url, job, after=middle) == early_tokens[3:]
        async with async_redis.Redis.from_url(redis_url) as client:
            assert 0 < await client.ttl(key_of("desk:", job.job_id, job.run)) <= 60

    telling(redis_url, work)


def test_a_reader_follows_its_text_beside_any_number_of_others(redis_url: str) -> None:
    async def work(sink: RedisTokens, job: Leased) -> None:
        async with (
            TokenReader(redis_url, key_prefix="desk:") as reader,
            async_redis.Redis.from_url(redis_url) as client,
            asyncio.timeout(scale_to_load(60)),
        ):
            readers = [asyncio.ensure_future(anext(reader.follow(uuid4(), 1))) for _ in range(150)]
            while (await client.info("clients"))["blocked_clients"] < len(readers):
                assert not [each for each in readers if each.done()]
            sink.start(job, make_attempt(job))
            assert (await anext(reader.follow(job.job_id, job.run))).kind is Kind.START
            for each in readers:
                each.cancel()
            await asyncio.wait(readers)

    telling(redis_url, work)


def test_a_stream_in_whose_place_something_else_lies_stops_no_other(redis_url: str) -> None:
    async def work(sink: RedisTokens, job: Leased) -> None:
        other = await leased()
        async with async_redis.Redis.from_url(redis_url) as client:
            await client.set(key_of("desk:", job.job_id, job.run), "x")
        attempts = [make_attempt(each) for each in (job, other)]
        for each, attempt in zip((job, other), attempts, strict=True):
            sink.start(each, attempt)
            say(sink, attempt, "It opens")
        await in_redis(redis_url, other)
        for each, attempt in zip((job, other), attempts, strict=True):
            sink.end(attempt.id, whole=True)
            sink.final(make_final(each).facts)

        assert pairs_of(await read(redis_url, other)) == [
            ("start", ""), ("text", "It opens "), ("end", ""), ("final", ""),
        ]  # fmt: skip

    telling(redis_url, work)


def test_a_job_that_ends_without_a_worker_lets_its_readers_go(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_streams, "BLOCK_S", 0.1)
    monkeypatch.setattr(token_streams, "GRACE_S", 0.1)

    async def work(sink: RedisTokens, job: Leased) -> None:
        attempt, cancelled = make_attempt(job), asyncio.Event()

        async def over() -> bool:
            return cancelled.is_set()

        sink.start(job, attempt)
        say(sink, attempt, "It")
        reading = asyncio.create_task(read(redis_url, job, over=over))
        await in_redis(redis_url, job)
        cancelled.set()
        assert pairs_of(await reading) == [("start", ""), ("text", "It ")]

    telling(redis_url, work)


def test_without_redis_nothing_waits_and_what_it_interrupts_is_not_continued(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(token_streams, "AWAY_S", 0)
    nowhere = "redis://127.0.0.1:1/0"

    async def scenario() -> None:
        sink, job = RedisTokens(nowhere, key_prefix="desk:", kept_s=60), await leased()
        refused = asyncio.Event()
        monkeypatch.setattr(token_streams.log, "filters", [lambda _: refused.set() or True])
        interrupted, later = make_attempt(job), make_attempt(job, number=2)
        sink.start(job, interrupted)
        say(sink, interrupted, "lost")
        await asyncio.wait_for(refused.wait(), scale_to_load(20))
        with pytest.raises(BrokerUnavailable):
            await read(nowhere, job)
        sink._redis = async_redis.Redis.from_url(redis_url)
        say(sink, interrupted, "lost too")
        sink.end(interrupted.id, whole=False)
        sink.start(job, later)
        say(sink, later, "It opens")
        sink.end(later.id, whole=True)
        sink.final(make_final(job).facts)
        assert pairs_of(await read(redis_url, job)) == [
            ("start", ""), ("text", "It opens "), ("end", ""), ("final", ""),
        ]  # fmt: skip
        await sink.close()

    asyncio.run(scenario())
    assert caplog.text.count("can't be written") == 1
    assert "Redis is back" in caplog.text


def test_closing_tells_what_is_due_and_never_hangs(redis_url: str) -> None:
    async def scenario(url: str) -> Leased:
        sink, job = RedisTokens(url, key_prefix="desk:", kept_s=60), await leased()
        attempt = make_attempt(job)
        sink.start(job, attempt)
        say(sink, attempt, "It")
        sink.end(attempt.id, whole=False)
        sink.final(make_final(job).facts)
        await asyncio.wait_for(sink.close(), scale_to_load(10))
        return job

    job = asyncio.run(scenario(redis_url))
    assert pairs_of(asyncio.run(read(redis_url, job)))[-2:] == [("broken", ""), ("final", "")]
    asyncio.run(scenario("redis://127.0.0.1:1/0"))


def test_the_streams_of_all_runs_are_deleted(redis_url: str) -> None:
    job, other = uuid4(), uuid4()
    with redis.Redis.from_url(redis_url) as client:
        for key in (key_of("desk:", job, 1), key_of("desk:", job, 2), key_of("desk:", other, 1)):
            client.xadd(key, {"kind": "start"})

        asyncio.run(forget(redis_url, "desk:", {job: 2}))

        assert client.keys() == [key_of("desk:", other, 1).encode()]
    with pytest.raises(BrokerUnavailable):
        asyncio.run(forget("redis://127.0.0.1:1/0", "desk:", {other: 1}))
