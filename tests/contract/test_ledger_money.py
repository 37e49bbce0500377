"""Money: a ceiling reserved before each call, every cost recorded once, unknown outcomes charged at worst case."""

from collections.abc import Sequence
from decimal import Decimal

from schemas.failure import FailureKind
from schemas.states import HeldReason, JobState, Step
from tasks.ports import Leased, Opened, Purpose
from tests.builders import (
    closed_error,
    closed_ok,
    closed_unknown,
    later,
    lease_key,
    make_answer,
    make_attempt,
    make_batch,
    to_check,
)
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    LEASE,
    finish,
    generate,
    open_one,
    state,
    states,
    submit_many,
    take,
    take_one,
    view,
)
from worker.ledger.postgres import PostgresLedger


async def leased_under(ledger: PostgresLedger, ceiling: str | None, number: int = 1) -> list[Leased]:
    """Leased jobs of a batch with this ceiling."""
    batch = make_batch(max_cost_usd=None if ceiling is None else Decimal(ceiling))
    receipt = await submit_many(ledger, number, batch=batch)
    return await take(ledger, receipt.job_ids)


async def money(ledger: PostgresLedger, leased: Leased) -> tuple[Decimal, Decimal | None]:
    """The reserved and spent money of the leased job's batch."""
    status = await ledger.reading.batch_status(leased.batch_id)
    return status.reserved_usd, status.spent_usd


async def test_the_ceiling_is_kept_in_order_within_a_call(ledger: PostgresLedger) -> None:
    leased = await leased_under(ledger, "1", number=4)
    reservations = ["0.6", "0.5", "0.4", "0.1"]
    attempts = [make_attempt(job, reserved_usd=Decimal(usd)) for job, usd in zip(leased, reservations, strict=True)]

    opened = await ledger.attempts.open_attempts(attempts)

    assert opened == [Opened.OPENED, Opened.ON_HOLD, Opened.OPENED, Opened.ON_HOLD]
    assert await money(ledger, leased[0]) == (Decimal(1), 0)
    assert (await ledger.reading.job_detail(leased[1].job_id)).attempts == ()
    waiting = await view(ledger, leased[1].job_id)
    assert (waiting.state, waiting.held_reason) == (JobState.SCHEDULED, HeldReason.BUDGET)


async def test_a_batch_does_not_pay_for_another(ledger: PostgresLedger) -> None:
    (poor,) = await leased_under(ledger, "0.1")
    (rich,) = await leased_under(ledger, "10")
    attempts = [make_attempt(job, reserved_usd=Decimal(1)) for job in (poor, rich)]

    assert await ledger.attempts.open_attempts(attempts) == [Opened.ON_HOLD, Opened.OPENED]


async def test_a_failure_can_cost_money(ledger: PostgresLedger) -> None:
    (leased,) = await leased_under(ledger, "1")
    attempt = await open_one(ledger, leased, reserved_usd=Decimal("0.5"))

    await ledger.attempts.close_attempts([closed_error(leased, attempt, cost_usd=Decimal("0.05"))])

    assert await money(ledger, leased) == (0, Decimal("0.05"))
    assert (await view(ledger, leased.job_id)).cost_usd == Decimal("0.05")


async def test_more_than_was_reserved_is_recorded_as_it_is(ledger: PostgresLedger) -> None:
    first, two = await leased_under(ledger, "1", number=2)
    attempt = await open_one(ledger, first, reserved_usd=Decimal("0.5"))

    await ledger.attempts.close_attempts([closed_ok(first, attempt, answer=make_answer(cost_usd=Decimal("1.5")))])

    assert await money(ledger, first) == (0, Decimal("1.5"))
    assert await ledger.attempts.open_attempts([make_attempt(two, reserved_usd=Decimal("0.01"))]) == [Opened.ON_HOLD]


