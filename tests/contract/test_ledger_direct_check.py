"""A worker that stored an answer keeps the job under its lease for the check; whoever it loses the job to finds the answer."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from schemas.states import JobState, Step
from tasks.ports import ClosedAttempt, Leased, Ledger, NewAttempt, StoredCompletion
from tests.builders import closed_error, closed_ok, lease_key, make_answer, make_final, to_check
from tests.contract.conftest import Clock
from tests.contract.situations import LEASE, SECOND, finish, open_one, submit_and_take, take, take_one, view


def keeping(leased: Leased, attempt: NewAttempt, text: str = "kept") -> ClosedAttempt:
    """The close of a call whose job stays with its worker for the check."""
    return closed_ok(leased, attempt, text, then=replace(to_check(leased), state=JobState.RUNNING))


async def store_and_keep(ledger: Ledger, leased: Leased) -> tuple[Leased, ClosedAttempt]:
    """Stores an answer; returns the job as its check has it."""
    attempt = await open_one(ledger, leased)
    closed = keeping(leased, attempt)
    assert await ledger.attempts.close_attempts([closed]) == {leased.job_id}
    assert closed.answer is not None
    stored = StoredCompletion(attempt.id, closed.answer.completion, closed.answer.prompt, dict(closed.timing_ms))
    return leased.at_check(stored, closed.cost_usd, held_s=0.0), closed


async def test_a_kept_job_is_in_its_check_under_the_same_lease(ledger: Ledger) -> None:
    leased = await submit_and_take(ledger)
    checkable, _ = await store_and_keep(ledger, leased)

    stored = await view(ledger, leased.job_id)
    assert (stored.state, stored.step, stored.round) == (JobState.RUNNING, Step.CHECK, 0)
    assert await take(ledger, [leased.job_id], Step.CHECK) == [], "no other worker gets it"
    assert await ledger.queue.renew([lease_key(leased)], LEASE) == type(await ledger.queue.renew([], LEASE))()
    assert await ledger.queue.finish([make_final(leased)]) == set(), "its step is over"
    await finish(ledger, checkable)
    assert (await view(ledger, leased.job_id)).state is JobState.COMPLETED


async def test_a_kept_job_is_as_its_check_would_lease_it(ledger: Ledger) -> None:
    leased = await submit_and_take(ledger)
    failed_call = await open_one(ledger, leased, reserved_usd=Decimal("0.2"))
    await ledger.attempts.close_attempts([closed_error(leased, failed_call, cost_usd=Decimal("0.01"))])
    attempt = await open_one(ledger, leased, number=2)
    answer = make_answer("kept", cost_usd=Decimal("0.03"))
    closed = closed_ok(leased, attempt, answer=answer, then=replace(to_check(leased), state=JobState.RUNNING))
    await ledger.attempts.close_attempts([closed])
    stored = StoredCompletion(attempt.id, answer.completion, answer.prompt, {"llm": 12.5})
    checkable = leased.at_check(stored, Decimal("0.04"), held_s=0.0)

    await ledger.queue.hand_back([lease_key(leased)])
    again = await take_one(ledger, leased.job_id, Step.CHECK)

    measured = {"token": checkable.token, "age_ms": 0.0, "waited_ms": 0.0, "started_ago_ms": 0.0}
    assert replace(again, **measured) == replace(checkable, **measured)


async def test_a_crash_during_the_check_costs_no_second_call(ledger: Ledger, clock: Clock) -> None:
    leased = await submit_and_take(ledger)
    checkable, _ = await store_and_keep(ledger, leased)
    await clock.advance(LEASE + SECOND)
    assert await ledger.duties.rescue(10, None) == [leased.job_id]

    assert await take(ledger, [leased.job_id]) == [], "nothing is generated"
    again = await take_one(ledger, leased.job_id, Step.CHECK, worker="w2")
    assert again.stored is not None
    assert (again.stored.completion.text, again.rescues) == ("kept", 1)
    assert again.cost_usd == checkable.cost_usd
    assert await ledger.queue.finish([make_final(checkable)]) == set(), "the first worker lost it"
    await finish(ledger, again)
    assert len((await ledger.reading.job_detail(leased.job_id)).attempts) == 1


async def test_a_stop_during_the_check_hands_the_answer_on(ledger: Ledger) -> None:
    leased = await submit_and_take(ledger)
    await store_and_keep(ledger, leased)

    assert await ledger.queue.hand_back([lease_key(leased)]) == {leased.job_id}
    assert (await take_one(ledger, leased.job_id, Step.CHECK)).stored is not None


async def test_a_close_with_an_unconfirmed_commit_keeps_the_job_again(ledger: Ledger) -> None:
    leased = await submit_and_take(ledger)
    checkable, closed = await store_and_keep(ledger, leased)

    assert await ledger.attempts.close_attempts([closed]) == {leased.job_id}
    assert (await view(ledger, leased.job_id)).cost_usd == checkable.cost_usd
    await finish(ledger, checkable)
    assert await ledger.attempts.close_attempts([closed]) == set()


async def test_a_job_is_not_kept_for_an_answer_that_came_second(ledger: Ledger, clock: Clock) -> None:
    leased = await submit_and_take(ledger)
    late = await open_one(ledger, leased)
    await clock.advance(LEASE + SECOND)
    await ledger.duties.rescue(10, None)
    again = await take_one(ledger, leased.job_id)
    attempt = await open_one(ledger, again, number=2)
    await ledger.attempts.close_attempts([closed_ok(leased, late, "the first", then=to_check(leased))])

    assert await ledger.attempts.close_attempts([keeping(again, attempt, "the second")]) == set()
    checked = await take_one(ledger, leased.job_id, Step.CHECK)
    assert checked.stored is not None
    assert checked.stored.completion.text == "the first"


async def test_a_job_whose_lease_is_lost_is_not_kept(ledger: Ledger, clock: Clock) -> None:
    leased = await submit_and_take(ledger)
    attempt = await open_one(ledger, leased)
    await clock.advance(LEASE + timedelta(seconds=1))
    await ledger.duties.rescue(10, None)

    assert await ledger.attempts.close_attempts([keeping(leased, attempt)]) == set()
    again = await take_one(ledger, leased.job_id)
    assert again.stored is not None, "the answer is paid for, and no call is made for it again"
