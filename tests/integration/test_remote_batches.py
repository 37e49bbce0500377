"""Parked calls and provider batches in PostgreSQL: who may park, what goes into a batch, and what it costs that nothing was sent."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from schemas.states import JobState, Step
from tasks.errors import KeyLimitReached, QueueFull
from tasks.ports import Advance, ClosedAttempt, Leased, NewAttempt, NewBatch, Opened, Submitter
from tasks.ports.remote_batches import Gathering, Intent, ParkedCall
from tests.builders import make_attempt, make_batch, make_request
from tests.contract.situations import submit, submit_and_take
from tests.deadlines import scale_to_load
from tests.lent_ledger import KeptLedger
from tests.servers import advance_clock
from worker.ledger.postgres import PostgresLedger

DOCUMENT = b'{"protocol": "markers", "timeout_s": 60, "endpoint": null, "prompt": null}'
KEEP = timedelta(seconds=60)


def over(database_url: str, scenario: Callable[[PostgresLedger], Awaitable[None]]) -> None:
    async def work() -> None:
        async with KeptLedger(database_url) as ledger:
            await scenario(ledger)
            assert await ledger.inspection.violations() == []

    asyncio.run(work())


async def opened(ledger: PostgresLedger, batch: NewBatch | None = None) -> tuple[Leased, NewAttempt]:
    job = await submit_and_take(ledger, batch=batch)
    attempt = replace(make_attempt(job), lane="provider_batch", model="m", reserved_usd=Decimal("0.01"))
    assert await ledger.attempts.open_attempts([attempt]) == [Opened.OPENED]
    return job, attempt


def parked_call(attempt: NewAttempt, body: bytes = b"{}", **changes: Any) -> ParkedCall:
    call = ParkedCall(attempt.id, attempt.job_id, attempt.token, attempt.provider, "m", body, DOCUMENT)
    return replace(call, **changes)


async def parked(ledger: PostgresLedger, body: bytes = b"{}") -> NewAttempt:
    _, attempt = await opened(ledger)
    assert await ledger.remote_batches.park([parked_call(attempt, body)]) == {attempt.id}
    return attempt


async def intend(ledger: PostgresLedger, provider: str, max_calls: int = 100, max_bytes: int = 10**6) -> Intent | None:
    return await ledger.remote_batches.intend(provider, "m", max_calls=max_calls, max_bytes=max_bytes, keep_for=KEEP)


async def state(ledger: PostgresLedger, job_id: UUID) -> JobState:
    return (await ledger.reading.job_detail(job_id)).view.state


async def attempt_row(ledger: PostgresLedger, attempt: NewAttempt) -> dict[str, Any]:
    rows = (await ledger.reading.job_detail(attempt.job_id)).attempts
    return next(row for row in rows if str(row["id"]) == str(attempt.id))


def test_only_the_holder_of_the_lease_parks_and_a_repeated_try_finds_it_parked(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        _, attempt = await opened(ledger)
        assert await ledger.remote_batches.park([parked_call(attempt, token=uuid4())]) == set()
        assert await state(ledger, attempt.job_id) is JobState.RUNNING
        assert await ledger.remote_batches.park([parked_call(attempt)]) == {attempt.id}
        assert await state(ledger, attempt.job_id) is JobState.PENDING
        assert await ledger.remote_batches.park([parked_call(attempt)]) == {attempt.id}

    over(database_url, scenario)


def test_a_parked_job_counts_under_the_caps_on_jobs_that_are_not_final(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        key = Submitter(uuid4(), "night", jobs_waiting=1)
        _, attempt = await opened(ledger, make_batch(submitter=key))
        assert await ledger.remote_batches.park([parked_call(attempt)]) == {attempt.id}
        with pytest.raises(QueueFull, match=r"may have 1 .* has 1 already"):
            await submit(ledger, make_request("of the tenant?"), batch=make_batch(max_queued=1))
        with pytest.raises(KeyLimitReached, match="'night' may have 1 jobs that are not final"):
            await submit(ledger, make_request("of the key?"), batch=make_batch(submitter=key))
        await ledger.actions.cancel([attempt.job_id], "a person")
        assert (await submit(ledger, make_request("again?"), batch=make_batch(submitter=key, max_queued=1))).created

    over(database_url, scenario)


def test_calls_are_gathered_until_none_comes_or_the_first_waits_too_long(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        attempt = await parked(ledger)
        minute, hour, many = timedelta(minutes=1), timedelta(hours=1), 100
        (waiting,) = await ledger.remote_batches.waiting()
        assert (waiting.provider, waiting.model, waiting.calls) == (attempt.provider, "m", 1)
        assert not waiting.ripe(Gathering(minute, hour), many)
        assert waiting.ripe(Gathering(minute, hour), 1)
        assert waiting.ripe(Gathering(minute, timedelta(0)), many)
        assert waiting.ripe(Gathering(timedelta(0), hour), many)

    over(database_url, scenario)


def test_a_call_whose_job_another_one_holds_goes_with_the_next_batch_and_keeps_none_waiting(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        busy, free = await parked(ledger), await parked(ledger)
        with psycopg.connect(database_url) as operator:
            operator.execute("SELECT FROM job WHERE id = %s FOR UPDATE", (busy.job_id,))
            async with asyncio.timeout(scale_to_load(20)):
                first = await intend(ledger, free.provider)
        second = await intend(ledger, free.provider)
        assert [intent and intent.calls for intent in (first, second)] == [1, 1]
        assert [(await attempt_row(ledger, each))["provider_batch_id"] for each in (free, busy)] == [
            str(intent and intent.id) for intent in (first, second)
        ]

    over(database_url, scenario)


@pytest.mark.parametrize(
    ("max_calls", "max_bytes", "sizes"),
    [(2, 10**6, [2, 1]), (100, 2 * (100 + 256), [2, 1]), (100, 50, [1, 1, 1]), (100, 10**6, [3])],
)
def test_a_batch_takes_as_many_calls_as_fit(
    database_url: str, max_calls: int, max_bytes: int, sizes: list[int]
) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        attempts = [await parked(ledger, b"x" * 100) for _ in range(3)]
        provider = attempts[0].provider
        intents = [await intend(ledger, provider, max_calls, max_bytes) for _ in sizes]
        assert [intent.calls for intent in intents if intent] == sizes
        assert await intend(ledger, provider) is None
        ids = [call.attempt_id for intent in intents if intent async for call in ledger.remote_batches.calls(intent.id)]
        assert ids == sorted(attempt.id for attempt in attempts)

    over(database_url, scenario)


def test_a_call_whose_job_was_cancelled_is_not_sent_and_costs_nothing(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        attempt = await parked(ledger)
        assert await ledger.remote_batches.withdrawn(10) == []
        await ledger.actions.cancel([attempt.job_id], "a person")
        assert await intend(ledger, attempt.provider) is None
        (withdrawn,) = await ledger.remote_batches.withdrawn(10)
        await ledger.attempts.close_attempts([withdrawn])
        await ledger.remote_batches.forget([withdrawn.id])
        row = await attempt_row(ledger, attempt)
        assert (row["outcome"], Decimal(str(row["cost_usd"]))) == ("error:cancelled", 0)
        assert await ledger.remote_batches.waiting() == []

    over(database_url, scenario)


def test_one_worker_at_a_time_looks_after_a_batch(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        attempt = await parked(ledger)
        intent = await intend(ledger, attempt.provider)
        assert intent is not None
        assert await ledger.remote_batches.take_due(1, KEEP) == [], "its creator keeps it"
        assert await ledger.remote_batches.note_created(intent.id, "batch_1", timedelta(0))
        (batch,) = await ledger.remote_batches.take_due(1, KEEP)
        assert (batch.remote_id, batch.has_jobs, batch.cancelled, batch.looks) == ("batch_1", True, False, 1)
        assert await ledger.remote_batches.take_due(1, KEEP) == []
        await asyncio.to_thread(advance_clock, database_url, 2 * KEEP)
        await ledger.actions.cancel([attempt.job_id], "a person")
        (again,) = await ledger.remote_batches.take_due(1, KEEP)
        assert (again.has_jobs, again.looks) == (False, 2)

        # Put off to now, it is left to others for so long by a worker that can't serve its provider.
        await ledger.remote_batches.put_off({intent.id: timedelta(0)})
        assert await ledger.remote_batches.take_due(1, KEEP, [attempt.provider]) == []
        await asyncio.to_thread(advance_clock, database_url, 3 * KEEP)
        (late,) = await ledger.remote_batches.take_due(1, KEEP, [attempt.provider])
        assert late.overdue >= KEEP

    over(database_url, scenario)


def test_a_remote_id_is_noted_once_and_belongs_to_one_intent(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        first = await parked(ledger)
        intent = await intend(ledger, first.provider)
        await parked(ledger)
        other = await intend(ledger, first.provider)
        assert intent is not None
        assert other is not None
        assert await ledger.remote_batches.note_created(intent.id, "batch_1", KEEP)
        assert not await ledger.remote_batches.note_created(intent.id, "batch_2", KEEP)
        assert not await ledger.remote_batches.note_created(other.id, "batch_1", KEEP)
        assert await ledger.remote_batches.remote_ids(first.provider) == {"batch_1"}

    over(database_url, scenario)


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        (Advance(JobState.SCHEDULED, Step.GENERATE, 0, timedelta(seconds=5), event="retry"), JobState.SCHEDULED),
        (Advance(JobState.RUNNING, Step.GENERATE, 0), JobState.RUNNING),
    ],
)
def test_the_close_of_its_call_moves_a_pending_job_once(database_url: str, then: Advance, expected: JobState) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        attempt = await parked(ledger)
        intent = await intend(ledger, attempt.provider)
        assert intent is not None
        (pending,) = await ledger.remote_batches.pending([attempt.id], intent.id)
        assert (pending.attempt.id, pending.job.token) == (attempt.id, attempt.token)
        close = ClosedAttempt(
            attempt.id, attempt.job_id, attempt.token, Step.GENERATE, "error:overloaded", spent=True,
            cost_usd=Decimal(0), then=then,
        )  # fmt: skip
        assert await ledger.attempts.close_attempts([replace(close, token=uuid4(), outcome="unknown")]) == set()
        assert await ledger.attempts.close_attempts([close]) == {attempt.job_id}
        assert await state(ledger, attempt.job_id) is expected

    over(database_url, scenario)


def test_what_was_collected_is_passed_over_the_second_time(database_url: str) -> None:
    async def close(ledger: PostgresLedger, attempt: NewAttempt, outcome: str) -> None:
        then = Advance(JobState.AVAILABLE, Step.GENERATE, 0)
        closed = ClosedAttempt(attempt.id, attempt.job_id, attempt.token, Step.GENERATE, outcome, spent=False)
        await ledger.attempts.close_attempts([replace(closed, cost_usd=Decimal(0), then=then)])

    async def scenario(ledger: PostgresLedger) -> None:
        first, second = await parked(ledger), await parked(ledger)
        intent = await intend(ledger, first.provider)
        assert intent is not None
        await close(ledger, first, "error:expired")
        ids = [first.id, second.id]
        assert [call.attempt.id for call in await ledger.remote_batches.pending(ids, intent.id)] == [second.id]
        assert await ledger.remote_batches.unanswered(intent.id, 10) == [second.id]
        await close(ledger, second, "error:cancelled")
        await ledger.remote_batches.end(intent.id, "abandoned")
        assert await ledger.remote_batches.pending(ids, intent.id) == []

    over(database_url, scenario)
