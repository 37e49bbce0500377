"""Reading: views, counts and the audit trail say what was written."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from schemas.claim_error import ErrorKind
from schemas.grounding import Grounding
from schemas.model_call import Ask, Prompt, Usage
from schemas.record import Quality, TimingMs
from schemas.states import HeldReason, JobState, Outcome, Step
from tasks.ports import Replay
from tasks.results import Findings, completed, poll, result_of
from tests.builders import (
    closed_error,
    closed_unknown,
    later,
    lease_key,
    make_batch,
    make_config,
    make_failed,
    make_final,
    make_job,
    make_prompt,
    make_record,
    make_request,
    new_id,
)
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    HOUR,
    LEASE,
    SECOND,
    finish,
    generate,
    lines_of,
    open_one,
    submit,
    submit_and_take,
    submit_many,
    take,
    take_one,
)
from worker.ledger import pages
from worker.ledger.postgres import PostgresLedger


@pytest.mark.parametrize("prompt", [None, make_prompt()])
async def test_a_replay_names_its_origin_and_brings_the_messages_to_send(
    ledger: PostgresLedger, prompt: Prompt | None
) -> None:
    plain, origin = make_job(make_request("Why?")), new_id()
    again = replace(make_job(make_request(), position=1), replay=Replay(origin, prompt))
    await ledger.submission.submit(make_batch(), [[plain, again]])

    first, second = await take(ledger, [plain.id, again.id])
    await finish(ledger, second, record=completed(second, Outcome.NO_EVIDENCE, Findings(), TimingMs()).record)
    await ledger.actions.cancel([first.job_id], ACTOR)

    assert (first.replay, second.replay) == (None, Replay(origin, prompt))
    views = await ledger.reading.views([plain.id, again.id])
    assert [(view.replay_of, view.record and view.record.replay_of) for view in views] == [
        (None, None),
        (origin, origin),
    ]
    assert [result_of(view).replay_of for view in views] == [None, origin]


async def test_lines_of_a_batch_come_by_position_over_gaps_and_pages(
    ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_ROWS", 4)
    positions = [0, 1, 2, 9, 10, 31]
    jobs = [make_job(make_request(f"Question {position}?"), position=position) for position in positions]
    receipt = await ledger.submission.submit(make_batch(), [jobs])
    for job in await take(ledger, [jobs[1].id, jobs[4].id]):
        await finish(ledger, job)

    lines = await lines_of(ledger, receipt.batch_id)

    assert [line.position for line in lines] == positions
    assert [line.state == "completed" for line in lines] == [position in {1, 10} for position in positions]
    assert await lines_of(ledger, new_id()) == []


async def test_stored_results_are_byte_for_byte_those_made_of_views(ledger: PostgresLedger) -> None:
    ids = list((await submit_many(ledger, 2)).job_ids)
    ids += (
        await submit(ledger, make_request(metadata={"a": 0.1, "é": [1e-7, 2.0, None]}, trace_id="t", message_id="m"))
    ).job_ids
    ids += [(await submit(ledger, make_request(context=["one", "two"], custom_id=name))).job_ids[0] for name in "abc"]
    running, rich, failing, plain, blank = await take(ledger, ids[1:])
    record = make_record(
        rich,
        answer="Noon \u2028 ...",
        quality=Quality(answer_quality=0.1, sufficient_context=True, reasoning="r", warnings=("one", "two")),
        grounding=Grounding(grounding_score=1e-5, confidence=0.30000000000000004, errors={ErrorKind.DATE: 2}),
        asks=(Ask(round=0, level=1, purpose="generate", model="m"),),
        output_structured={"z": 1.0, "a": {"b": [True, None]}},
        usage=Usage(input_tokens=3, output_tokens=4),
        timing_ms=TimingMs(total=12.345, llm=1e-3),
    )
    await finish(ledger, rich, record=record)
    await ledger.queue.finish(
        [make_failed(failing), make_final(plain), make_final(blank, record=make_record(blank, answer=" "))]
    )

    results = await ledger.reading.results([*ids, new_id()])

    assert [stored.result.job_id for stored in results] == ids
    views = await ledger.reading.views(ids)
    assert [stored.result.model_dump_json() for stored in results] == [
        result_of(view).model_dump_json() for view in views
    ]
    assert [stored.errors for stored in results] == [{}, {}, {ErrorKind.DATE: 2}, {}, {}, {}]
    assert [stored.result.job_id for stored in results if stored.result.state is JobState.RUNNING] == [running.job_id]
    assert await poll(ledger.reading, [new_id(), *ids]) == [None, *(stored.result for stored in results)]
    for at, job_id in enumerate(ids):
        lines = await lines_of(ledger, results[at].result.batch_id)
        assert results[at].line() in lines, job_id


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (10**22, b"10000000000000000000000"),
        (-(2**63), b"-9223372036854775808"),
        (1e-7, b"1e-7"),
    ],
)
async def test_the_line_of_a_result_keeps_numbers_of_any_size(
    ledger: PostgresLedger, number: float, text: bytes
) -> None:
    receipt = await submit(ledger, make_request(metadata={"number": number}))
    (job,) = await take(ledger, receipt.job_ids)
    await finish(ledger, job)

    (line,) = await lines_of(ledger, receipt.batch_id)

    assert b'"number":%b}' % text in line.content


async def test_a_batch_tells_what_it_was_given(ledger: PostgresLedger, clock: Clock) -> None:
    not_before, deadline = clock.now() + HOUR, clock.now() + 2 * HOUR
    batch = make_batch(
        "press",
        key="tuesday",
        name="Tuesday's copy",
        not_before=not_before,
        deadline=deadline,
        max_cost_usd=Decimal("12.5"),
        defaults={"max_tokens": 50},
    )
    await submit(ledger, batch=batch)

    status = await ledger.reading.batch_status(batch.id)

    assert (status.batch_id, status.tenant, status.key, status.name) == (batch.id, "press", "tuesday", batch.name)
    assert (status.not_before, status.deadline, status.max_cost_usd) == (not_before, deadline, Decimal("12.5"))
    assert abs(status.created_at - clock.now()) < 10 * SECOND
    assert (status.paused, status.cancelled_at, status.reserved_usd, status.spent_usd) == (False, None, 0, 0)


async def test_a_batch_counts_its_jobs(ledger: PostgresLedger, clock: Clock) -> None:
    receipt = await submit(
        ledger,
        *(make_request(f"{n}?") for n in range(7)),
        make_request("later?", scheduled_at=clock.now() + HOUR),
    )
    leased = await take(ledger, receipt.job_ids[:6])
    await ledger.queue.finish([make_final(leased[0]), make_final(leased[1], outcome=Outcome.REFUSED)])
    await ledger.queue.finish([make_failed(leased[2])])
    await ledger.actions.cancel([leased[3].job_id], ACTOR)
    await ledger.queue.defer(lease_key(leased[4]), later(leased[4], held_reason=HeldReason.BUDGET))
    await ledger.outbox.mark_published([(leased[0].job_id, leased[0].run)])
    await submit_many(ledger, 2)

    status = await ledger.reading.batch_status(receipt.batch_id)

    assert status.jobs == 8
    assert {state: number for state, number in status.states.items() if number} == {
        JobState.COMPLETED: 2,
        JobState.FAILED: 1,
        JobState.CANCELLED: 1,
        JobState.SCHEDULED: 2,
        JobState.RUNNING: 1,
        JobState.AVAILABLE: 1,
    }
    assert {key: n for key, n in status.outcomes.items() if n} == {Outcome.ANSWERED: 1, Outcome.REFUSED: 1}
    assert {key: n for key, n in status.held.items() if n} == {HeldReason.BUDGET: 1}
    assert (status.final, status.unpublished) == (4, 3)


async def test_a_batch_sums_the_kinds_of_error_of_its_answers(ledger: PostgresLedger) -> None:
    receipt, other = await submit_many(ledger, 6), await submit_many(ledger, 1)
    kinds: list[dict[ErrorKind, int] | None] = [
        {ErrorKind.NUMBER: 2, ErrorKind.NAME: 1}, {ErrorKind.NUMBER: 1, ErrorKind.ABSENT: 12}, {}, None,
    ]  # fmt: skip
    jobs = await take(ledger, [*receipt.job_ids[:4], *other.job_ids])
    for job, errors in zip(jobs, [*kinds, {ErrorKind.ROLE: 5}], strict=True):
        grounding = None if errors is None else Grounding(grounding_score=None, errors=errors)
        await finish(ledger, job, record=make_record(job, grounding=grounding))

    summed = await ledger.reading.error_kinds(receipt.batch_id)

    assert list(summed.items()) == [(ErrorKind.ABSENT, 12), (ErrorKind.NUMBER, 3), (ErrorKind.NAME, 1)]
    assert await ledger.reading.error_kinds(new_id()) == {}
    assert (await ledger.reading.batch_status(receipt.batch_id)).errors is None


async def test_the_kinds_of_error_of_a_job_that_runs_again_do_not_count(ledger: PostgresLedger) -> None:
    job = await submit_and_take(ledger)
    await finish(
        ledger, job, record=make_record(job, grounding=Grounding(grounding_score=None, errors={ErrorKind.DATE: 2}))
    )
    assert await ledger.reading.error_kinds(job.batch_id) == {ErrorKind.DATE: 2}

    await ledger.actions.retry([job.job_id], ACTOR)
    await ledger.duties.promote(10)
    assert await ledger.reading.error_kinds(job.batch_id) == {}
    again = await take_one(ledger, job.job_id)
    await finish(
        ledger, again, record=make_record(again, grounding=Grounding(grounding_score=None, errors={ErrorKind.ROLE: 1}))
    )

    assert await ledger.reading.error_kinds(job.batch_id) == {ErrorKind.ROLE: 1}


async def test_a_call_made_again_after_an_unknown_one_is_shown(ledger: PostgresLedger) -> None:
    batch = make_batch()
    again, alone, plain, free = await take(ledger, (await submit_many(ledger, 4, batch=batch)).job_ids)
    for detail_of in (again, alone, free):
        attempt = await open_one(ledger, detail_of, reserved_usd=Decimal(0) if detail_of is free else None)
        await ledger.attempts.close_attempts([closed_unknown(detail_of, attempt)])
    attempt = await open_one(ledger, plain)
    await ledger.attempts.close_attempts([closed_error(plain, attempt)])
    await generate(ledger, plain)
    assert (await ledger.reading.batch_status(batch.id)).possibly_billed_twice == 0

    await open_one(ledger, again, number=2)
    await open_one(ledger, free, number=2)

    assert (await ledger.reading.batch_status(batch.id)).possibly_billed_twice == 1, "a free call is on no bill"


async def test_a_detail_is_the_whole_story_as_json(ledger: PostgresLedger, clock: Clock) -> None:
    request = make_request("A?", config=make_config(temperature=0.5))
    leased = await submit_and_take(ledger, request)
    attempt = await open_one(ledger, leased, reserved_usd=Decimal("0.5"))
    then = later(leased, delay=SECOND, event="retry")
    await ledger.attempts.close_attempts([closed_error(leased, attempt, then=then)])
    await clock.advance(10 * SECOND)
    await ledger.duties.promote(10)
    await take_one(ledger, leased.job_id)
    await clock.advance(2 * LEASE)
    await ledger.duties.rescue(10, None)
    again = await take_one(ledger, leased.job_id)
    await generate(ledger, again, text="first answer")
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    judging = await open_one(ledger, checking)
    await ledger.attempts.close_attempts([closed_unknown(checking, judging)])
    await finish(ledger, checking)

    detail = await ledger.reading.job_detail(leased.job_id)

    assert detail.view == (await ledger.reading.views([leased.job_id]))[0]
    assert detail.view.request == request
    assert [(row["purpose"], row["outcome"], row["spent"]) for row in detail.attempts] == [
        ("generate", "error:overloaded", True),
        ("generate", "ok", False),
        ("judge", "unknown", False),
    ]
    assert [event["kind"] for event in detail.events] == ["retry", "rescue"]
    assert [record.run for record in detail.records] == [leased.run]
    rows = [*detail.attempts, *detail.completions, *detail.events]
    assert json.loads(json.dumps(rows)) == rows
    assert "first answer" in json.dumps(detail.completions)
    assert "the provider said no" in json.dumps(detail.attempts)
