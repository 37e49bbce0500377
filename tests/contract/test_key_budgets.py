"""Budgets of keys of the HTTP service: never exceeded by all batches of a key together, and of no other's concern."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from schemas.access import Role
from schemas.budget import DAY, TOTAL
from schemas.states import HeldReason, JobState
from tasks.errors import JobsRefused, NotFound
from tasks.ports import Leased, NewAttempt, NewBatch, Opened, Submitter
from tasks.ports.remote_batches import ParkedCall
from tests.builders import closed_ok, closed_unknown, make_answer, make_attempt, make_batch, make_job, to_check
from tests.contract.situations import ACTOR, open_one, state, submit_and_take, submit_many, take, take_one, view
from tests.lent_ledger import KeptLedger
from tests.postgres import advance_clock
from worker.ledger.postgres import PostgresLedger
from worker.ledger.stored_keys import ApiKey
from worker.operations.api_keys import KeyRequest, add_key, limit_key
from worker.operations.overview import budget_line

pytestmark = pytest.mark.usefixtures("runner")

PRICE = Decimal("0.25")


@asynccontextmanager
async def opened(url: str, **money: str) -> AsyncIterator[tuple[PostgresLedger, ApiKey]]:
    """A ledger with a key and what it may spend by period."""
    async with KeptLedger(url) as ledger:
        amounts = {{"total": TOTAL, "day": DAY}[period]: Decimal(usd) for period, usd in money.items()}
        key, _ = await add_key(ledger, KeyRequest("intake", "desk", Role.SUBMIT, money=amounts), ACTOR)
        yield ledger, key
        assert await ledger.inspection.violations() == []


def batch_of(key: ApiKey, **changes: Decimal) -> NewBatch:
    """A batch that a key submits."""
    return make_batch(key.tenant, submitter=Submitter(key.id, key.name), **changes)


async def sums(ledger: PostgresLedger) -> dict[str, tuple[Decimal, Decimal]]:
    """Reserved and spent by key or tenant, and period."""
    all_budgets = await ledger.budgets.all()
    return {f"{each.key or each.tenant} {each.period}": (each.reserved_usd, each.spent_usd) for each in all_budgets}


async def refused_job(ledger: PostgresLedger, batch: NewBatch) -> UUID:
    """A job whose call found no room."""
    leased = await submit_and_take(ledger, batch=batch)
    assert await ledger.attempts.open_attempts([make_attempt(leased, reserved_usd=PRICE)]) == [Opened.ON_HOLD]
    assert (await view(ledger, leased.job_id)).held_reason == HeldReason.KEY_BUDGET
    return leased.job_id


async def test_many_reservers_never_exceed_it(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, total="1.25", day="100") as (ledger, key):
        other, _ = await add_key(
            ledger, KeyRequest("other", "desk", Role.SUBMIT, money={TOTAL: Decimal("0.50")}), ACTOR
        )
        await ledger.budgets.set("desk", "day UTC", Decimal(2), ACTOR)
        batches = [batch_of(key, max_cost_usd=Decimal(100)), batch_of(key), batch_of(other), make_batch()]
        leased = [job for batch in batches for job in await take(ledger, (await submit_many(ledger, 6, batch)).job_ids)]
        attempts = [make_attempt(job, reserved_usd=PRICE) for at in range(6) for job in leased[at::6]]

        groups = [attempts[n : n + 3] for n in range(0, len(attempts), 3)]
        statuses = await asyncio.gather(*(ledger.attempts.open_attempts(group) for group in groups))

        assert Counter(status for group in statuses for status in group)[Opened.OPENED] == 8, (
            "all of the tenant's money"
        )
        present = await sums(ledger)
        assert present["desk day UTC"] == (Decimal(2), 0)
        assert present["intake total"] == present["intake day UTC"]
        assert present["intake total"][0] <= Decimal("1.25")
        assert present["other total"][0] <= Decimal("0.50")
        reserved = [(await ledger.reading.batch_status(batch.id)).reserved_usd for batch in batches]
        assert sum(reserved) == Decimal(2)
        assert (reserved[0] + reserved[1], reserved[2]) == (present["intake total"][0], present["other total"][0])


async def test_its_jobs_alone_are_held_and_go_on_when_it_is_raised(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, total="0.30") as (ledger, key):
        batch = batch_of(key)
        receipt = await submit_many(ledger, 4, batch)
        first = await take_one(ledger, receipt.job_ids[0])
        attempt = await open_one(ledger, first, reserved_usd=PRICE)
        await refused_job(ledger, batch_of(key))
        second = await take_one(ledger, receipt.job_ids[1])
        assert await ledger.attempts.open_attempts([make_attempt(second, reserved_usd=PRICE)]) == [Opened.ON_HOLD]
        await open_one(ledger, await submit_and_take(ledger), reserved_usd=PRICE)

        assert await ledger.duties.settle_budgets(10) == 2, "those of its batch that did not begin"
        assert (await ledger.reading.batch_status(batch.id)).held == {HeldReason.KEY_BUDGET: 3}
        (budget,) = await ledger.budgets.all("desk", batch.id)
        assert (budget.key, budget.used_up, budget.waiting, budget.next_at) == ("intake", True, 4, None)

        # Money that comes back goes to the next of them at once; no later closing brings more.
        answer = make_answer(cost_usd=Decimal("0.05"))
        await ledger.attempts.close_attempts([closed_ok(first, attempt, answer=answer, then=to_check(first))])
        assert await sums(ledger) == {"intake total": (0, Decimal("0.05"))}
        assert (await ledger.budgets.all())[0].waiting == 3

        await limit_key(ledger, "intake", {}, {TOTAL: Decimal(10)}, ACTOR)
        assert (await ledger.budgets.all())[0].waiting == 0


async def test_it_needs_known_prices_of_its_own_jobs_and_outlives_its_revocation(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, total="0.10") as (ledger, key):
        unpriced = replace(make_job(), unpriced=("config.model", "the price of model x is unknown"))
        with pytest.raises(JobsRefused, match="the price of model x is unknown"):
            await ledger.submission.submit(batch_of(key), [[unpriced]])
        assert (await ledger.submission.submit(make_batch(), [[replace(unpriced, id=make_job().id)]])).refused == ()
        assert (await submit_and_take(ledger, batch=batch_of(key))).tenant_budget
        assert not (await submit_and_take(ledger)).tenant_budget

        waiting = await refused_job(ledger, batch_of(key))
        await ledger.api_keys.revoke("intake", ACTOR)
        await ledger.duties.settle_budgets(10)
        assert await state(ledger, waiting) is JobState.SCHEDULED

        await limit_key(ledger, "intake", {}, {TOTAL: Decimal(0)}, ACTOR)

        assert await state(ledger, waiting) is JobState.AVAILABLE
        assert await ledger.budgets.all() == []


async def pay(ledger: PostgresLedger, leased: Leased, usd: str) -> None:
    """Answers a job for a price, below its reserve."""
    attempt = await open_one(ledger, leased, reserved_usd=PRICE)
    answer = make_answer(cost_usd=Decimal(usd))
    await ledger.attempts.close_attempts([closed_ok(leased, attempt, answer=answer, then=to_check(leased))])


async def park(ledger: PostgresLedger, key: ApiKey) -> tuple[UUID, NewAttempt]:
    """A call in a provider batch, with the id of that."""
    leased = await submit_and_take(ledger, batch=batch_of(key))
    attempt = await open_one(ledger, leased, reserved_usd=PRICE, lane="provider_batch", model="m")
    document = b'{"protocol": "markers", "timeout_s": 60, "endpoint": null, "prompt": null}'
    call = ParkedCall(attempt.id, attempt.job_id, attempt.token, attempt.provider, "m", b"{}", document)
    assert await ledger.remote_batches.park([call]) == {attempt.id}
    minute = timedelta(minutes=1)
    intent = await ledger.remote_batches.intend(attempt.provider, "m", max_calls=9, max_bytes=999, keep_for=minute)
    assert intent is not None
    return intent.id, attempt


async def test_one_that_is_set_later_counts_what_its_jobs_cost_before(postgres_database_url: str) -> None:
    async with opened(postgres_database_url) as (ledger, key):
        await pay(ledger, await submit_and_take(ledger, batch=batch_of(key)), "0.05")
        advance_clock(postgres_database_url, timedelta(days=1))
        lost = await submit_and_take(ledger, batch=batch_of(key))
        unknown = await open_one(ledger, lost, reserved_usd=PRICE)
        await ledger.attempts.close_attempts([closed_unknown(lost, unknown)])
        remote_id, parked = await park(ledger, key)
        await pay(ledger, await submit_and_take(ledger), "0.25")

        limits = {TOTAL: Decimal("0.60"), DAY: Decimal("0.60")}
        await limit_key(ledger, "intake", {}, limits, ACTOR)

        counted = {"intake day UTC": (PRICE, PRICE), "intake total": (PRICE, PRICE + Decimal("0.05"))}
        assert await sums(ledger) == counted
        await refused_job(ledger, batch_of(key))
        await limit_key(ledger, "intake", {}, dict.fromkeys(limits, Decimal(0)), ACTOR)
        await limit_key(ledger, "intake", {}, limits, ACTOR)
        assert await sums(ledger) == counted, "nothing is forgotten"

        # What becomes known later of earlier calls is settled in both.
        late = closed_ok(lost, unknown, answer=make_answer(cost_usd=Decimal("0.10")))
        await ledger.attempts.close_attempts([late])
        (pending,) = await ledger.remote_batches.pending([parked.id], remote_id)
        answer = make_answer(cost_usd=Decimal("0.02"))
        await ledger.attempts.close_attempts([closed_ok(pending.job, parked, answer=answer)])
        assert await sums(ledger) == {
            "intake day UTC": (0, Decimal("0.12")),
            "intake total": (0, Decimal("0.17")),
        }


async def test_jobs_of_a_revoked_key_get_money_by_its_id_beside_a_later_key_of_its_name(
    postgres_database_url: str,
) -> None:
    async with opened(postgres_database_url, total="0.10") as (ledger, key):
        waiting = await refused_job(ledger, batch_of(key))
        await ledger.api_keys.revoke("intake", ACTOR)
        later, _ = await add_key(ledger, KeyRequest("intake", "desk", Role.SUBMIT, money={TOTAL: Decimal(2)}), ACTOR)

        assert (await limit_key(ledger, "intake", {}, {TOTAL: Decimal(3)}, ACTOR)).id == later.id
        assert await state(ledger, waiting) is JobState.SCHEDULED
        (short,) = await ledger.budgets.all("desk", (await view(ledger, waiting)).batch_id)
        line = budget_line(short)
        assert line.startswith(f"the revoked key intake ({key.id}) may spend 0.1 USD in all")
        assert line.endswith(f"nightdesk keys limit {key.id} --max-cost-usd USD")
        assert {(each.key_revoked, each.key_id) for each in await ledger.budgets.all()} == {
            (True, key.id),
            (False, later.id),
        }

        with pytest.raises(NotFound, match="no key 'intake' that is valid"):
            await limit_key(ledger, str(key.id), {"jobs_per_day": 5}, {}, ACTOR)
        assert (await limit_key(ledger, str(key.id), {}, {TOTAL: PRICE}, ACTOR)).id == key.id
        assert await state(ledger, waiting) is JobState.AVAILABLE
        (budget,) = await ledger.budgets.all()
        assert (budget.key_id, budget.max_cost_usd) == (later.id, Decimal(3))


async def test_a_call_in_a_provider_batch_and_a_lost_one_keep_their_reserve(postgres_database_url: str) -> None:
    async with opened(postgres_database_url, total="0.60") as (ledger, key):
        lost = await submit_and_take(ledger, batch=batch_of(key))
        unknown = await open_one(ledger, lost, reserved_usd=PRICE)
        remote_id, parked = await park(ledger, key)
        advance_clock(postgres_database_url, timedelta(minutes=2))
        assert await ledger.duties.rescue(10, None) == [lost.job_id], "what is pending has no lease to lose"
        assert await sums(ledger) == {"intake total": (PRICE, PRICE)}
        waiting = await refused_job(ledger, batch_of(key))

        late = closed_ok(lost, unknown, answer=make_answer(cost_usd=Decimal("0.20")))
        await ledger.attempts.close_attempts([late])
        assert await ledger.duties.settle_budgets(10) == 0, "0.15 USD are left"
        (pending,) = await ledger.remote_batches.pending([parked.id], remote_id)
        answer = make_answer(cost_usd=Decimal("0.10"))
        await ledger.attempts.close_attempts(
            [closed_ok(pending.job, parked, answer=answer, then=to_check(pending.job))]
        )

        assert await sums(ledger) == {"intake total": (0, Decimal("0.30"))}
        assert await state(ledger, waiting) is JobState.AVAILABLE
