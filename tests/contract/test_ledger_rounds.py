"""Rounds: why a job is asked again is kept with it, and each round has its own answer."""

from schemas.generation import CheckerName
from schemas.job import Recheck
from schemas.model_call import Ask, Correction
from schemas.states import JobState, Outcome, Step
from tasks.ports import Advance, Leased, NewAttempt, Opened, Purpose
from tests.builders import (
    closed_error,
    closed_ok,
    closed_unknown,
    lease_key,
    make_attempt,
    make_failed,
    make_final,
    make_request,
    new_id,
)
from tests.contract.conftest import Clock
from tests.contract.situations import ACTOR, HOUR, SECOND, generate, submit, submit_and_take, take_one
from worker.ledger.postgres import PostgresLedger


def _again(correction: Correction, number: int, step: Step = Step.GENERATE) -> Advance:
    return Advance(JobState.SCHEDULED, step, number, event="regenerate", correction=correction)


async def _corrected(ledger: PostgresLedger) -> tuple[Leased, NewAttempt]:
    """The lease of the check of a second round, and the attempt of its answer."""
    leased = await submit_and_take(ledger)
    await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    await ledger.queue.defer(lease_key(checking), _again(Correction(purpose="correct"), 1))
    await ledger.duties.promote(10)
    second = await take_one(ledger, leased.job_id)
    attempt = make_attempt(second, Purpose.CORRECT)
    await ledger.attempts.open_attempts([attempt])
    await ledger.attempts.close_attempts([closed_ok(second, attempt, then=Advance(JobState.AVAILABLE, Step.CHECK, 1))])
    return await take_one(ledger, leased.job_id, Step.CHECK), attempt


