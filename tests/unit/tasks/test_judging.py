"""The judge as a part of the check, over the in-memory ledger: calls, crashes, money, and what stays unchecked."""

import asyncio
import json
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from schemas.completion import FinishReason
from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol, CheckerName, Recheck
from schemas.grounding import Claim, Grounding, Verdict
from schemas.job import JobRequest
from schemas.states import HeldReason, JobState, Outcome, Step
from tasks.attempts import MAX_UNKNOWN
from tasks.check import Check
from tasks.checkers import WEIGHTS
from tasks.checkers.judge import Weights
from tasks.errors import ProviderError
from tasks.judging import JudgeOptions, Judging
from tasks.ports import Advance, Call, JobView, Leased, Purpose
from tasks.retry import RetryPolicy
from tests.builders import closed_ok, make_attempt, make_batch, make_final, make_jobs
from tests.scripted import Act, Registry, Scripted, answers, hangs, raises
from worker.ledger.journal import LedgerJournal
from worker.ledger.memory import MemoryLedger

LEASE = timedelta(seconds=60)
SOURCE = (
    "The night desk opens at nine in the evening. The editor in chief is Ann Lee. The morning edition is printed in "
    "Port Lune at four, and lorries carry it to the villages of the valley before dawn."
)
PARAPHRASE = "The paper reaches the valley villages by lorry while it is still dark."
QUOTE = "lorries carry it to the villages of the valley before dawn"
WRONG = "The editor reaches the valley villages by lorry each evening."
PLAIN = "The night desk opens at nine in the evening."


def given_answer(*claims: str, **config: Any) -> JobRequest:
    config.setdefault("checkers", ["structure", "lexical", "judge"])
    config.setdefault("judge", "scripted")
    return JobRequest(query="q", context=({"content": SOURCE},), response=" ".join(claims), config=config)


def verdict(claim: int, said: str, quote: str = "", passage: int = 1) -> dict[str, Any]:
    return {"claim": claim, "verdict": said, "passage": passage, "quote": quote}


def says(*verdicts: dict[str, Any]) -> Act:
    return answers(json.dumps({"verdicts": verdicts}), protocol=AnswerProtocol.SEGMENTS)


@dataclass
class Court:
    """One job in its check, with a judge that does what the test says."""

    judge: Scripted
    ledger: MemoryLedger = field(default_factory=MemoryLedger)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    finals: list[Leased] = field(default_factory=list)

    async def submit(self, request: JobRequest, **batch: Any) -> None:
        await self.ledger.submit(make_batch(**batch), [make_jobs(request)])

    async def lease(self) -> Leased:
        await self.ledger.promote(10)
        (job,) = await self.ledger.lease(Step.CHECK, "w", LEASE, 1)
        return job

    async def check(self, job: Leased) -> None:
        journal = LedgerJournal(self.ledger)
        judging = Judging(
            self.ledger, journal, Registry(self.judge), self.policy, lambda: 0.5, JudgeOptions(max_tokens=500)
        )
        with ThreadPoolExecutor(1) as cpu:
            await Check(self.ledger, journal, cpu, lambda job, _: self.finals.append(job), judging).run([job])
        await journal.close()

    async def view(self) -> JobView:
        (batch,) = await self.ledger.batches(1)
        (view,) = [view async for view in self.ledger.batch_views(batch.batch_id)]
        return view

    async def outcomes(self) -> list[tuple[str, str | None, bool]]:
        detail = await self.ledger.job_detail((await self.view()).job_id)
        return [(attempt["purpose"], attempt["outcome"], attempt["spent"]) for attempt in detail.attempts]

    async def finish(self) -> JobView:
        for _ in range(300):
            if (view := await self.view()).finished_at or view.held_reason:
                return view
            await self.ledger.promote(10)
            for job in await self.ledger.lease(Step.CHECK, "w", LEASE, 1):
                await self.check(job)
            self.ledger.advance(timedelta(minutes=6))
        raise AssertionError("it never ends")


def court(*acts: Act, **settings: Any) -> Court:
    return Court(Scripted(*acts), **settings)


def tried(request: JobRequest, *acts: Act, **settings: Any) -> tuple[Court, JobView]:
    """Check one answer to its end."""
    whole = court(*acts, **settings)

    async def story() -> JobView:
        await whole.submit(request)
        return await whole.finish()

    return whole, asyncio.run(story())


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def grounding_of(view: JobView) -> Grounding:
    assert view.record is not None
    assert view.record.grounding is not None
    return view.record.grounding


