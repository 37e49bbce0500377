"""The leader of the duties and the knowledge of the other workers: one leader at a time, replaced when it is gone."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

from schemas.states import Step
from tasks.ports import Outlook
from tests.builders import make_attempt, make_batch, make_config, make_request
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    HOUR,
    LEASE,
    SECOND,
    finished,
    open_one,
    submit,
    submit_and_take,
    submit_many,
    take,
)
from worker.ledger.postgres import PostgresLedger

LEAD = 5 * SECOND
CHECKS = 2


async def attend(ledger: PostgresLedger, worker: str, *, age: timedelta = 0 * SECOND, **more: Any) -> Outlook:
    return await ledger.duties.attend(worker, LEAD, age, CHECKS, **more)


async def leads(ledger: PostgresLedger, worker: str, **more: Any) -> bool:
    return (await attend(ledger, worker, **more)).leads


async def test_a_lead_from_before_the_clock_was_set_back_ends(ledger: PostgresLedger, clock: Clock) -> None:
    await clock.advance(HOUR)
    assert await leads(ledger, "a")
    await clock.advance(-HOUR)

    assert await leads(ledger, "b")


async def test_a_leader_sees_what_is_due_late_and_lost(ledger: PostgresLedger, clock: Clock) -> None:
    await submit_many(ledger, 1, scheduled_at=clock.now() + HOUR)
    await submit_and_take(ledger)
    await submit_many(ledger, 1, deadline=clock.now() + HOUR)
    before = await attend(ledger, "a")
    assert (before.due, before.late, before.lost, before.available) == (False, False, False, {Step.GENERATE})

    await clock.advance(HOUR + 10 * SECOND)

    after, other = await attend(ledger, "a"), await attend(ledger, "b")
    assert (after.due, after.late, after.lost) == (True, True, True)
    assert (other.leads, other.due, other.late, other.lost) == (False, False, False, False)
    await ledger.duties.promote(9)
    await ledger.duties.expire(9)
    await ledger.duties.rescue(9, None)
    done = await attend(ledger, "a")
    assert (done.due, done.late, done.lost) == (False, False, False)


async def test_an_open_attempt_of_a_job_that_ended_counts_as_lost(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    await open_one(ledger, leased)
    assert not (await attend(ledger, "a")).lost
    await ledger.actions.cancel([leased.job_id], ACTOR)
    assert (await attend(ledger, "a")).lost


async def test_a_leader_sees_a_batch_that_waits_for_money(ledger: PostgresLedger) -> None:
    receipt = await submit_many(ledger, 3, batch=make_batch(max_cost_usd=Decimal("0.5")))
    (first,) = await take(ledger, receipt.job_ids[:1])
    assert not (await attend(ledger, "a")).unsettled
    await ledger.attempts.open_attempts([make_attempt(first, reserved_usd=Decimal("0.6"))])
    assert (await attend(ledger, "a")).unsettled

    await ledger.duties.settle_budgets(9)

    assert not (await attend(ledger, "a")).unsettled


async def test_a_leader_sees_what_is_to_be_published(ledger: PostgresLedger, clock: Clock) -> None:
    job_id = await finished(ledger)
    assert not (await attend(ledger, "a", age=30 * SECOND)).unpublished
    await clock.advance(40 * SECOND)
    assert (await attend(ledger, "a", age=30 * SECOND)).unpublished
    await ledger.outbox.mark_published([(job_id, 1)])
    assert not (await attend(ledger, "a")).unpublished

    assert not await ledger.outbox.begin_republishing(HOUR), "a Redis that never had anything lost nothing"
    assert await ledger.outbox.begin_republishing(HOUR)
    assert (await attend(ledger, "a")).republishing
    while (page := await ledger.outbox.republish_page(9)) is not None and page.through is not None:
        await ledger.outbox.note_republished(page)
    assert not (await attend(ledger, "a")).republishing


async def test_everybody_learns_that_the_check_is_behind_and_what_is_available(ledger: PostgresLedger) -> None:
    local = make_config(checkers=("local",))
    await submit(ledger, *(make_request(f"{n}", response="x") for n in range(CHECKS)))
    assert not (await attend(ledger, "a")).check_behind
    receipt = await submit(ledger, make_request("model", response="x", config=local))

    assert (await attend(ledger, "a")).check_behind
    other = await attend(ledger, "b")
    assert (other.leads, other.check_behind, other.available) == (False, True, {Step.CHECK, Step.LOCAL})

    await take(ledger, receipt.job_ids, Step.LOCAL)
    assert not (await attend(ledger, "a")).check_behind
    assert not (await attend(ledger, "b")).check_behind
    assert len(await ledger.queue.lease(Step.CHECK, "w", LEASE, 9)) == CHECKS
    assert (await attend(ledger, "b")).available == frozenset()


async def test_urgent_jobs_wait_once_they_were_available_for_a_while(ledger: PostgresLedger, clock: Clock) -> None:
    await submit(ledger, make_request("bulk?"))
    await clock.advance(HOUR)
    assert not await ledger.duties.urgent_waits(SECOND)
    receipt = await submit(ledger, make_request(priority=1))
    assert not await ledger.duties.urgent_waits(SECOND)
    await clock.advance(2 * SECOND)
    assert await ledger.duties.urgent_waits(SECOND)
    (urgent_id,) = receipt.job_ids
    assert [job.job_id for job in await take(ledger, [urgent_id])] == [urgent_id]
    assert not await ledger.duties.urgent_waits(SECOND)
