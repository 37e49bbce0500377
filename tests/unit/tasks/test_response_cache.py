"""Sharing of answers: the calls that may share, the identity of two calls, and the use of a stored answer."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from schemas.failure import FailureKind
from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from schemas.states import JobState, Step
from tasks.calls.response_cache import (
    FIRST_LOOK,
    LONGEST_PAUSE,
    NO_SHARING,
    SharePolicy,
    share_key,
    wait_for_duplicate,
)
from tasks.ports import Call, Denied, JobView, Leased, Permit
from tasks.prompting.messages import render
from tests.builders import make_attempt, make_config, make_request
from tests.fakes.quiet import Unlimited
from tests.scripted_provider import Registry, ScriptedProvider, answers, hangs
from tests.unit.tasks.test_check import examine
from tests.unit.tasks.test_generate import LEASE, GenerateHarness, failing

DESK = SharePolicy(frozenset({"desk"}))


def shared_desk(*providers: ScriptedProvider, **changes: Any) -> GenerateHarness:
    """A desk whose tenant shares answers."""
    return GenerateHarness(Registry(*providers), **{"sharing": DESK, **changes})


async def again(harness: GenerateHarness, request: JobRequest | None = None, **batch: Any) -> tuple[Leased, JobView]:
    """One more job with the same request, taken through the step."""
    job = await harness.lease(request or make_request(), **batch)
    return job, await harness.generate(job)


def call_of(job: Leased, **changes: Any) -> Call:
    call = ScriptedProvider(answers()).plan(job.request, render(job.request, AnswerProtocol.MARKERS))
    return replace(call, **changes)


async def leased(request: JobRequest | None = None, **changes: Any) -> Leased:
    job = await GenerateHarness(Registry(ScriptedProvider(answers()))).lease(request or make_request())
    return replace(job, **changes)


# ---- the policy ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tenants", "shares"), [((), False), (("desk",), True), (("another",), False), (("*",), True)])
def test_only_configured_tenants_share(tenants: tuple[str, ...], *, shares: bool) -> None:
    job = asyncio.run(leased())

    assert (SharePolicy(frozenset(tenants)).terms(job, call_of(job)) is not None) is shares
    assert NO_SHARING.terms(job, call_of(job)) is None


def test_a_first_call_takes_gives_and_waits() -> None:
    job = asyncio.run(leased())
    policy = replace(DESK, within=timedelta(hours=2), wait=timedelta(minutes=1))

    terms = policy.terms(job, call_of(job))

    assert terms is not None
    assert (terms.within, terms.wait) == (timedelta(hours=2), timedelta(minutes=1))
    assert terms.key == share_key("desk", call_of(job))


@pytest.mark.parametrize(
    "changed",
    [
        {"request": make_request(config=make_config(share=False))},
        {"round": 1},
    ],
    ids=["the job does not want to", "a second round"],
)
def test_some_calls_share_nothing(changed: dict[str, Any]) -> None:
    job = asyncio.run(leased(**changed))

    assert DESK.terms(job, call_of(job)) is None


def test_a_stream_shares_nothing() -> None:
    job = asyncio.run(leased())

    assert DESK.terms(job, call_of(job, stream=True)) is None


def test_a_later_run_only_gives_and_an_urgent_job_does_not_wait() -> None:
    job = asyncio.run(leased())
    later, urgent = (DESK.terms(replace(job, **change), call_of(job)) for change in ({"run": 2}, {"priority": 1}))

    assert later is not None
    assert (later.within, later.wait) == (timedelta(0), timedelta(0))
    assert urgent is not None
    assert (urgent.within, urgent.wait) == (DESK.within, timedelta(0))


@pytest.mark.parametrize(
    ("open_s", "pause"), [(0, FIRST_LOOK), (4, FIRST_LOOK + timedelta(seconds=2)), (3_600, LONGEST_PAUSE)]
)
def test_the_longer_a_call_takes_the_longer_the_pause(open_s: float, pause: timedelta) -> None:
    job = asyncio.run(leased())
    pauses = [wait_for_duplicate(job, timedelta(seconds=open_s), jitter).delay for jitter in (0.0, 0.5, 0.999)]

    assert pauses[0] == pause * 0.75
    assert pauses[1] == pause
    assert pauses[0] < pauses[1] < pauses[2] < pause * 1.25
    then = wait_for_duplicate(job, timedelta(0), 0.0)
    assert (then.state, then.step, then.held_reason, then.event) == (JobState.SCHEDULED, Step.GENERATE, None, None)


# ---- the step --------------------------------------------------------------------------------------------------


async def test_sources_in_another_order_are_cited_in_that_order() -> None:
    texts = (
        {"content": "The desk opens at nine.", "relevance_score": 0.9},
        {"content": "Tea is at ten.", "relevance_score": 0.8},
    )
    provider = ScriptedProvider(answers())
    harness = shared_desk(provider)
    await again(harness, make_request(context=texts))
    await again(harness, make_request(context=texts[::-1]))

    assert len(provider.calls) == 1
    cited = []
    for job in sorted(await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 2), key=lambda job: job.job_id):
        final = examine(job, 0.0)
        cited.append([citation.source_index for citation in final.record.citations])  # type: ignore[union-attr]
        assert "desk opens" in final.record.citations[0].quoted_text  # type: ignore[union-attr]
    assert cited == [[0], [1]]


async def test_fields_of_the_job_itself_are_not_copied() -> None:
    first = ScriptedProvider(failing(FailureKind.NOT_FOUND), name="first")
    second = ScriptedProvider(answers(), name="second")
    harness = shared_desk(first, second)
    await again(harness, make_request(config=make_config(provider="second")))
    job, view = await again(harness, make_request(config=make_config(fallbacks=("second",))))

    assert view.step is Step.CHECK
    assert [len(provider.calls) for provider in (first, second)] == [1, 1]
    stored = next(
        lease.stored
        for lease in await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 9)
        if lease.job_id == job.job_id
    )
    assert stored is not None
    assert stored.completion.snapshot.fallback_from == ("first: not_found",)


async def while_calling(harness: GenerateHarness, provider: ScriptedProvider, then: Callable[[], Any]) -> None:
    """Do something while the first of two identical jobs waits for its answer."""
    calling = asyncio.ensure_future(harness.generate(await harness.lease(make_request())))
    await provider.called.wait()
    await then()
    calling.cancel()
    await asyncio.wait([calling])


async def test_a_call_under_way_is_waited_for_without_spending_anything() -> None:
    provider = ScriptedProvider(hangs, answers())
    harness = shared_desk(provider)

    async def second() -> None:
        job, view = await again(harness)
        assert (view.state, view.held_reason, view.step) == (JobState.SCHEDULED, None, Step.GENERATE)
        assert await harness.attempts(job) == []

    await while_calling(harness, provider, second)
    # The first was cut off: whoever comes next makes the call, and the other one takes what it brings.
    harness.ledger.advance(timedelta(seconds=20))
    await harness.ledger.duties.promote(10)
    for _ in range(2):
        await harness.generate(await harness.lease_again())
    assert len(provider.calls) == 2
    assert len(await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 9)) == 2


class Slow(Unlimited):
    """Lets an identical call begin, by another process, while a permit is waited for."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        self.begin = begin
        self.given_back = 0

    async def permit(self, job: Leased, call: Call) -> Permit | Denied:
        await self.begin()
        return await super().permit(job, call)

    def unused(self, permit: Permit) -> None:
        self.given_back += 1


