"""All verbs of the ledger side by side over many priced batches and tenants: no statement waits for another in a circle."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import psycopg

from schemas.job import Recheck
from schemas.states import HeldReason, Step
from tasks.ports import Leased, Opened
from tests.builders import (
    closed_ok,
    lease_key,
    make_answer,
    make_attempt,
    make_batch,
    make_final,
    make_jobs,
    make_request,
    to_check,
)
from tests.databases import forget
from tests.deadlines import until
from tests.servers import Servers
from worker.ledger.postgres import PostgresLedger

BATCHES = 14
JOBS_OF_BATCH = 40
WORKERS = 4
GROUP = 30
LEASE = timedelta(seconds=60)
PRICE = Decimal("0.002")
CEILINGS = (Decimal("0.05"), Decimal(1_000))
"""One that holds most jobs of a batch, and one that holds none."""
OPERATOR_TURNS = 9

Work = Callable[[PostgresLedger, random.Random], Awaitable[None]]


def test_no_two_verbs_deadlock(servers: Servers) -> None:
    with servers.database() as url:
        asyncio.run(_drive(url))
        assert _deadlocks(url) == 0


async def _drive(url: str) -> None:
    async with PostgresLedger(url, connections=1) as ledger:
        batches = [await _submit(ledger, f"tenant {number % 7}") for number in range(BATCHES)]
        for number, period in enumerate(("day UTC", "day Europe/Berlin", "00:00-24:00 UTC")):
            await ledger.budgets.set(f"tenant {number % 2}", period, CEILINGS[0] * (number + 1), "ada")
    ids = [job_id for _, job_ids in batches for job_id in job_ids]
    random.Random(0).shuffle(ids)
    shares = [ids[number::WORKERS] for number in range(WORKERS)]
    chores = [_calls(share) for share in shares] + [_operator(batches), _duties(), _renewals(ids)]
    await asyncio.gather(*(_beside(url, work, seed) for seed, work in enumerate(chores)))
    async with PostgresLedger(url, connections=1) as ledger:
        assert await ledger.inspection.violations() == []


async def _submit(ledger: PostgresLedger, tenant: str) -> tuple[UUID, Sequence[UUID]]:
    batch = make_batch(tenant, max_cost_usd=CEILINGS[0])
    jobs = make_jobs(*(make_request(f"Question {number}?") for number in range(JOBS_OF_BATCH)), tenant=tenant)
    receipt = await ledger.submission.submit(batch, [jobs])
    return batch.id, receipt.job_ids


async def _beside(url: str, work: Work, seed: int) -> None:
    async with PostgresLedger(url, connections=4) as ledger:
        await work(ledger, random.Random(seed))


def _calls(ids: Sequence[UUID]) -> Work:
    """A worker: groups of calls opened and closed at once, each group in an order of its own."""

    async def work(ledger: PostgresLedger, chance: random.Random) -> None:
        for start in range(0, len(ids), 4 * GROUP):
            group = ids[start : start + 4 * GROUP]
            for step in (Step.GENERATE, Step.CHECK):
                leased = await ledger.queue.lease(step, "w", LEASE, len(group), ids=group)
                parts = [leased[number::4] for number in range(4)]
                await asyncio.gather(*(_call(ledger, chance.sample(part, len(part))) for part in parts))

    return work


async def _call(ledger: PostgresLedger, leased: Sequence[Leased]) -> None:
    attempts = [make_attempt(job, reserved_usd=2 * PRICE) for job in leased]
    opened = await ledger.attempts.open_attempts(attempts)
    called = [pair for pair, status in zip(zip(leased, attempts, strict=True), opened, strict=True)
              if status is Opened.OPENED]  # fmt: skip
    await ledger.queue.renew([lease_key(job) for job in leased], LEASE)
    answer = make_answer(cost_usd=PRICE)
    await ledger.attempts.close_attempts(
        [
            closed_ok(job, attempt, answer=answer, then=to_check(job) if job.step is Step.GENERATE else None)
            for job, attempt in reversed(called)
        ]
    )
    if leased and leased[0].step is Step.CHECK:
        await ledger.queue.finish([make_final(job) for job, _ in called])
    await ledger.queue.hand_back([lease_key(job) for job in leased])


def _operator(batches: Sequence[tuple[UUID, Sequence[UUID]]]) -> Work:
    """A person who changes budgets, pauses, releases, cancels, runs again and removes."""

    async def work(ledger: PostgresLedger, chance: random.Random) -> None:
        for _ in range(OPERATOR_TURNS):
            batch_id, ids = chance.choice(batches)
            some = chance.sample(list(ids), 5)
            await asyncio.gather(
                ledger.actions.set_budget(batch_id, chance.choice(CEILINGS), "ada"),
                ledger.actions.cancel(some, "ada"),
                ledger.actions.release(None, HeldReason.BUDGET, "ada"),
            )
            await ledger.actions.pause_batch(batch_id, "ada", paused=True)
            await ledger.actions.pause_batch(batch_id, "ada", paused=False)
            await asyncio.gather(ledger.actions.retry(some, "ada"), ledger.actions.recheck(ids, Recheck(), "ada"))

    return work


def _duties() -> Work:
    async def work(ledger: PostgresLedger, chance: random.Random) -> None:
        for _ in range(OPERATOR_TURNS):
            views = await ledger.outbox.unpublished(100, timedelta(0))
            published = [view.job_id for view in views]
            await asyncio.gather(
                ledger.duties.promote(500),
                ledger.duties.settle_budgets(20),
                ledger.duties.fold_counts(5),
                ledger.duties.rescue(100, None),
                ledger.duties.expire(100),
                ledger.outbox.mark_published([(view.job_id, view.run) for view in chance.sample(views, len(views))]),
                ledger.erasure.erase(chance.sample(published, len(published) // 10), "ada"),
                ledger.erasure.delete(chance.sample(published, len(published) // 10)),
            )

    return work


def _renewals(ids: Sequence[UUID]) -> Work:
    """A worker whose jobs come and go: it takes what it can, renews in any order, and gives back."""

    async def work(ledger: PostgresLedger, chance: random.Random) -> None:
        for _ in range(OPERATOR_TURNS):
            leased = await ledger.queue.lease(Step.GENERATE, "other", LEASE, 60, ids=chance.sample(list(ids), 200))
            keys = [lease_key(job) for job in leased]
            await asyncio.gather(*(ledger.queue.renew(chance.sample(keys, len(keys)), LEASE) for _ in range(2)))
            await ledger.queue.hand_back(keys)

    return work


def _deadlocks(url: str) -> int:
    """Of this database since it was made; read once every session that counted is gone."""
    other_sessions = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    forget(url)
    with psycopg.connect(url, autocommit=True) as connection:
        assert until(lambda: connection.execute(other_sessions).fetchone() == (0,), 30)
        (deadlocks,) = connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchall()
    return int(deadlocks[0])
