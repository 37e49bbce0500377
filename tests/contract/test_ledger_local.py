"""The step of the local model: its jobs are only for workers that have it, and nothing else about them is different."""

from datetime import timedelta
from uuid import UUID

import pytest

from schemas.generation import CheckerName
from schemas.job import JobRequest, Recheck
from schemas.states import JobState, Outcome, Step
from tasks.ports import Advance, Purpose
from tests.builders import (
    closed_ok,
    lease_key,
    make_attempt,
    make_config,
    make_final,
    make_request,
)
from tests.contract.situations import ACTOR, LEASE, submit, submit_and_take, take, take_one, view
from worker.ledger.postgres import PostgresLedger

WORDS = (CheckerName.STRUCTURE, CheckerName.LEXICAL)
READ = (*WORDS, CheckerName.LOCAL)


def check_request(number: int, *checkers: CheckerName) -> JobRequest:
    """An answer to be checked."""
    return make_request(f"{number}?", response="It is ready.", config=make_config(checkers=checkers))


async def both(ledger: PostgresLedger) -> tuple[UUID, UUID]:
    """Two jobs that wait for their check: by words alone, and by the model."""
    plain, read = (await submit(ledger, check_request(0, *WORDS), check_request(1, *READ))).job_ids
    return plain, read


async def step_of(ledger: PostgresLedger, job_id: UUID) -> Step:
    return (await view(ledger, job_id)).step


async def test_each_of_two_workers_gets_only_the_jobs_of_its_step(ledger: PostgresLedger) -> None:
    plain, read = await both(ledger)

    assert await take(ledger, [read], Step.CHECK) == []
    assert await take(ledger, [plain], Step.LOCAL) == []
    by_words = await ledger.queue.lease(Step.CHECK, "w1", LEASE, 9)
    by_model = await ledger.queue.lease(Step.LOCAL, "w2", LEASE, 9)
    assert [(job.job_id, job.step) for job in (*by_words, *by_model)] == [(plain, Step.CHECK), (read, Step.LOCAL)]
    assert await ledger.queue.finish([make_final(job) for job in (*by_words, *by_model)]) == {plain, read}


async def test_a_judges_answer_is_found_in_the_step_of_the_model_too(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger, make_request(config=make_config(checkers=READ)))
    attempt = make_attempt(leased)
    await ledger.attempts.open_attempts([attempt])
    to_model = Advance(JobState.AVAILABLE, Step.LOCAL, 0)
    assert await ledger.attempts.close_attempts([closed_ok(leased, attempt, then=to_model)]) == {leased.job_id}

    checking = await take_one(ledger, leased.job_id, Step.LOCAL)
    judge = make_attempt(checking)
    assert judge.purpose is Purpose.JUDGE
    await ledger.attempts.open_attempts([judge])
    assert await ledger.attempts.close_attempts([closed_ok(checking, judge, "verdicts")]) == set()
    assert await ledger.queue.hand_back([lease_key(checking)]) == {leased.job_id}

    again = await take_one(ledger, leased.job_id, Step.LOCAL)
    assert again.stored is not None
    assert again.judged is not None
    assert (again.stored.attempt_id, again.judged.attempt_id, again.attempts) == (attempt.id, judge.id, 1)


@pytest.mark.parametrize(
    ("of_job", "of_recheck", "step"),
    [
        (WORDS, None, Step.CHECK),
        (READ, None, Step.LOCAL),
        (READ, WORDS, Step.CHECK),
        (WORDS, (CheckerName.LOCAL,), Step.LOCAL),
    ],
)
async def test_a_recheck_goes_where_the_layers_it_asks_for_are(
    ledger: PostgresLedger, of_job: tuple[CheckerName, ...], of_recheck: tuple[CheckerName, ...] | None, step: Step
) -> None:
    (job_id,) = (await submit(ledger, check_request(0, *of_job))).job_ids
    first = await take_one(ledger, job_id, Step.LOCAL if CheckerName.LOCAL in of_job else Step.CHECK)
    await ledger.queue.finish([make_final(first)])

    await ledger.actions.recheck([job_id], Recheck(checkers=of_recheck), ACTOR)
    await ledger.duties.promote(9)

    again = await take_one(ledger, job_id, step)
    assert again.request.config.check_step is step
    await ledger.queue.finish([make_final(again)])
    await ledger.actions.retry([job_id], ACTOR)
    assert await step_of(ledger, job_id) is first.step


async def test_a_retry_begins_with_a_new_answer_where_none_was_given(ledger: PostgresLedger) -> None:
    leased = await submit_and_take(ledger, make_request(config=make_config(checkers=READ)))
    await ledger.queue.finish([make_final(leased)])
    await ledger.actions.retry([leased.job_id], ACTOR)
    assert await step_of(ledger, leased.job_id) is Step.GENERATE


async def test_jobs_of_an_unserved_step_move_to_another_step_with_a_note(ledger: PostgresLedger) -> None:
    ids = (await submit(ledger, *(check_request(n, *READ) for n in range(3)), check_request(3, *WORDS))).job_ids
    waiting_job = await take_one(ledger, ids[0], Step.LOCAL)

    first = await ledger.duties.reassign(Step.LOCAL, Step.CHECK, timedelta(0), 1)
    rest = await ledger.duties.reassign(Step.LOCAL, Step.CHECK, timedelta(0), 9)

    assert {*first, *rest} == {*ids[1:3]}
    assert len(first) == len(rest) == 1
    assert await ledger.duties.reassign(Step.LOCAL, Step.CHECK, timedelta(0), 9) == []
    leased = {job.job_id: job for job in await ledger.queue.lease(Step.CHECK, "w1", LEASE, 9)}
    assert leased.keys() == {*ids[1:]}
    (event,) = (await ledger.reading.job_detail(ids[1])).events
    assert (event["kind"], event["actor"]) == ("unserved", "dispatch")
    assert {"step": "local", "to": "check"}.items() <= event["detail"].items()
    assert await ledger.queue.finish([make_final(waiting_job)]) == {ids[0]}, "whoever has it keeps it"
    checked = leased[ids[1]]
    assert checked.request.config.checkers == READ
    await ledger.queue.finish([make_final(checked)])
    assert (await view(ledger, ids[1])).outcome is Outcome.ANSWERED
