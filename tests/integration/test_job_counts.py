"""A status reads stored counts and no jobs; their changes are folded when there are many, and none is lost by it."""

import asyncio
from datetime import timedelta

import psycopg

from schemas.states import JobState
from tasks.ports import Outlook
from tests.builders import make_batch
from tests.contract.situations import ACTOR, submit_many
from tests.lent_ledger import KeptLedger
from worker.ledger.duties import FOLD_FROM
from worker.ledger.postgres import PostgresLedger

JOBS = 600
ALL = 10 * FOLD_FROM
LEASE = timedelta(seconds=60)
SECOND = timedelta(seconds=1)


def test_many_changes_of_counts_are_folded_and_nothing_else_changes(database_url: str) -> None:
    async def work() -> None:
        async with KeptLedger(database_url) as ledger:
            receipt = await submit_many(ledger, 3)
            while not (await _attend(ledger)).unfolded:
                for paused in (True, False):
                    await ledger.actions.pause_batch(receipt.batch_id, ACTOR, paused=paused)
            status = await ledger.reading.batch_status(receipt.batch_id)
            assert status.states == {JobState.AVAILABLE: 3}

            assert await ledger.duties.fold_counts(ALL) > FOLD_FROM

            assert not (await _attend(ledger)).unfolded
            assert await ledger.reading.batch_status(receipt.batch_id) == status

    asyncio.run(work())
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT state, jobs, folded FROM job_count").fetchall()
    assert rows == [("available", 3, True)]


async def test_folds_race_with_changes_and_with_each_other(database_url: str) -> None:
    async with KeptLedger(database_url) as ledger:
        receipts = [await submit_many(ledger, JOBS // 3, make_batch(key=str(number))) for number in range(3)]
        changing = True

        async def change(number: int) -> None:
            for paused in (True, False) * 4:
                await ledger.actions.pause_batch(receipts[number].batch_id, ACTOR, paused=paused)
            await ledger.actions.cancel(receipts[number].job_ids, ACTOR)

        async def fold() -> None:
            while changing:
                await ledger.duties.fold_counts(10)
                assert await ledger.inspection.violations() == []

        folds = [asyncio.create_task(fold()) for _ in range(2)]
        await asyncio.gather(*(change(number) for number in range(3)))
        changing = False
        await asyncio.gather(*folds)
        for receipt in receipts:
            status = await ledger.reading.batch_status(receipt.batch_id)
            assert (status.states, status.unpublished) == ({JobState.CANCELLED: JOBS // 3}, JOBS // 3)


async def _attend(ledger: PostgresLedger) -> Outlook:
    return await ledger.duties.attend("leader", LEASE, SECOND, check_backlog=100)
