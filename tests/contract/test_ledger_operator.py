"""A person's verbs: cancel, retry, release, pause, budget; each leaves the actor's name behind."""

import asyncio
from contextlib import suppress
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from schemas.failure import FailureKind
from schemas.record import RecordStatus
from schemas.states import HeldReason, JobState, Outcome, Step
from tasks.errors import NotFound
from tasks.ports import Page
from tests.builders import (
    closed_error,
    later,
    lease_key,
    make_batch,
    make_failed,
    make_final,
    make_job,
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
    finished,
    generate,
    open_one,
    state,
    states,
    submit,
    submit_and_take,
    submit_many,
    take,
    take_one,
    view,
)
from worker.ledger.postgres import PostgresLedger


async def hold(ledger: PostgresLedger, reason: HeldReason, **changes: Any) -> Any:
    """Submit a job and hold it for this reason; returns the lease it had."""
    leased = await submit_and_take(ledger, **changes)
    assert await ledger.queue.defer(lease_key(leased), later(leased, held_reason=reason))
    return leased


# ---- cancel ----------------------------------------------------------------------------------------------------


async def test_whatever_is_not_final_can_be_cancelled(ledger: PostgresLedger, clock: Clock) -> None:
    done = await finished(ledger)
    held_id = await hold(ledger, HeldReason.BUDGET)
    receipt = await submit(
        ledger,
        make_request("running?"),
        make_request("available?"),
        make_request("scheduled?", scheduled_at=clock.now() + HOUR),
    )
    await take_one(ledger, receipt.job_ids[0])
    active = [held_id.job_id, *receipt.job_ids]

    assert set(await ledger.actions.cancel([done, *active, new_id()], ACTOR)) == set(active)

    assert await states(ledger, [done, *active]) == [JobState.COMPLETED] + [JobState.CANCELLED] * 4
    assert await ledger.actions.cancel(active, ACTOR) == []
    assert (await view(ledger, held_id.job_id)).held_reason is None


async def test_a_cancelled_job_has_a_record_that_says_by_whom(ledger: PostgresLedger) -> None:
    receipt = await submit(ledger, make_request(message_id="m", retrieval_record_id="r"))
    await ledger.actions.cancel(receipt.job_ids, ACTOR)

    cancelled = await view(ledger, receipt.job_ids[0])

    assert cancelled.finished_at is not None
    assert cancelled.outcome is None
    assert cancelled.record is not None
    assert (cancelled.record.message_id, cancelled.record.retrieval_record_id) == ("m", "r")
    assert cancelled.record.status is RecordStatus.FAILED
    assert ACTOR in (cancelled.record.error_message or "")
    assert cancelled.record.failure is not None
    assert cancelled.record.failure.kind is FailureKind.CANCELLED
    events = (await ledger.reading.job_detail(cancelled.job_id)).events
    assert [(event["kind"], event["actor"]) for event in events] == [("cancel", ACTOR)]


async def test_a_batch_is_cancelled_as_a_whole(ledger: PostgresLedger, clock: Clock) -> None:
    batch = make_batch()
    receipt = await submit(ledger, make_request("A?"), make_request("B?", scheduled_at=clock.now() + HOUR), batch=batch)
    leased = await take_one(ledger, receipt.job_ids[0])
    await finish(ledger, leased)
    stranger = await submit(ledger)

    assert await ledger.actions.cancel_batch(batch.id, ACTOR) == [receipt.job_ids[1]]

    status = await ledger.reading.batch_status(batch.id)
    assert (status.cancelled_at is not None, status.cancelling) == (True, False)
    assert await states(ledger, receipt.job_ids) == [JobState.COMPLETED, JobState.CANCELLED]
    assert await state(ledger, stranger.job_ids[0]) is JobState.AVAILABLE
    assert await ledger.actions.cancel_batch(batch.id, ACTOR) == []


class Killed(Exception):
    """An error that ends a verb between two pages."""


def kill(page: Page) -> None:
    """End the verb after its first page."""
    raise Killed


