"""What a judge said is found again in its batch, by the first who heard it, and gone with the answer it stands in."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from tasks.ports import CachedVerdict, Ledger, NewVerdicts, VerdictQuery
from tests.builders import closed_unknown, make_batch, new_id
from tests.contract.conftest import Subject
from tests.contract.driving import ACTOR, checking, finish, generate, heard, key, open_one, submit_and_take
from worker.ledger.postgres import PostgresLedger


async def test_what_was_heard_is_found_by_its_batch_and_key(ledger: Ledger) -> None:
    first, second = await checking(ledger), await checking(ledger)
    told = await heard(ledger, first, "a", "b", reply="one")
    other = await heard(ledger, second, "b", "c", reply="two")

    mine, theirs, none = await ledger.cache.find_verdicts(
        [
            VerdictQuery(first.batch_id, (key("a"), key("b"), key("c"))),
            VerdictQuery(second.batch_id, (key("c"), key("b"))),
            VerdictQuery(new_id(), (key("a"), key("b"))),
        ]
    )

    assert mine == {
        key("a"): CachedVerdict(told.id, first.job_id, 1, "one"),
        key("b"): CachedVerdict(told.id, first.job_id, 2, "one"),
    }
    assert theirs == {
        key("b"): CachedVerdict(other.id, second.job_id, 1, "two"),
        key("c"): CachedVerdict(other.id, second.job_id, 2, "two"),
    }
    assert none == {}
    assert await ledger.cache.find_verdicts([]) == []


async def test_the_first_word_of_a_key_stays_and_saying_it_again_changes_nothing(ledger: Ledger) -> None:
    batch = make_batch()
    first = await checking(ledger, batch)
    told = await heard(ledger, first, "a")
    await ledger.cache.store_verdicts([NewVerdicts(told.id, ((key("a"), 7), (key("b"), 3)))])

    (found,) = await ledger.cache.find_verdicts([VerdictQuery(first.batch_id, (key("a"), key("b")))])

    assert {one: before.number for one, before in found.items()} == {key("a"): 1, key("b"): 3}


async def test_an_attempt_without_a_judges_answer_has_said_nothing(ledger: Ledger) -> None:
    leased = await submit_and_take(ledger)
    generated = await generate(ledger, leased)
    waiting = await checking(ledger)
    lost = await open_one(ledger, waiting)
    await ledger.attempts.close_attempts([closed_unknown(waiting, lost)])

    await ledger.cache.store_verdicts([NewVerdicts(one, ((key("a"), 1),)) for one in (generated.id, lost.id, new_id())])

    asked = [VerdictQuery(batch_id, (key("a"),)) for batch_id in (leased.batch_id, waiting.batch_id)]
    assert await ledger.cache.find_verdicts(asked) == [{}, {}]


@pytest.mark.parametrize("subject", ["postgres"], indirect=True)
@pytest.mark.parametrize("verb", ["erase", "delete"])
async def test_what_was_heard_is_gone_with_the_job_it_was_said_to(
    subject: Subject, postgres_database_url: str, verb: str
) -> None:
    ledger = subject.ledger
    assert isinstance(ledger, PostgresLedger)
    leased = await checking(ledger)
    await heard(ledger, leased, "a")
    await finish(ledger, leased)

    await (ledger.erasure.erase([leased.job_id], ACTOR) if verb == "erase" else ledger.erasure.delete([leased.job_id]))

    assert await ledger.cache.find_verdicts([VerdictQuery(leased.batch_id, (key("a"),))]) == [{}]
    with psycopg.connect(postgres_database_url) as connection:
        assert connection.execute("SELECT count(*) FROM judge_verdict").fetchone() == (0,)


@pytest.mark.parametrize("subject", ["postgres"], indirect=True)
async def test_what_is_noted_while_its_job_is_erased_is_not_left_behind(
    subject: Subject, postgres_database_url: str
) -> None:
    ledger = subject.ledger
    assert isinstance(ledger, PostgresLedger)
    leased = await checking(ledger)
    told = await heard(ledger, leased)
    await finish(ledger, leased)
    async with await psycopg.AsyncConnection.connect(postgres_database_url) as writer:
        # Noted, and not committed yet: the erasure has to wait for it, and to see it then.
        await writer.execute("INSERT INTO judge_verdict SELECT %s, %s, %s, 1", (leased.batch_id, key("a"), told.id))
        erasing = asyncio.create_task(ledger.erasure.erase([leased.job_id], ACTOR))
        done, _ = await asyncio.wait([erasing], timeout=timedelta(milliseconds=200).total_seconds())
        assert not done
        await writer.commit()
    await erasing

    with psycopg.connect(postgres_database_url) as connection:
        assert connection.execute("SELECT count(*) FROM judge_verdict").fetchone() == (0,)
