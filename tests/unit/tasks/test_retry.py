"""The reaction to each kind of failure."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.failure import Failure, FailureKind
from schemas.states import HeldReason
from tasks.calls.retry import (
    REFUSED_LANE,
    SNOOZED,
    TERMINAL,
    Decision,
    Fail,
    Fallback,
    Hold,
    Retry,
    RetryPolicy,
    Snooze,
    decide,
)

POLICY = RetryPolicy()


def after(kind: FailureKind, **changes: object) -> Decision:
    defaults = {
        "spent": 0,
        "snoozes": 0,
        "max_attempts": 4,
        "more_providers": False,
        "policy": POLICY,
        "jitter": 0.5,
    }
    failure = Failure(kind=kind, message="m", retry_after_s=changes.pop("retry_after_s", None))  # type: ignore[arg-type]
    return decide(failure, **{**defaults, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", sorted(SNOOZED))
def test_a_refusal_without_work_is_snoozed_without_spending(kind: FailureKind) -> None:
    assert after(kind, spent=3) == Snooze(timedelta(seconds=1))


def test_a_provider_is_waited_for_as_long_as_it_asks() -> None:
    assert after(FailureKind.RATE_LIMITED, retry_after_s=30.0) == Snooze(timedelta(seconds=31))


def test_a_provider_that_asks_for_too_long_is_asked_again_within_the_hour() -> None:
    decision = after(FailureKind.RATE_LIMITED, retry_after_s=1e300)

    assert decision == Snooze(POLICY.longest_retry_after + timedelta(seconds=1))


@pytest.mark.parametrize("kind", sorted(TERMINAL))
def test_a_permanent_failure_ends_the_job_or_uses_the_fallback(kind: FailureKind) -> None:
    assert isinstance(after(kind), Fail)
    assert after(kind, more_providers=True) == Fallback()


def test_a_used_up_quota_holds_the_lane() -> None:
    assert after(FailureKind.QUOTA) == Hold(HeldReason.LANE_PAUSED)


@pytest.mark.parametrize("kind", sorted(FailureKind))
def test_a_failure_that_pauses_the_lane_holds_the_job_or_uses_the_fallback(kind: FailureKind) -> None:
    assert after(kind, lane_paused=True, spent=3, snoozes=1_000, max_attempts=1) == Hold(HeldReason.LANE_PAUSED)
    assert after(kind, lane_paused=True, more_providers=True) == Fallback()


@pytest.mark.parametrize("kind", sorted(REFUSED_LANE))
def test_a_refused_key_or_model_spends_no_attempt_until_the_lane_is_paused(kind: FailureKind) -> None:
    assert after(kind, max_attempts=1) == Snooze(timedelta(seconds=1))
    assert after(kind, more_providers=True) == Fallback()


@pytest.mark.parametrize("kind", [FailureKind.PERMISSION, FailureKind.PARAMETER])
def test_what_is_refused_again_and_again_may_be_the_jobs_own_failure(kind: FailureKind) -> None:
    assert isinstance(after(kind, snoozes=POLICY.snoozes_before_fallback), Fail)


@pytest.mark.parametrize("kind", [FailureKind.AUTHENTICATION, FailureKind.NOT_FOUND, FailureKind.UNAVAILABLE])
def test_no_job_fails_for_a_provider_without_service(kind: FailureKind) -> None:
    assert after(kind, snoozes=POLICY.max_snoozes, max_attempts=1) == Hold(HeldReason.LANE_PAUSED)


def test_an_unknown_outcome_is_retried_or_held_by_policy() -> None:
    assert isinstance(after(FailureKind.UNKNOWN_OUTCOME), Retry)
    holding = RetryPolicy(hold_unknown=True)
    assert after(FailureKind.UNKNOWN_OUTCOME, policy=holding) == Hold(HeldReason.UNKNOWN_OUTCOME)


def test_the_last_attempt_fails_with_its_own_failure() -> None:
    decision = after(FailureKind.BAD_ANSWER, spent=3)

    assert isinstance(decision, Fail)
    assert decision.failure.kind is FailureKind.BAD_ANSWER


def test_snoozes_end_some_time() -> None:
    assert isinstance(after(FailureKind.OVERLOADED, snoozes=POLICY.max_snoozes), Fail)


@pytest.mark.parametrize("kind", sorted(SNOOZED))
def test_snoozes_end_sooner_with_a_fallback(kind: FailureKind) -> None:
    last = POLICY.snoozes_before_fallback

    assert isinstance(after(kind, snoozes=last - 1, more_providers=True), Snooze)
    assert after(kind, snoozes=last, more_providers=True) == Fallback()
    assert isinstance(after(kind, snoozes=last), Snooze)


@given(
    kind=st.sampled_from(FailureKind),
    spent=st.integers(0, 2**40),
    snoozes=st.integers(0, 2**40),
    max_attempts=st.integers(1, 100),
    more=st.booleans(),
    jitter=st.floats(0, 1, exclude_max=True),
    retry_after_s=st.none() | st.floats(0, allow_infinity=False),
)
def test_every_failure_has_a_bounded_answer(
    kind: FailureKind,
    spent: int,
    snoozes: int,
    max_attempts: int,
    more: bool,  # noqa: FBT001
    jitter: float,
    retry_after_s: float | None,
) -> None:
    decision = after(
        kind, spent=spent, snoozes=snoozes, max_attempts=max_attempts, more_providers=more, jitter=jitter,
        retry_after_s=retry_after_s,
    )  # fmt: skip

    if isinstance(decision, Retry | Snooze):
        assert timedelta(0) <= decision.delay <= POLICY.longest_retry_after + POLICY.ceiling
    if isinstance(decision, Retry):
        assert spent + 1 < max_attempts
    if isinstance(decision, Fallback):
        assert more
