"""A tenant's cap on jobs that are not final holds for each submission as a whole, also for two at once."""

import asyncio

import pytest

from schemas.states import HeldReason
from tasks.errors import QueueFull
from tests.builders import later, lease_key, make_batch, make_request
from tests.contract.conftest import Clock
from tests.contract.situations import HOUR, submit, submit_and_take, submit_many
from tests.lent_ledger import KeptLedger
from worker.ledger.postgres import PostgresLedger


async def test_a_submission_over_the_cap_is_refused_as_a_whole(ledger: PostgresLedger) -> None:
    await submit_many(ledger, 3, make_batch(tenant="a", max_queued=5))
    over = make_batch(tenant="a", max_queued=5, key="k")

    with pytest.raises(QueueFull, match=r"tenant 'a' may have 5 .* has 3 already.*NIGHTDESK_MAX_QUEUED_JOBS"):
        await submit_many(ledger, 3, over)

    assert [status.jobs for status in await ledger.reading.batches(10)] == [3]
    await submit_many(ledger, 2, make_batch(tenant="a", max_queued=5))
    with pytest.raises(QueueFull, match="has 5 already"):
        await submit_many(ledger, 1, make_batch(tenant="a", max_queued=5))
    with pytest.raises(QueueFull, match="more than 2 already"):
        await submit_many(ledger, 1, make_batch(tenant="a", max_queued=2))


async def test_every_state_that_is_not_final_counts(ledger: PostgresLedger, clock: Clock) -> None:
    batch = make_batch(tenant="a")
    await submit(ledger, make_request("waits?"), make_request("later?", scheduled_at=clock.now() + HOUR), batch=batch)
    await submit(ledger, make_request("checked?", response="An answer."), batch=make_batch(tenant="a"))
    await submit_and_take(ledger, make_request("runs?"), make_batch(tenant="a"))
    held_job = await submit_and_take(ledger, make_request("held?"), make_batch(tenant="a"))
    assert await ledger.queue.defer(lease_key(held_job), later(held_job, held_reason=HeldReason.BUDGET))

    with pytest.raises(QueueFull, match="has 5 already"):
        await submit_many(ledger, 1, make_batch(tenant="a", max_queued=5))


async def test_accepted_jobs_are_returned_even_at_the_cap(ledger: PostgresLedger) -> None:
    first = await submit_many(ledger, 2, make_batch(tenant="a", key="k", max_queued=2))

    assert (await submit_many(ledger, 2, make_batch(tenant="a", key="k", max_queued=2))).job_ids == first.job_ids
    named = make_request("named?", idempotency_key="i")
    old = await submit(ledger, named, batch=make_batch(tenant="b", max_queued=1))
    again = await submit(ledger, named, batch=make_batch(tenant="b", max_queued=1))
    assert again.job_ids == old.job_ids


async def test_two_submissions_at_once_do_not_pass_the_cap_together(
    ledger: PostgresLedger, postgres_database_url: str
) -> None:
    async with KeptLedger(postgres_database_url) as other:
        tries = [
            submit_many(store, 3, make_batch(tenant="a", max_queued=7)) for store in (ledger, other, ledger, other)
        ]
        done = await asyncio.gather(*tries, return_exceptions=True)

    assert sorted(isinstance(outcome, QueueFull) for outcome in done) == [False, False, True, True]
    assert sum(status.jobs for status in await ledger.reading.batches(10)) == 6
