"""A judge's calls: attempts, crashes, money, budgets, rounds and rechecks, over a real ledger."""

import asyncio
from dataclasses import replace
from decimal import Decimal

import pytest

from schemas.failure import FailureKind
from schemas.generation import CheckerName
from schemas.grounding import Verdict
from schemas.job import JobRequest, Recheck
from schemas.states import HeldReason, JobState, Outcome, Step
from tasks.calls.paid_call import MAX_UNKNOWN
from tasks.calls.retry import RetryPolicy
from tasks.errors import ProviderError
from tasks.ports import Advance, Call
from tests.builders import closed_ok, make_attempt, make_final
from tests.judge_harness import (
    LEASE,
    PARAPHRASE,
    QUOTE,
    SOURCE,
    check_answer,
    claims_of,
    grounding_of,
    judge_harness,
    supplied_answer,
    verdict,
    verdicts_reply,
)
from tests.scripted_provider import Act, ScriptedProvider, hangs, raises

# ---- calls are attempts like any other -------------------------------------------------------------------------


def busy(times: int, then: Act, kind: FailureKind = FailureKind.RATE_LIMITED) -> list[Act]:
    return [*[raises(ProviderError(kind, "later"))] * times, then]


def test_a_busy_judge_is_waited_for_and_a_broken_one_tried_again() -> None:
    right = verdicts_reply(verdict(1, "supported", QUOTE))
    for kind, spent in ((FailureKind.RATE_LIMITED, False), (FailureKind.BAD_ANSWER, True)):
        harness, view = check_answer(supplied_answer(PARAPHRASE), *busy(2, right, kind))
        outcomes = asyncio.run(harness.outcomes())
        assert outcomes == [("judge", f"error:{kind.value}", spent)] * 2 + [("judge", "ok", False)]
        assert view.outcome is Outcome.ANSWERED


async def test_an_answer_that_came_before_a_crash_is_not_asked_for_again() -> None:
    harness = judge_harness(verdicts_reply(verdict(1, "supported", QUOTE)), raises(AssertionError("called twice")))
    await harness.submit(supplied_answer(PARAPHRASE))
    await harness.killed_before("finish")

    again = await harness.lease()
    assert again.judged is not None
    await harness.check(again)

    view = await harness.view()
    assert (view.outcome, len(harness.judge.calls), view.cost_usd) == (Outcome.ANSWERED, 1, Decimal("0.002"))
    assert claims_of(view)[0].checker == "judge"


async def test_a_stored_answer_to_another_question_is_not_mistaken_for_this_ones() -> None:
    harness = judge_harness(verdicts_reply(verdict(1, "supported", QUOTE)))
    await harness.submit(supplied_answer(PARAPHRASE))
    await harness.killed_before("finish")
    again = await harness.lease()
    assert again.judged is not None
    prompt = again.judged.prompt
    other = prompt.model_copy(update={"snapshot": prompt.snapshot.model_copy(update={"sha256": "0" * 64})})
    await harness.check(replace(again, judged=replace(again.judged, prompt=other)))

    view = await harness.view()
    assert claims_of(view)[0].verdict is Verdict.UNCHECKED
    assert len(harness.judge.calls) == 1


async def test_a_stop_in_the_midst_of_the_call_is_an_unknown_outcome_and_the_job_goes_back() -> None:
    harness = judge_harness(hangs, verdicts_reply(verdict(1, "supported", QUOTE)))
    await harness.submit(supplied_answer(PARAPHRASE))
    checking = asyncio.create_task(harness.check(await harness.lease()))
    await harness.judge.called.wait()
    checking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await checking

    view = await harness.view()
    assert (view.state, view.step) == (JobState.AVAILABLE, Step.CHECK)
    assert await harness.outcomes() == [("judge", "unknown", False)]
    assert (await harness.finish()).outcome is Outcome.ANSWERED


@pytest.mark.parametrize("hold", [False, True])
def test_an_unknown_outcome_is_repeated_or_held_by_policy(hold: bool) -> None:  # noqa: FBT001
    lost = raises(ProviderError(FailureKind.UNKNOWN_OUTCOME, "reset"))
    harness, view = check_answer(
        supplied_answer(PARAPHRASE),
        lost,
        verdicts_reply(verdict(1, "supported", QUOTE)),
        policy=RetryPolicy(hold_unknown=hold),
    )

    assert view.held_reason == (HeldReason.UNKNOWN_OUTCOME.value if hold else None)
    assert len(harness.judge.calls) == (1 if hold else 2)


async def test_a_job_that_takes_its_worker_down_while_it_is_judged_is_finished_without() -> None:
    harness = judge_harness(hangs)
    await harness.submit(supplied_answer(PARAPHRASE))
    job = await harness.lease()
    await harness.check(replace(job, unknown=MAX_UNKNOWN))

    view = await harness.view()
    assert (view.state, view.outcome, harness.judge.calls) == (JobState.COMPLETED, Outcome.PARTIAL, [])


async def test_without_room_in_the_budget_the_job_is_held_and_released_by_more() -> None:
    harness = judge_harness(verdicts_reply(verdict(1, "supported", QUOTE)))
    await harness.submit(supplied_answer(PARAPHRASE), max_cost_usd=Decimal("0.001"))
    view = await harness.finish()
    assert (view.state, view.step, view.held_reason) == (JobState.SCHEDULED, Step.CHECK, "budget")
    assert harness.judge.calls == []

    await harness.ledger.actions.set_budget(view.batch_id, Decimal(1), "ada")
    view = await harness.finish()
    assert (view.outcome, view.cost_usd) == (Outcome.ANSWERED, Decimal("0.002"))


def test_a_defect_before_the_call_costs_the_judge_not_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Call:
        raise KeyError("a defect")

    monkeypatch.setattr(ScriptedProvider, "plan", broken)
    _, view = check_answer(supplied_answer(PARAPHRASE), hangs)

    assert (view.state, view.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)
    assert "a defect" in grounding_of(view).failed_checkers["judge"]


# ---- checking again --------------------------------------------------------------------------------------------


async def test_a_recheck_calls_the_judge_again_and_never_generates() -> None:
    harness = judge_harness(verdicts_reply(verdict(1, "supported", QUOTE)), verdicts_reply(verdict(1, "unsupported")))
    request = JobRequest(query="q", context=({"content": SOURCE},), config={"on_ungrounded": "retry"})
    await harness.submit(request)
    (job,) = await harness.ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
    attempt = make_attempt(job)
    await harness.ledger.attempts.open_attempts([attempt])
    then = Advance(JobState.AVAILABLE, Step.CHECK, 0)
    await harness.ledger.attempts.close_attempts([closed_ok(job, attempt, f"{PARAPHRASE} [1]", then=then)])
    (job,) = await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 1)
    await harness.ledger.queue.finish([make_final(job)])

    for run_, expected in ((2, Verdict.SUPPORTED), (3, Verdict.UNSUPPORTED)):
        recheck = Recheck(checkers=(CheckerName.LEXICAL, CheckerName.JUDGE), judge="scripted")
        assert await harness.ledger.actions.recheck([job.job_id], recheck, "ada") == [job.job_id]
        view = await harness.finish()
        assert (view.run, view.round, claims_of(view)[0].verdict) == (run_, 0, expected)
    assert [purpose for purpose, _, _ in await harness.outcomes()] == ["generate", "judge", "judge"]
