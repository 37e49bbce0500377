"""A ledger that lost its last commits, as a standby that was promoted: what workers still hold comes back into it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from schemas.access import Role
from schemas.budget import TOTAL
from schemas.states import JobState, Step
from tasks.ports import ClosedAttempt, Leased, NewAttempt, Opened, Purpose, Submitter
from tests.builders import closed_error, closed_ok, closed_unknown, make_answer, make_attempt, make_batch, to_check
from tests.contract.situations import ACTOR, HOUR, finish, open_one, state, submit_many, take, take_one, view
from tests.databases import forget, on, say
from tests.servers import Servers
from worker.ledger.postgres import PostgresLedger
from worker.operations.api_keys import KeyRequest, add_key

PRICE, COST = Decimal("0.25"), Decimal("0.1")


@dataclass
class Cluster:
    """A primary, and a standby that stops to follow it."""

    servers: Servers
    primary: str

    @contextmanager
    def standby(self) -> Iterator[str]:
        """The URL of the ledger as it is now; nobody may be connected."""
        name = f"{self.primary.rpartition('/')[2]}_standby"
        source = self.primary.rpartition("/")[2]
        copy = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        forget(self.primary)
        say(self.servers.admin_url, copy.format(sql.Identifier(name), sql.Identifier(source)))
        try:
            yield on(self.primary, name)
        finally:
            say(self.servers.admin_url, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def cluster(servers: Servers) -> Iterator[Cluster]:
    with servers.database(guarded=True) as url:
        yield Cluster(servers, url)


def submitted(url: str, jobs: int) -> tuple[UUID, list[UUID]]:
    """A batch with a ceiling, of a tenant with a budget."""

    async def submit() -> tuple[UUID, list[UUID]]:
        async with PostgresLedger(url, connections=3, repeats=True) as ledger:
            await ledger.budgets.set("desk", "day UTC", Decimal(100), ACTOR)
            receipt = await submit_many(ledger, jobs, batch=make_batch(max_cost_usd=Decimal(10)))
            return receipt.batch_id, list(receipt.job_ids)

    return asyncio.run(submit())


def calls(url: str, job_ids: list[UUID]) -> list[tuple[Leased, NewAttempt]]:
    """Leases and opened calls that only this ledger knows."""

    async def call() -> list[tuple[Leased, NewAttempt]]:
        async with PostgresLedger(url, connections=3, repeats=True) as ledger:
            leases = await take(ledger, job_ids)
            return [(leased, await open_one(ledger, leased, reserved_usd=PRICE)) for leased in leases]

    return asyncio.run(call())


async def money(ledger: PostgresLedger, batch_id: UUID) -> tuple[Decimal, Decimal | None]:
    status = await ledger.reading.batch_status(batch_id)
    (budget,) = await ledger.budgets.all("desk")
    assert (budget.reserved_usd, budget.spent_usd) == (status.reserved_usd, status.spent_usd)
    return status.reserved_usd, status.spent_usd


def ok(leased: Leased, attempt: NewAttempt) -> ClosedAttempt:
    return closed_ok(leased, attempt, answer=make_answer(cost_usd=COST), cost_usd=COST, then=to_check(leased))


def test_answers_without_openings_reach_their_jobs_and_are_paid_once(cluster: Cluster) -> None:
    batch_id, job_ids = submitted(cluster.primary, 3)
    with cluster.standby() as url:
        opened = calls(cluster.primary, job_ids)

        async def replay() -> None:
            async with PostgresLedger(url, connections=3, repeats=True) as ledger:
                closings = [ok(*call) for call in opened]
                assert await ledger.attempts.close_attempts(closings) == set(job_ids)
                assert await ledger.attempts.close_attempts(closings) == set()  # once more changes nothing

                assert await money(ledger, batch_id) == (0, 3 * COST)
                for job_id in job_ids:
                    checking = await take_one(ledger, job_id, Step.CHECK)
                    assert await ledger.attempts.open_attempts([make_attempt(checking, purpose=Purpose.GENERATE)]) == [
                        Opened.ANSWERED
                    ]
                    await finish(ledger, checking)
                    assert (await view(ledger, job_id)).cost_usd == COST
                assert await ledger.inspection.violations() == []

        asyncio.run(replay())


@pytest.mark.parametrize("end", ["unknown", "error"])
def test_money_of_calls_without_an_answer_is_charged_as_ever(cluster: Cluster, end: str) -> None:
    batch_id, job_ids = submitted(cluster.primary, 1)
    with cluster.standby() as url:
        (call,) = calls(cluster.primary, job_ids)
        closing = closed_unknown(*call) if end == "unknown" else closed_error(*call, cost_usd=COST)

        async def replay() -> None:
            async with PostgresLedger(url, connections=3, repeats=True) as ledger:
                await ledger.attempts.close_attempts([closing])
                assert await money(ledger, batch_id) == (0, PRICE if end == "unknown" else COST)

        asyncio.run(replay())


def test_calls_under_way_have_their_leases_again_before_another_worker_takes_the_jobs(cluster: Cluster) -> None:
    batch_id, job_ids = submitted(cluster.primary, 2)
    with cluster.standby() as url:
        opened = calls(cluster.primary, job_ids)

        async def go_on() -> None:
            async with PostgresLedger(url, connections=3, repeats=True, lease_for=HOUR) as ledger:
                attempts = [attempt for _, attempt in opened]
                for _ in range(2):
                    await ledger.attempts.put_back(attempts)
                    assert await money(ledger, batch_id) == (2 * PRICE, 0)
                assert await take(ledger, job_ids, worker="another") == []
                with psycopg.connect(url) as connection:
                    row = connection.execute("SELECT min(lease_until - nightdesk_now()) FROM job").fetchone()
                assert row is not None
                assert HOUR / 2 < row[0] <= HOUR, "as long as the worker's others"
                assert await ledger.attempts.close_attempts([ok(*call) for call in opened]) == set(job_ids)
                assert await money(ledger, batch_id) == (0, 2 * COST)

        asyncio.run(go_on())


def test_money_that_comes_back_is_reserved_for_its_own_key_alone(cluster: Cluster) -> None:
    async def submit() -> list[UUID]:
        async with PostgresLedger(cluster.primary, connections=3, repeats=True) as ledger:
            money = {TOTAL: Decimal(10)}
            key, _ = await add_key(ledger, KeyRequest("intake", "desk", Role.SUBMIT, money=money), ACTOR)
            await add_key(ledger, KeyRequest("other", "desk", Role.SUBMIT, money=money), ACTOR)
            await add_key(ledger, KeyRequest("stranger", "another", Role.SUBMIT, money=money), ACTOR)
            receipt = await submit_many(ledger, 2, batch=make_batch("desk", submitter=Submitter(key.id, key.name)))
            return list(receipt.job_ids)

    job_ids = asyncio.run(submit())
    with cluster.standby() as url:
        opened = calls(cluster.primary, job_ids)

        async def put_back() -> None:
            async with PostgresLedger(url, connections=3, repeats=True) as ledger:
                await ledger.attempts.put_back([attempt for _, attempt in opened])
                reserved = {budget.key: budget.reserved_usd for budget in await ledger.budgets.all()}
                assert reserved == {"intake": 2 * PRICE, "other": 0, "stranger": 0}
                assert await ledger.inspection.violations() == []

        asyncio.run(put_back())


def test_an_answer_of_a_job_that_another_worker_calls_by_now_is_stored_and_wins(cluster: Cluster) -> None:
    batch_id, job_ids = submitted(cluster.primary, 1)
    with cluster.standby() as url:
        (call,) = calls(cluster.primary, job_ids)

        async def race() -> None:
            async with PostgresLedger(url, connections=3, repeats=True) as ledger:
                other = await take_one(ledger, job_ids[0], worker="another")
                assert await ledger.attempts.close_attempts([ok(*call)]) == set()
                assert await ledger.attempts.open_attempts([make_attempt(other)]) == [Opened.ANSWERED]
                assert await state(ledger, job_ids[0]) == JobState.RUNNING
                assert await money(ledger, batch_id) == (0, COST)

        asyncio.run(race())


def test_an_answer_of_a_cancelled_job_is_paid_and_moves_nothing(cluster: Cluster) -> None:
    batch_id, job_ids = submitted(cluster.primary, 1)
    with cluster.standby() as url:
        (call,) = calls(cluster.primary, job_ids)

        async def replay() -> None:
            async with PostgresLedger(url, connections=3, repeats=True) as ledger:
                await ledger.actions.cancel(job_ids, ACTOR)
                assert await ledger.attempts.close_attempts([ok(*call)]) == set()
                assert await state(ledger, job_ids[0]) == JobState.CANCELLED
                assert await money(ledger, batch_id) == (0, COST)
                assert await ledger.inspection.violations() == []

        asyncio.run(replay())


def test_what_the_ledger_does_not_know_at_all_is_told_and_what_was_deleted_is_not(cluster: Cluster) -> None:
    _, replicated = submitted(cluster.primary, 2)
    with cluster.standby() as url:
        _, unknown = submitted(cluster.primary, 2)
        opened = calls(cluster.primary, [*replicated, *unknown])
        closings = [ok(*call) for call in opened]

        async def replay() -> None:
            async with PostgresLedger(url, connections=3, repeats=True) as ledger:
                await ledger.actions.cancel(replicated[:1], ACTOR)
                await ledger.erasure.delete(replicated[:1])
                lost: list[ClosedAttempt] = []
                assert await ledger.attempts.close_attempts(closings, lost.extend) == {replicated[1]}
                assert {closing.job_id for closing in lost} == set(unknown)
                assert await ledger.inspection.violations() == []

        asyncio.run(replay())
