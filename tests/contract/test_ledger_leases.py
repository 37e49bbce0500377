"""Leases: who may hold a job, for how long, what the holder is told, and that a lost token can do nothing."""

from datetime import timedelta

import pytest

from schemas.failure import FailureKind
from schemas.states import JobState, Step
from tasks.ports import Advance, LeaseKey, Opened
from tests.builders import (
    closed_error,
    closed_unknown,
    later,
    lease_key,
    make_attempt,
    make_final,
    make_request,
    new_id,
)
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    HOUR,
    LEASE,
    SECOND,
    generate,
    open_one,
    state,
    submit,
    submit_and_take,
    submit_many,
    take,
    take_one,
)
from worker.ledger.postgres import PostgresLedger

# ---- taking ----------------------------------------------------------------------------------------------------


async def test_ids_of_other_states_and_steps_and_unknown_ids_are_skipped(ledger: PostgresLedger, clock: Clock) -> None:
    receipt = await submit(
        ledger,
        make_request("A?"),
        make_request("later?", scheduled_at=clock.now() + HOUR),
        make_request("", response="check me"),
        make_request("cancelled?"),
        make_request("late?", deadline=clock.now() + SECOND),
    )
    await ledger.actions.cancel([receipt.job_ids[3]], ACTOR)
    await clock.advance(2 * SECOND)

    leased = await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 10, ids=[*receipt.job_ids, new_id()])

    assert [job.job_id for job in leased] == [receipt.job_ids[0]]
    assert await state(ledger, receipt.job_ids[4]) is JobState.AVAILABLE


# ---- keeping ---------------------------------------------------------------------------------------------------


async def test_a_lease_that_ran_out_can_be_renewed_until_someone_takes_it(ledger: PostgresLedger, clock: Clock) -> None:
    leased = await submit_and_take(ledger)
    await clock.advance(2 * LEASE)

    assert (await ledger.queue.renew([lease_key(leased)], LEASE)).lost == set()
    assert await ledger.duties.rescue(10, None) == []


async def test_renewal_tells_which_leases_are_lost(ledger: PostgresLedger) -> None:
    receipt = await submit_many(ledger, 3)
    valid_job, cancelled, given_back = await take(ledger, receipt.job_ids)
    await ledger.actions.cancel([cancelled.job_id], ACTOR)
    await ledger.queue.hand_back([lease_key(given_back)])
    unknown_lease = LeaseKey(new_id(), new_id())
    stranger = LeaseKey(valid_job.job_id, new_id())

    renewal = await ledger.queue.renew(
        [lease_key(job) for job in (valid_job, cancelled, given_back)] + [unknown_lease], LEASE
    )

    assert renewal.lost == {cancelled.job_id, given_back.job_id, unknown_lease.job_id}
    assert (await ledger.queue.renew([stranger], LEASE)).lost == {valid_job.job_id}
    assert (await ledger.queue.renew([], LEASE)).lost == set()


async def test_a_lost_token_can_do_nothing(ledger: PostgresLedger, clock: Clock) -> None:
    old = await submit_and_take(ledger)
    attempt = await open_one(ledger, old)
    await clock.advance(2 * LEASE)
    await ledger.duties.rescue(10, None)
    new = await take_one(ledger, old.job_id, worker="w2")

    assert new.token != old.token
    assert (await ledger.queue.renew([lease_key(old)], LEASE)).lost == {old.job_id}
    assert await ledger.queue.hand_back([lease_key(old)]) == set()
    assert not await ledger.queue.defer(lease_key(old), later(old))
    assert await ledger.attempts.open_attempts([make_attempt(old)]) == [Opened.LOST]
    assert await ledger.queue.finish([make_final(old)]) == set()
    assert await ledger.attempts.close_attempts([closed_error(old, attempt, then=later(old))]) == set()
    assert (await ledger.queue.renew([lease_key(new)], LEASE)).lost == set()
    assert len((await ledger.reading.job_detail(old.job_id)).attempts) == 1


# ---- giving back -----------------------------------------------------------------------------------------------


async def test_a_job_with_an_open_attempt_is_not_handed_back(ledger: PostgresLedger) -> None:
    receipt = await submit_many(ledger, 2)
    calling, idle = await take(ledger, receipt.job_ids)
    attempt = await open_one(ledger, calling)

    assert await ledger.queue.hand_back([lease_key(calling), lease_key(idle)]) == {idle.job_id}
    assert not await ledger.queue.defer(lease_key(calling), later(calling))
    assert await state(ledger, calling.job_id) is JobState.RUNNING

    await ledger.attempts.close_attempts([closed_error(calling, attempt)])
    assert await ledger.queue.hand_back([lease_key(calling)]) == {calling.job_id}


