"""Pruning by the workers themselves: what ended long ago goes, page by page, and nothing else."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from tasks.errors import BrokerUnavailable
from tests.builders import make_batch
from tests.contract.conftest import Clock
from tests.contract.situations import finish, submit_many, take, view
from worker.ledger.postgres import PostgresLedger
from worker.process.pruning import Pruning

DAY = timedelta(days=1)


async def ended(ledger: PostgresLedger, jobs: int) -> tuple[UUID, ...]:
    """Jobs of a new batch that are final."""
    receipt = await submit_many(ledger, jobs, make_batch())
    for leased in await take(ledger, receipt.job_ids):
        await finish(ledger, leased)
    return receipt.job_ids


class Redis:
    """Remembers what is to be forgotten."""

    def __init__(self) -> None:
        self.forgotten: dict[UUID, int] = {}

    async def forget(self, runs: Mapping[UUID, int]) -> None:
        self.forgotten.update(runs)


async def test_content_goes_after_its_time_and_rows_after_theirs(ledger: PostgresLedger, clock: Clock) -> None:
    redis = Redis()
    pruning = Pruning(ledger, redis.forget, 10 * DAY, 100 * DAY, page_pause=timedelta(0))
    old = await ended(ledger, 3)
    waiting = (await submit_many(ledger, 2, make_batch())).job_ids
    await clock.advance(9 * DAY)
    assert await pruning.prune() == (0, 0)
    await clock.advance(2 * DAY)
    young = await ended(ledger, 2)

    assert await pruning.prune() == (3, 0)
    assert await pruning.prune() == (0, 0)
    assert redis.forgotten == dict.fromkeys(old, 1)
    assert [(await view(ledger, job_id)).erased_at is not None for job_id in (*old, *young)] == [True] * 3 + [False] * 2

    await clock.advance(95 * DAY)
    assert await pruning.prune() == (2, 3)
    assert {view.job_id for view in await ledger.reading.views([*old, *young, *waiting])} == {*young, *waiting}


async def test_only_the_worker_that_leads_prunes_and_it_goes_on_after_an_error(
    ledger: PostgresLedger, clock: Clock
) -> None:
    jobs = await ended(ledger, 2)
    await clock.advance(2 * DAY)
    looks, tries = 0, 0
    forgotten = asyncio.Event()

    async def forget(runs: Mapping[UUID, int]) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise BrokerUnavailable("away")
        assert set(runs) == set(jobs)
        forgotten.set()

    def leads() -> bool:
        nonlocal looks
        looks += 1
        return looks > 1

    every = timedelta(milliseconds=20)
    pruning = Pruning(ledger, forget, DAY, None, leads=leads, page_pause=timedelta(0), every=every)
    running = asyncio.create_task(pruning.run())
    async with asyncio.timeout(30):
        await forgotten.wait()
    running.cancel()

    assert (tries, looks) == (2, 3)


async def test_a_round_reads_no_batch_that_an_earlier_one_emptied(ledger: PostgresLedger, clock: Clock) -> None:
    await ended(ledger, 2)
    await clock.advance(3 * DAY)
    pruning = Pruning(ledger, Redis().forget, DAY, DAY, page_pause=timedelta(0))
    assert await pruning.prune() == (0, 2)
    await pruning.prune()
    # As if its jobs came back: what was passed is not visited again.
    await ledger._database.rows("UPDATE batch SET erased_at = NULL", {})
    young = await ended(ledger, 1)
    await clock.advance(3 * DAY)
    passed = pruning._passed[True]
    assert passed.created_at is not None
    assert [batch async for batch in ledger.erasure.old_batches(None, DAY, rows=False, passed=passed)] == [
        (await view(ledger, young[0])).batch_id
    ]
    assert await pruning.prune() == (0, 1)


async def test_batches_without_jobs_and_old_sums_go_after_a_further_time(ledger: PostgresLedger, clock: Clock) -> None:
    await ended(ledger, 1)
    waiting = make_batch(callback_url="https://receiver.example/")
    open_jobs = await submit_many(ledger, 1, waiting)
    told = make_batch(callback_url="https://receiver.example/")
    await ledger._database.rows(
        "WITH b AS (INSERT INTO batch (id, tenant) VALUES (%(id)s, 't')), c AS ("
        " INSERT INTO callback (batch_id, url, ended_at) VALUES (%(id)s, 'https://r.example/', nightdesk_now()))"
        " INSERT INTO provider_batch (id, provider, lane, state, calls, next_at, ended_at) VALUES (%(id)s, 'p', 'provider_batch', 'abandoned', 1, nightdesk_now(), nightdesk_now())",
        {"id": told.id},
    )
    pruning = Pruning(ledger, Redis().forget, None, DAY, 30 * DAY, page_pause=timedelta(0))
    await clock.advance(29 * DAY)
    await pruning.prune()
    assert len(await ledger.reading.batches(10)) == 3
    await clock.advance(2 * DAY)
    await pruning.prune()
    assert [each.batch_id for each in await ledger.reading.batches(10)] == [open_jobs.batch_id]
    for table in ("provider_batch", "callback"):
        (row,) = await ledger._database.rows(f"SELECT count(*) AS rows FROM {table}", {})
        assert row.rows == (1 if table == "callback" else 0)
