"""The generate step over a real ledger: every way a job can leave it."""

import asyncio
import threading
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from schemas.failure import Failure, FailureKind
from schemas.job import JobRequest
from schemas.model_call import Completion
from schemas.states import HeldReason, JobState, Outcome, Step
from tasks import generate
from tasks.calls.experiments import Variants
from tasks.calls.paid_call import MAX_UNKNOWN, PaidCalls
from tasks.calls.response_cache import NO_SHARING, SharePolicy
from tasks.calls.retry import RetryPolicy
from tasks.errors import LedgerUnavailable, ProviderError
from tasks.generate import BIG_REQUEST_BYTES, Generate
from tasks.ports import (
    Call,
    Denied,
    DenyReason,
    JobView,
    Leased,
    Limits,
    Permit,
    StoredCompletion,
    TokenSink,
)
from tests.builders import make_batch, make_completion, make_jobs, make_prompt, make_request, new_id
from tests.fakes.quiet import Unheard, Unlimited
from tests.lent_ledger import LentLedger
from tests.scripted_provider import Act, Registry, ScriptedProvider, answers, hangs, raises
from worker.process.journal import LedgerJournal

LEASE = timedelta(seconds=60)


def failing(kind: FailureKind, **more: Any) -> Act:
    return raises(ProviderError(kind, "the provider said no", **more))


@dataclass
class GenerateHarness:
    """A ledger, a step over it, and what the step told."""

    providers: Registry
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    limits: Limits = field(default_factory=Unlimited)
    ledger: LentLedger = field(default_factory=LentLedger)
    checks: list[Leased] = field(default_factory=list)
    finals: list[Any] = field(default_factory=list)
    tokens: TokenSink = field(default_factory=Unheard)
    shares: Variants = field(default_factory=dict)
    surely_held: bool = True
    sharing: SharePolicy = NO_SHARING

    async def lease(self, request: JobRequest, **batch: Any) -> Leased:
        await self.ledger.submission.submit(make_batch(**batch), [make_jobs(request)])
        return await self.lease_again()

    async def lease_again(self) -> Leased:
        (job,) = await self.ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
        return job

    async def generate(self, job: Leased) -> JobView:
        journal = LedgerJournal(self.ledger, surely_held=lambda *_: self.surely_held, publish=self.finals.append)
        step = Generate(
            self.ledger.queue, journal, PaidCalls(journal, self.policy, lambda: 0.5, self.limits, self.tokens),
            self.providers, self.checks.append, self.shares, self.sharing,
        )  # fmt: skip
        try:
            await step.run(job)
        finally:
            await journal.close()
        return await self.view(job)

    async def view(self, job: Leased) -> JobView:
        (view,) = await self.ledger.reading.views([job.job_id])
        return view

    async def attempts(self, job: Leased) -> list[tuple[str | None, bool]]:
        detail = await self.ledger.reading.job_detail(job.job_id)
        return [(attempt["outcome"], attempt["spent"]) for attempt in detail.attempts]


async def test_an_answer_is_stored_and_goes_to_its_check() -> None:
    harness = GenerateHarness(Registry(ScriptedProvider(answers())))
    job = await harness.lease(make_request())
    view = await harness.generate(job)

    assert (view.state, view.step) == (JobState.AVAILABLE, Step.CHECK)
    assert [job.job_id for job in harness.checks] == [job.job_id]
    assert await harness.attempts(job) == [("ok", False)]
    assert view.cost_usd == Decimal("0.002")
    (checked,) = await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 1)
    assert checked.stored is not None
    assert checked.stored.completion.text == "The desk opens at nine. [1]"
    assert {"queue", "prompt", "llm"} <= checked.stored.timing_ms.keys()


