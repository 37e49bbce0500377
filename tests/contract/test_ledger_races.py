"""Races: verbs that run at the same time give each job, each winner and each dollar to one of them only."""

import asyncio
from collections import Counter
from decimal import Decimal

from schemas.states import JobState, Step
from tasks.ports import Opened
from tests.builders import (
    closed_ok,
    lease_key,
    make_answer,
    make_attempt,
    make_batch,
    make_final,
    make_request,
    to_check,
)
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    LEASE,
    SECOND,
    open_one,
    states,
    submit,
    submit_and_take,
    submit_many,
    take,
    take_one,
    view,
)
from worker.ledger.postgres import PostgresLedger


async def test_no_job_is_leased_twice(ledger: PostgresLedger) -> None:
    receipt = await submit_many(ledger, 40)
    workers = [
        ledger.queue.lease(Step.GENERATE, f"w{n}", LEASE, 15, ids=receipt.job_ids if n % 2 else None) for n in range(6)
    ]

    lease_counts = Counter(leased_job.job_id for some in await asyncio.gather(*workers) for leased_job in some)

    assert set(lease_counts.values()) <= {1}
    rest = await take(ledger, receipt.job_ids)
    assert set(lease_counts) | {job.job_id for job in rest} == set(receipt.job_ids)


async def test_a_batch_submitted_at_the_same_time_is_one_batch(ledger: PostgresLedger) -> None:
    requests = [make_request(f"{n}?") for n in range(5)]

    receipts = await asyncio.gather(*(submit(ledger, *requests, batch=make_batch(key="same")) for _ in range(4)))

    assert sorted(receipt.created for receipt in receipts) == [False, False, False, True]
    assert len({receipt.job_ids for receipt in receipts}) == 1
    assert len(await ledger.reading.batches(10)) == 1


async def test_a_job_submitted_at_the_same_time_is_one_job(ledger: PostgresLedger) -> None:
    request = make_request("A?", idempotency_key="same")

    receipts = await asyncio.gather(*(submit(ledger, request) for _ in range(3)))

    assert len({receipt.job_ids for receipt in receipts}) == 1
    assert sum(len(receipt.existing) for receipt in receipts) == 2


async def test_the_ceiling_holds_for_calls_at_the_same_time(ledger: PostgresLedger) -> None:
    batch = make_batch(max_cost_usd=Decimal(1))
    leased = await take(ledger, (await submit_many(ledger, 12, batch=batch)).job_ids)
    attempts = [make_attempt(job, reserved_usd=Decimal("0.25")) for job in leased]

    opened = await asyncio.gather(*(ledger.attempts.open_attempts(attempts[n : n + 3]) for n in range(0, 12, 3)))

    counted = Counter(status for statuses in opened for status in statuses)
    assert counted == {Opened.OPENED: 4, Opened.ON_HOLD: 8}
    assert (await ledger.reading.batch_status(batch.id)).reserved_usd == Decimal(1)


async def test_two_answers_at_the_same_time_have_one_winner(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempts = [await open_one(ledger, leased, number=n) for n in (1, 2, 3)]
    closings = [closed_ok(leased, attempt, f"answer {attempt.number}", then=to_check(leased)) for attempt in attempts]

    advanced = await asyncio.gather(*(ledger.attempts.close_attempts([closing]) for closing in closings))

    assert sorted(len(ids) for ids in advanced) == [0, 0, 1]
    detail = await ledger.reading.job_detail(leased.job_id)
    assert len(detail.completions) == 3
    assert detail.view.cost_usd == 3 * Decimal("0.002")
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    assert checking.stored is not None
    assert checking.stored.attempt_id in {attempt.id for attempt in attempts}


async def test_one_attempt_closed_at_the_same_time_is_paid_once(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased, reserved_usd=Decimal("0.5"))
    closed = closed_ok(leased, attempt, answer=make_answer(cost_usd=Decimal("0.25")), then=to_check(leased))

    advanced = await asyncio.gather(*(ledger.attempts.close_attempts([closed]) for _ in range(4)))

    assert sum(len(ids) for ids in advanced) == 1
    status = await ledger.reading.batch_status(leased.batch_id)
    assert (status.reserved_usd, status.spent_usd) == (0, Decimal("0.25"))
    assert (await view(ledger, leased.job_id)).cost_usd == Decimal("0.25")


async def test_a_job_ends_once_when_everyone_wants_to_end_it(ledger: PostgresLedger, clock: Clock) -> None:
    receipt = await submit_many(ledger, 10, deadline=clock.now() + 30 * SECOND)
    leased = await take(ledger, receipt.job_ids)
    await clock.advance(40 * SECOND)

    finished, cancelled, expired, given_back = await asyncio.gather(
        ledger.queue.finish([make_final(job) for job in leased]),
        ledger.actions.cancel(receipt.job_ids, ACTOR),
        ledger.duties.expire(20),
        ledger.queue.hand_back([lease_key(job) for job in leased]),
    )

    ended = Counter([*finished, *cancelled, *expired])
    assert set(ended.values()) <= {1}
    assert not finished & given_back
    final = {
        job_id
        for job_id, state in zip(receipt.job_ids, await states(ledger, receipt.job_ids), strict=True)
        if state is not JobState.AVAILABLE
    }
    assert final == set(ended)


async def test_rescue_and_the_holder_agree_on_who_has_the_job(ledger: PostgresLedger, clock: Clock) -> None:
    leased = await take(ledger, (await submit_many(ledger, 10)).job_ids)
    attempts = [make_attempt(job, reserved_usd=Decimal("0.5")) for job in leased]
    await ledger.attempts.open_attempts(attempts)
    await clock.advance(2 * LEASE)
    closings = [closed_ok(job, attempt, then=to_check(job)) for job, attempt in zip(leased, attempts, strict=True)]

    rescued, advanced, also_rescued = await asyncio.gather(
        ledger.duties.rescue(20, None), ledger.attempts.close_attempts(closings), ledger.duties.rescue(20, None)
    )

    assert not set(rescued) & advanced
    assert not set(rescued) & set(also_rescued)
    assert {*rescued, *also_rescued} | advanced == {job.job_id for job in leased}
    status = await ledger.reading.batch_status(leased[0].batch_id)
    assert (status.reserved_usd, status.spent_usd) == (0, 10 * Decimal("0.002"))
    for job_view in await ledger.reading.views(sorted({*rescued, *also_rescued})):
        assert (job_view.state, job_view.step) == (JobState.AVAILABLE, Step.GENERATE)
        again = await take_one(ledger, job_view.job_id, worker="w2")
        assert again.stored is not None


async def test_an_attempt_opened_again_after_an_unheard_commit_is_opened_once(ledger: PostgresLedger) -> None:
    receipt = await submit(ledger, make_request(), batch=make_batch(max_cost_usd=Decimal(1)))
    leased = await take_one(ledger, receipt.job_ids[0])
    attempt = make_attempt(leased, reserved_usd=Decimal("0.6"))

    assert await ledger.attempts.open_attempts([attempt]) == [Opened.OPENED]
    assert await ledger.attempts.open_attempts([attempt]) == [Opened.OPENED]

    assert (await ledger.reading.batch_status(leased.batch_id)).reserved_usd == Decimal("0.6")
    assert len((await ledger.reading.job_detail(leased.job_id)).attempts) == 1