def claims_of(view: JobView) -> list[Claim]:
    return list(grounding_of(view).claims)


# ---- what the judge decides ------------------------------------------------------------------------------------


def test_only_what_the_words_leave_open_is_asked_and_the_quote_is_the_evidence() -> None:
    whole, view = tried(given_answer(PARAPHRASE), says(verdict(1, "supported", QUOTE)))

    (claim,) = claims_of(view)
    assert (claim.verdict, claim.checker) == (Verdict.SUPPORTED, "judge")
    first = claim.evidence[0]
    assert SOURCE[first.start : first.end] == QUOTE
    assert claim.score is not None
    assert 0.5 <= claim.score <= 0.95
    assert grounding_of(view).checkers["judge"] == "scripted:scripted-1 by _judge@1"
    assert grounding_of(view).confidence == claim.score
    assert view.outcome is Outcome.ANSWERED
    (call,) = whole.judge.calls
    assert call.request.config.max_tokens == 500
    assert call.prompt.reply_schema is not None
    assert call.prompt.snapshot.proves([SOURCE])
    assert view.cost_usd == Decimal("0.002")
    # What is published right away counts the judge, too.
    assert [job.cost_usd for job in whole.finals] == [Decimal("0.002")]


def test_a_contradiction_is_told_with_the_words_that_say_otherwise() -> None:
    _, view = tried(given_answer(WRONG), says(verdict(1, "contradicted", "The editor in chief is Ann Lee")))

    (claim,) = claims_of(view)
    assert claim.verdict is Verdict.CONTRADICTED
    assert claim.reason.startswith("the judge finds that a source says otherwise")
    assert SOURCE[claim.evidence[0].start : claim.evidence[0].end] == "The editor in chief is Ann Lee"
    assert view.outcome is Outcome.PARTIAL


def test_nothing_open_is_no_call() -> None:
    nonsense = "Mars has 7 moons in 1984, says Smith."
    whole, view = tried(given_answer(nonsense), says())

    assert whole.judge.calls == []
    assert [claim.checker for claim in claims_of(view)] == ["lexical"]
    assert grounding_of(view).failed_checkers == {}


def test_without_words_the_judge_is_asked_about_all() -> None:
    request = given_answer(PLAIN, WRONG, checkers=["judge"])
    whole, view = tried(request, says(verdict(1, "supported", PLAIN), verdict(2, "unsupported")))

    assert [claim.verdict for claim in claims_of(view)] == [Verdict.SUPPORTED, Verdict.UNSUPPORTED]
    assert len(whole.judge.calls) == 1


def test_the_weights_of_a_judge_that_was_fitted_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    worthless = Weights("scripted:scripted-1", lexical=1.0, supported=0.0, not_supported=0.0, floor=0.0, ceiling=1.0)
    _, trusted = tried(given_answer(PARAPHRASE), says(verdict(1, "supported", QUOTE)))
    monkeypatch.setitem(WEIGHTS, worthless.judge, worthless)
    _, unworthy = tried(given_answer(PARAPHRASE), says(verdict(1, "supported", QUOTE)))

    _, by_words = tried(given_answer(PARAPHRASE, checkers=["lexical"]))
    assert claims_of(unworthy)[0].score == claims_of(by_words)[0].score
    assert (claims_of(trusted)[0].score or 0) > (claims_of(unworthy)[0].score or 0)


# ---- a judge that misbehaves -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (says(verdict(1, "supported", "these words stand nowhere")), "stand in no passage"),
        (says(), "could not be read"),
        (says(verdict(2, "unsupported")), "left it out"),
        (answers('{"verdicts": [{"claim": 1, "verd'), "could not be read"),
        (answers(""), "could not be read"),
        (answers("no", finish_reason=FinishReason.REFUSAL, refusal="not me"), "not me"),
        (raises(ProviderError(FailureKind.AUTHENTICATION, "bad key")), "bad key"),
        (raises(ProviderError(FailureKind.QUOTA, "nothing left")), "nothing left"),
        (raises(ProviderError(FailureKind.INVALID_REQUEST, "what?")), "what?"),
        (raises(ZeroDivisionError("a defect")), "a defect"),
    ],
)
def test_without_a_verdict_that_counts_a_claim_is_unchecked_and_the_job_completes(act: Act, told: str) -> None:
    _, view = tried(given_answer(PARAPHRASE), act)

    (claim,) = claims_of(view)
    assert (view.state, view.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)
    assert (claim.verdict, claim.checker, claim.score) == (Verdict.UNCHECKED, None, None)
    assert told in claim.reason
    assert grounding_of(view).confidence is None