@pytest.mark.parametrize(
    ("context", "on_loop"),
    [
        (["a word " * 100], True),
        (["a word " * (BIG_REQUEST_BYTES // 7 + 1)], False),
        ([f"word {number}" for number in range(200)], False),
    ],
    ids=["small", "of many bytes", "of many sources"],
)
def test_only_the_prompt_of_a_big_request_is_made_off_the_loop(
    monkeypatch: pytest.MonkeyPatch, context: list[str], *, on_loop: bool
) -> None:
    threads: list[threading.Thread] = []
    render = generate.render  # type: ignore[attr-defined]

    def rendering(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return render(*arguments)

    monkeypatch.setattr(generate, "render", rendering)

    async def scenario() -> None:
        harness = GenerateHarness(Registry(ScriptedProvider(answers())))
        view = await harness.generate(await harness.lease(make_request(context=context)))
        assert view.step is Step.CHECK

    asyncio.run(scenario())

    assert [thread is threading.main_thread() for thread in threads] == [on_loop]


async def test_an_attempt_confirmed_too_late_makes_no_call() -> None:
    provider = ScriptedProvider(answers())
    harness = GenerateHarness(Registry(provider), surely_held=False)
    job = await harness.lease(make_request(), max_cost_usd=Decimal(1))
    view = await harness.generate(job)

    assert provider.calls == []
    assert (view.state, view.step) == (JobState.AVAILABLE, Step.GENERATE)
    assert await harness.attempts(job) == [("error:cancelled", False)]
    status = await harness.ledger.reading.batch_status(job.batch_id)
    assert (status.reserved_usd, status.spent_usd) == (0, 0)

    harness.surely_held = True
    assert (await harness.generate(await harness.lease_again())).step is Step.CHECK


@pytest.mark.parametrize(
    ("request_", "outcome", "reason"),
    [
        (make_request(context=()), Outcome.NO_EVIDENCE, "no sources"),
        (make_request(context=(" \n", "| -- |", "\u200b")), Outcome.NO_EVIDENCE, "none of 3 sources holds a word"),
        (make_request(config={"min_sources": 2}), Outcome.ABSTAINED, "at least 2"),
        (make_request(context=("Words.", " "), config={"min_sources": 2}), Outcome.ABSTAINED, "1 source"),
        (
            make_request(context=({"content": "x", "relevance_score": 0.1}, {"content": "y"})),
            Outcome.ABSTAINED,
            "0.10, below 0.40",
        ),
    ],
)
async def test_too_little_evidence_ends_without_a_call(request_: JobRequest, outcome: Outcome, reason: str) -> None:
    provider = ScriptedProvider(answers())
    harness = GenerateHarness(Registry(provider))
    view = await harness.generate(await harness.lease(request_))

    assert (view.state, view.outcome) == (JobState.COMPLETED, outcome)
    assert provider.calls == []
    assert view.record is not None
    assert reason in (view.record.quality.abstain_reason or "")
    assert view.record.answer
    assert len(harness.finals) == 1


async def test_versions_that_are_tried_are_drawn_by_job_and_recorded() -> None:
    provider = ScriptedProvider(answers())
    harness = GenerateHarness(Registry(provider), shares={"grounded": {"1": 1.0}})
    await harness.generate(await harness.lease(make_request()))
    await harness.generate(await harness.lease(make_request(config={"prompt_version": "2"})))
    assert [call.prompt.version for call in provider.calls] == ["1", "2"]


async def test_no_answer_in_time_is_an_unknown_outcome_charged_at_worst_case() -> None:
    harness = GenerateHarness(Registry(ScriptedProvider(hangs, reserve_usd=Decimal("0.05"))))
    job = await harness.lease(make_request(config={"timeout_s": 0.01}), max_cost_usd=Decimal(1))
    view = await harness.generate(job)

    assert view.state is JobState.SCHEDULED
    assert await harness.attempts(job) == [("unknown", True)]
    status = await harness.ledger.reading.batch_status(job.batch_id)
    assert (status.reserved_usd, status.spent_usd) == (0, Decimal("0.05"))


async def test_a_broken_answer_is_charged_as_reserved_and_a_refused_call_costs_nothing() -> None:
    acts = (failing(FailureKind.BAD_ANSWER), failing(FailureKind.RATE_LIMITED))
    harness = GenerateHarness(Registry(ScriptedProvider(*acts, reserve_usd=Decimal("0.05"))))
    job = await harness.lease(make_request(), max_cost_usd=Decimal(1))
    await harness.generate(job)
    after_the_first = await harness.ledger.reading.batch_status(job.batch_id)
    harness.ledger.advance(timedelta(minutes=10))
    await harness.ledger.duties.promote(1)
    await harness.generate(await harness.lease_again())
    after_both = await harness.ledger.reading.batch_status(job.batch_id)

    assert await harness.attempts(job) == [("error:bad_answer", True), ("error:rate_limited", False)]
    for status in (after_the_first, after_both):
        assert (status.reserved_usd, status.spent_usd) == (0, Decimal("0.05"))


async def test_a_defect_fails_its_job_and_names_the_exception() -> None:
    harness = GenerateHarness(Registry(ScriptedProvider(raises(ZeroDivisionError("oops")))))
    view = await harness.generate(await harness.lease(make_request(config={"max_attempts": 1})))

    assert view.state is JobState.FAILED
    assert view.record is not None
    assert "ZeroDivisionError: oops" in (view.record.error_message or "")


@pytest.mark.parametrize(("ceiling", "state"), [(None, JobState.AVAILABLE), (Decimal(1), JobState.SCHEDULED)])
async def test_an_unknown_price_is_not_called_under_a_ceiling(ceiling: Decimal | None, state: JobState) -> None:
    provider = ScriptedProvider(answers(), reserve_usd=None)
    harness = GenerateHarness(Registry(provider))
    view = await harness.generate(await harness.lease(make_request(), max_cost_usd=ceiling))

    assert view.state is state
    assert len(provider.calls) == (state is JobState.AVAILABLE)
    assert view.held_reason == (HeldReason.PRICE_UNKNOWN if ceiling else None)


async def test_a_ledger_that_is_away_for_a_moment_fails_no_job_and_loses_no_paid_answer() -> None:
    provider = ScriptedProvider(answers())
    harness = GenerateHarness(Registry(provider))
    job = await harness.lease(make_request())

    async def away(*_: object) -> bool:
        raise LedgerUnavailable("away")

    real, harness.ledger.queue.defer = harness.ledger.queue.defer, away  # type: ignore[method-assign]
    with pytest.raises(LedgerUnavailable):
        await harness.generate(replace(job, stored=StoredCompletion(new_id(), make_completion(), make_prompt(), {})))

    assert (await harness.view(job)).state is JobState.RUNNING
    harness.ledger.queue.defer = real  # type: ignore[method-assign]
    harness.ledger.advance(LEASE * 2)
    assert await harness.ledger.duties.rescue(10, None) == [job.job_id]


async def test_a_stop_while_the_attempt_is_written_leaves_nothing_open_and_costs_nothing() -> None:
    provider = ScriptedProvider(answers())
    harness = GenerateHarness(Registry(provider))
    job = await harness.lease(make_request(), max_cost_usd=Decimal(1))
    work = asyncio.create_task(harness.generate(job))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    assert provider.calls == []
    assert (await harness.view(job)).state is JobState.AVAILABLE
    assert await harness.attempts(job) == [("error:cancelled", False)]
    status = await harness.ledger.reading.batch_status(job.batch_id)
    assert (status.reserved_usd, status.spent_usd) == (0, 0)


async def test_a_job_that_takes_its_worker_down_again_and_again_fails_some_time() -> None:
    provider = ScriptedProvider(hangs)
    harness = GenerateHarness(Registry(provider))
    await harness.ledger.submission.submit(make_batch(), [make_jobs(make_request())])
    for _ in range(MAX_UNKNOWN):
        provider.called.clear()
        job = await harness.lease_again()
        work = asyncio.create_task(harness.generate(job))
        await provider.called.wait()
        work.cancel()
        await asyncio.wait([work])

    view = await harness.generate(await harness.lease_again())
    assert view.state is JobState.FAILED
    assert len(provider.calls) == MAX_UNKNOWN


class Refusing(Unlimited):
    """Refuses the providers named, and notes what it is told."""

    def __init__(self, **refusals: Denied) -> None:
        self.refusals = refusals
        self.notices: list[str] = []

    async def permit(self, job: Leased, call: Call) -> Permit | Denied:
        return self.refusals.get(call.provider) or await super().permit(job, call)

    def answered(self, permit: Permit, completion: Completion) -> None:
        self.notices.append(f"answered {permit.provider}")

    def failed(self, permit: Permit, failure: Failure) -> None:
        self.notices.append(f"failed {permit.provider} {failure.kind.value}")

    def unused(self, permit: Permit) -> None:
        self.notices.append(f"unused {permit.provider}")


@pytest.mark.parametrize(
    ("why", "held_reason", "event"),
    [
        (DenyReason.LIMIT, None, None),
        (DenyReason.BREAKER, None, "breaker"),
        (DenyReason.LANE_PAUSED, HeldReason.LANE_PAUSED, "hold"),
    ],
)
async def test_a_job_that_may_not_be_called_for_waits_without_an_attempt(
    why: DenyReason, held_reason: HeldReason | None, event: str | None
) -> None:
    provider = ScriptedProvider(answers())
    harness = GenerateHarness(Registry(provider), limits=Refusing(scripted=Denied(why, timedelta(seconds=30))))
    job = await harness.lease(make_request())
    view = await harness.generate(job)

    assert (view.state, view.held_reason) == (JobState.SCHEDULED, held_reason)
    assert provider.calls == []
    assert await harness.attempts(job) == []
    detail = await harness.ledger.reading.job_detail(job.job_id)
    assert [job_event["kind"] for job_event in detail.events] == ([event] if event else [])
    if held_reason is None:
        harness.ledger.advance(timedelta(seconds=29))
        assert await harness.ledger.duties.promote(10) == 0
        harness.ledger.advance(timedelta(seconds=2))
        assert await harness.ledger.duties.promote(10) == 1

        # The wait is told in the job's timings, beside that with a lease.
        (again,) = await harness.ledger.queue.lease(Step.GENERATE, "w", timedelta(seconds=60), 1)
        harness.limits.refusals.clear()
        await harness.generate(again)
        (checking,) = await harness.ledger.queue.lease(Step.CHECK, "w", timedelta(seconds=60), 1)
        assert checking.stored is not None
        assert checking.stored.timing_ms["limiter_wait"] == pytest.approx(30_000, abs=500)


@pytest.mark.parametrize(
    ("why", "called"), [(DenyReason.LIMIT, 0), (DenyReason.BREAKER, 1), (DenyReason.LANE_PAUSED, 1)]
)
async def test_fallbacks_are_called_for_a_provider_that_is_down_not_for_one_that_is_busy(
    why: DenyReason, called: int
) -> None:
    first, second = ScriptedProvider(answers(), name="first"), ScriptedProvider(answers(), name="second")
    limits = Refusing(first=Denied(why, timedelta(seconds=30)))
    harness = GenerateHarness(Registry(first, second), limits=limits)
    await harness.generate(await harness.lease(make_request(config={"fallbacks": ["second"]})))

    assert (len(first.calls), len(second.calls)) == (0, called)
    assert limits.notices == ["answered second"] * called


async def test_each_permit_is_reported_back_to_the_limits() -> None:
    limits = Refusing()
    acts = [failing(FailureKind.OVERLOADED), answers()]
    harness = GenerateHarness(Registry(ScriptedProvider(*acts)), limits=limits)
    job = await harness.lease(make_request())
    await harness.generate(job)
    harness.ledger.advance(timedelta(hours=1))
    await harness.ledger.duties.promote(10)
    again = await harness.lease_again()
    await harness.generate(again)
    # Someone else's by now: no call is made with the permit.
    await harness.generate(again)

    assert limits.notices == ["failed scripted overloaded", "answered scripted", "unused scripted"]