async def test_what_is_less_than_the_ledger_counts_adds_up(ledger: PostgresLedger) -> None:
    usd = Decimal("0.000000016")  # stored as 0.00000002, and two of them as 0.00000004
    leased = await leased_under(ledger, "1", number=2)
    attempts = [make_attempt(job, reserved_usd=usd) for job in leased]
    await ledger.attempts.open_attempts(attempts)
    answer = make_answer(cost_usd=usd)

    await ledger.attempts.close_attempts(
        [closed_ok(job, attempt, answer=answer) for job, attempt in zip(leased, attempts, strict=True)]
    )

    assert await money(ledger, leased[0]) == (0, Decimal("0.00000004"))
    assert {(await view(ledger, job.job_id)).cost_usd for job in leased} == {Decimal("0.00000002")}


async def test_an_unknown_outcome_is_charged_at_worst_case(ledger: PostgresLedger) -> None:
    (leased,) = await leased_under(ledger, "1")
    attempt = await open_one(ledger, leased, reserved_usd=Decimal("0.7"))

    await ledger.attempts.close_attempts([closed_unknown(leased, attempt)])

    assert await money(ledger, leased) == (0, Decimal("0.7"))
    detail = await ledger.reading.job_detail(leased.job_id)
    assert detail.view.cost_usd == Decimal("0.7")
    assert Decimal(str(detail.attempts[0]["cost_usd"])) == Decimal("0.7")
    assert await ledger.attempts.open_attempts([make_attempt(leased, reserved_usd=Decimal("0.4"))]) == [Opened.ON_HOLD]


async def test_the_late_answer_corrects_the_charge(ledger: PostgresLedger, clock: Clock) -> None:
    (leased,) = await leased_under(ledger, "1")
    attempt = await open_one(ledger, leased, reserved_usd=Decimal("0.7"))
    await clock.advance(2 * LEASE)
    await ledger.duties.rescue(10, None)

    await ledger.attempts.close_attempts([closed_ok(leased, attempt, answer=make_answer(cost_usd=Decimal("0.1")))])

    assert await money(ledger, leased) == (0, Decimal("0.1"))
    detail = await ledger.reading.job_detail(leased.job_id)
    assert detail.view.cost_usd == Decimal("0.1")
    assert (detail.attempts[0]["outcome"], Decimal(str(detail.attempts[0]["cost_usd"]))) == ("ok", Decimal("0.1"))
    again = await take_one(ledger, leased.job_id)
    assert again.unknown == 0


async def test_late_news_of_a_failed_call_corrects_the_charge(ledger: PostgresLedger, clock: Clock) -> None:
    (leased,) = await leased_under(ledger, "1")
    attempt = await open_one(ledger, leased, reserved_usd=Decimal("0.7"))
    await clock.advance(2 * LEASE)
    await ledger.duties.rescue(10, None)

    late = closed_error(leased, attempt, FailureKind.CANCELLED, spent=False, cost_usd=Decimal(0))
    assert await ledger.attempts.close_attempts([late]) == set()
    await ledger.attempts.close_attempts([closed_unknown(leased, attempt)])

    assert await money(ledger, leased) == (0, 0)
    detail = await ledger.reading.job_detail(leased.job_id)
    assert detail.attempts[0]["outcome"] == "error:cancelled"
    again = await take_one(ledger, leased.job_id)
    assert (again.unknown, again.spent) == (0, 0)


async def test_a_higher_ceiling_releases_what_waited_for_it(ledger: PostgresLedger) -> None:
    leased = await leased_under(ledger, "1", number=3)
    for job, reason in zip(leased, (HeldReason.BUDGET, HeldReason.BUDGET, HeldReason.LANE_PAUSED), strict=True):
        await ledger.queue.defer(lease_key(job), later(job, held_reason=reason))

    await ledger.actions.set_budget(leased[0].batch_id, Decimal(5), ACTOR)
    await ledger.duties.promote(10)

    assert (await ledger.reading.batch_status(leased[0].batch_id)).max_cost_usd == Decimal(5)
    for job in leased[:2]:
        again = await take_one(ledger, job.job_id)
        await open_one(ledger, again, reserved_usd=Decimal(2))
    assert (await view(ledger, leased[2].job_id)).held_reason == HeldReason.LANE_PAUSED


