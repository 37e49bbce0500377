"""Refused and repeated lines of a batch are stored beside its jobs, once, until the batch is erased."""

from dataclasses import replace

import pytest

from tasks.errors import JobsRefused
from tasks.ports import InputLine, NewBatch, NewJob, Refused, Repeated
from tasks.submit import submit as submit_message
from tests.builders import make_batch, make_jobs, make_request
from tests.contract.situations import ACTOR, submit
from tests.postgres import everything_in
from worker.ledger.postgres import PostgresLedger
from worker.ledger.submission import MOST_CHARACTERS

BAD = Refused(1, "config.mode: no such mode", "config.mode", "q1", "in.jsonl, line 2")


async def lines(ledger: PostgresLedger, batch: NewBatch) -> list[InputLine]:
    return [line async for line in ledger.reading.input_lines(batch.id)]


def at(job: NewJob, position: int) -> NewJob:
    return replace(job, position=position)


async def test_refused_lines_are_read_by_position_with_their_reasons(ledger: PostgresLedger) -> None:
    batch = make_batch()
    (job,) = make_jobs(make_request("A?"))
    bare = Refused(2, "no")
    await ledger.submission.submit(batch, [[at(job, 0)]], refused=[bare, BAD])
    assert await lines(ledger, batch) == [BAD, bare]


async def test_jobs_that_the_ledger_refuses_or_knows_stand_there_with_their_place(ledger: PostgresLedger) -> None:
    old = await submit(ledger, make_request("A?", idempotency_key="a"), make_request("B?", idempotency_key="b"))
    batch = make_batch()
    known_job, conflict, new = make_jobs(
        make_request("A?", idempotency_key="a"), make_request("other", idempotency_key="b"), make_request("C?")
    )
    jobs = [at(known_job, 4), replace(at(conflict, 5), place="in.jsonl, line 6"), at(new, 6)]

    receipt = await ledger.submission.submit(batch, [jobs], refused=[BAD])

    assert dict(receipt.elsewhere) == {4: old.job_ids[0]}
    first, repeated, last = await lines(ledger, batch)
    assert (first, repeated) == (BAD, Repeated(4, old.job_ids[0]))
    assert isinstance(last, Refused)
    assert (last.position, last.field, last.place) == (5, "idempotency_key", "in.jsonl, line 6")
    assert "was used before" in str(last)


async def test_refused_jobs_of_a_message_are_stored_with_its_batch(ledger: PostgresLedger) -> None:
    batch = make_batch()
    answer = await submit_message(
        ledger.submission, [{"query": "A?"}, {"query": "B?", "config": {"mode": "no"}}], batch=batch
    )
    (line,) = await lines(ledger, batch)
    assert answer.refused == (line,)
    assert (line.position, line.field, line.place) == (1, "config.mode", None)


async def test_a_batch_handed_in_again_does_not_double_its_lines(ledger: PostgresLedger) -> None:
    batch = make_batch(key="night")
    (job,) = make_jobs(make_request("A?"))
    await ledger.submission.submit(batch, [[at(job, 0)]], refused=[BAD])

    again = await ledger.submission.submit(make_batch(key="night"), [[at(job, 0)]], refused=[BAD])

    assert (again.batch_id, again.created) == (batch.id, False)
    assert await lines(ledger, batch) == [BAD]


async def test_nothing_is_kept_where_no_batch_is_written(ledger: PostgresLedger) -> None:
    await submit(ledger, make_request("A?", idempotency_key="a"))
    known_job, conflict = make_jobs(make_request("A?", idempotency_key="a"), make_request("B?", idempotency_key="a"))
    nothing_new, all_refused = make_batch(), make_batch()

    await ledger.submission.submit(nothing_new, [[at(known_job, 0)]], refused=[BAD])
    with pytest.raises(JobsRefused):
        await ledger.submission.submit(all_refused, [[at(conflict, 0)]], refused=[BAD])

    assert await lines(ledger, nothing_new) == await lines(ledger, all_refused) == []


async def test_a_line_takes_bounded_room_and_holds_nothing_that_can_not_be_stored(ledger: PostgresLedger) -> None:
    batch = make_batch()
    (job,) = make_jobs(make_request("A?"))
    await ledger.submission.submit(
        batch,
        [[at(job, 0)]],
        refused=[Refused(1, "m" * 9_999, "f" * 9_999, "c" * 9_999, "p" * 9_999), Refused(2, "\x00\ud800")],
    )
    long, odd = await lines(ledger, batch)
    assert isinstance(long, Refused)
    assert {name: len(getattr(long, name)) for name in MOST_CHARACTERS} == MOST_CHARACTERS
    assert odd == Refused(2, "\N{REPLACEMENT CHARACTER}?")


async def test_the_lines_go_when_the_batch_is_erased_or_its_jobs_are_deleted(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    for remove in (lambda ids: ledger.erasure.erase(ids, ACTOR), ledger.erasure.delete):
        batch = make_batch()
        (job,) = make_jobs(make_request("A?"))
        receipt = await ledger.submission.submit(batch, [[at(job, 0)]], refused=[replace(BAD, message="canary-5e1d")])
        assert "canary-5e1d" in everything_in(postgres_database_url)
        assert not await ledger.erasure.seal(batch.id)
        assert len(await lines(ledger, batch)) == 1
        await ledger.actions.cancel(receipt.job_ids, ACTOR)

        await remove(receipt.job_ids)

        assert await ledger.erasure.seal(batch.id)
        assert await lines(ledger, batch) == []
        assert "canary-5e1d" not in everything_in(postgres_database_url)
