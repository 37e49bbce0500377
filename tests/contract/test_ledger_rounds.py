"""Rounds: why a job is asked again is kept with it, and each round has its own answer."""

from schemas.prompt import Correction
from schemas.states import JobState, Step
from tasks.ports import Advance, Ledger, Purpose
from tests.builders import closed_ok, lease_key, make_attempt
from tests.contract.driving import ACTOR, generate, submit_and_take, take_one


def _again(correction: Correction, number: int, step: Step = Step.GENERATE) -> Advance:
    return Advance(JobState.SCHEDULED, step, number, event="regenerate", correction=correction)


async def test_a_new_round_is_told_why_it_was_begun(ledger: Ledger) -> None:
    leased = await submit_and_take(ledger)
    await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    correction = Correction(purpose="correct", problems=("Mars has no sea \u2713",), previous="Mars.", ungrounded=1)

    assert await ledger.defer(lease_key(checking), _again(correction, 1))
    await ledger.promote(10)
    second = await take_one(ledger, leased.job_id)

    assert (checking.correction, second.correction, second.round, second.stored) == (None, correction, 1, None)


async def test_the_reason_outlives_a_wait_within_the_round(ledger: Ledger) -> None:
    leased = await submit_and_take(ledger)
    correction = Correction(purpose="reask", problems=("no JSON",))
    await ledger.defer(lease_key(leased), _again(correction, 1))
    await ledger.promote(10)
    second = await take_one(ledger, leased.job_id)

    await ledger.defer(lease_key(second), Advance(JobState.SCHEDULED, Step.GENERATE, 1, event="budget"))
    await ledger.promote(10)

    assert (await take_one(ledger, leased.job_id)).correction == correction


async def test_an_answer_of_any_purpose_is_the_answer_of_its_round(ledger: Ledger) -> None:
    leased = await submit_and_take(ledger)
    await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    await ledger.defer(lease_key(checking), _again(Correction(purpose="correct"), 1))
    await ledger.promote(10)
    second = await take_one(ledger, leased.job_id)

    attempt = make_attempt(second, Purpose.CORRECT)
    await ledger.open_attempts([attempt])
    await ledger.close_attempts([closed_ok(second, attempt, then=Advance(JobState.AVAILABLE, Step.CHECK, 1))])
    corrected = await take_one(ledger, leased.job_id, Step.CHECK)

    assert corrected.stored is not None
    assert (corrected.round, corrected.stored.attempt_id) == (1, attempt.id)


async def test_a_job_that_goes_back_has_its_earlier_answer_again(ledger: Ledger) -> None:
    leased = await submit_and_take(ledger)
    await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    assert checking.stored is not None
    await ledger.defer(lease_key(checking), _again(Correction(purpose="correct"), 1))
    await ledger.promote(10)
    second = await take_one(ledger, leased.job_id)

    given_up = Correction(purpose="correct", given_up="the provider was away")
    await ledger.defer(lease_key(second), _again(given_up, 0, Step.CHECK))
    await ledger.promote(10)
    back = await take_one(ledger, leased.job_id, Step.CHECK)

    assert back.stored is not None
    assert (back.round, back.correction, back.stored.attempt_id) == (0, given_up, checking.stored.attempt_id)


async def test_a_persons_retry_forgets_why_there_were_rounds(ledger: Ledger) -> None:
    leased = await submit_and_take(ledger)
    await ledger.defer(lease_key(leased), _again(Correction(purpose="reask"), 1))
    await ledger.cancel([leased.job_id], ACTOR)

    await ledger.retry([leased.job_id], ACTOR)
    await ledger.promote(10)
    again = await take_one(ledger, leased.job_id)

    assert (again.run, again.round, again.correction) == (2, 0, None)
