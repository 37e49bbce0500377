"""Identical calls of a tenant that come at once: one is made, the others wait for it, and for no more than it is worth."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from schemas.failure import FailureKind
from tasks.calls.response_cache import MOST_FAILED
from tasks.errors import Unstorable
from tasks.ports import CacheStatus, Leased, Opened
from tests.builders import (
    SHARED_REQUEST,
    closed_error,
    closed_ok,
    closed_unknown,
    make_attempt,
    make_batch,
    make_request,
    make_terms,
    make_wanted,
    to_check,
)
from tests.contract.conftest import Clock
from tests.contract.situations import SECOND, look, open_one, sound, submit_and_take, submit_many, take
from worker.ledger.postgres import PostgresLedger

NONE, REUSED, UNDER_WAY = CacheStatus.NONE, CacheStatus.REUSED, CacheStatus.UNDER_WAY


async def test_a_call_under_way_is_waited_for_and_then_taken_from(ledger: PostgresLedger, clock: Clock) -> None:
    first, second = await take(ledger, (await submit_many(ledger, 2)).job_ids)
    attempt = await open_one(ledger, first, share=make_terms(), request_hash=SHARED_REQUEST)
    await clock.advance(2 * SECOND)

    (reply,) = await ledger.cache.share([make_wanted(second)])
    assert reply.status is UNDER_WAY
    assert 2 * SECOND <= reply.open_for < 12 * SECOND
    assert await ledger.attempts.open_attempts([make_attempt(second, share=make_terms())]) == [Opened.DUPLICATE]
    await ledger.attempts.close_attempts([closed_ok(first, attempt, then=to_check(first))])
    # Answered between the look and the call: looked for again, not called.
    assert await ledger.attempts.open_attempts([make_attempt(second, share=make_terms())]) == [Opened.DUPLICATE]

    assert await look(ledger, second) is REUSED
    await sound(ledger)


async def test_of_identical_calls_that_come_together_one_is_opened(ledger: PostgresLedger) -> None:
    leased = await take(ledger, (await submit_many(ledger, 4)).job_ids)
    terms = [make_terms("a"), make_terms("b"), make_terms("a"), make_terms("a", wait_s=0)]
    attempts = [make_attempt(job, share=share) for job, share in zip(leased, terms, strict=True)]

    assert await ledger.attempts.open_attempts(attempts) == [
        Opened.OPENED,
        Opened.OPENED,
        Opened.DUPLICATE,
        Opened.OPENED,
    ]


async def test_of_identical_calls_of_many_processes_one_is_opened(ledger: PostgresLedger) -> None:
    for turn in range(5):
        leased = await take(ledger, (await submit_many(ledger, 9)).job_ids)
        groups = [leased[at : at + 3] for at in range(0, 9, 3)]
        terms = [make_terms(f"{turn} {name}") for name in "abc"]

        async def opened(group: list[Leased], shares: Any) -> list[Opened]:
            attempts = [make_attempt(job, share=share) for job, share in zip(group, shares, strict=True)]
            return await ledger.attempts.open_attempts(attempts)

        # In another order each: whoever takes the locks of a group takes them in the same.
        orders = [terms, terms[::-1], [terms[1], terms[0], terms[2]]]
        statuses = await asyncio.gather(*map(opened, groups, orders))

        assert sorted(status for group in statuses for status in group) == [Opened.DUPLICATE] * 6 + [Opened.OPENED] * 3


@pytest.mark.parametrize("how", [closed_error, closed_unknown])
async def test_a_call_that_fails_is_followed_by_another_ones(ledger: PostgresLedger, how: Any) -> None:
    first, second, third = await take(ledger, (await submit_many(ledger, 3)).job_ids)
    attempt = await open_one(ledger, first, share=make_terms())
    await ledger.attempts.close_attempts([how(first, attempt)])

    assert await look(ledger, second) is NONE
    await open_one(ledger, second, share=make_terms())
    assert await look(ledger, third) is UNDER_WAY


async def test_after_three_failures_each_makes_its_own_call(ledger: PostgresLedger) -> None:
    first, second, third = await take(ledger, (await submit_many(ledger, 3)).job_ids)
    for _ in range(MOST_FAILED):
        attempt = await open_one(ledger, first, share=make_terms())
        await ledger.attempts.close_attempts([closed_error(first, attempt, FailureKind.BAD_ANSWER)])
    await open_one(ledger, second, share=make_terms())

    assert await look(ledger, third) is NONE
    await open_one(ledger, third, share=make_terms())


async def test_a_refusal_for_the_rate_is_no_reason_not_to_wait(ledger: PostgresLedger) -> None:
    first, second, third = await take(ledger, (await submit_many(ledger, 3)).job_ids)
    for _ in range(MOST_FAILED):
        attempt = await open_one(ledger, first, share=make_terms())
        await ledger.attempts.close_attempts([closed_error(first, attempt, FailureKind.RATE_LIMITED, spent=False)])
    await open_one(ledger, second, share=make_terms())

    assert await look(ledger, third) is UNDER_WAY


@pytest.mark.parametrize(
    ("terms", "request_"),
    [({"wait_s": 0}, {}), ({"wait_s": 50}, {}), ({"what": "something else"}, {}), ({}, {"deadline": True})],
    ids=["does not wait", "under way for too long", "another request", "the deadline is too near"],
)
async def test_a_job_that_does_not_wait_makes_its_own_call(
    ledger: PostgresLedger, clock: Clock, terms: dict[str, Any], request_: dict[str, Any]
) -> None:
    await open_one(ledger, await submit_and_take(ledger), share=make_terms())
    await clock.advance(60 * SECOND)
    deadline = clock.now() + timedelta(seconds=200) if request_ else None
    leased = await submit_and_take(ledger, make_request(deadline=deadline))

    assert await look(ledger, leased, **terms) is NONE
    await open_one(ledger, leased, share=make_terms(**terms))


async def test_no_job_waits_for_another_tenant(ledger: PostgresLedger) -> None:
    await open_one(ledger, await submit_and_take(ledger), share=make_terms())
    leased = await submit_and_take(ledger, batch=make_batch(tenant="another"))

    assert await look(ledger, leased) is NONE
    await open_one(ledger, leased, share=make_terms())


async def test_the_call_of_a_dead_worker_is_awaited_until_its_rescue(ledger: PostgresLedger, clock: Clock) -> None:
    first = await submit_and_take(ledger)
    await open_one(ledger, first, share=make_terms())
    await clock.advance(70 * SECOND)
    second = await submit_and_take(ledger)
    assert await look(ledger, second) is UNDER_WAY

    assert await ledger.duties.rescue(10, None) == [first.job_id]

    assert await look(ledger, second) is NONE
    await open_one(ledger, second, share=make_terms())


@pytest.mark.parametrize("wrong", [{"model": "a\x00b"}, {"number": 70_000}], ids=["by the driver", "by the server"])
async def test_an_unstorable_value_is_named_under_locks_too(ledger: PostgresLedger, wrong: dict[str, Any]) -> None:
    leased = await submit_and_take(ledger)

    with pytest.raises(Unstorable):
        await ledger.attempts.open_attempts([make_attempt(leased, share=make_terms(), **wrong)])

    await open_one(ledger, leased, share=make_terms())
