"""Submission: all or none, ids by position, and what a repeated key means."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import psycopg
import pytest

from schemas.job import SourceContext
from schemas.states import JobState, Step
from tasks.errors import IdempotencyConflict, JobsRefused, NotFound
from tasks.ports import HintKey, NewJob
from tests.builders import make_batch, make_config, make_job, make_jobs, make_request
from tests.contract.conftest import Clock
from tests.contract.situations import HOUR, states, submit, submit_many, take, take_one, view
from worker.ledger.postgres import PostgresLedger


async def test_ids_are_by_position_over_all_chunks(ledger: PostgresLedger) -> None:
    jobs = make_jobs(*(make_request(f"Question {n}?") for n in range(5)))
    batch = make_batch(name="evening")

    receipt = await ledger.submission.submit(batch, [jobs[:2], jobs[2:4], jobs[4:]])

    assert receipt.batch_id == batch.id
    assert receipt.created
    assert receipt.job_ids == tuple(job.id for job in jobs)
    assert receipt.existing == frozenset()
    assert receipt.hints == {HintKey(Step.GENERATE, urgent=False)}
    views = await ledger.reading.views(receipt.job_ids)
    assert [(view.position, view.request.query) for view in views] == [(n, f"Question {n}?") for n in range(5)]


async def test_the_request_comes_back_as_it_was_handed_in(ledger: PostgresLedger) -> None:
    request = make_request(
        'Wann ist es fertig? \u2014 \u65b0\u805e \U0001f4f0\n\t"quoted" \\ \'; drop table job; --',
        context=(
            SourceContext(content="x" * 300_000, metadata={"title": "long", "page": 3, "deep": {"a": [1, None, True]}}),
            SourceContext(content="\u00e4\u00f6\u00fc \u200d zero width", relevance_score=0.25),
        ),
        config=make_config(temperature=0.5, max_tokens=77),
        conversation_history=(("user", "hello"), ("assistant", "hi")),
        metadata={"order": [3, 1, 2], "empty": {}, "unicode": "\u00df"},
    )
    receipt = await submit(ledger, request)

    assert (await view(ledger, receipt.job_ids[0])).request == request
    assert (await take_one(ledger, receipt.job_ids[0])).request == request


async def test_a_check_only_job_starts_at_the_check(ledger: PostgresLedger) -> None:
    receipt = await submit(ledger, make_request("", response="It is ready."))

    assert await take(ledger, receipt.job_ids, Step.GENERATE) == []
    leased = await take_one(ledger, receipt.job_ids[0], Step.CHECK)
    assert leased.request.response == "It is ready."
    assert leased.stored is None


# ---- when ------------------------------------------------------------------------------------------------------


async def test_a_job_of_the_future_waits_and_one_of_the_past_does_not(ledger: PostgresLedger, clock: Clock) -> None:
    receipt = await submit(
        ledger, make_request(scheduled_at=clock.now() + HOUR), make_request(scheduled_at=clock.now() - HOUR)
    )

    assert await states(ledger, receipt.job_ids) == [JobState.SCHEDULED, JobState.AVAILABLE]


async def test_the_batch_says_when_for_jobs_that_do_not(ledger: PostgresLedger, clock: Clock) -> None:
    not_before = clock.now() + HOUR
    receipt = await submit_many(ledger, 2, batch=make_batch(not_before=not_before))

    assert await states(ledger, receipt.job_ids) == [JobState.SCHEDULED] * 2
    assert not receipt.hints
    assert (await view(ledger, receipt.job_ids[0])).scheduled_at == not_before


async def test_the_batch_gives_its_deadline_to_jobs_without_one(ledger: PostgresLedger, clock: Clock) -> None:
    early, late = clock.now() + HOUR, clock.now() + 2 * HOUR
    receipt = await submit(ledger, make_request(), make_request(deadline=early), batch=make_batch(deadline=late))

    leased = await take(ledger, receipt.job_ids)

    assert {job.position: job.deadline for job in leased} == {0: late, 1: early}


# ---- the batch's key -------------------------------------------------------------------------------------------


async def test_a_known_batch_key_returns_the_same_jobs(ledger: PostgresLedger) -> None:
    requests = [make_request(f"Question {n}?") for n in range(3)]
    first = await submit(ledger, *requests, batch=make_batch(key="tuesday"))

    again = await submit(ledger, *requests, batch=make_batch(key="tuesday"))

    assert not again.created
    assert (again.batch_id, again.job_ids) == (first.batch_id, first.job_ids)
    assert [batch.batch_id for batch in await ledger.reading.batches(10)] == [first.batch_id]


@pytest.mark.parametrize("queries", [["A?", "other"], ["A?"], ["A?", "B?", "C?"], ["B?", "A?"]])
async def test_a_known_batch_key_with_other_jobs_is_refused(ledger: PostgresLedger, queries: list[str]) -> None:
    await submit(ledger, make_request("A?"), make_request("B?"), batch=make_batch(key="tuesday"))
    second = make_batch(key="tuesday")

    with pytest.raises(IdempotencyConflict):
        await submit(ledger, *map(make_request, queries), batch=second)

    with pytest.raises(NotFound):
        await ledger.reading.batch_status(second.id)


async def test_a_batch_key_belongs_to_its_tenant(ledger: PostgresLedger) -> None:
    first_batch = await submit(ledger, make_request("A?"), batch=make_batch("desk", key="tuesday"))
    other_batch = await submit(ledger, make_request("B?"), batch=make_batch("other", key="tuesday"))

    assert other_batch.created
    assert other_batch.batch_id != first_batch.batch_id


# ---- a job's idempotency key -----------------------------------------------------------------------------------


async def test_a_known_idempotency_key_returns_the_old_job(ledger: PostgresLedger) -> None:
    old = await submit(ledger, make_request("A?", idempotency_key="a"))
    batch = make_batch()

    receipt = await submit(ledger, make_request("B?"), make_request("A?", idempotency_key="a"), batch=batch)

    assert receipt.created
    assert receipt.existing == {1}
    assert receipt.job_ids[1] == old.job_ids[0]
    assert (await ledger.reading.batch_status(batch.id)).jobs == 1
    assert (await view(ledger, old.job_ids[0])).batch_id == old.batch_id


@pytest.mark.parametrize("chunks", [1, 3])
async def test_a_job_with_a_used_key_is_named_and_the_others_are_written(ledger: PostgresLedger, chunks: int) -> None:
    old = await submit(ledger, make_request("A?", idempotency_key="a"))
    batch = make_batch()
    jobs = make_jobs(
        make_request("B?"), make_request("changed", idempotency_key="a", custom_id="c"), make_request("C?")
    )

    receipt = await ledger.submission.submit(batch, [jobs] if chunks == 1 else [[job] for job in jobs])

    (refused,) = receipt.refused
    assert (refused.position, refused.field, refused.custom_id) == (1, "idempotency_key", "c")
    assert f"'a' was used before for job {old.job_ids[0]} with a different request" in refused.message
    assert receipt.job_ids == (jobs[0].id, jobs[2].id)
    assert receipt.ids_by_position(range(3)) == {0: jobs[0].id, 2: jobs[2].id}
    assert (await ledger.reading.batch_status(batch.id)).jobs == 2


async def test_all_or_none_writes_nothing_where_one_job_is_refused(ledger: PostgresLedger) -> None:
    await submit(ledger, make_request("A?", idempotency_key="a"))
    batch = make_batch()
    jobs = make_jobs(make_request("B?"), make_request("changed", idempotency_key="a"))

    with pytest.raises(JobsRefused) as refused:
        await ledger.submission.submit(batch, [jobs[:1], jobs[1:]], strict=True)

    assert [problem.position for problem in refused.value.refused] == [1]
    assert refused.value.field == "idempotency_key"
    assert await ledger.reading.views([job.id for job in jobs]) == []
    with pytest.raises(NotFound):
        await ledger.reading.batch_status(batch.id)


async def test_a_submission_of_known_jobs_alone_makes_no_batch(ledger: PostgresLedger) -> None:
    first = await submit(ledger, *(make_request(f"{n}?", idempotency_key=str(n)) for n in range(3)))
    second = await submit(ledger, make_request("3?", idempotency_key="3"))
    batch = make_batch(key="again")

    receipt = await submit(ledger, *(make_request(f"{n}?", idempotency_key=str(n)) for n in range(4)), batch=batch)

    assert (receipt.created, receipt.nothing_new) == (False, True)
    assert receipt.job_ids == (*first.job_ids, *second.job_ids)
    assert receipt.holders == {first.batch_id: 3, second.batch_id: 1}
    assert receipt.batch_id == first.batch_id
    assert {batch.batch_id for batch in await ledger.reading.batches(9)} == {first.batch_id, second.batch_id}


async def test_a_batch_submitted_again_refuses_the_same_jobs(ledger: PostgresLedger) -> None:
    await submit(ledger, make_request("A?", idempotency_key="a"))
    requests = (make_request("B?"), make_request("changed", idempotency_key="a"), make_request("C?"))
    first = await submit(ledger, *requests, batch=make_batch(key="k"))

    again = await submit(ledger, *requests, batch=make_batch(key="k"))

    assert (again.created, again.batch_id, again.job_ids) == (False, first.batch_id, first.job_ids)
    assert again.refused == first.refused
    with pytest.raises(JobsRefused):
        await ledger.submission.submit(make_batch(key="k"), [make_jobs(*requests)], strict=True)


@pytest.mark.parametrize("chunks", [1, 2])
async def test_an_own_id_that_another_job_has_is_named_as_such(ledger: PostgresLedger, chunks: int) -> None:
    old = make_job(make_request("A?"))
    await ledger.submission.submit(make_batch(), [[old]])
    same = replace(make_job(make_request("B?"), position=1), id=old.id)
    key = replace(make_job(make_request("C?"), position=2), id=old.id, idempotency_key=f"job:{old.id}")
    jobs = [make_job(), same, key]

    receipt = await ledger.submission.submit(make_batch(), [jobs] if chunks == 1 else [jobs[:2], jobs[2:]])

    assert [(problem.position, problem.field) for problem in receipt.refused] == [(1, "job_id"), (2, "job_id")]
    assert receipt.job_ids == (jobs[0].id,)


async def test_an_idempotency_key_belongs_to_its_tenant(ledger: PostgresLedger) -> None:
    await submit(ledger, make_request("A?", idempotency_key="a"), batch=make_batch("desk"))
    other_batch = await submit(ledger, make_request("B?", idempotency_key="a"), batch=make_batch("other"))

    assert other_batch.existing == frozenset()


@pytest.mark.parametrize("chunks", [1, 2])
async def test_an_idempotency_key_twice_in_a_submission_is_one_job(ledger: PostgresLedger, chunks: int) -> None:
    jobs = make_jobs(*[make_request("A?", idempotency_key="a")] * 2)
    batch = make_batch()

    receipt = await ledger.submission.submit(batch, [jobs] if chunks == 1 else [jobs[:1], jobs[1:]])

    assert receipt.job_ids == (jobs[0].id, jobs[0].id)
    assert receipt.existing == {1}
    assert (await ledger.reading.batch_status(batch.id)).jobs == 1


# ---- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [1, 2])
async def test_a_custom_id_twice_in_a_batch_is_refused(ledger: PostgresLedger, chunks: int) -> None:
    jobs = make_jobs(make_request("A?", custom_id="same"), make_request("B?", custom_id="same"))

    receipt = await ledger.submission.submit(make_batch(), [jobs] if chunks == 1 else [jobs[:1], jobs[1:]])

    (refused,) = receipt.refused
    assert (refused.position, refused.field) == (1, "custom_id")
    assert receipt.job_ids == (jobs[0].id,)


async def test_a_message_id_twice_in_a_tenant_is_refused(ledger: PostgresLedger) -> None:
    await submit(ledger, make_request("A?", message_id="m-1"))
    jobs = make_jobs(make_request("B?"), make_request("C?", message_id="m-1"))

    receipt = await ledger.submission.submit(make_batch(), [jobs])

    assert [(problem.position, problem.field) for problem in receipt.refused] == [(1, "message_id")]
    assert receipt.job_ids == (jobs[0].id,)
    assert (await submit(ledger, make_request("C?", message_id="m-1"), batch=make_batch("other"))).created


@pytest.mark.parametrize("first", ["job", "message", "neither"])
async def test_a_message_id_that_is_the_id_of_another_job_is_refused(ledger: PostgresLedger, first: str) -> None:
    job = make_job(make_request("A?"))
    message = make_job(make_request("B?", message_id=str(job.id)), position=1)
    order = [message, job] if first == "message" else [job, message]
    chunks = [order] if first == "neither" else [[new_job] for new_job in order]
    if first != "neither":
        await ledger.submission.submit(make_batch(), [chunks.pop(0)])

    # With a job of its own, so that the other one is refused alone.
    receipt = await ledger.submission.submit(make_batch(), [[make_job(position=9)], *chunks])

    # The field that its producer sent: a job without a message id is known by its own id.
    (refused,) = receipt.refused
    assert refused.field == ("job_id" if first == "message" else "message_id")
    assert str(job.id) in refused.message


async def test_a_submission_that_breaks_off_leaves_nothing(ledger: PostgresLedger) -> None:
    jobs = [make_job(position=position) for position in range(3)]
    batch = make_batch(key="tuesday")

    def broken() -> Iterator[Sequence[NewJob]]:
        yield jobs[:2]
        raise ConnectionAbortedError("the producer went away")

    with pytest.raises(ConnectionAbortedError):
        await ledger.submission.submit(batch, broken())

    assert await ledger.reading.views([job.id for job in jobs]) == []
    receipt = await ledger.submission.submit(batch, [jobs])
    assert (receipt.created, receipt.job_ids) == (True, tuple(job.id for job in jobs))


async def test_a_submission_whose_ids_others_take_again_and_again_is_to_be_sent_again(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    with psycopg.connect(postgres_database_url, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION be_first() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE unique_violation; END $$; "
            "CREATE TRIGGER be_first BEFORE INSERT ON job FOR EACH ROW EXECUTE FUNCTION be_first()"
        )

    with pytest.raises(IdempotencyConflict, match="submit again"):
        await submit_many(ledger, 2)
