"""Attempts: written before the call, closed once whatever happened meanwhile, and the first answer wins."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest

from schemas.model_call import FinishReason
from schemas.states import HeldReason, JobState, Step
from tasks.ports import ClosedAttempt, Leased, Opened, Purpose, StoredAnswer
from tests.builders import (
    ANSWER,
    closed_error,
    closed_ok,
    closed_unknown,
    later,
    lease_key,
    make_answer,
    make_attempt,
    new_id,
    to_check,
)
from tests.contract.conftest import Clock
from tests.contract.situations import (
    ACTOR,
    LEASE,
    finish,
    generate,
    open_one,
    state,
    submit_and_take,
    submit_many,
    take,
    take_one,
    view,
)
from worker.ledger.postgres import PostgresLedger

Closing = Callable[..., ClosedAttempt]

# ---- opening ---------------------------------------------------------------------------------------------------


async def test_an_attempt_is_on_record_before_its_call(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased, reserved_usd=Decimal("0.25"))

    (row,) = (await ledger.reading.job_detail(leased.job_id)).attempts

    assert str(row["id"]) == str(attempt.id)
    assert (row["run"], row["round"], row["purpose"], row["number"]) == (leased.run, leased.round, "generate", 1)
    assert (row["lane"], row["provider"], row["model"]) == ("standard", "fake", "fake-1")
    assert (row["outcome"], row["closed_at"], row["cost_usd"]) == (None, None, None)
    assert Decimal(str(row["reserved_usd"])) == Decimal("0.25")
    assert row["opened_at"] is not None


async def test_no_attempt_without_a_lease(ledger: PostgresLedger) -> None:
    receipt = await submit_many(ledger, 4)
    held_job, cancelled, given_back, done = await take(ledger, receipt.job_ids)
    await ledger.actions.cancel([cancelled.job_id], ACTOR)
    await ledger.queue.hand_back([lease_key(given_back)])
    await finish(ledger, done)
    attempts = [make_attempt(job) for job in (cancelled, held_job, given_back, done)]
    attempts.append(make_attempt(held_job, token=new_id()))

    assert await ledger.attempts.open_attempts(attempts) == [
        Opened.LOST,
        Opened.OPENED,
        Opened.LOST,
        Opened.LOST,
        Opened.LOST,
    ]
    for job in (cancelled, given_back, done):
        assert (await ledger.reading.job_detail(job.job_id)).attempts == ()
    assert await ledger.attempts.open_attempts([]) == []


async def test_an_attempt_with_an_unconfirmed_commit_is_stale_once_the_lease_ran_out(
    ledger: PostgresLedger, clock: Clock
) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await clock.advance(LEASE)

    assert await ledger.attempts.open_attempts([attempt, make_attempt(leased)]) == [Opened.STALE, Opened.LOST]


async def test_no_second_call_for_a_stored_answer(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await ledger.attempts.close_attempts([closed_ok(leased, attempt)])

    again = [make_attempt(leased), make_attempt(leased, purpose=Purpose.REASK), make_attempt(leased, round=1)]

    assert await ledger.attempts.open_attempts(again) == [Opened.ANSWERED, Opened.OPENED, Opened.OPENED]
    assert len((await ledger.reading.job_detail(leased.job_id)).attempts) == 3


# ---- closing ---------------------------------------------------------------------------------------------------


async def test_closing_again_changes_nothing(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased, reserved_usd=Decimal("0.1"))
    closed = closed_ok(leased, attempt, then=to_check(leased))
    await ledger.attempts.close_attempts([closed])
    before = await ledger.reading.job_detail(leased.job_id)

    for again in (closed, closed_error(leased, attempt), closed_unknown(leased, attempt)):
        assert await ledger.attempts.close_attempts([again]) == set()

    assert await ledger.reading.job_detail(leased.job_id) == before
    status = await ledger.reading.batch_status(leased.batch_id)
    assert (status.reserved_usd, status.spent_usd) == (0, Decimal("0.002"))


async def test_the_step_fences_the_advance(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    elsewhere = replace(closed_ok(leased, attempt, then=to_check(leased)), step=Step.CHECK)

    assert await ledger.attempts.close_attempts([elsewhere]) == set()

    assert await state(ledger, leased.job_id) is JobState.RUNNING
    assert (await ledger.reading.job_detail(leased.job_id)).attempts[0]["outcome"] == "ok"


# ---- late answers ----------------------------------------------------------------------------------------------


async def test_a_late_answer_is_kept_and_spares_the_next_call(ledger: PostgresLedger, clock: Clock) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await clock.advance(2 * LEASE)
    assert await ledger.duties.rescue(10, None) == [leased.job_id]

    late = closed_ok(leased, attempt, "late but good", then=to_check(leased))
    assert await ledger.attempts.close_attempts([late]) == set()

    assert await state(ledger, leased.job_id) is JobState.AVAILABLE
    again = await take_one(ledger, leased.job_id, worker="w2")
    assert again.step is Step.GENERATE
    assert again.stored is not None
    assert (again.stored.attempt_id, again.stored.completion.text) == (attempt.id, "late but good")
    assert again.unknown == 0
    assert await ledger.attempts.open_attempts([make_attempt(again)]) == [Opened.ANSWERED]


async def test_the_first_answer_wins_and_the_late_one_is_kept_beside_it(ledger: PostgresLedger, clock: Clock) -> None:
    first = await submit_and_take(ledger)
    slow = await open_one(ledger, first)
    await clock.advance(2 * LEASE)
    await ledger.duties.rescue(10, None)
    second = await take_one(ledger, first.job_id, worker="w2")
    assert (second.unknown, second.attempts) == (1, 1)
    quick = await open_one(ledger, second)
    await ledger.attempts.close_attempts([closed_ok(second, quick, "quick", then=to_check(second))])

    assert await ledger.attempts.close_attempts([closed_ok(first, slow, "slow", then=to_check(first))]) == set()

    checking = await take_one(ledger, first.job_id, Step.CHECK)
    assert checking.stored is not None
    assert (checking.stored.attempt_id, checking.stored.completion.text) == (quick.id, "quick")
    detail = await ledger.reading.job_detail(first.job_id)
    assert {str(row["attempt_id"]) for row in detail.completions} == {str(slow.id), str(quick.id)}
    assert [row["outcome"] for row in detail.attempts] == ["ok", "ok"]
    assert detail.view.cost_usd == 2 * Decimal("0.002")


async def test_an_answer_for_an_old_run_is_not_the_new_runs_answer(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await ledger.actions.cancel([leased.job_id], ACTOR)
    await ledger.actions.retry([leased.job_id], ACTOR)
    await ledger.duties.promote(10)
    await ledger.attempts.close_attempts([closed_ok(leased, attempt)])

    again = await take_one(ledger, leased.job_id)

    assert (again.run, again.stored, again.attempts) == (leased.run + 1, None, 0)
    await generate(ledger, again)
    assert (await view(ledger, leased.job_id)).cost_usd == 2 * Decimal("0.002")


# ---- what broken streams leave ---------------------------------------------------------------------------------


def part(text: str = "It has the co") -> StoredAnswer:
    """The part of a stream before it broke."""
    return make_answer(text, finish_reason=FinishReason.INTERRUPTED, usage=None, cost_usd=None)


async def completions(ledger: PostgresLedger, leased: Leased) -> list[tuple[str, bool, str, str]]:
    """Attempt, whether it won, reason and bytes of each."""
    rows = (await ledger.reading.job_detail(leased.job_id)).completions
    return [(str(row["attempt_id"]), row["won"], row["finish_reason"], row["raw"]) for row in rows]


@pytest.mark.parametrize("close", [closed_unknown, closed_error])
async def test_the_text_of_a_broken_stream_is_stored_and_never_wins(ledger: PostgresLedger, close: Closing) -> None:
    leased = await submit_and_take(ledger)
    broken = await open_one(ledger, leased)
    await ledger.attempts.close_attempts([close(leased, broken, answer=part(), then=later(leased, event="retry"))])
    partial_completion = (str(broken.id), False, "interrupted", "It has the co")
    assert await completions(ledger, leased) == [partial_completion]

    await ledger.duties.promote(10)
    again = await take_one(ledger, leased.job_id)
    assert again.stored is None
    whole = await open_one(ledger, again)
    await ledger.attempts.close_attempts([closed_ok(again, whole, then=to_check(again))])

    assert await completions(ledger, leased) == [partial_completion, (str(whole.id), True, "stop", ANSWER)]
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    assert checking.stored is not None
    assert checking.stored.attempt_id == whole.id
    assert [row["outcome"] == "ok" for row in (await ledger.reading.job_detail(leased.job_id)).attempts] == [
        False,
        True,
    ]


async def test_a_late_answer_takes_the_place_of_its_part(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await ledger.attempts.close_attempts([closed_unknown(leased, attempt, answer=part())])

    await ledger.attempts.close_attempts([closed_ok(leased, attempt, "late but whole")])

    assert await completions(ledger, leased) == [(str(attempt.id), True, "stop", "late but whole")]
    assert await ledger.attempts.open_attempts([make_attempt(leased)]) == [Opened.ANSWERED]


async def test_a_part_that_comes_after_the_rescue_is_kept(ledger: PostgresLedger, clock: Clock) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased, reserved_usd=Decimal("0.1"))
    await clock.advance(2 * LEASE)
    assert await ledger.duties.rescue(10, None) == [leased.job_id]

    for text in ("It has the co", "It"):
        await ledger.attempts.close_attempts([closed_unknown(leased, attempt, answer=part(text))])

    assert await completions(ledger, leased) == [(str(attempt.id), False, "interrupted", "It has the co")]
    assert (await view(ledger, leased.job_id)).cost_usd == Decimal("0.1")


@pytest.mark.parametrize("paused", [False, True])
async def test_a_late_answer_releases_the_job_that_is_held_for_it(
    ledger: PostgresLedger, clock: Clock, *, paused: bool
) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await clock.advance(2 * LEASE)
    await ledger.duties.rescue(10, HeldReason.UNKNOWN_OUTCOME)
    await ledger.actions.pause_batch(leased.batch_id, ACTOR, paused=paused)

    assert await ledger.attempts.close_attempts([closed_ok(leased, attempt, then=to_check(leased))]) == set()

    after = await view(ledger, leased.job_id)
    if paused:
        assert (after.state, after.held_reason) == (JobState.SCHEDULED, "batch_paused")
        await ledger.actions.pause_batch(leased.batch_id, ACTOR, paused=False)
        await ledger.duties.promote(10)
    again = await take_one(ledger, leased.job_id)
    assert again.stored is not None
    kinds = [event["kind"] for event in (await ledger.reading.job_detail(leased.job_id)).events]
    assert kinds[:2] == ["rescue", "release"]


@pytest.mark.parametrize("how", ["unknown", "another_run", "other_reason"])
async def test_no_other_closing_releases_a_held_job(ledger: PostgresLedger, clock: Clock, how: str) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await clock.advance(2 * LEASE)
    await ledger.duties.rescue(10, HeldReason.UNKNOWN_OUTCOME)
    if how == "another_run":
        await ledger.actions.cancel([leased.job_id], ACTOR)
        await ledger.actions.retry([leased.job_id], ACTOR)
        await ledger.duties.promote(10)
        await open_one(ledger, await take_one(ledger, leased.job_id))
        await clock.advance(2 * LEASE)
        await ledger.duties.rescue(10, HeldReason.UNKNOWN_OUTCOME)
    elif how == "other_reason":
        await ledger.actions.release(None, HeldReason.UNKNOWN_OUTCOME, ACTOR)
        await ledger.actions.pause_batch(leased.batch_id, ACTOR, paused=True)
    hold_reason = (await view(ledger, leased.job_id)).held_reason

    close = closed_unknown if how == "unknown" else closed_ok
    await ledger.attempts.close_attempts([close(leased, attempt, then=to_check(leased))])

    after = await view(ledger, leased.job_id)
    assert (after.state, after.held_reason) == (JobState.SCHEDULED, hold_reason)