async def test_a_cancel_that_ends_midway_is_finished_by_the_next_one(ledger: PostgresLedger) -> None:
    receipt = await submit_many(ledger, 600)
    with pytest.raises(Killed):
        await ledger.actions.cancel_batch(receipt.batch_id, ACTOR, kill)

    cancelled = await ledger.actions.cancel_batch(receipt.batch_id, ACTOR)

    assert len(cancelled) == 100
    assert set(await states(ledger, receipt.job_ids)) == {JobState.CANCELLED}


async def test_no_job_of_a_batch_is_leased_while_it_is_cancelled(ledger: PostgresLedger) -> None:
    receipt = await submit_many(ledger, 600)
    stranger = await submit(ledger)
    with pytest.raises(Killed):
        await ledger.actions.cancel_batch(receipt.batch_id, ACTOR, kill)
    leasable = [view.job_id for view in await ledger.reading.views(receipt.job_ids) if view.state is JobState.AVAILABLE]
    assert len(leasable) == 100

    assert await take(ledger, leasable[:10]) == []
    leased = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 50)

    # The lease finished the cancel: what stood in its way held nobody else up.
    assert [job.job_id for job in leased] == list(stranger.job_ids)
    assert set(await states(ledger, receipt.job_ids)) == {JobState.CANCELLED}
    events = (await ledger.reading.job_detail(leasable[0])).events
    assert [(event["kind"], event["actor"]) for event in events] == [("cancel", ACTOR)]


async def test_a_cancel_during_a_submission_misses_no_job_of_it(ledger: PostgresLedger) -> None:
    batch = make_batch()
    submitting = asyncio.create_task(
        ledger.submission.submit(batch, ([make_job(position=position)] for position in range(100)))
    )
    cancelled: list[UUID] = []

    while not submitting.done():
        # A submission is there as a whole, or not yet: then the person is told so.
        with suppress(NotFound):
            cancelled += await ledger.actions.cancel_batch(batch.id, ACTOR)
        await asyncio.sleep(0)
    cancelled += await ledger.actions.cancel_batch(batch.id, ACTOR)

    assert sorted(cancelled) == sorted((await submitting).job_ids)


# ---- retry -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("final", [JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
async def test_a_retry_is_a_new_run(ledger: PostgresLedger, final: JobState) -> None:
    leased = await submit_and_take(ledger)
    if final is JobState.CANCELLED:
        await ledger.actions.cancel([leased.job_id], ACTOR)
    else:
        await ledger.queue.finish([make_final(leased) if final is JobState.COMPLETED else make_failed(leased)])
    await ledger.outbox.mark_published([(leased.job_id, leased.run)])

    assert await ledger.actions.retry([leased.job_id, new_id()], "grace") == [leased.job_id]

    again = await view(ledger, leased.job_id)
    assert (again.run, again.round, again.step) == (leased.run + 1, 0, Step.GENERATE)
    assert (again.state, again.outcome, again.finished_at, again.published_at) == (JobState.SCHEDULED,) + (None,) * 3
    assert again.record is None
    assert await ledger.outbox.unpublished(10, 0 * SECOND) == []
    events = (await ledger.reading.job_detail(leased.job_id)).events
    assert (events[-1]["kind"], events[-1]["actor"]) == ("retry", "grace")


