"""The judge of a job that asks for none: what it may cost, what it may change, and that nothing waits or fails for it."""

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from schemas.failure import FailureKind
from schemas.grounding import Verdict
from schemas.job import JobRequest
from schemas.states import JobState, Outcome
from tasks.errors import ProviderError
from tasks.ports import Call, Denied, DenyReason, JobView, Leased, Permit
from tests.fakes.quiet import Unlimited
from tests.judge_harness import (
    PARAPHRASE,
    PLAIN,
    QUOTE,
    SOURCE,
    WRONG,
    JudgeHarness,
    claims_of,
    grounding_of,
    judge_harness,
    verdict,
    verdicts_reply,
)
from tests.scripted_provider import Act, ScriptedProvider, raises

SHARE = Decimal("0.15")
ANSWER_USD = Decimal("0.05")
YES = verdicts_reply(verdict(1, "supported", QUOTE))


def question(**config: Any) -> JobRequest:
    return JobRequest(query="When does the desk open?", context=({"content": SOURCE},), config=config)


def answered(
    text: str, *acts: Act, cost_usd: Decimal = ANSWER_USD, expected_usd: Decimal | None = Decimal("0.004"),
    batch: dict[str, Any] | None = None, share: Decimal = SHARE, least_usd: Decimal = Decimal(0), **config: Any,
) -> tuple[JudgeHarness, JobView]:  # fmt: skip
    """A generated answer, checked to its end with a judge by default."""
    provider = ScriptedProvider(*(acts or (YES,)), expected_usd=expected_usd, reserve_usd=Decimal("0.006"))
    harness = JudgeHarness(provider, default_share=share, least_usd=least_usd)
    views = []

    async def scenario() -> None:
        await harness.submit(question(**config), **(batch or {}))
        await harness.answer(f"{text} [1]", cost_usd)
        views.append(await harness.finish())

    asyncio.run(scenario())
    return harness, views[0]


def test_all_claims_that_words_leave_open_are_in_one_call_and_no_decision_of_words_is_asked_about() -> None:
    reply = verdicts_reply(verdict(1, "supported", QUOTE), verdict(2, "contradicted", "printed in Port Lune at four"))
    noon = "Printers in another town start that edition at noon."
    changed = "The night desk opens at ten in the evening."
    harness, view = answered(f"{PARAPHRASE} [1] {PLAIN} [1] {changed} [1] {noon}", reply)

    (call,) = harness.judge.calls
    statements = "\n".join(text for _, text in call.prompt.snapshot.texts([SOURCE])).rpartition("Statements:")[2]
    assert (PARAPHRASE[:-1] in statements, noon[:-1] in statements) == (True, True)
    assert not any(decided[:-1] in statements for decided in (PLAIN, changed))
    verdicts = [Verdict.SUPPORTED, Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.CONTRADICTED]
    assert [claim.verdict for claim in claims_of(view)] == verdicts
    assert [claim.checker for claim in claims_of(view)] == ["judge", "lexical", "lexical", "judge"]


def test_so_many_claims_are_asked_about_as_the_share_pays_for(monkeypatch: pytest.MonkeyPatch) -> None:
    prices = {1: Decimal("0.0075"), 2: Decimal("0.008")}

    def expected_usd(_: ScriptedProvider, call: Any) -> Decimal:
        return prices[len(call.prompt.pairs)]

    monkeypatch.setattr(ScriptedProvider, "expected_usd", expected_usd)
    harness, view = answered(f"{PARAPHRASE} [1] {WRONG}")

    assert len(harness.judge.calls) == 1
    assert [claim.checker for claim in claims_of(view)] == ["judge", "lexical"]
    skipped = grounding_of(view).skipped_checkers["judge"]
    assert skipped.startswith("1 of 2 open claims were not asked about: the limit is 0.0075")