def test_half_the_verdicts_leave_the_other_half_unchecked() -> None:
    _, view = tried(given_answer(PARAPHRASE, WRONG), says(verdict(1, "supported", QUOTE)))

    assert [claim.verdict for claim in claims_of(view)] == [Verdict.SUPPORTED, Verdict.UNCHECKED]
    assert "judge" not in grounding_of(view).failed_checkers


@pytest.mark.parametrize("judge", [None, "nobody", "nobody:m"])
def test_without_a_judge_the_record_says_so(judge: str | None) -> None:
    whole, view = tried(given_answer(PARAPHRASE, judge=judge), says(verdict(1, "supported", QUOTE)))

    assert whole.judge.calls == []
    told = grounding_of(view).failed_checkers["judge"]
    assert told.startswith("no provider 'nobody'" if judge else "no judge is configured")
    assert view.outcome is Outcome.PARTIAL


# ---- calls are attempts like any other -------------------------------------------------------------------------


def busy(times: int, then: Act, kind: FailureKind = FailureKind.RATE_LIMITED) -> list[Act]:
    return [*[raises(ProviderError(kind, "later"))] * times, then]


def test_a_busy_judge_is_waited_for_and_a_broken_one_tried_again() -> None:
    right = says(verdict(1, "supported", QUOTE))
    for kind, spent in ((FailureKind.RATE_LIMITED, False), (FailureKind.BAD_ANSWER, True)):
        whole, view = tried(given_answer(PARAPHRASE), *busy(2, right, kind))
        outcomes = asyncio.run(whole.outcomes())
        assert outcomes == [("judge", f"error:{kind.value}", spent)] * 2 + [("judge", "ok", False)]
        assert view.outcome is Outcome.ANSWERED


def test_attempts_of_the_judge_have_an_end_and_then_the_answer_goes_without() -> None:
    broken = raises(ProviderError(FailureKind.INTERNAL, "fell over"))
    whole, view = tried(given_answer(PARAPHRASE, max_attempts=3), broken)

    assert len(whole.judge.calls) == 3
    assert (view.state, view.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)
    assert "fell over" in grounding_of(view).failed_checkers["judge"]


def test_an_answer_that_came_before_a_crash_is_not_asked_for_again() -> None:
    async def story() -> None:
        whole = court(says(verdict(1, "supported", QUOTE)), raises(AssertionError("called twice")))
        await whole.submit(given_answer(PARAPHRASE))
        job = await whole.lease()
        finish, whole.ledger.finish = whole.ledger.finish, _dies  # type: ignore[method-assign,assignment]
        with pytest.raises(_Killed):
            await whole.check(job)
        whole.ledger.finish = finish  # type: ignore[method-assign]
        whole.ledger.advance(LEASE * 2)
        await whole.ledger.rescue(10, None)

        again = await whole.lease()
        assert again.judged is not None
        await whole.check(again)

        view = await whole.view()
        assert (view.outcome, len(whole.judge.calls), view.cost_usd) == (Outcome.ANSWERED, 1, Decimal("0.002"))
        assert claims_of(view)[0].checker == "judge"

    run(story())


class _Killed(BaseException):
    pass


async def _dies(_: object) -> set[Any]:
    raise _Killed


def test_a_stored_answer_to_another_question_is_not_mistaken_for_this_ones() -> None:
    async def story() -> None:
        whole = court(says(verdict(1, "supported", QUOTE)))
        await whole.submit(given_answer(PARAPHRASE))
        job = await whole.lease()
        finish, whole.ledger.finish = whole.ledger.finish, _dies  # type: ignore[method-assign,assignment]
        with pytest.raises(_Killed):
            await whole.check(job)
        whole.ledger.finish = finish  # type: ignore[method-assign]
        whole.ledger.advance(LEASE * 2)
        await whole.ledger.rescue(10, None)
        again = await whole.lease()
        assert again.judged is not None
        prompt = again.judged.prompt
        other = prompt.model_copy(update={"snapshot": prompt.snapshot.model_copy(update={"sha256": "0" * 64})})
        await whole.check(replace(again, judged=replace(again.judged, prompt=other)))

        view = await whole.view()
        assert claims_of(view)[0].verdict is Verdict.UNCHECKED
        assert len(whole.judge.calls) == 1

    run(story())