async def test_a_new_run_starts_afresh_and_keeps_the_old_record(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await ledger.attempts.close_attempts([closed_error(leased, attempt)])
    await generate(ledger, leased, text="first run")
    await finish(ledger, await take_one(ledger, leased.job_id, Step.CHECK), outcome=Outcome.PARTIAL)

    await ledger.actions.retry([leased.job_id], ACTOR)
    assert await ledger.duties.promote(10) == 1
    second = await take_one(ledger, leased.job_id)

    assert (second.stored, second.spent, second.attempts, second.unknown) == (None, 0, 0, 0)
    assert second.first_opened_ago_ms is None
    await generate(ledger, second, text="second run")
    await finish(ledger, await take_one(ledger, leased.job_id, Step.CHECK))
    detail = await ledger.reading.job_detail(leased.job_id)
    assert [record.run for record in detail.records] == [leased.run, leased.run + 1]
    assert detail.view.record == detail.records[1]
    assert detail.view.outcome is Outcome.ANSWERED
    assert detail.view.cost_usd == 2 * Decimal("0.002")
    assert [job.job_id for job in await ledger.outbox.unpublished(10, 0 * SECOND)] == [leased.job_id]


# ---- hold and release ------------------------------------------------------------------------------------------


async def test_a_release_is_for_its_reason(ledger: PostgresLedger) -> None:
    budget = await hold(ledger, HeldReason.BUDGET)
    lane = await hold(ledger, HeldReason.LANE_PAUSED)

    assert await ledger.actions.release(None, HeldReason.LANE_PAUSED, ACTOR) == 1
    await ledger.duties.promote(10)

    assert await states(ledger, [budget.job_id, lane.job_id]) == [JobState.SCHEDULED, JobState.AVAILABLE]
    assert (await view(ledger, budget.job_id)).held_reason == HeldReason.BUDGET
    assert (await view(ledger, lane.job_id)).held_reason is None
    assert await ledger.actions.release(None, HeldReason.LANE_PAUSED, ACTOR) == 0
    events = (await ledger.reading.job_detail(lane.job_id)).events
    assert ACTOR in [event["actor"] for event in events]


@pytest.mark.parametrize("everywhere", ["one batch", "all"])
async def test_more_jobs_than_a_page_are_held_and_released(ledger: PostgresLedger, everywhere: str) -> None:
    batches = [await submit_many(ledger, number) for number in (510, 2)]
    for receipt in batches:
        await ledger.actions.pause_batch(receipt.batch_id, ACTOR, paused=True)
    pages: list[Page] = []

    if everywhere == "all":
        assert await ledger.actions.release(None, HeldReason.BATCH_PAUSED, ACTOR, pages.append) == 512
        assert sum(len(page.changed) for page in pages) == 512
        # A release is not the end of the pause: held again for it.
        assert (await ledger.reading.batch_status(batches[0].batch_id)).held == {HeldReason.BATCH_PAUSED: 510}
    else:
        released = await ledger.actions.pause_batch(batches[0].batch_id, ACTOR, paused=False, on_page=pages.append)
        assert released == sum(len(page.changed) for page in pages) == 510
        assert set(await states(ledger, batches[0].job_ids)) == {JobState.AVAILABLE}
        assert set(await states(ledger, batches[1].job_ids)) == {JobState.SCHEDULED}


async def test_a_pause_holds_what_waits_and_lets_running_jobs_go_on(ledger: PostgresLedger, clock: Clock) -> None:
    receipt = await submit(
        ledger,
        make_request("running?"),
        make_request("available?"),
        make_request("scheduled?", scheduled_at=clock.now() + HOUR),
    )
    stranger = await submit(ledger)
    running = await take_one(ledger, receipt.job_ids[0])

    assert await ledger.actions.pause_batch(receipt.batch_id, ACTOR, paused=True) == 2

    status = await ledger.reading.batch_status(receipt.batch_id)
    assert status.paused
    assert status.held == {HeldReason.BATCH_PAUSED: 2}
    assert await states(ledger, receipt.job_ids) == [JobState.RUNNING, JobState.SCHEDULED, JobState.SCHEDULED]
    await clock.advance(50 * SECOND)
    assert await take(ledger, receipt.job_ids) == []
    await finish(ledger, running)
    assert await state(ledger, stranger.job_ids[0]) is JobState.AVAILABLE


async def test_a_retry_in_a_paused_batch_waits_for_it(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    await finish(ledger, leased)
    await ledger.actions.pause_batch(leased.batch_id, ACTOR, paused=True)

    await ledger.actions.retry([leased.job_id], ACTOR)
    assert await ledger.duties.promote(10) == 0

    await ledger.actions.pause_batch(leased.batch_id, ACTOR, paused=False)
    await ledger.duties.promote(10)
    assert await state(ledger, leased.job_id) is JobState.AVAILABLE