async def test_a_call_that_began_meanwhile_is_not_made_twice_and_its_permit_given_back() -> None:
    provider = ScriptedProvider(answers())
    harness = shared_desk(provider)
    other = await harness.lease(make_request())

    async def begin() -> None:
        terms = DESK.terms(other, call_of(other))
        await harness.ledger.attempts.open_attempts([make_attempt(other, share=terms)])

    limits = Slow(begin)
    harness.limits = limits
    job, view = await again(harness)
    assert (view.state, limits.given_back, provider.calls) == (JobState.SCHEDULED, 1, [])
    assert await harness.attempts(job) == []


async def test_a_run_that_a_person_asked_for_makes_its_own_call() -> None:
    provider = ScriptedProvider(answers("One. [1]"), answers("Two. [1]"))
    harness = shared_desk(provider)
    job, _ = await again(harness)
    await harness.ledger.actions.cancel([job.job_id], "ada")
    await harness.ledger.actions.retry([job.job_id], "ada")
    await harness.ledger.duties.promote(10)
    await harness.generate(await harness.lease_again())
    assert len(provider.calls) == 2
    # What it got others may take, as the newest.
    job, _ = await again(harness)
    assert len(provider.calls) == 2
    checking = {lease.job_id: lease for lease in await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 9)}
    stored = checking[job.job_id].stored
    assert stored is not None
    assert stored.completion.text == "Two. [1]"
