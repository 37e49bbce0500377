"""Cached judge verdicts: found in their batch by key, first come first kept, and erased with their answer."""

import asyncio

import psycopg
import pytest

from tasks.ports import CachedVerdict, NewVerdicts, VerdictQuery
from tests.builders import closed_unknown, make_batch, new_id
from tests.contract.situations import (
    ACTOR,
    checking,
    finish,
    generate,
    key,
    open_one,
    store_judge_reply,
    submit_and_take,
)
from tests.postgres import until_one_waits
from worker.ledger.postgres import PostgresLedger


async def test_a_cached_verdict_is_found_by_its_batch_and_key(ledger: PostgresLedger) -> None:
    first, second = await checking(ledger), await checking(ledger)
    judge_attempt = await store_judge_reply(ledger, first, "a", "b", reply="one")
    other = await store_judge_reply(ledger, second, "b", "c", reply="two")

    first_verdicts, other_verdicts, none = await ledger.cache.find_verdicts(
        [
            VerdictQuery(first.batch_id, (key("a"), key("b"), key("c"))),
            VerdictQuery(second.batch_id, (key("c"), key("b"))),
            VerdictQuery(new_id(), (key("a"), key("b"))),
        ]
    )

    assert first_verdicts == {
        key("a"): CachedVerdict(judge_attempt.id, first.job_id, 1, "one"),
        key("b"): CachedVerdict(judge_attempt.id, first.job_id, 2, "one"),
    }
    assert other_verdicts == {
        key("b"): CachedVerdict(other.id, second.job_id, 1, "two"),
        key("c"): CachedVerdict(other.id, second.job_id, 2, "two"),
    }
    assert none == {}
    assert await ledger.cache.find_verdicts([]) == []


async def test_the_first_word_of_a_key_stays_and_saying_it_again_changes_nothing(ledger: PostgresLedger) -> None:
    batch = make_batch()
    first = await checking(ledger, batch)
    judge_attempt = await store_judge_reply(ledger, first, "a")
    await ledger.cache.store_verdicts([NewVerdicts(judge_attempt.id, ((key("a"), 7), (key("b"), 3)))])

    (verdicts,) = await ledger.cache.find_verdicts([VerdictQuery(first.batch_id, (key("a"), key("b")))])

    assert {cache_key: before.number for cache_key, before in verdicts.items()} == {key("a"): 1, key("b"): 3}


async def test_an_attempt_without_a_judges_answer_caches_nothing(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    generated = await generate(ledger, leased)
    waiting = await checking(ledger)
    lost = await open_one(ledger, waiting)
    await ledger.attempts.close_attempts([closed_unknown(waiting, lost)])

    await ledger.cache.store_verdicts(
        [NewVerdicts(attempt_id, ((key("a"), 1),)) for attempt_id in (generated.id, lost.id, new_id())]
    )

    queries = [VerdictQuery(batch_id, (key("a"),)) for batch_id in (leased.batch_id, waiting.batch_id)]
    assert await ledger.cache.find_verdicts(queries) == [{}, {}]


@pytest.mark.parametrize("verb", ["erase", "delete"])
async def test_cached_verdicts_are_erased_with_the_job_of_the_call(
    ledger: PostgresLedger, postgres_database_url: str, verb: str
) -> None:
    leased = await checking(ledger)
    await store_judge_reply(ledger, leased, "a")
    await finish(ledger, leased)

    await (ledger.erasure.erase([leased.job_id], ACTOR) if verb == "erase" else ledger.erasure.delete([leased.job_id]))

    assert await ledger.cache.find_verdicts([VerdictQuery(leased.batch_id, (key("a"),))]) == [{}]
    with psycopg.connect(postgres_database_url) as connection:
        assert connection.execute("SELECT count(*) FROM judge_verdict").fetchone() == (0,)


async def test_verdicts_cached_during_an_erasure_do_not_stay_behind(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    leased = await checking(ledger)
    judge_attempt = await store_judge_reply(ledger, leased)
    await finish(ledger, leased)
    async with await psycopg.AsyncConnection.connect(postgres_database_url) as writer:
        # Noted, and not committed yet: the erasure has to wait for it, and to see it then.
        await writer.execute(
            "INSERT INTO judge_verdict SELECT %s, %s, %s, 1", (leased.batch_id, key("a"), judge_attempt.id)
        )
        erasing = asyncio.create_task(ledger.erasure.erase([leased.job_id], ACTOR))
        await until_one_waits(postgres_database_url)
        await writer.commit()
    await erasing

    with psycopg.connect(postgres_database_url) as connection:
        assert connection.execute("SELECT count(*) FROM judge_verdict").fetchone() == (0,)
