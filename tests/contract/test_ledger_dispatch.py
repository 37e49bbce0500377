"""Dispatch: what is due becomes available, what is late expires, and leases are in a fair order."""

from decimal import Decimal
from uuid import UUID

import pytest

from schemas.failure import FailureKind
from schemas.record import RecordStatus
from schemas.states import HeldReason, JobState, Step
from tests.builders import later, lease_key, make_batch, make_request
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    HOUR,
    LEASE,
    SECOND,
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
from worker.ledger.rescuing import ABANDONED_AFTER

# ---- promote ---------------------------------------------------------------------------------------------------


# ---- expire ----------------------------------------------------------------------------------------------------


async def test_late_jobs_expire_wherever_they_are(ledger: PostgresLedger, clock: Clock) -> None:
    deadline = clock.now() + HOUR
    batch = make_batch(deadline=deadline)
    receipt = await submit(
        ledger,
        make_request("running?"),
        make_request("held?"),
        make_request("available?"),
        make_request("scheduled?", scheduled_at=clock.now() + 2 * HOUR),
        make_request("in time?", deadline=clock.now() + 3 * HOUR),
        batch=batch,
    )
    running, held_job = await take(ledger, receipt.job_ids[:2])
    await ledger.queue.defer(lease_key(held_job), later(held_job, held_reason=HeldReason.BUDGET))
    assert await ledger.duties.expire(10) == []
    await clock.advance(HOUR + 5 * SECOND)

    assert set(await ledger.duties.expire(10)) == set(receipt.job_ids[:4])

    assert await states(ledger, receipt.job_ids) == [JobState.EXPIRED] * 4 + [JobState.AVAILABLE]
    assert (await ledger.queue.renew([lease_key(running)], LEASE)).lost == {running.job_id}
    assert await ledger.duties.expire(10) == []


async def test_an_expired_job_has_a_record_that_says_so(ledger: PostgresLedger, clock: Clock) -> None:
    receipt = await submit(ledger, make_request(deadline=clock.now() + SECOND, message_id="m", trace_id="t"))
    await clock.advance(5 * SECOND)
    await ledger.duties.expire(10)

    expired = await view(ledger, receipt.job_ids[0])

    assert expired.finished_at is not None
    assert expired.record is not None
    assert (expired.record.job_id, expired.record.run, expired.record.tenant) == (expired.job_id, expired.run, "desk")
    assert (expired.record.message_id, expired.record.trace_id) == ("m", "t")
    assert expired.record.status is RecordStatus.FAILED
    assert expired.record.failure is not None
    assert expired.record.failure.kind is FailureKind.EXPIRED
    assert "deadline" in (expired.record.error_message or "")


# ---- the fair order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "limit"),
    [
        ({"a": {0: 40}, "b": {0: 40}, "c": {0: 40}}, 20),
        ({"a": {0: 1}, "b": {0: 3}, "c": {0: 60}}, 30),
        ({"a": {0: 30, 5: 2}, "b": {0: 1, 5: 40}, "c": {-3: 10, 0: 6}}, 7),
        ({"a": {0: 30, 5: 2}, "b": {0: 1, 5: 4}, "c": {-3: 30, 0: 6}}, 21),
        ({"a": {0: 5, -1: 5}, "b": {0: 2}, "c": {-1: 3}}, 50),
        ({str(n): {0: n + 1, 1: n % 2} for n in range(12)}, 25),
        ({str(n): {0: 4} for n in range(12)}, 5),
    ],
)
async def test_the_fair_order_is_exact_for_every_mix_of_tenants_and_priorities(
    ledger: PostgresLedger, sizes: dict[str, dict[int, int]], limit: int
) -> None:
    expected: list[tuple[int, int, UUID]] = []
    for tenant, by_priority in sizes.items():
        for priority, size in by_priority.items():
            if size:
                receipt = await submit_many(ledger, size, batch=make_batch(tenant), priority=priority)
                expected += [(-priority, turn, job_id) for turn, job_id in enumerate(receipt.job_ids)]
    expected.sort()

    leased = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, limit)

    assert {job.job_id for job in leased} == {job_id for _, _, job_id in expected[:limit]}


