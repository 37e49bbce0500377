"""Budgets of tenants: never exceeded, whoever reserves at once, and renewed by the clock."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from schemas.states import HeldReason, JobState
from tasks.errors import JobsRefused, NotFound
from tasks.ports import Advance, LeaseKey, Opened
from tests.builders import closed_ok, make_answer, make_attempt, make_batch, make_job, make_request, to_check
from tests.contract.situations import (
    ACTOR,
    HOUR,
    SECOND,
    open_one,
    state,
    submit,
    submit_and_take,
    submit_many,
    take,
    take_one,
    view,
)
from tests.lent_ledger import KeptLedger
from tests.postgres import advance_clock
from worker.ledger.postgres import PostgresLedger

pytestmark = pytest.mark.usefixtures("runner")

DAY = timedelta(days=1)
PRICE = Decimal("0.25")


@asynccontextmanager
async def opened(url: str, usd: str, period: str = "day UTC") -> AsyncIterator[PostgresLedger]:
    """A ledger with a budget of its tenant."""
    async with KeptLedger(url) as ledger:
        await ledger.budgets.set("desk", period, Decimal(usd), ACTOR)
        yield ledger
        assert await ledger.inspection.violations() == []


async def sums(ledger: PostgresLedger, tenant: str = "desk") -> tuple[Decimal, Decimal]:
    """Reserved and spent in the present period of the only budget."""
    (budget,) = await ledger.budgets.all(tenant)
    return budget.reserved_usd, budget.spent_usd


async def refused_job(ledger: PostgresLedger) -> Any:
    """A job whose call found no room."""
    leased = await submit_and_take(ledger)
    assert await ledger.attempts.open_attempts([make_attempt(leased, reserved_usd=PRICE)]) == [Opened.ON_HOLD]
    assert (await view(ledger, leased.job_id)).held_reason == HeldReason.TENANT_BUDGET
    return leased.job_id


async def test_a_call_is_paid_from_both_or_from_none(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, "0.30") as ledger:
        batch = make_batch(max_cost_usd=Decimal("0.55"))
        leased = await take(ledger, (await submit_many(ledger, 3, batch=batch)).job_ids)
        prices = (Decimal("0.25"), Decimal("0.50"), Decimal("0.05"))
        attempts = [make_attempt(job, reserved_usd=usd) for job, usd in zip(leased, prices, strict=True)]

        # What the batch has no room for leaves the tenant's to the next.
        assert await ledger.attempts.open_attempts(attempts) == [Opened.OPENED, Opened.ON_HOLD, Opened.OPENED]

        assert (await view(ledger, leased[1].job_id)).held_reason == HeldReason.BUDGET
        assert await sums(ledger) == (Decimal("0.30"), 0)
        assert (await ledger.reading.batch_status(batch.id)).reserved_usd == Decimal("0.30")


async def test_the_true_cost_is_settled_in_the_period_of_the_call(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, "0.30") as ledger:
        leased = await submit_and_take(ledger)
        attempt = await open_one(ledger, leased, reserved_usd=PRICE)
        waiting = await refused_job(ledger)
        advance_clock(postgres_database_url, DAY)

        assert await ledger.duties.settle_budgets(10) == 1
        assert await state(ledger, waiting) is JobState.AVAILABLE
        await ledger.attempts.close_attempts(
            [closed_ok(leased, attempt, answer=make_answer(cost_usd=Decimal("0.10")), then=to_check(leased))]
        )
        assert await sums(ledger) == (0, 0)


async def test_money_that_comes_back_is_for_those_that_wait(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, "0.40") as ledger:
        leased = await submit_and_take(ledger)
        attempt = await open_one(ledger, leased, reserved_usd=PRICE)
        waiting = [await refused_job(ledger), await refused_job(ledger)]
        assert await ledger.duties.settle_budgets(10) == 0

        await ledger.attempts.close_attempts(
            [closed_ok(leased, attempt, answer=make_answer(cost_usd=Decimal("0.10")), then=to_check(leased))]
        )
        assert await sums(ledger) == (0, Decimal("0.10"))
        # Room for one, to which it is promised at once: no later close brings more.
        assert await ledger.duties.settle_budgets(10) == 0
        assert Counter([await state(ledger, job_id) for job_id in waiting]) == {
            JobState.AVAILABLE: 1,
            JobState.SCHEDULED: 1,
        }


@pytest.mark.parametrize(
    "change",
    [
        lambda ledger: ledger.budgets.set("desk", "day UTC", Decimal(1), ACTOR),
        lambda ledger: ledger.budgets.remove("desk", "day UTC"),
    ],
    ids=["raised", "removed"],
)
async def test_jobs_go_on_at_once_when_it_is_changed(
    postgres_database_url: str, change: Callable[[PostgresLedger], Awaitable[None]]
) -> None:
    async with opened(postgres_database_url, "0.10") as ledger:
        waiting = await refused_job(ledger)

        await change(ledger)

        await open_one(ledger, await take_one(ledger, waiting), reserved_usd=PRICE)
        with pytest.raises(NotFound, match="nightdesk budget list"):
            await ledger.budgets.remove("desk", "day Europe/Berlin")


@pytest.mark.parametrize("usd", ["0", "0.24", "0.25"])
async def test_a_budget_below_the_price_of_one_call_is_known_to_be_too_small(
    postgres_database_url: str, usd: str
) -> None:
    too_small = Decimal(usd) < PRICE
    async with opened(postgres_database_url, usd) as ledger:
        if not too_small:
            await open_one(ledger, await submit_and_take(ledger), reserved_usd=PRICE)
        waiting = await refused_job(ledger)
        batch_id = (await view(ledger, waiting)).batch_id
        (budget,) = await ledger.budgets.all("desk", batch_id)
        assert (budget.used_up, budget.least_usd, budget.too_small) == (True, PRICE, too_small)
        await ledger.budgets.set("desk", budget.period, Decimal(2), ACTOR)
        (raised,) = await ledger.budgets.all("desk", batch_id)
        assert (raised.used_up, raised.least_usd, raised.too_small) == (False, None, False)


async def test_a_night_that_is_used_up_waits_for_the_next_one(postgres_database_url: str) -> None:
    now = datetime.now(UTC)
    async with opened(postgres_database_url, "0.10", f"{now - HOUR:%H:%M}-{now + HOUR:%H:%M} UTC") as ledger:
        waiting = await refused_job(ledger)

        advance_clock(postgres_database_url, 2 * HOUR)
        assert await ledger.duties.settle_budgets(10) == 0, "not in the day between"
        assert await state(ledger, waiting) is JobState.SCHEDULED
        await open_one(ledger, await submit_and_take(ledger), reserved_usd=PRICE)
        await ledger.budgets.set("desk", (await ledger.budgets.all())[0].period, Decimal(1), ACTOR)
        assert await state(ledger, waiting) is JobState.AVAILABLE, "raised in the day"

        advance_clock(postgres_database_url, 22 * HOUR)
        await ledger.duties.settle_budgets(10)
        await open_one(ledger, await submit_and_take(ledger), reserved_usd=PRICE)
        assert await sums(ledger) == (PRICE, 0), "bounded again"


async def test_only_what_a_night_refused_waits_for_the_next_one(postgres_database_url: str) -> None:
    now = datetime.now(UTC)
    async with opened(postgres_database_url, "0.10", f"{now - HOUR:%H:%M}-{now + HOUR:%H:%M} UTC") as ledger:
        of_night = await refused_job(ledger)
        advance_clock(postgres_database_url, 2 * HOUR)
        await ledger.duties.settle_budgets(10)
        # Of the same spelling all day, wherever the clock stands.
        all_day = f"{now + HOUR:%H:%M}-{now - HOUR:%H:%M} UTC"
        await ledger.budgets.set("desk", all_day, Decimal("0.10"), ACTOR)
        receipt = await submit_many(ledger, 2)
        leased = await take_one(ledger, receipt.job_ids[0])
        await ledger.attempts.open_attempts([make_attempt(leased, reserved_usd=PRICE)])
        await ledger.duties.settle_budgets(10)
        assert (await ledger.reading.batch_status(receipt.batch_id)).held == {HeldReason.TENANT_BUDGET: 2}
        named = await ledger.budgets.all("desk", receipt.batch_id)
        assert [budget.period for budget in named if budget.used_up] == [all_day]
        assert all(budget.used_up for budget in await ledger.budgets.all("desk"))

        await ledger.budgets.set("desk", all_day, Decimal(10), ACTOR)

        assert {await state(ledger, job_id) for job_id in receipt.job_ids} == {JobState.AVAILABLE}
        assert await state(ledger, of_night) is JobState.SCHEDULED
        # No call asks for room in the next night: it is none the less one that it waits for.
        await ledger.budgets.set("desk", all_day, Decimal(20), ACTOR)
        advance_clock(postgres_database_url, DAY)
        await ledger.duties.settle_budgets(10)
        assert await state(ledger, of_night) is JobState.SCHEDULED


async def test_a_budget_without_a_present_period_allows_nothing(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, "10") as ledger:
        # No worker for days: nothing has begun the new day.
        advance_clock(postgres_database_url, 3 * DAY)
        waiting = await refused_job(ledger)

        outlook = await ledger.duties.attend("w", SECOND, SECOND, 10)
        assert outlook.unsettled
        assert await ledger.duties.settle_budgets(10) == 1
        await open_one(ledger, await take_one(ledger, waiting), reserved_usd=PRICE)
        assert not (await ledger.duties.attend("w", SECOND, SECOND, 10)).unsettled


async def test_what_did_not_begin_is_held_with_the_first_refusal(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, "0.10") as ledger:
        free = await submit_many(ledger, 2)
        receipt = await submit_many(ledger, 3)
        leased = await take_one(ledger, receipt.job_ids[0])
        await ledger.attempts.open_attempts([make_attempt(leased, reserved_usd=PRICE)])

        assert await ledger.duties.settle_budgets(10) == 2

        assert (await ledger.reading.batch_status(receipt.batch_id)).held == {HeldReason.TENANT_BUDGET: 3}
        assert (await ledger.reading.batch_status(free.batch_id)).held == {}


async def test_a_lost_call_costs_its_worst_case(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, "1") as ledger:
        await open_one(ledger, await submit_and_take(ledger), reserved_usd=PRICE)
        cancelled = await submit_and_take(ledger)
        await open_one(ledger, cancelled, reserved_usd=PRICE)
        await ledger.actions.cancel([cancelled.job_id], ACTOR)
        advance_clock(postgres_database_url, HOUR / 30)

        await ledger.duties.rescue(10, None)

        # The hour may have ended the day.
        assert [row.usd for row in await ledger._database.rows("SELECT sum(spent_usd) AS usd FROM budget_period")] == [
            2 * PRICE
        ]


async def test_a_price_that_is_not_known_is_refused_at_the_door(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, "1") as ledger:
        unpriced = replace(make_job(), unpriced=("config.model", "the price of model x is unknown"))
        good = make_job(make_request("Known?"), position=1)

        receipt = await ledger.submission.submit(make_batch(), [[unpriced, good]])
        assert [(line.position, line.field) for line in receipt.refused] == [(0, "config.model")]
        with pytest.raises(JobsRefused, match="the price of model x is unknown"):
            await ledger.submission.submit(make_batch(), [[replace(unpriced, id=make_job().id)]])

        other = replace(unpriced, id=make_job().id, tenant="other")
        accepted = await ledger.submission.submit(make_batch("other"), [[other]])
        assert accepted.refused == ()
        assert not (await take_one(ledger, accepted.job_ids[0])).tenant_budget
        assert (await submit(ledger)).refused == ()


async def test_jobs_without_a_price_go_on_when_the_last_budget_is_removed(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, "1") as ledger:
        job, other, ceiling = (
            await submit_and_take(ledger),
            await submit_and_take(ledger),
            await submit_and_take(ledger),
        )
        await ledger.actions.set_budget(ceiling.batch_id, Decimal(1), ACTOR)
        await ledger.actions.pause_batch(other.batch_id, ACTOR, paused=True)
        for leased in (job, other, ceiling):
            held = Advance(
                JobState.SCHEDULED, leased.step, leased.round, held_reason=HeldReason.PRICE_UNKNOWN, event="hold"
            )
            assert await ledger.queue.defer(LeaseKey(leased.job_id, leased.token), held)
        await ledger.budgets.set("desk", "22:00-06:00 UTC", Decimal(1), ACTOR)
        await ledger.budgets.remove("desk", "day UTC")
        assert (await view(ledger, job.job_id)).held_reason == HeldReason.PRICE_UNKNOWN

        await ledger.budgets.remove("desk", "22:00-06:00 UTC")

        views = [await view(ledger, each.job_id) for each in (job, other, ceiling)]
        assert [(each.state, each.held_reason) for each in views] == [
            (JobState.AVAILABLE, None),
            (JobState.SCHEDULED, HeldReason.BATCH_PAUSED),
            (JobState.SCHEDULED, HeldReason.PRICE_UNKNOWN),
        ]
