"""Fallback providers: the moment of the switch to the next provider, and the record of it."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from schemas.failure import FailureKind
from schemas.job import JobRequest
from schemas.model_call import Prompt
from schemas.states import JobState, Step
from tasks.calls.retry import TERMINAL, RetryPolicy
from tasks.errors import ProviderError
from tasks.ports import Call, JobView, Leased
from tests.builders import make_request
from tests.scripted_provider import Registry, ScriptedProvider, answers
from tests.unit.tasks.test_generate import LEASE, GenerateHarness, failing

SOON = RetryPolicy(max_snoozes=5, snoozes_before_fallback=2)


def first(*kinds: FailureKind) -> ScriptedProvider:
    return ScriptedProvider(*map(failing, kinds), name="first")


def second(*kinds: FailureKind) -> ScriptedProvider:
    return ScriptedProvider(*map(failing, kinds), answers(), name="second")


class Unplannable(ScriptedProvider):
    """Can't serve what is asked for."""

    def plan(self, request: JobRequest, prompt: Prompt) -> Call:
        raise ProviderError(FailureKind.CONFIGURATION, f"{self.name} has no such lane")


async def to_its_end(harness: GenerateHarness, **config: Any) -> tuple[Leased, JobView]:
    """Run a job until it has its answer, fails or is held, however often it has to wait."""
    job = await harness.lease(make_request(config=config))
    view = await harness.generate(job)
    for _ in range(50):
        if view.state is not JobState.SCHEDULED or view.held_reason is not None:
            return job, view
        harness.ledger.advance(timedelta(hours=2))
        await harness.ledger.duties.promote(1)
        view = await harness.generate(await harness.lease_again())
    raise AssertionError("never ended")


async def outcomes(harness: GenerateHarness, job: Leased) -> list[tuple[str, str]]:
    detail = await harness.ledger.reading.job_detail(job.job_id)
    return [(attempt["provider"], attempt["outcome"]) for attempt in detail.attempts]


async def credit(harness: GenerateHarness) -> Sequence[str]:
    """The note in the stored answer about the provider that it replaces."""
    (checked,) = await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 1)
    assert checked.stored is not None
    return checked.stored.completion.snapshot.fallback_from


@pytest.mark.parametrize("kind", [*sorted(TERMINAL - {FailureKind.ATTEMPTS_SPENT}), FailureKind.QUOTA])
async def test_a_terminal_failure_asks_the_next_at_once(kind: FailureKind) -> None:
    harness = GenerateHarness(Registry(first(kind), second(), fallbacks=("second",)))
    job = await harness.lease(make_request())
    view = await harness.generate(job)

    assert view.step is Step.CHECK
    assert [provider for provider, _ in await outcomes(harness, job)] == ["first", "second"]
    assert await credit(harness) == (f"first: {kind.value}",)


@pytest.mark.parametrize("kind", [FailureKind.RATE_LIMITED, FailureKind.OVERLOADED, FailureKind.UNAVAILABLE])
async def test_a_provider_that_stays_busy_is_left_after_some_snoozes(kind: FailureKind) -> None:
    harness = GenerateHarness(Registry(first(kind), second()), SOON)
    job, view = await to_its_end(harness, fallbacks=["second"])

    assert view.step is Step.CHECK
    assert [provider for provider, _ in await outcomes(harness, job)] == ["first"] * 3 + ["second"]


async def test_when_all_fail_for_ever_the_job_fails_and_names_the_last() -> None:
    third = ScriptedProvider(failing(FailureKind.BAD_ANSWER), name="third")
    busy = ScriptedProvider(failing(FailureKind.OVERLOADED), name="second")
    harness = GenerateHarness(Registry(first(FailureKind.AUTHENTICATION), busy, third), SOON)
    job, view = await to_its_end(harness, max_attempts=2, fallbacks=["second", "third"])

    assert view.state is JobState.FAILED
    assert view.record is not None
    assert view.record.failure is not None
    assert view.record.failure.kind is FailureKind.BAD_ANSWER
    assert {provider for provider, _ in await outcomes(harness, job)} == {"first", "second", "third"}


@pytest.mark.parametrize("broken", [None, Unplannable(name="broken")])
async def test_a_fallback_that_cannot_be_called_is_passed_over(broken: ScriptedProvider | None) -> None:
    providers = [first(FailureKind.REFUSED), second(), *([broken] if broken else [])]
    harness = GenerateHarness(Registry(*providers, fallbacks=("broken", "second")))
    job = await harness.lease(make_request())
    view = await harness.generate(job)

    assert view.step is Step.CHECK
    assert [provider for provider, _ in await outcomes(harness, job)] == ["first", "second"]
    assert await credit(harness) == ("first: refused", "broken: configuration")


async def test_when_none_can_be_called_all_reasons_are_told() -> None:
    harness = GenerateHarness(Registry(Unplannable(name="first"), fallbacks=("nobody",)))
    job, view = await to_its_end(harness)

    assert view.state is JobState.FAILED
    assert view.record is not None
    assert view.record.failure is not None
    assert view.record.failure.kind is FailureKind.CONFIGURATION
    assert view.record.failure.message == "first has no such lane; no provider 'nobody' is configured"
    assert await outcomes(harness, job) == []


async def test_under_a_ceiling_a_provider_without_a_price_is_passed_over() -> None:
    unpriced = ScriptedProvider(answers(), name="first", reserve_usd=None)
    harness = GenerateHarness(Registry(unpriced, second(), fallbacks=("second",)))
    job = await harness.lease(make_request(), max_cost_usd=Decimal(1))
    await harness.generate(job)

    assert unpriced.calls == []
    assert await credit(harness) == ("first: budget",)
