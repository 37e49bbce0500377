"""Refused keys, unknown models and unreachable servers: few calls, a paused lane, and the notices."""

import asyncio

import pytest

from schemas.failure import FailureKind
from tasks.ports import Denied, DenyReason, Permit
from tests.unit.worker.limits.test_rate_limiter import LimiterHarness, completion, failure, make_call, make_leased
from worker.limits.lanes import ALL_MODELS, FIRST_CALLS, REFUSALS_TO_PAUSE, LaneHealth

K = FailureKind
JOBS = 100


async def call_all(
    harness: LimiterHarness, kind: FailureKind, jobs: int = JOBS, model: str = "m"
) -> tuple[int, list[Denied]]:
    """Let jobs call at once, with every call failing; returns the number of calls, and the denials."""
    calls = 0

    async def call_once() -> Denied | None:
        nonlocal calls
        permit = await harness.limiter.permit(make_leased(), make_call(model=model))
        if isinstance(permit, Denied):
            return permit
        calls += 1
        await asyncio.sleep(0.01)
        harness.limiter.failed(permit, failure(kind))
        return None

    denials = await asyncio.gather(*(call_once() for _ in range(jobs)))
    return calls, [denial for denial in denials if denial is not None]


@pytest.mark.parametrize(
    ("kind", "lane"),
    [
        (K.AUTHENTICATION, ("openai", "standard", ALL_MODELS)),
        (K.NOT_FOUND, ("openai", "standard", "m")),
        (K.PERMISSION, ("openai", "standard", "m")),
        (K.PARAMETER, ("openai", "standard", "m")),
    ],
)
async def test_few_of_a_hundred_jobs_call_a_provider_that_refuses_all(
    kind: FailureKind, lane: tuple[str, str, str]
) -> None:
    harness = LimiterHarness()
    calls, denials = await call_all(harness, kind)
    assert REFUSALS_TO_PAUSE <= calls <= FIRST_CALLS
    assert len(denials) == JOBS - calls
    assert {denial.why for denial in denials} == {DenyReason.LANE_PAUSED}
    assert harness.ledger.paused == {lane: (kind, "no")}
    await harness.limiter.close()


async def test_an_unknown_model_holds_back_no_other() -> None:
    harness = LimiterHarness()
    await call_all(harness, K.NOT_FOUND, model="nonsense")
    assert isinstance(await harness.permit(model="good"), Permit)
    assert isinstance(await harness.permit(model="nonsense"), Denied)
    await harness.limiter.close()


async def test_a_refused_key_holds_back_every_model() -> None:
    harness = LimiterHarness()
    await call_all(harness, K.AUTHENTICATION, model="a")
    assert isinstance(await harness.permit(model="b"), Denied)
    assert isinstance(await harness.permit(provider="anthropic"), Permit)
    await harness.limiter.close()


async def test_after_a_release_few_calls_test_the_lane() -> None:
    harness = LimiterHarness()
    await call_all(harness, K.AUTHENTICATION)
    harness.ledger.paused.clear()
    calls, _ = await call_all(harness, K.AUTHENTICATION)
    assert calls <= FIRST_CALLS
    assert harness.ledger.paused, "the first refusal pauses the lane again"

    harness.ledger.paused.clear()
    permit = await harness.permit()
    assert isinstance(permit, Permit)
    harness.limiter.answered(permit, completion())
    permits = await asyncio.gather(*(harness.permit() for _ in range(JOBS)))
    assert all(isinstance(permit, Permit) for permit in permits)
    await harness.limiter.close()


def test_refusals_with_answers_between_pause_nothing() -> None:
    health = LaneHealth(60.0)
    for _ in range(3 * REFUSALS_TO_PAUSE):
        assert health.failed("p", "m", failure(K.PERMISSION)) is None
        health.answered("p", "m")


async def test_an_unreachable_server_gets_few_calls_and_a_notice() -> None:
    harness = LimiterHarness()
    calls, denials = await call_all(harness, K.UNAVAILABLE)
    assert calls <= FIRST_CALLS
    assert {denial.why for denial in denials} == {DenyReason.BREAKER}
    assert [(entry.provider, entry.why) for entry in harness.limiter.unreachable()] == [("openai", "no")]
    assert harness.ledger.paused == {}
    await harness.limiter.close()


def test_a_server_unreachable_for_too_long_pauses_the_lane() -> None:
    now = 0.0
    health = LaneHealth(3_600.0, clock=lambda: now)
    for minute in range(60):
        now = minute * 60.0
        assert health.failed("p", "m", failure(K.UNAVAILABLE)) is None
    now = 3_600.0
    assert health.failed("p", "other", failure(K.UNAVAILABLE)) == ALL_MODELS
    health.answered("p", "m")
    assert health.unreachable() == ()
    assert health.failed("p", "m", failure(K.UNAVAILABLE)) is None
