"""Finals: one per run, with their record, fenced by lease and step, and kept in the outbox until published."""

from decimal import Decimal
from uuid import UUID

from schemas.grounding import Claim, Evidence, Grounding, Verdict
from schemas.model_call import ProviderSnapshot, Usage
from schemas.record import Quality, TimingMs
from schemas.states import JobState, Outcome, Step
from tests.builders import make_final, make_prompt, make_record, make_request
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    HOUR,
    SECOND,
    finish,
    finished,
    generate,
    submit_and_take,
    submit_many,
    take_one,
    view,
)
from worker.ledger.postgres import PostgresLedger

# ---- finishing -------------------------------------------------------------------------------------------------


async def test_a_completed_job_has_its_outcome_and_record(ledger: PostgresLedger, clock: Clock) -> None:
    leased = await submit_and_take(ledger)
    await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)

    assert await ledger.queue.finish([make_final(checking, outcome=Outcome.PARTIAL)]) == {leased.job_id}

    done = await view(ledger, leased.job_id)
    assert (done.state, done.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)
    assert done.cost_usd == Decimal("0.002")
    assert done.published_at is None
    assert done.finished_at is not None
    assert abs(done.finished_at - clock.now()) < 10 * SECOND
    assert done.record is not None
    assert done.record.created_at is not None
    assert done.record.model_copy(update={"created_at": None}) == make_record(checking)


async def test_the_record_is_kept_as_written(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger, make_request(message_id="m-9"))
    evidence = Evidence(source_index=0, start=4, end=14, score=0.875)
    claim = Claim(text="ready \u2713", start_pos=0, end_pos=7, verdict=Verdict.SUPPORTED, evidence=(evidence,))
    record = make_record(
        leased,
        retrieval_record_id="r",
        trace_id="t",
        request_id="q",
        prompt_name="grounded",
        prompt_version="1",
        prompt_hash="ab" * 32,
        messages_snapshot=make_prompt().snapshot,
        provider_snapshot=ProviderSnapshot(provider="fake", parameters_dropped={"temperature": "not supported"}),
        output_structured={"answer": ["\u00e4", 1, None, {"deep": True}]},
        grounding=Grounding(grounding_score=1.0, claims=(claim,), counts={Verdict.SUPPORTED: 1}),
        quality=Quality(answer_quality=0.5, warnings=("short",)),
        usage=Usage(input_tokens=7, output_tokens=3),
        timing_ms=TimingMs(llm=12.5, total=20.25),
    )

    await finish(ledger, leased, record=record)

    (stored_record,) = (await ledger.reading.job_detail(leased.job_id)).records
    assert stored_record.model_copy(update={"created_at": None}) == record


# ---- the outbox ------------------------------------------------------------------------------------------------


async def test_finals_are_unpublished_until_marked_oldest_first(ledger: PostgresLedger, clock: Clock) -> None:
    ids = []
    for _ in range(3):
        ids.append(await finished(ledger))
        await clock.advance(10 * SECOND)
    await submit_and_take(ledger)

    assert [unpublished.job_id for unpublished in await ledger.outbox.unpublished(10, 0 * SECOND)] == ids
    assert [unpublished.job_id for unpublished in await ledger.outbox.unpublished(2, 0 * SECOND)] == ids[:2]
    assert [unpublished.job_id for unpublished in await ledger.outbox.unpublished(10, 15 * SECOND)] == ids[:2]

    assert await ledger.outbox.mark_published([(job_id, 1) for job_id in ids[:2]]) == []

    (unpublished,) = await ledger.outbox.unpublished(10, 0 * SECOND)
    assert unpublished.job_id == ids[2]
    assert unpublished.record is not None
    assert (await view(ledger, ids[0])).published_at is not None
    assert (await view(ledger, ids[2])).published_at is None


async def test_the_result_of_an_earlier_run_is_not_taken_for_that_of_the_latest(ledger: PostgresLedger) -> None:
    job_id = await finished(ledger)
    (old,) = await ledger.outbox.unpublished(10, 0 * SECOND)
    await ledger.actions.retry([job_id], ACTOR)
    assert await ledger.outbox.mark_published([(job_id, old.run)]) == [(job_id, old.run)]
    await ledger.duties.promote(10)
    await finish(ledger, await take_one(ledger, job_id))

    assert await ledger.outbox.mark_published([(job_id, old.run)]) == [(job_id, old.run)]

    (new,) = await ledger.outbox.unpublished(10, 0 * SECOND)
    assert new.run == old.run + 1
    assert await ledger.outbox.mark_published([(job_id, new.run)]) == []
    assert await ledger.outbox.unpublished(10, 0 * SECOND) == []


async def test_a_result_set_aside_keeps_no_other_back_and_is_tried_again(ledger: PostgresLedger, clock: Clock) -> None:
    first, second = [await finished(ledger) for _ in range(2)]

    await ledger.outbox.set_aside(first, ValueError("broken"))

    assert [unpublished.job_id for unpublished in await ledger.outbox.unpublished(1, 0 * SECOND)] == [second]
    await clock.advance(HOUR)
    assert {unpublished.job_id for unpublished in await ledger.outbox.unpublished(9, 0 * SECOND)} == {first, second}


async def republished(ledger: PostgresLedger, rows: int) -> list[list[UUID]]:
    """The pages of a walk to its end."""
    pages = []
    while (page := await ledger.outbox.republish_page(rows)) is not None:
        if page.through is None:
            assert page.published == sum(len(ids) for ids in pages)
            break
        pages.append([view.job_id for view in page.views])
        await ledger.outbox.note_republished(page)
    return pages


async def test_results_are_published_again_in_pages_when_redis_lost_them(ledger: PostgresLedger, clock: Clock) -> None:
    old = await finished(ledger)
    await clock.advance(2 * HOUR)
    new = []
    for _ in range(5):
        new.append(await finished(ledger))
        await clock.advance(SECOND)
    await ledger.outbox.mark_published([(job_id, 1) for job_id in (old, *new)])
    assert await republished(ledger, 2) == []

    await ledger.outbox.begin_republishing(HOUR)
    later = await finished(ledger)
    await ledger.outbox.mark_published([(later, 1)])

    assert await republished(ledger, 2) == [new[:2], new[2:4], new[4:]]
    assert await ledger.outbox.republish_page(2) is None
    assert await ledger.outbox.unpublished(10, 0 * SECOND) == []


async def test_results_that_ended_together_are_republished_each_once(ledger: PostgresLedger) -> None:
    ids = (await submit_many(ledger, 7)).job_ids
    await ledger.actions.cancel(ids, ACTOR)
    await ledger.outbox.mark_published([(job_id, 1) for job_id in ids])

    await ledger.outbox.begin_republishing(HOUR)

    pages = await republished(ledger, 3)
    assert [len(page) for page in pages] == [3, 3, 1]
    assert {job_id for page in pages for job_id in page} == set(ids)


async def test_results_in_the_outbox_are_not_published_by_the_walk_too(ledger: PostgresLedger) -> None:
    published, waiting = [await finished(ledger) for _ in range(2)]
    await ledger.outbox.mark_published([(published, 1)])

    await ledger.outbox.begin_republishing(HOUR)

    assert await republished(ledger, 9) == [[published]]
    assert [unpublished.job_id for unpublished in await ledger.outbox.unpublished(9, 0 * SECOND)] == [waiting]