@pytest.mark.parametrize("expected_usd", [Decimal("0.0076"), None])
def test_a_call_beyond_the_share_or_without_a_price_is_not_made(expected_usd: Decimal | None) -> None:
    harness, view = answered(PARAPHRASE, expected_usd=expected_usd)

    assert harness.judge.calls == []
    (claim,) = claims_of(view)
    assert (claim.verdict, claim.checker) == (Verdict.UNDECIDED, "lexical")
    assert (view.outcome, view.cost_usd) == (Outcome.UNVERIFIED, ANSWER_USD)
    assert "1 of 1 open claims" in grounding_of(view).skipped_checkers["judge"]


def test_an_answer_too_cheap_for_any_call_is_not_even_planned_for() -> None:
    harness, view = answered(PARAPHRASE, least_usd=Decimal("0.0076"))

    assert harness.judge.plans == 0
    assert view.outcome is Outcome.UNVERIFIED
    assert grounding_of(view).skipped_checkers == {
        "judge": "1 of 1 open claims were not asked about: the answer is too cheap for a call"
    }


def test_without_money_in_the_batch_the_answer_goes_on_without_it() -> None:
    harness, view = answered(PARAPHRASE, batch={"max_cost_usd": Decimal("0.055")})

    assert (view.state, view.outcome, view.held_reason) == (JobState.COMPLETED, Outcome.UNVERIFIED, None)
    assert harness.judge.calls == []
    assert grounding_of(view).skipped_checkers == {"judge": "the batch has no money left for its call"}


def test_the_reservation_is_in_the_budget_and_comes_back() -> None:
    harness, _ = answered(PARAPHRASE, batch={"max_cost_usd": Decimal("0.056")})

    assert len(harness.judge.calls) == 1
    money = harness.ledger.row("SELECT reserved_usd, spent_usd FROM batch")
    assert money == (Decimal(0), ANSWER_USD + Decimal("0.002"))


@pytest.mark.parametrize(
    "kind", [FailureKind.RATE_LIMITED, FailureKind.AUTHENTICATION, FailureKind.QUOTA, FailureKind.UNKNOWN_OUTCOME]
)
def test_a_call_that_fails_is_made_once_and_changes_nothing(kind: FailureKind) -> None:
    harness, view = answered(PARAPHRASE, raises(ProviderError(kind, "the provider said no")))

    assert len(harness.judge.calls) == 1
    assert (view.state, view.outcome) == (JobState.COMPLETED, Outcome.UNVERIFIED)
    grounding = grounding_of(view)
    assert grounding.claims[0].verdict is Verdict.UNDECIDED
    assert grounding.failed_checkers == {}
    assert "its call failed: the provider said no" in grounding.skipped_checkers["judge"]


@pytest.mark.parametrize(
    ("share", "config"),
    [
        (Decimal(0), {}),
        (SHARE, {"checkers": ["lexical"]}),
        (SHARE, {"require_grounding": False}),
    ],
)
def test_there_is_none_without_a_share_or_for_a_job_that_chose_its_layers(
    share: Decimal, config: dict[str, Any]
) -> None:
    harness, view = answered(PARAPHRASE, share=share, **config)

    assert harness.judge.calls == []
    grounding = grounding_of(view)
    assert grounding.skipped_checkers == {}
    assert "judge" not in grounding.checkers


class DenyFirst(Unlimited):
    """Denies the first call for one reason, and permits all others."""

    def __init__(self, why: DenyReason) -> None:
        self._denials = [Denied(why, timedelta(seconds=30))]

    async def permit(self, job: Leased, call: Call) -> Permit | Denied:
        return self._denials.pop() if self._denials else await super().permit(job, call)


@pytest.mark.parametrize(
    ("why", "calls"), [(DenyReason.LIMIT, 1), (DenyReason.BREAKER, 0), (DenyReason.LANE_PAUSED, 0)]
)
async def test_its_turn_at_the_limits_is_waited_for_and_a_provider_in_trouble_is_not(
    why: DenyReason, calls: int
) -> None:
    harness = judge_harness(YES, default_share=SHARE, limits=DenyFirst(why))

    await harness.submit(question())
    await harness.answer(f"{PARAPHRASE} [1]", ANSWER_USD)
    view = await harness.finish()

    assert (len(harness.judge.calls), view.state) == (calls, JobState.COMPLETED)
    assert ("judge" in grounding_of(view).skipped_checkers) is (calls == 0)
