"""Erased content stays gone, also when an answer comes late; the accounting stays."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from schemas.failure import Failure, FailureKind
from schemas.job import Recheck, SourceContext
from schemas.model_call import ProviderSnapshot
from schemas.record import Quality
from schemas.states import JobState, Step
from tasks.errors import JobsRefused
from tasks.ports import Advance, JobView, Leased, NewAttempt, Rendered, Replay
from tasks.results import result_of
from tests.builders import (
    closed_error,
    closed_ok,
    make_answer,
    make_batch,
    make_config,
    make_final,
    make_job,
    make_prompt,
    make_record,
    make_request,
    new_id,
    to_check,
)
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    HOUR,
    finish,
    finished,
    generate,
    open_one,
    submit,
    submit_and_take,
    submit_many,
    take_one,
    view,
)
from tests.postgres import everything_in, until_one_waits
from worker.ledger.postgres import PostgresLedger
from worker.ledger.removal import TOMBSTONE, StoredJob
from worker.process.spool import Spool, spool_folder, write_back
from worker.scheduling.outbox import publish

CANARY = "canary-7d1f"


def telling_request(**changes: Any) -> Any:
    """A request with the canary wherever a producer can write."""
    fields: dict[str, Any] = {
        "query": f"{CANARY} query?",
        "context": (SourceContext(content=f"{CANARY} source", metadata={"title": CANARY}, sub_query=CANARY),),
        "config": make_config(role=CANARY, audience=CANARY),
        "system_instructions": CANARY,
        "conversation_history": ((CANARY, CANARY),),
        "custom_id": f"{CANARY} custom",
        "message_id": f"{CANARY} message",
        "idempotency_key": f"{CANARY} key",
        "retrieval_record_id": CANARY,
        "trace_id": CANARY,
        "request_id": CANARY,
        "intent": CANARY,
        "metadata": {CANARY: CANARY},
    }
    return make_request(fields.pop("query"), **{**fields, **changes})


async def telling_job(ledger: PostgresLedger, **changes: Any) -> Leased:
    """A job that failed once, was answered and finished, with the canary in everything written on its way."""
    batch = make_batch(key=f"{CANARY} batch", name=CANARY, defaults={"role": CANARY}, **changes)
    leased = await submit_and_take(ledger, telling_request(), batch)
    first = await open_one(ledger, leased)
    failure = Failure(kind=FailureKind.OVERLOADED, message=f"the provider repeats {CANARY}")
    again = Advance(JobState.AVAILABLE, Step.GENERATE, 0, event="retry")
    await ledger.attempts.close_attempts([closed_error(leased, first, failure=failure, then=again)])
    leased = await take_one(ledger, leased.job_id)
    await generate(ledger, leased, answer=make_answer(f"{CANARY} answer"))
    check = await take_one(ledger, leased.job_id, Step.CHECK)
    record = make_record(
        check,
        answer=CANARY, output_raw=CANARY, output_structured={CANARY: CANARY}, error_message=CANARY, failure=failure,
        retrieval_record_id=CANARY, trace_id=CANARY, request_id=CANARY,
        quality=Quality(reasoning=CANARY, warnings=(CANARY,)),
        provider_snapshot=ProviderSnapshot(
            provider="fake", request_id="req_1", parameters_sent={"stop": CANARY}, parameters_dropped={"x": CANARY}
        ),
    )  # fmt: skip
    assert await ledger.queue.finish([make_final(check, record=record)]) == {check.job_id}
    return check


async def test_nothing_of_the_content_is_left_in_any_table(ledger: PostgresLedger, postgres_database_url: str) -> None:
    job = await telling_job(ledger)
    assert everything_in(postgres_database_url).count(CANARY) > 30

    assert await ledger.erasure.erase([job.job_id], ACTOR) == {job.job_id: 1}
    assert await ledger.erasure.seal(job.batch_id)

    assert CANARY not in everything_in(postgres_database_url)
    assert not await ledger.erasure.seal(job.batch_id)
    assert await ledger.erasure.erase([job.job_id], ACTOR) == {}


async def test_packed_sources_are_erased(ledger: PostgresLedger, postgres_database_url: str) -> None:
    long = SourceContext(content=f"{CANARY} source. " * 500)
    job = await submit_and_take(ledger, make_request(context=(long,)))
    packed = "SELECT frame IS NOT NULL, head::text LIKE %s FROM job_request WHERE job_id = %s"
    with psycopg.connect(postgres_database_url, autocommit=True) as connection:
        assert connection.execute(packed, (f"%{CANARY}%", job.job_id)).fetchone() == (True, False)
        await ledger.actions.cancel([job.job_id], ACTOR)
        await ledger.erasure.erase([job.job_id], ACTOR)

        assert connection.execute(packed, (f"%{CANARY}%", job.job_id)).fetchone() == (False, False)
    assert (await ledger.reading.views([job.job_id]))[0].request == TOMBSTONE


async def test_the_messages_of_a_replay_are_erased_and_its_link_remains(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    origin = new_id()
    job = replace(make_job(telling_request()), replay=Replay(origin, make_prompt(f"{CANARY} messages")))
    receipt = await ledger.submission.submit(make_batch(), [[job]])
    await finish(ledger, await take_one(ledger, job.id))
    assert f"{CANARY} messages" in everything_in(postgres_database_url)

    await ledger.erasure.erase(receipt.job_ids, ACTOR)

    assert CANARY not in everything_in(postgres_database_url)
    assert (await view(ledger, job.id)).replay_of == origin


async def test_the_accounting_rows_remain(ledger: PostgresLedger) -> None:
    job = await telling_job(ledger)
    before, batch_before = await ledger.reading.job_detail(job.job_id), await ledger.reading.batch_status(job.batch_id)

    await ledger.erasure.erase([job.job_id], ACTOR)
    await ledger.erasure.seal(job.batch_id)

    after = await ledger.reading.job_detail(job.job_id)
    changed = {"custom_id", "request", "record", "erased_at"}
    unchanged_fields = [name for name in JobView.__dataclass_fields__ if name not in changed]
    assert [getattr(after.view, name) for name in unchanged_fields] == [
        getattr(before.view, name) for name in unchanged_fields
    ]
    paid = (
        "id", "run", "round", "purpose", "number", "provider", "model", "outcome", "spent", "usage", "cost_usd",
        "opened_at", "closed_at", "provider_request_id", "timing_ms",
    )  # fmt: skip
    assert [{name: attempt[name] for name in paid} for attempt in after.attempts] == [
        {name: attempt[name] for name in paid} for attempt in before.attempts
    ]
    assert [attempt["failure"] and attempt["failure"]["kind"] for attempt in after.attempts] == ["overloaded", None]
    assert after.completions == ()
    (record,) = after.records
    assert (record.model_name, record.status, record.usage) == ("fake-1", before.records[0].status, None)
    assert record.provider_snapshot is not None
    assert record.provider_snapshot.request_id == "req_1"
    assert [event["kind"] for event in after.events] == ["retry", "erased"]
    assert after.events[-1]["actor"] == ACTOR
    batch_fields = {"key", "name", "erased_at"}
    batch_after = await ledger.reading.batch_status(job.batch_id)
    assert batch_after.model_dump(exclude=batch_fields) == batch_before.model_dump(exclude=batch_fields)
    assert batch_after.spent_usd == Decimal("0.002")


async def test_the_result_of_an_erased_job_says_so(ledger: PostgresLedger) -> None:
    job = await telling_job(ledger)
    await ledger.erasure.erase([job.job_id], ACTOR)

    job_view = await view(ledger, job.job_id)
    result = result_of(job_view)

    assert job_view.request == TOMBSTONE
    assert job_view.erased_at is not None
    assert (result.state, result.query, result.response, result.citations) == (JobState.COMPLETED, "", "", ())
    assert result.warnings == (f"erased on {job_view.erased_at:%Y-%m-%d %H:%M} UTC",)
    assert [view.job_id async for view in ledger.reading.batch_views(job.batch_id)] == [job.job_id]
    assert [stored.result for stored in await ledger.reading.results([job.job_id])] == [result]


async def test_jobs_that_are_not_final_are_not_erased(ledger: PostgresLedger) -> None:
    receipt = await submit(ledger, make_request("A?"), make_request("B?"))
    running = await take_one(ledger, receipt.job_ids[0])

    assert await ledger.erasure.erase(receipt.job_ids, ACTOR) == {}

    assert (await view(ledger, running.job_id)).request.query == "A?"
    assert not await ledger.erasure.seal(receipt.batch_id)


async def test_an_answer_that_comes_late_is_paid_and_not_kept(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await ledger.actions.cancel([leased.job_id], ACTOR)
    await ledger.erasure.erase([leased.job_id], ACTOR)

    failure = Failure(kind=FailureKind.BAD_ANSWER, message=f"could not read {CANARY}")
    late = closed_ok(leased, attempt, answer=make_answer(CANARY), failure=failure, then=to_check(leased))
    assert await ledger.attempts.close_attempts([late]) == set()

    detail = await ledger.reading.job_detail(leased.job_id)
    assert detail.completions == ()
    assert (detail.attempts[0]["outcome"], Decimal(str(detail.attempts[0]["cost_usd"]))) == ("ok", Decimal("0.002"))
    assert detail.view.cost_usd == Decimal("0.002")
    assert CANARY not in everything_in(postgres_database_url)


async def spooled(leased: Leased, attempt: NewAttempt, home: Path) -> Path:
    """A spooled answer on the disk of a worker that lost the ledger and died."""
    failure = Failure(kind=FailureKind.BAD_ANSWER, message=f"the answer repeats {CANARY}")
    answer = closed_ok(leased, attempt, answer=make_answer(CANARY), failure=failure, then=to_check(leased))
    folder = spool_folder(home, new_id())
    spool = Spool(folder)
    await spool.keep([answer])
    spool.leave()
    assert CANARY in "".join(path.read_text() for path in folder.iterdir())
    return folder


@pytest.mark.parametrize("how", ["cancelled", "rescued", "erased_twice"])
async def test_a_spool_of_another_machine_brings_no_word_of_an_erased_job_and_all_of_its_cost(
    ledger: PostgresLedger, postgres_database_url: str, clock: Clock, tmp_path: Path, how: str
) -> None:
    leased = await submit_and_take(ledger, telling_request())
    attempt = await open_one(ledger, leased)
    folder = await spooled(leased, attempt, tmp_path / "other-machine")
    if how == "rescued":
        # Its lease ran out, the call counts as unknown, and another worker's was answered.
        await clock.advance(2 * HOUR)
        assert await ledger.duties.rescue(10, None) == [leased.job_id]
        again = await take_one(ledger, leased.job_id)
        await generate(ledger, again)
        check = await take_one(ledger, leased.job_id, Step.CHECK)
        await ledger.queue.finish([make_final(check)])
    else:
        await ledger.actions.cancel([leased.job_id], ACTOR)
    assert list(await ledger.erasure.erase([leased.job_id], ACTOR)) == [leased.job_id]
    assert await ledger.erasure.uncertain_calls([leased.job_id]) == 1
    if how == "erased_twice":
        assert await ledger.erasure.erase([leased.job_id], ACTOR) == {}
    assert CANARY not in everything_in(postgres_database_url)

    assert await write_back(Spool(folder), ledger.attempts) == 1

    assert not list(folder.iterdir())
    assert CANARY not in everything_in(postgres_database_url)
    detail = await ledger.reading.job_detail(leased.job_id)
    assert detail.completions == ()
    late = next(row for row in detail.attempts if str(row["id"]) == str(attempt.id))
    assert (late["outcome"], Decimal(str(late["cost_usd"]))) == ("ok", Decimal("0.002"))
    assert await ledger.erasure.uncertain_calls([leased.job_id]) == 0
    paid = Decimal("0.004") if how == "rescued" else Decimal("0.002")
    assert detail.view.cost_usd == paid
    assert await ledger.inspection.violations() == []


async def test_an_answer_that_is_being_written_while_its_job_is_erased_goes_with_it(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await ledger.actions.cancel([leased.job_id], ACTOR)
    async with await psycopg.AsyncConnection.connect(postgres_database_url) as writing:
        # As closing an attempt does it, before its commit.
        await writing.execute("SELECT FROM job WHERE id = %s FOR UPDATE", (leased.job_id,))
        await writing.execute(
            "INSERT INTO completion (attempt_id, job_id, run, round, purpose, won, finish_reason, parsed, prompt, frame) "
            "VALUES (%s, %s, 1, 0, 'generate', true, 'stop', '{}', '{}', %s)",
            (attempt.id, leased.job_id, CANARY.encode()),
        )
        erasing = asyncio.create_task(ledger.erasure.erase([leased.job_id], ACTOR))
        await until_one_waits(postgres_database_url)
        await writing.commit()
    assert list(await erasing) == [leased.job_id]

    assert CANARY not in everything_in(postgres_database_url)


async def test_an_erased_job_is_not_run_again(ledger: PostgresLedger, postgres_database_url: str) -> None:
    job_id = await finished(ledger)
    await ledger.erasure.erase([job_id], ACTOR)

    assert await ledger.actions.retry([job_id], ACTOR) == []
    assert await ledger.actions.recheck([job_id], Recheck(), ACTOR) == []
    # And not by any other way either.
    with psycopg.connect(postgres_database_url) as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("UPDATE job SET state = 'scheduled', finished_at = NULL, outcome = NULL")


@pytest.mark.parametrize("verb", ["erase", "delete"])
async def test_content_quoted_in_an_error_is_erased_with_its_job(
    ledger: PostgresLedger, postgres_database_url: str, verb: str
) -> None:
    job_id = await finished(ledger)
    with psycopg.connect(postgres_database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO quarantine (job_id, duty, reason, until) VALUES (%s, 'expire', %s, now())", (job_id, CANARY)
        )

    await (ledger.erasure.erase([job_id], ACTOR) if verb == "erase" else ledger.erasure.delete([job_id]))

    assert CANARY not in everything_in(postgres_database_url)


async def test_keys_are_forgotten_with_the_content(ledger: PostgresLedger) -> None:
    batch = make_batch(key="k")
    first = await submit(ledger, make_request("A?", idempotency_key="i", message_id="m"), batch=batch)
    with pytest.raises(JobsRefused):
        await submit(ledger, make_request("B?", idempotency_key="i"))
    await ledger.actions.cancel(first.job_ids, ACTOR)
    await ledger.erasure.erase(first.job_ids, ACTOR)
    await ledger.erasure.seal(first.batch_id)

    again = await submit(ledger, make_request("B?", idempotency_key="i", message_id="m"), batch=make_batch(key="k"))

    assert again.created
    assert again.job_ids != first.job_ids


class Board:
    """Stands for the result backend: the ledger is erased while the results are on their way to it."""

    def __init__(self, ledger: PostgresLedger) -> None:
        self.ledger = ledger
        self.results: dict[UUID, bytes] = {}

    async def publish(self, results: list[Rendered]) -> dict[UUID, Exception]:
        await self.ledger.erasure.erase([result.job_id for result in results], ACTOR)
        await self.forget([result.job_id for result in results])
        self.results |= {result.job_id: result.result for result in results}
        return {}

    async def withdraw(self, results: list[tuple[UUID, int]]) -> None:
        await self.forget([job_id for job_id, _ in results])

    async def forget(self, ids: list[UUID]) -> None:
        for job_id in ids:
            self.results.pop(job_id, None)


async def test_a_result_on_its_way_while_its_job_is_erased_is_taken_back(ledger: PostgresLedger) -> None:
    job = await telling_job(ledger)
    board = Board(ledger)

    await publish(ledger.outbox, board, await ledger.outbox.unpublished(10, timedelta(0)))  # type: ignore[arg-type]

    assert (await view(ledger, job.job_id)).erased_at is not None
    assert board.results == {}


# ---- age -------------------------------------------------------------------------------------------------------


async def prunable_jobs(ledger: PostgresLedger, batch: UUID, age: timedelta) -> list[StoredJob]:
    return [stored_job async for page in ledger.erasure.job_pages(batch, age) for stored_job in page]


async def batches(ledger: PostgresLedger, tenant: str | None, age: timedelta, *, rows: bool = False) -> list[UUID]:
    return [batch async for batch in ledger.erasure.old_batches(tenant, age, rows=rows)]


async def test_age_counts_from_the_end_of_the_job(ledger: PostgresLedger, clock: Clock) -> None:
    receipt = await submit_many(ledger, 3)
    await ledger.actions.cancel(receipt.job_ids[:1], ACTOR)
    await clock.advance(HOUR)
    await ledger.actions.cancel(receipt.job_ids[1:2], ACTOR)

    old = await prunable_jobs(ledger, receipt.batch_id, HOUR)

    assert [stored_job.job_id for stored_job in old] == list(receipt.job_ids)
    assert [stored_job.due for stored_job in old] == [True, False, False]
    assert [stored_job.due for stored_job in await prunable_jobs(ledger, receipt.batch_id, timedelta(0))] == [
        True,
        True,
        False,
    ]


async def test_batches_come_oldest_first_by_tenant_until_nothing_is_left(
    ledger: PostgresLedger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.ledger.pages.PAGE_ROWS", 1)
    first = await submit_many(ledger, 2, make_batch(tenant="a"))
    await clock.advance(HOUR)
    other, second = (
        await submit(ledger, batch=make_batch(tenant="b")),
        await submit(ledger, batch=make_batch(tenant="a")),
    )

    assert await batches(ledger, None, timedelta(0)) == [first.batch_id, other.batch_id, second.batch_id]
    assert await batches(ledger, "a", timedelta(0)) == [first.batch_id, second.batch_id]
    assert await batches(ledger, None, HOUR) == [first.batch_id]

    await ledger.actions.cancel(first.job_ids, ACTOR)
    await ledger.erasure.erase(first.job_ids, ACTOR)
    await ledger.erasure.seal(first.batch_id)
    assert await batches(ledger, "a", timedelta(0)) == [second.batch_id]
    assert await batches(ledger, "a", timedelta(0), rows=True) == [first.batch_id, second.batch_id]

    await ledger.erasure.delete(first.job_ids)
    assert await batches(ledger, "a", timedelta(0), rows=True) == [second.batch_id]


@pytest.mark.parametrize("deleted", [(0,), (1,), (2,), (1, 2), (0, 1, 2)], ids=str)
async def test_money_adds_up_whichever_jobs_are_deleted(
    ledger: PostgresLedger, postgres_database_url: str, deleted: tuple[int, ...]
) -> None:
    receipt = await submit_many(ledger, 3)
    for job_id in receipt.job_ids:
        leased = await take_one(ledger, job_id)
        await generate(ledger, leased)
        check = await take_one(ledger, job_id, Step.CHECK)
        assert await ledger.queue.finish([make_final(check)]) == {job_id}

    await ledger.erasure.delete([receipt.job_ids[at] for at in deleted])
    assert await ledger.inspection.violations() == []
    assert (await ledger.reading.batch_status(receipt.batch_id)).spent_usd == Decimal("0.006")

    # What is missing or too much is still found, also where jobs are missing.
    for wrong in ("+ 0.001", "- 0.001"):
        with psycopg.connect(postgres_database_url, autocommit=True) as connection:
            connection.execute(f"UPDATE batch SET spent_usd = 0.006 {wrong}".encode())
        assert [violation.name for violation in await ledger.inspection.violations()] == ["batch_spent_is_the_sum"]


async def test_a_job_with_an_open_call_is_not_deleted(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await ledger.actions.cancel([leased.job_id], ACTOR)

    assert (await ledger.erasure.delete([leased.job_id])).runs == {}

    await ledger.attempts.close_attempts([closed_error(leased, attempt)])
    assert (await ledger.erasure.delete([leased.job_id])).runs == {leased.job_id: 1}