# ---- rescue ----------------------------------------------------------------------------------------------------


async def test_only_leases_that_ran_out_are_rescued(ledger: PostgresLedger, clock: Clock) -> None:
    receipt = await submit_many(ledger, 3)
    old = await take(ledger, receipt.job_ids[:2])
    await clock.advance(40 * SECOND)
    await take_one(ledger, receipt.job_ids[2])
    await ledger.queue.renew([lease_key(old[1])], LEASE)
    await clock.advance(30 * SECOND)

    assert await ledger.duties.rescue(10, None) == [old[0].job_id]

    rescued = await view(ledger, old[0].job_id)
    assert (rescued.state, rescued.step, rescued.round) == (JobState.AVAILABLE, old[0].step, old[0].round)
    assert await ledger.duties.rescue(10, None) == []
    assert [event["kind"] for event in (await ledger.reading.job_detail(rescued.job_id)).events] == ["rescue"]


async def test_a_rescue_ends_the_calls_of_its_own_lease_only(ledger: PostgresLedger, clock: Clock) -> None:
    old = await submit_and_take(ledger)
    await open_one(ledger, old)
    await ledger.actions.cancel([old.job_id], ACTOR)
    await ledger.actions.retry([old.job_id], ACTOR)
    await ledger.duties.promote(10)
    await open_one(ledger, await take_one(ledger, old.job_id, worker="w2"))
    await clock.advance(2 * LEASE)

    assert await ledger.duties.rescue(10, None) == [old.job_id]

    detail = await ledger.reading.job_detail(old.job_id)
    assert [(row["run"] - old.run, row["outcome"]) for row in detail.attempts] == [(0, None), (1, "unknown")]


async def test_a_dead_workers_open_attempt_of_a_cancelled_job_is_closed(ledger: PostgresLedger, clock: Clock) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased, reserved_usd=Decimal("0.25"))
    await ledger.actions.cancel([leased.job_id], ACTOR)

    await ledger.duties.rescue(10, None)
    (early,) = (await ledger.reading.job_detail(leased.job_id)).attempts
    await clock.advance(ABANDONED_AFTER + SECOND)
    await ledger.duties.rescue(10, None)

    (row,) = (await ledger.reading.job_detail(leased.job_id)).attempts
    status = await ledger.reading.batch_status(leased.batch_id)
    assert (early["outcome"], row["outcome"], str(row["id"])) == (None, "unknown", str(attempt.id))
    assert (status.reserved_usd, status.spent_usd) == (Decimal(0), Decimal("0.25"))
    assert (await view(ledger, leased.job_id)).cost_usd == Decimal("0.25")


@pytest.mark.parametrize("released", [False, True])
async def test_by_policy_an_unknown_outcome_holds_the_job(
    ledger: PostgresLedger, clock: Clock, *, released: bool
) -> None:
    calling, idle = await take(ledger, (await submit_many(ledger, 2)).job_ids)
    await open_one(ledger, calling)
    await clock.advance(2 * LEASE)

    assert set(await ledger.duties.rescue(10, HeldReason.UNKNOWN_OUTCOME)) == {calling.job_id, idle.job_id}

    held_view = await view(ledger, calling.job_id)
    assert (held_view.state, held_view.held_reason) == (JobState.SCHEDULED, HeldReason.UNKNOWN_OUTCOME)
    assert await state(ledger, idle.job_id) is JobState.AVAILABLE
    if released:
        await ledger.actions.release(None, HeldReason.UNKNOWN_OUTCOME, ACTOR)
    await clock.advance(HOUR)
    await ledger.duties.promote(10)
    assert await state(ledger, calling.job_id) is (JobState.AVAILABLE if released else JobState.SCHEDULED)
