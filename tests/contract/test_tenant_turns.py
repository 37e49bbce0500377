"""Turns of tenants over many small leases: each has its share, and who comes late waits for one round at most."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from decimal import Decimal

import pytest

from schemas.states import JobState, Step
from tasks.ports import LeaseRoom, Opened
from tests.builders import closed_ok, make_attempt, make_batch, to_check
from tests.contract.situations import LEASE, open_one, state, submit_many, take
from tests.lent_ledger import KeptLedger
from tests.postgres import advance_clock
from worker.ledger.postgres import PostgresLedger

pytestmark = pytest.mark.usefixtures("runner")

TENANTS = [f"tenant {number:02}" for number in range(20)]


@asynccontextmanager
async def opened(url: str, shares: Mapping[str, float] | None = None) -> AsyncIterator[PostgresLedger]:
    async with KeptLedger(url, tenant_shares=shares) as ledger:
        yield ledger


async def lease_tenants(ledger: PostgresLedger, leases: int, limit: int, **terms: object) -> list[str]:
    """The tenants of the jobs of so many leases, one lease after the other."""
    step = terms.pop("step", Step.GENERATE)
    return [
        job.tenant
        for _ in range(leases)
        for job in await ledger.queue.lease(step, "w1", LEASE, limit, **terms)  # type: ignore[arg-type] # any step and terms
    ]


@pytest.mark.parametrize(("limit", "priority"), [(5, 3), (7, 0)])
async def test_small_leases_serve_all_tenants(postgres_database_url: str, limit: int, priority: int) -> None:
    async with opened(postgres_database_url) as ledger:
        for tenant in TENANTS:
            await submit_many(ledger, 40, batch=make_batch(tenant), priority=priority)
        terms = {"min_priority": 1} if priority else {}

        served = Counter(await lease_tenants(ledger, 200 // limit, limit, **terms))

        assert set(served) == set(TENANTS)
        assert max(served.values()) - min(served.values()) <= 1


async def test_a_late_tenant_waits_for_one_round(postgres_database_url: str) -> None:
    async with opened(postgres_database_url) as ledger:
        for tenant in TENANTS:
            await submit_many(ledger, 40, batch=make_batch(tenant))
        await lease_tenants(ledger, 60, 5)
        await submit_many(ledger, 1, batch=make_batch("late"))

        assert "late" in await lease_tenants(ledger, 5, 5)


async def test_a_tenant_that_was_away_has_no_claim_to_the_past(postgres_database_url: str) -> None:
    async with opened(postgres_database_url) as ledger:
        await submit_many(ledger, 1, batch=make_batch("guest"))
        for tenant in TENANTS[:3]:
            await submit_many(ledger, 60, batch=make_batch(tenant))
        await lease_tenants(ledger, 40, 2)
        await submit_many(ledger, 30, batch=make_batch("guest"))

        served = Counter(await lease_tenants(ledger, 20, 2))

        assert served == {"guest": 10, **dict.fromkeys(TENANTS[:3], 10)}


async def test_the_bytes_that_a_lease_may_bring_cut_no_turn(postgres_database_url: str) -> None:
    async with opened(postgres_database_url) as ledger:
        for tenant in TENANTS:
            await submit_many(ledger, 4, batch=make_batch(tenant), priority=1)
            await submit_many(ledger, 4, batch=make_batch(tenant))

        served = Counter(await lease_tenants(ledger, 40, 200, room=LeaseRoom(1)))

        assert served == dict.fromkeys(TENANTS, 2)


async def test_old_turns_are_forgotten(postgres_database_url: str) -> None:
    async with opened(postgres_database_url) as ledger:
        for tenant in TENANTS:
            await submit_many(ledger, 1, batch=make_batch(tenant))
        for tenant in ("a", "b"):
            await submit_many(ledger, 30, batch=make_batch(tenant))
        await lease_tenants(ledger, 60, 1)

        await ledger.duties.forget_turns()

        rows = await ledger._database.rows("SELECT tenant FROM tenant_turn")
        assert {row.tenant for row in rows} <= {"a", "b"}


# ---- money ---------------------------------------------------------------------------------------------------------


async def test_a_stream_of_cheap_jobs_does_not_starve_a_dear_one(postgres_database_url: str) -> None:
    async with opened(postgres_database_url) as ledger:
        batch = make_batch(max_cost_usd=Decimal(1))
        receipt = await submit_many(ledger, 40, batch=batch)
        calling, dear, *cheap = await take(ledger, receipt.job_ids)
        attempts = [make_attempt(calling, reserved_usd=Decimal("0.9")), make_attempt(dear, reserved_usd=Decimal("0.5"))]
        attempts += [make_attempt(job, reserved_usd=Decimal("0.1")) for job in cheap]
        opened_first = await ledger.attempts.open_attempts(attempts)
        running = [(job, attempt) for job, attempt, how in zip(
            [calling, dear, *cheap], attempts, opened_first, strict=True) if how is Opened.OPENED]  # fmt: skip

        # Each call that ends gives back what it did not cost; a tick later others go on.
        for _ in range(20):
            job, attempt = running.pop(0)
            await ledger.attempts.close_attempts(
                [closed_ok(job, attempt, cost_usd=Decimal("0.001"), then=to_check(job))]
            )
            await ledger.duties.settle_budgets(100)
            for again in await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 1):
                reserve = Decimal("0.5") if again.job_id == dear.job_id else Decimal("0.1")
                running.append((again, await open_one(ledger, again, reserved_usd=reserve)))
            if any(job.job_id == dear.job_id for job, _ in running):
                return
        pytest.fail("the dear job never went on")


async def test_a_job_that_no_money_is_enough_for_holds_nobody_up(postgres_database_url: str) -> None:
    async with opened(postgres_database_url) as ledger:
        await ledger.budgets.set("desk", "day UTC", Decimal(1), "ada")
        receipt = await submit_many(ledger, 3)
        calling, dear, cheap = await take(ledger, receipt.job_ids)
        attempts = [
            make_attempt(job, reserved_usd=Decimal(usd))
            for job, usd in ((calling, "0.9"), (dear, "0.8"), (cheap, "0.3"))
        ]
        assert await ledger.attempts.open_attempts(attempts) == [Opened.OPENED, Opened.ON_HOLD, Opened.ON_HOLD]

        await ledger.attempts.close_attempts(
            [closed_ok(calling, attempts[0], cost_usd=Decimal("0.6"), then=to_check(calling))]
        )
        await ledger.duties.settle_budgets(100)

        assert await state(ledger, dear.job_id) is JobState.SCHEDULED
        assert await state(ledger, cheap.job_id) is JobState.AVAILABLE


async def test_a_dear_job_has_its_turn_at_the_budget_of_its_tenant(postgres_database_url: str) -> None:
    async with opened(postgres_database_url) as ledger:
        await ledger.budgets.set("desk", "day UTC", Decimal(1), "ada")
        receipt = await submit_many(ledger, 12)
        first, second, dear, *cheap = await take(ledger, receipt.job_ids)
        prices = [(first, "0.5"), (second, "0.4"), (dear, "0.6"), *((job, "0.2") for job in cheap)]
        attempts = [make_attempt(job, reserved_usd=Decimal(usd)) for job, usd in prices]
        assert (await ledger.attempts.open_attempts(attempts))[:3] == [Opened.OPENED, Opened.OPENED, Opened.ON_HOLD]

        for job, attempt in ((first, attempts[0]), (second, attempts[1])):
            await ledger.attempts.close_attempts([closed_ok(job, attempt, cost_usd=Decimal(0), then=to_check(job))])
            await ledger.duties.settle_budgets(100)

        assert await state(ledger, dear.job_id) is JobState.AVAILABLE


async def test_new_jobs_do_not_take_what_one_waits_for(postgres_database_url: str) -> None:
    async with opened(postgres_database_url) as ledger:
        await ledger.budgets.set("desk", "day UTC", Decimal(1), "ada")
        calling = await take(ledger, (await submit_many(ledger, 9)).job_ids)
        running = [(job, await open_one(ledger, job, reserved_usd=Decimal("0.1"))) for job in calling]
        (dear,) = await take(ledger, (await submit_many(ledger, 1)).job_ids)
        refused = make_attempt(dear, reserved_usd=Decimal("0.5"))
        assert await ledger.attempts.open_attempts([refused]) == [Opened.ON_HOLD]

        for _ in range(12):
            job, attempt = running.pop(0)
            closed = closed_ok(job, attempt, cost_usd=Decimal("0.001"), then=to_check(job))
            await ledger.attempts.close_attempts([closed])
            # A batch of its own, as over HTTP: it had no refusal before.
            await submit_many(ledger, 1)
            for job in await ledger.queue.lease(Step.GENERATE, "w1", LEASE, 10):
                attempt = make_attempt(job, reserved_usd=Decimal("0.5" if job.job_id == dear.job_id else "0.1"))
                if await ledger.attempts.open_attempts([attempt]) == [Opened.OPENED]:
                    running.append((job, attempt))
            await ledger.duties.settle_budgets(100)
            if any(job.job_id == dear.job_id for job, _ in running):
                return
        pytest.fail("the dear job never began")


async def test_money_that_is_out_for_long_holds_others_up_for_half_an_hour(postgres_database_url: str) -> None:
    async with opened(postgres_database_url) as ledger:
        jobs = await take(ledger, (await submit_many(ledger, 4, batch=make_batch(max_cost_usd=Decimal(1)))).job_ids)
        prices = [Decimal(usd) for usd in ("0.5", "0.2", "0.6", "0.4")]
        attempts = [make_attempt(job, reserved_usd=usd) for job, usd in zip(jobs, prices, strict=True)]
        assert await ledger.attempts.open_attempts(attempts) == [*[Opened.OPENED] * 2, *[Opened.ON_HOLD] * 2]
        _, short, dear, cheap = jobs
        closed = closed_ok(short, attempts[1], cost_usd=Decimal(0), then=to_check(short))
        await ledger.attempts.close_attempts([closed])

        assert await ledger.duties.settle_budgets(100) == 0
        advance_clock(postgres_database_url, timedelta(minutes=31))
        assert await ledger.duties.settle_budgets(100) == 1

        assert await state(ledger, dear.job_id) is JobState.SCHEDULED
        assert await state(ledger, cheap.job_id) is JobState.AVAILABLE