def test_a_stop_in_the_midst_of_the_call_is_an_unknown_outcome_and_the_job_goes_back() -> None:
    async def story() -> None:
        whole = court(hangs, says(verdict(1, "supported", QUOTE)))
        await whole.submit(given_answer(PARAPHRASE))
        checking = asyncio.create_task(whole.check(await whole.lease()))
        await whole.judge.called.wait()
        checking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await checking

        view = await whole.view()
        assert (view.state, view.step) == (JobState.AVAILABLE, Step.CHECK)
        assert await whole.outcomes() == [("judge", "unknown", False)]
        assert (await whole.finish()).outcome is Outcome.ANSWERED

    run(story())


@pytest.mark.parametrize("hold", [False, True])
def test_an_unknown_outcome_is_repeated_or_held_by_policy(hold: bool) -> None:  # noqa: FBT001
    lost = raises(ProviderError(FailureKind.UNKNOWN_OUTCOME, "reset"))
    whole, view = tried(
        given_answer(PARAPHRASE), lost, says(verdict(1, "supported", QUOTE)), policy=RetryPolicy(hold_unknown=hold)
    )

    assert view.held_reason == (HeldReason.UNKNOWN_OUTCOME.value if hold else None)
    assert len(whole.judge.calls) == (1 if hold else 2)


def test_a_job_that_takes_its_worker_down_while_it_is_judged_is_finished_without() -> None:
    async def story() -> None:
        whole = court(hangs)
        await whole.submit(given_answer(PARAPHRASE))
        job = await whole.lease()
        await whole.check(replace(job, unknown=MAX_UNKNOWN))

        view = await whole.view()
        assert (view.state, view.outcome, whole.judge.calls) == (JobState.COMPLETED, Outcome.PARTIAL, [])

    run(story())


def test_without_room_in_the_budget_the_job_is_held_and_released_by_more() -> None:
    async def story() -> None:
        whole = court(says(verdict(1, "supported", QUOTE)))
        await whole.submit(given_answer(PARAPHRASE), max_cost_usd=Decimal("0.001"))
        view = await whole.finish()
        assert (view.state, view.step, view.held_reason) == (JobState.SCHEDULED, Step.CHECK, "budget")
        assert whole.judge.calls == []

        await whole.ledger.set_budget(view.batch_id, Decimal(1), "ada")
        view = await whole.finish()
        assert (view.outcome, view.cost_usd) == (Outcome.ANSWERED, Decimal("0.002"))

    run(story())


def test_a_defect_before_the_call_costs_the_judge_not_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Call:
        raise KeyError("a defect")

    monkeypatch.setattr(Scripted, "plan", broken)
    _, view = tried(given_answer(PARAPHRASE), hangs)

    assert (view.state, view.outcome) == (JobState.COMPLETED, Outcome.PARTIAL)
    assert "a defect" in grounding_of(view).failed_checkers["judge"]


def test_a_judge_of_unknown_price_is_not_asked_under_a_ceiling() -> None:
    async def story() -> None:
        whole = Court(Scripted(says(), reserve_usd=None))
        await whole.submit(given_answer(PARAPHRASE), max_cost_usd=Decimal(1))
        view = await whole.finish()
        assert "price of model" in grounding_of(view).failed_checkers["judge"]

    run(story())


def test_the_same_question_of_a_batch_is_judged_once() -> None:
    async def story() -> None:
        whole = court(says(verdict(1, "supported", QUOTE)), raises(AssertionError("asked again")))
        await whole.ledger.submit(make_batch(), [make_jobs(given_answer(PARAPHRASE), given_answer(PARAPHRASE))])
        journal = LedgerJournal(whole.ledger)
        judging = Judging(whole.ledger, journal, Registry(whole.judge), whole.policy, lambda: 0.5)
        with ThreadPoolExecutor(1) as cpu:
            step = Check(whole.ledger, journal, cpu, lambda *_: None, judging)
            for job in await whole.ledger.lease(Step.CHECK, "w", LEASE, 2):
                await step.run([job])
        await journal.close()

        (batch,) = await whole.ledger.batches(1)
        views = [view async for view in whole.ledger.batch_views(batch.batch_id)]
        assert [claims_of(view)[0].verdict for view in views] == [Verdict.SUPPORTED] * 2
        assert (len(whole.judge.calls), batch.spent_usd) == (1, Decimal("0.002"))

    run(story())