async def test_a_deferred_job_waits_its_time(ledger: PostgresLedger, clock: Clock) -> None:
    leased = await submit_and_take(ledger)

    assert await ledger.queue.defer(lease_key(leased), later(leased, delay=30 * SECOND, event="snooze"))

    assert await state(ledger, leased.job_id) is JobState.SCHEDULED
    assert await ledger.duties.promote(10) == 0
    await clock.advance(31 * SECOND)
    assert await ledger.duties.promote(10) == 1
    assert await state(ledger, leased.job_id) is JobState.AVAILABLE
    assert [event["kind"] for event in (await ledger.reading.job_detail(leased.job_id)).events] == ["snooze"]


# ---- what the holder is told -----------------------------------------------------------------------------------


async def test_the_lease_includes_the_outcomes_of_earlier_attempts(ledger: PostgresLedger, clock: Clock) -> None:
    leased = await submit_and_take(ledger)
    closings = [
        (closed_error, {"spent": True}),
        (closed_error, {"spent": False, "kind": FailureKind.RATE_LIMITED}),
        (closed_error, {"spent": False, "kind": FailureKind.RATE_LIMITED}),
        (closed_error, {"spent": True}),
        (closed_error, {"spent": True}),
        (closed_unknown, {}),
    ]
    for close, changes in closings:
        attempt = await open_one(ledger, leased)
        assert await ledger.attempts.close_attempts([close(leased, attempt, then=later(leased), **changes)])
        await clock.advance(SECOND)
        await ledger.duties.promote(10)
        leased = await take_one(ledger, leased.job_id)

    assert (leased.spent, leased.snoozes, leased.unknown, leased.attempts) == (3, 2, 1, 6)
    assert leased.first_opened_ago_ms == pytest.approx(6_000, abs=3_000)

    # A round is asked for by itself; what the model failed before counts on.
    await ledger.queue.defer(lease_key(leased), later(leased, round=1))
    await ledger.duties.promote(10)
    again = await take_one(ledger, leased.job_id)
    assert (again.spent, again.snoozes, again.unknown, again.attempts) == (3, 2, 0, 0)


async def test_time_sent_away_by_a_limit_is_noted_until_the_step_ends(ledger: PostgresLedger, clock: Clock) -> None:
    receipt = await submit(ledger)
    (job_id,) = receipt.job_ids
    for trip in range(2):
        await clock.advance(10 * SECOND)
        leased = await take_one(ledger, job_id)
        assert leased.limited_ms == pytest.approx(trip * 45_000, abs=5_000)
        await clock.advance(5 * SECOND)
        away = Advance(JobState.SCHEDULED, Step.GENERATE, 0, 30 * SECOND, limited=True)
        assert await ledger.queue.defer(lease_key(leased), away)
        await clock.advance(30 * SECOND)
        assert await ledger.duties.promote(10) == 1

    leased = await take_one(ledger, job_id)
    assert leased.limited_ms == pytest.approx(90_000, abs=5_000)
    # A retry is another matter, and keeps what was noted; the next step begins anew.
    attempt = await open_one(ledger, leased)
    again = Advance(JobState.SCHEDULED, Step.GENERATE, 0, 30 * SECOND, event="retry")
    await ledger.attempts.close_attempts([closed_error(leased, attempt, then=again)])
    await clock.advance(30 * SECOND)
    await ledger.duties.promote(10)
    leased = await take_one(ledger, job_id)
    assert leased.limited_ms == pytest.approx(90_000, abs=5_000)
    await generate(ledger, leased)
    assert (await take_one(ledger, job_id, Step.CHECK)).limited_ms == 0


async def test_ages_are_by_the_ledgers_clock(ledger: PostgresLedger, clock: Clock) -> None:
    receipt = await submit(ledger)
    await clock.advance(timedelta(seconds=100))
    first = await take_one(ledger, receipt.job_ids[0])
    await clock.advance(timedelta(seconds=20))
    await ledger.queue.hand_back([lease_key(first)])
    await clock.advance(timedelta(seconds=30))
    second = await take_one(ledger, receipt.job_ids[0])

    assert first.age_ms == pytest.approx(100_000, abs=5_000)
    assert first.waited_ms == pytest.approx(100_000, abs=5_000)
    assert second.age_ms == pytest.approx(150_000, abs=5_000)
    assert second.waited_ms == pytest.approx(30_000, abs=5_000)
    assert second.created_at == first.created_at


async def test_a_lease_may_be_bounded_by_priority_from_both_sides(ledger: PostgresLedger) -> None:
    requests = [make_request(f"{priority}?", priority=priority) for priority in (-5, 0, 1, 9)]
    receipt = await submit(ledger, *requests)
    least, bulk, urgent, most = receipt.job_ids

    async def lease(**bounds: int) -> list[object]:
        jobs = await ledger.queue.lease(Step.GENERATE, "w", LEASE, 9, **bounds)
        return [job.job_id for job in jobs]

    assert await lease(min_priority=2) == [most]
    assert await lease(max_priority=0) == [bulk, least]
    assert await lease() == [urgent]