async def test_a_new_round_has_the_reason_for_its_start(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    correction = Correction(purpose="correct", problems=("Mars has no sea \u2713",), previous="Mars.")

    assert await ledger.queue.defer(lease_key(checking), _again(correction, 1))
    await ledger.duties.promote(10)
    second = await take_one(ledger, leased.job_id)

    assert (checking.correction, second.correction, second.round, second.stored) == (None, correction, 1, None)


async def test_a_job_that_goes_back_has_its_earlier_answer_again(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    assert checking.stored is not None
    await ledger.queue.defer(lease_key(checking), _again(Correction(purpose="correct"), 1))
    await ledger.duties.promote(10)
    second = await take_one(ledger, leased.job_id)

    given_up = Correction(purpose="correct", given_up="the provider was away")
    await ledger.queue.defer(lease_key(second), _again(given_up, 0, Step.CHECK))
    await ledger.duties.promote(10)
    back = await take_one(ledger, leased.job_id, Step.CHECK)

    assert back.stored is not None
    assert (back.round, back.correction, back.stored.attempt_id) == (0, given_up, checking.stored.attempt_id)


async def test_a_judges_answer_belongs_to_its_round_and_is_read_by_the_check_only(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    attempt = make_attempt(checking)
    assert await ledger.attempts.open_attempts([attempt]) == [Opened.OPENED]
    assert await ledger.attempts.close_attempts([closed_ok(checking, attempt, "verdicts")]) == set()
    # Its worker died before the final write.
    await ledger.queue.hand_back([lease_key(checking)])
    again = await take_one(ledger, leased.job_id, Step.CHECK)

    assert (checking.judged, checking.attempts) == (None, 0)
    assert again.judged is not None
    assert again.stored == checking.stored
    assert (again.judged.attempt_id, again.judged.completion.text, again.attempts) == (attempt.id, "verdicts", 1)
    assert await ledger.attempts.open_attempts([make_attempt(again)]) == [Opened.ANSWERED]

    await ledger.queue.defer(lease_key(again), _again(Correction(purpose="correct"), 1))
    await ledger.duties.promote(10)
    second = await take_one(ledger, leased.job_id)
    assert second.judged is None
    await ledger.queue.defer(lease_key(second), Advance(JobState.SCHEDULED, Step.CHECK, 1))
    await ledger.duties.promote(10)
    assert (await take_one(ledger, leased.job_id, Step.CHECK)).judged is None


async def test_outcomes_of_judge_calls_count_for_the_check_alone(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    first = make_attempt(leased)
    await ledger.attempts.open_attempts([first])
    await ledger.attempts.close_attempts(
        [closed_unknown(leased, first, then=Advance(JobState.AVAILABLE, Step.GENERATE, 0))]
    )
    leased = await take_one(ledger, leased.job_id)
    await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    attempt = make_attempt(checking)
    await ledger.attempts.open_attempts([attempt])
    waiting = Advance(JobState.SCHEDULED, Step.CHECK, 0, event="retry")
    await ledger.attempts.close_attempts([closed_error(checking, attempt, then=waiting)])
    await ledger.duties.promote(10)
    again = await take_one(ledger, leased.job_id, Step.CHECK)

    assert (leased.unknown, leased.spent) == (1, 0)
    assert (checking.unknown, checking.spent, checking.attempts) == (0, 0, 0)
    assert (again.unknown, again.spent, again.attempts, again.judged) == (0, 1, 1, None)


async def test_a_recheck_checks_the_answer_of_the_run_before_in_a_run_of_its_own(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    attempt = await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    judge = make_attempt(checking)
    await ledger.attempts.open_attempts([judge])
    await ledger.attempts.close_attempts([closed_ok(checking, judge, "verdicts")])
    assert await ledger.actions.recheck([leased.job_id], Recheck(), ACTOR) == [], "it is not final yet"
    await ledger.queue.finish([make_final(checking)])

    for run in (2, 3):
        changed = Recheck(checkers=(CheckerName.JUDGE,), judge=f"openai:m{run}")
        assert await ledger.actions.recheck([leased.job_id, new_id()], changed, ACTOR) == [leased.job_id]
        await ledger.duties.promote(10)
        again = await take_one(ledger, leased.job_id, Step.CHECK)
        assert (again.run, again.round, again.correction, again.recheck) == (run, 0, None, changed)
        assert again.stored is not None
        assert (again.stored.attempt_id, again.stored.timing_ms) == (attempt.id, {})
        assert (again.judged, again.attempts) == (None, 0)
        assert (again.request.config.checkers, again.request.config.judge) == ((CheckerName.JUDGE,), f"openai:m{run}")
        await ledger.queue.finish([make_final(again)])

    detail = await ledger.reading.job_detail(leased.job_id)
    assert [record.run for record in detail.records] == [1, 2, 3]
    assert [event["kind"] for event in detail.events] == ["recheck", "recheck"]
    assert detail.view.request.config.judge is None

    await ledger.actions.retry([leased.job_id], ACTOR)
    await ledger.duties.promote(10)
    recheck_job = await take_one(ledger, leased.job_id)
    assert (recheck_job.run, recheck_job.recheck, recheck_job.stored) == (4, None, None)


async def test_only_what_has_an_answer_is_checked_again(ledger: PostgresLedger) -> None:
    supplied = await submit(ledger, make_request(response="It is ready."))
    checking = await take_one(ledger, supplied.job_ids[0], Step.CHECK)
    await ledger.queue.finish([make_failed(checking)])
    bare = await submit_and_take(ledger)
    await ledger.queue.finish([make_failed(bare)])
    cancelled = await submit_and_take(ledger)
    await generate(ledger, cancelled)
    await ledger.actions.cancel([cancelled.job_id], ACTOR)

    ids = [*supplied.job_ids, bare.job_id, cancelled.job_id]
    assert await ledger.actions.recheck(ids, Recheck(), ACTOR) == list(supplied.job_ids)


async def test_the_second_rounds_answer_is_the_one_that_is_checked_again(ledger: PostgresLedger) -> None:
    leased, attempt = await _corrected(ledger)
    await ledger.queue.finish([make_final(leased)])

    await ledger.actions.recheck([leased.job_id], Recheck(), ACTOR)
    await ledger.duties.promote(10)
    again = await take_one(ledger, leased.job_id, Step.CHECK)

    assert again.stored is not None
    assert (again.run, again.round, again.stored.attempt_id) == (2, 1, attempt.id)


async def test_a_persons_retry_forgets_why_there_were_rounds(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    await ledger.queue.defer(lease_key(leased), _again(Correction(purpose="reask"), 1))
    await ledger.actions.cancel([leased.job_id], ACTOR)

    await ledger.actions.retry([leased.job_id], ACTOR)
    await ledger.duties.promote(10)
    again = await take_one(ledger, leased.job_id)

    assert (again.run, again.round, again.correction) == (2, 0, None)


async def test_failures_count_within_a_level_and_its_correction_only(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger)
    counts = []
    for number in (0, 1, 2, 3):
        purpose = (Purpose.GENERATE, Purpose.CORRECT, Purpose.ESCALATE, Purpose.CORRECT)[number]
        attempt = make_attempt(leased, purpose)
        assert await ledger.attempts.open_attempts([attempt]) == [Opened.OPENED]
        await ledger.attempts.close_attempts([closed_error(leased, attempt, spent=True)])
        await ledger.queue.defer(lease_key(leased), _again(Correction(purpose="escalate"), number + 1))
        await ledger.duties.promote(10)
        leased = await take_one(ledger, leased.job_id)
        counts.append((leased.round, leased.level, leased.spent))

    assert counts == [(1, 0, 1), (2, 1, 0), (3, 1, 1), (4, 2, 0)]


async def test_a_late_job_with_an_answer_returns_to_its_best_round(ledger: PostgresLedger, clock: Clock) -> None:
    first = Ask(round=0, level=0, purpose="generate", outcome=Outcome.PARTIAL)
    worse = Ask(round=2, level=1, purpose="escalate", outcome=Outcome.PARTIAL, better=False)
    leased = await submit_and_take(ledger, make_request(deadline=clock.now() + HOUR))
    await generate(ledger, leased)
    checking = await take_one(ledger, leased.job_id, Step.CHECK)
    await ledger.queue.defer(lease_key(checking), _again(Correction(purpose="escalate", asks=(first, worse)), 4))
    await ledger.duties.promote(10)
    third = await take_one(ledger, leased.job_id)
    attempt = make_attempt(third, Purpose.ESCALATE)
    await ledger.attempts.open_attempts([attempt])
    await clock.advance(HOUR + 5 * SECOND)

    assert await ledger.duties.expire(10) == []

    # What the call of its former worker brings is kept, and moves nothing.
    late = closed_ok(third, attempt, then=Advance(JobState.AVAILABLE, Step.CHECK, 4))
    assert await ledger.attempts.close_attempts([late]) == set()
    back = await take_one(ledger, leased.job_id, Step.CHECK)
    assert back.stored is not None
    assert back.correction is not None
    assert (back.round, back.given_up, back.time_left) == (0, "the deadline passed", None)
    assert [(ask.round, ask.won) for ask in back.correction.asks] == [(0, True), (2, False)]
    assert await ledger.duties.expire(10) == []
