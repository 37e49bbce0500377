"""Windows of batches on PostgreSQL: calls begin inside only, and jobs go on in the next one by themselves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from schemas.states import JobState, Step
from schemas.window import parse_window
from tasks.errors import InputError
from tasks.ports import NewBatch, Opened
from tasks.submit import new_batch, submit
from tests.builders import closed_ok, make_attempt, make_batch, to_check
from tests.contract.situations import (
    ACTOR,
    HOUR,
    SECOND,
    finish,
    generate,
    open_one,
    state,
    states,
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


def hours(begin: timedelta, end: timedelta) -> str:
    """A window from now on, in whole minutes."""
    now = datetime.now(UTC)
    return f"{now + begin:%H:%M}-{now + end:%H:%M} UTC"


# New in each test: it ends an hour after the test begins, not after the tests were collected.
@pytest.fixture
def open_window() -> str:
    return hours(-HOUR, HOUR)


@pytest.fixture
def later_window() -> str:
    return hours(HOUR, 3 * HOUR)


@asynccontextmanager
async def opened(url: str, window: str) -> AsyncIterator[tuple[PostgresLedger, NewBatch]]:
    """A ledger, and a batch with a window for it."""
    async with KeptLedger(url) as ledger:
        yield ledger, make_batch(window=window)
        assert await ledger.inspection.violations() == []


async def tick(ledger: PostgresLedger) -> None:
    """The duties that a leader does about windows."""
    outlook = await ledger.duties.attend("w", SECOND, SECOND, 10)
    if outlook.window_over:
        await ledger.duties.close_windows()
    await ledger.duties.promote(100)


async def test_a_batch_waits_for_its_window(postgres_database_url: str, later_window: str) -> None:
    async with opened(postgres_database_url, later_window) as (ledger, batch):
        receipt = await submit_many(ledger, 2, batch=batch)
        begins_at = parse_window(later_window).interval(datetime.now(UTC)).begins_at
        status = await ledger.reading.batch_status(batch.id)
        assert (status.window, status.opens_at) == (later_window, begins_at)
        assert not receipt.hints
        assert (await view(ledger, receipt.job_ids[0])).scheduled_at == begins_at

        advance_clock(postgres_database_url, HOUR + 60 * SECOND)
        await tick(ledger)

        leased = await take(ledger, receipt.job_ids)
        await open_one(ledger, leased[0], reserved_usd=Decimal(1))
        await generate(ledger, leased[1])


async def test_no_call_begins_after_the_end_and_those_under_way_end(
    postgres_database_url: str, open_window: str
) -> None:
    async with opened(postgres_database_url, open_window) as (ledger, batch):
        receipt = await submit_many(ledger, 5, batch=batch)
        now = datetime.now(UTC)
        # Windows begin and end with a minute.
        advance_clock(postgres_database_url, parse_window(open_window).interval(now).ends_at - now - 90 * SECOND)
        calling, late = await take(ledger, receipt.job_ids[:2])
        attempt = await open_one(ledger, calling)
        advance_clock(postgres_database_url, 52 * SECOND)
        fresh = await take_one(ledger, receipt.job_ids[2])
        advance_clock(postgres_database_url, 50 * SECOND)

        # Leased before the end, by which the lease of the others has run out.
        assert await ledger.attempts.open_attempts([make_attempt(fresh)]) == [Opened.ON_HOLD]
        waiting = await view(ledger, fresh.job_id)
        assert (waiting.state, waiting.held_reason) == (JobState.SCHEDULED, None)
        assert (
            waiting.scheduled_at
            == parse_window(open_window).after(parse_window(open_window).interval(datetime.now(UTC))).begins_at
        )
        await ledger.attempts.close_attempts([closed_ok(calling, attempt)])

        await tick(ledger)
        assert await states(ledger, receipt.job_ids[3:]) == [JobState.SCHEDULED] * 2, "not leased to learn that"
        assert await state(ledger, late.job_id) is JobState.RUNNING
        status = await ledger.reading.batch_status(batch.id)
        assert status.opens_at == waiting.scheduled_at

        advance_clock(postgres_database_url, 22 * HOUR)
        await ledger.duties.rescue(10, None)
        await tick(ledger)
        assert len(await take(ledger, receipt.job_ids)) == 5


async def test_an_answer_is_checked_after_the_end(postgres_database_url: str, open_window: str) -> None:
    async with opened(postgres_database_url, open_window) as (ledger, batch):
        leased = await submit_and_take(ledger, batch=batch)
        await generate(ledger, leased)
        advance_clock(postgres_database_url, HOUR + 90 * SECOND)
        await tick(ledger)

        checking = await take_one(ledger, leased.job_id, Step.CHECK)
        await finish(ledger, checking)

        # A new run is called like any other job.
        await ledger.actions.retry([leased.job_id], ACTOR)
        await tick(ledger)
        again = await view(ledger, leased.job_id)
        assert (again.state, again.scheduled_at > datetime.now(UTC) + HOUR) == (JobState.SCHEDULED, True)


async def test_a_judge_waits_for_the_next_window(postgres_database_url: str, open_window: str) -> None:
    async with opened(postgres_database_url, open_window) as (ledger, batch):
        leased = await submit_and_take(ledger, batch=batch)
        attempt = await open_one(ledger, leased)
        await ledger.attempts.close_attempts([closed_ok(leased, attempt, then=to_check(leased))])
        advance_clock(postgres_database_url, HOUR + 90 * SECOND)

        checking = await take_one(ledger, leased.job_id, Step.CHECK)
        assert await ledger.attempts.open_attempts([make_attempt(checking)]) == [Opened.ON_HOLD]
        assert (await view(ledger, leased.job_id)).step is Step.CHECK


async def test_a_window_that_opens_too_late_is_refused(postgres_database_url: str, later_window: str) -> None:
    soon = (datetime.now(UTC) + HOUR / 2).isoformat()
    with pytest.raises(InputError, match="does not open before") as caught:
        new_batch({"window": later_window, "deadline": soon}, tenant="desk")
    assert caught.value.field == "window"
    with pytest.raises(InputError, match="is no window: give hours"):
        new_batch({"window": "by night"}, tenant="desk")

    async with KeptLedger(postgres_database_url) as ledger:
        raw = [{"query": "A?", "context": ["x"], "deadline": soon}, {"query": "B?", "context": ["x"]}]
        submitted = await submit(ledger.submission, raw, batch=new_batch({"window": later_window}, tenant="desk"))
        assert [(line.position, line.field) for line in submitted.refused] == [(0, "window")]