async def test_a_cost_with_an_unknown_price_is_never_zero(ledger: PostgresLedger) -> None:
    receipt = await submit_many(ledger, 2)
    before = [view.cost_usd for view in await ledger.reading.views(receipt.job_ids)]
    assert before == [Decimal(0)] * 2
    free, unpriced = await take(ledger, receipt.job_ids)
    for leased, cost_usd in ((free, Decimal(0)), (unpriced, None)):
        attempt = await open_one(ledger, leased)
        await ledger.attempts.close_attempts([closed_ok(leased, attempt, cost_usd=cost_usd, then=to_check(leased))])

    costs = {view.job_id: view.cost_usd for view in await ledger.reading.views(receipt.job_ids)}
    assert costs == {free.job_id: Decimal(0), unpriced.job_id: None}
    assert (await ledger.reading.batch_status(receipt.batch_id)).spent_usd is None
    checked = {job.job_id: job.cost_usd for job in await take(ledger, receipt.job_ids, Step.CHECK)}
    assert checked == costs


async def test_a_lost_call_without_a_price_costs_an_unknown_amount_until_its_answer_comes(
    ledger: PostgresLedger,
) -> None:
    priced, unpriced = await take(ledger, (await submit_many(ledger, 2)).job_ids)
    for leased, reserved_usd in ((priced, Decimal("0.4")), (unpriced, None)):
        attempt = await open_one(ledger, leased, reserved_usd=reserved_usd)
        await ledger.attempts.close_attempts([closed_unknown(leased, attempt)])

    costs = {job.job_id: job.cost_usd for job in await ledger.reading.views([priced.job_id, unpriced.job_id])}
    assert costs == {priced.job_id: Decimal("0.4"), unpriced.job_id: None}
    assert (await ledger.reading.batch_status(priced.batch_id)).spent_usd is None

    await ledger.attempts.close_attempts([closed_ok(unpriced, attempt, cost_usd=Decimal("0.1"))])

    assert (await ledger.reading.batch_status(priced.batch_id)).spent_usd == Decimal("0.5")


async def test_an_answer_of_another_model_without_a_price_takes_what_was_reserved_of_the_ceiling(
    ledger: PostgresLedger,
) -> None:
    called, waiting = await leased_under(ledger, "1", number=2)
    attempt = await open_one(ledger, called, reserved_usd=Decimal("0.6"))

    await ledger.attempts.close_attempts([closed_ok(called, attempt, cost_usd=None, then=to_check(called))])

    assert (await ledger.reading.batch_status(called.batch_id)).spent_usd == Decimal("0.6")
    more = make_attempt(waiting, reserved_usd=Decimal("0.6"))
    assert await ledger.attempts.open_attempts([more]) == [Opened.ON_HOLD]


# ---- jobs that wait for money --------------------------------------------------------------------------------------


async def job_holds(ledger: PostgresLedger, jobs: Sequence[Leased]) -> list[bool]:
    """Which of the jobs wait for money."""
    return [
        lease.held_reason == HeldReason.BUDGET for lease in await ledger.reading.views([job.job_id for job in jobs])
    ]


async def test_money_that_comes_back_lets_as_many_go_on_as_it_is_enough_for(ledger: PostgresLedger) -> None:
    leased = await leased_under(ledger, "1", number=5)
    attempts = [make_attempt(job, reserved_usd=Decimal("0.4")) for job in leased]
    assert await ledger.attempts.open_attempts(attempts) == [Opened.OPENED, Opened.OPENED, *[Opened.ON_HOLD] * 3]

    await ledger.attempts.close_attempts(
        [closed_ok(leased[0], attempts[0], cost_usd=Decimal("0.1"), then=to_check(leased[0]))]
    )
    assert await job_holds(ledger, leased[2:]) == [True, True, True]
    assert await ledger.duties.settle_budgets(100) == 1

    assert await job_holds(ledger, leased) == [False, False, False, True, True]
    # What was promised to the one is not promised again.
    assert await ledger.duties.settle_budgets(100) == 0
    again = await take_one(ledger, leased[2].job_id)
    await open_one(ledger, again, reserved_usd=Decimal("0.4"))
    assert await ledger.duties.settle_budgets(100) == 0
    assert await job_holds(ledger, leased[3:]) == [True, True]