def test_jobs_that_wait_for_their_judge_hold_up_nobody() -> None:
    async def story() -> None:
        whole = court(hangs)
        plain = given_answer(PLAIN, checkers=["lexical"])
        await whole.ledger.submit(make_batch(), [make_jobs(given_answer(PARAPHRASE), plain)])
        journal, done = LedgerJournal(whole.ledger), asyncio.Event()
        judging = Judging(whole.ledger, journal, Registry(whole.judge), whole.policy, lambda: 0.5)
        with ThreadPoolExecutor(1) as cpu:
            step = Check(whole.ledger, journal, cpu, lambda *_: done.set(), judging)
            running = asyncio.create_task(step.run(await whole.ledger.lease(Step.CHECK, "w", LEASE, 2)))
            await whole.judge.called.wait()
            await done.wait()
            running.cancel()
            await asyncio.wait([running])
        await journal.close()

    run(story())


# ---- checking again --------------------------------------------------------------------------------------------


def test_a_recheck_asks_the_judge_anew_and_never_generates() -> None:
    async def story() -> None:
        whole = court(says(verdict(1, "supported", QUOTE)), says(verdict(1, "unsupported")))
        request = JobRequest(query="q", context=({"content": SOURCE},), config={"on_ungrounded": "retry"})
        await whole.submit(request)
        (job,) = await whole.ledger.lease(Step.GENERATE, "w", LEASE, 1)
        attempt = make_attempt(job)
        await whole.ledger.open_attempts([attempt])
        then = Advance(JobState.AVAILABLE, Step.CHECK, 0)
        await whole.ledger.close_attempts([closed_ok(job, attempt, f"{PARAPHRASE} [1]", then=then)])
        (job,) = await whole.ledger.lease(Step.CHECK, "w", LEASE, 1)
        await whole.ledger.finish([make_final(job)])

        for run_, expected in ((2, Verdict.SUPPORTED), (3, Verdict.UNSUPPORTED)):
            recheck = Recheck(checkers=(CheckerName.LEXICAL, CheckerName.JUDGE), judge="scripted")
            assert await whole.ledger.recheck([job.job_id], recheck, "ada") == [job.job_id]
            view = await whole.finish()
            assert (view.run, view.round, claims_of(view)[0].verdict) == (run_, 0, expected)
        assert [purpose for purpose, _, _ in await whole.outcomes()] == ["generate", "judge", "judge"]

    run(story())


def test_each_round_is_judged_by_a_call_of_its_own_and_what_could_not_be_judged_is_not_asked_again() -> None:
    async def story(first: Act) -> JobView:
        whole = court(first, says(verdict(1, "supported", QUOTE)))
        config = {"on_ungrounded": "retry", "checkers": ["lexical", "judge"], "judge": "scripted"}
        await whole.submit(JobRequest(query="q", context=({"content": SOURCE},), config=config))
        for purpose, text in ((Purpose.GENERATE, WRONG), (Purpose.CORRECT, PARAPHRASE)):
            await whole.ledger.promote(10)
            for job in await whole.ledger.lease(Step.GENERATE, "w", LEASE, 1):
                attempt = make_attempt(job, purpose)
                await whole.ledger.open_attempts([attempt])
                then = Advance(JobState.AVAILABLE, Step.CHECK, job.round)
                await whole.ledger.close_attempts([closed_ok(job, attempt, f"{text} [1]", then=then)])
            await whole.check(await whole.lease())
            if (view := await whole.view()).finished_at:
                break
        assert [purpose for purpose, _, _ in await whole.outcomes()][1::2] == ["judge"] * (view.round + 1)
        return view

    again = asyncio.run(story(says(verdict(1, "unsupported"))))
    assert (again.round, claims_of(again)[0].verdict) == (1, Verdict.SUPPORTED)
    # A claim that the judge said nothing of is no fault of the answer's: nothing more is paid for.
    silent = asyncio.run(story(says()))
    assert (silent.round, claims_of(silent)[0].verdict) == (0, Verdict.UNCHECKED)