async def test_the_last_call_s_money_lets_others_go_on_at_once(ledger: PostgresLedger) -> None:
    calling, other, waiting = await leased_under(ledger, "1", number=3)
    attempts = [make_attempt(job, reserved_usd=Decimal("0.5")) for job in (calling, other, waiting)]
    assert await ledger.attempts.open_attempts(attempts) == [Opened.OPENED, Opened.OPENED, Opened.ON_HOLD]

    await ledger.attempts.close_attempts([closed_ok(calling, attempts[0], cost_usd=Decimal(0), then=to_check(calling))])
    assert await job_holds(ledger, [waiting]) == [True]
    await ledger.attempts.close_attempts([closed_ok(other, attempts[1], cost_usd=Decimal("0.5"), then=to_check(other))])

    assert await job_holds(ledger, [waiting]) == [False]


async def test_jobs_that_did_not_begin_are_held_with_the_first_that_is_refused(ledger: PostgresLedger) -> None:
    batch = make_batch(max_cost_usd=Decimal("0.5"))
    receipt = await submit_many(ledger, 7, batch=batch)
    last, second = await take(ledger, receipt.job_ids[5:])
    await generate(ledger, last)
    assert await ledger.attempts.open_attempts([make_attempt(second, reserved_usd=Decimal("0.6"))]) == [Opened.ON_HOLD]

    assert await ledger.duties.settle_budgets(3) == 5

    assert await ledger.duties.settle_budgets(3) == 0
    held = [JobState.SCHEDULED]
    assert await states(ledger, receipt.job_ids) == [*held * 5, JobState.AVAILABLE, *held]
    assert (await ledger.reading.batch_status(batch.id)).held == {HeldReason.BUDGET: 6}
    await ledger.actions.set_budget(batch.id, Decimal(5), ACTOR)
    assert await states(ledger, receipt.job_ids) == [JobState.AVAILABLE] * 7


async def test_a_check_that_needs_no_money_goes_on(ledger: PostgresLedger) -> None:
    answered, waiting = await leased_under(ledger, "0.5", number=2)
    await generate(ledger, answered)
    await ledger.attempts.open_attempts([make_attempt(waiting, reserved_usd=Decimal("0.6"))])
    await ledger.duties.settle_budgets(100)

    checking = await take_one(ledger, answered.job_id, Step.CHECK)
    await open_one(ledger, checking, reserved_usd=Decimal(0))
    await finish(ledger, checking)


async def test_a_second_round_does_not_wait_for_money(ledger: PostgresLedger) -> None:
    (leased,) = await leased_under(ledger, "0.5")
    attempt = make_attempt(leased, Purpose.REASK, reserved_usd=Decimal("0.6"))

    assert await ledger.attempts.open_attempts([attempt]) == [Opened.OVER_BUDGET]

    assert await state(ledger, leased.job_id) is JobState.RUNNING


async def test_an_unused_promise_is_withdrawn(ledger: PostgresLedger) -> None:
    calling, first, two = await leased_under(ledger, "1", number=3)
    attempt = await open_one(ledger, calling, reserved_usd=Decimal("0.9"))
    await ledger.attempts.open_attempts([make_attempt(job, reserved_usd=Decimal("0.5")) for job in (first, two)])
    await ledger.attempts.close_attempts([closed_ok(calling, attempt, cost_usd=Decimal("0.2"), then=to_check(calling))])
    assert await job_holds(ledger, [first, two]) == [False, True]

    await ledger.actions.cancel([first.job_id], ACTOR)

    assert await ledger.duties.settle_budgets(100) == 1
    assert await job_holds(ledger, [two]) == [False]
