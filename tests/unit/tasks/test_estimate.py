"""The estimate of jobs by the planning code: tokens, cost, time, and jobs that make no call."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from schemas.generation import CheckerName
from schemas.job import JobRequest
from schemas.model_call import Prompt, Usage
from schemas.states import Outcome
from tasks.estimates.call_history import History, PastCalls
from tasks.estimates.estimate import CallLimits, Estimate, Estimator, first_lease
from tasks.lanes.choice import LaneChooser
from tasks.ports import Call, Leased, NewBatch
from tests.builders import make_request
from tests.scripted_provider import Registry, ScriptedProvider, answers

NO_HISTORY, NO_LIMITS = History(), CallLimits()
WITH_JUDGE = (CheckerName.STRUCTURE, CheckerName.LEXICAL, CheckerName.JUDGE)

IN_USD, OUT_USD = Decimal("0.000001"), Decimal("0.000004")


class Priced(Registry):
    unpriced: tuple[str, ...] = ()

    def usage_usd(self, provider: str, model: str | None, usage: Usage, lane: str) -> Decimal | None:
        if provider in self.unpriced:
            return None
        return usage.input_tokens * IN_USD + usage.output_tokens * OUT_USD

    def model_of(self, provider: str, model: str | None) -> str | None:
        return model or f"{provider}-default"


def leased(request: JobRequest) -> Leased:
    return first_lease(uuid7(), request, NewBatch(uuid7(), "desk"))


def past(outputs: Sequence[float], *, latency_s: float = 2.0, inputs: float = 500.0, **changes: Any) -> PastCalls:
    calls = len(outputs)
    fields: dict[str, Any] = {
        "provider": "scripted", "model": "scripted-1", "lane": "standard", "calls": calls,
        "input_tokens": inputs * calls, "output_tokens": sum(outputs), "counted": 1_000.0 * calls, "billed": inputs * calls,
        "prompt": "grounded", "counted_by": "estimate", "seconds": latency_s * calls, "usd": 0.001 * calls,
    }  # fmt: skip
    return PastCalls(**{**fields, **changes})


def priced(provider: ScriptedProvider | None = None) -> Priced:
    return Priced(provider or ScriptedProvider(answers()))


def estimate(
    *requests: JobRequest,
    history: History = NO_HISTORY,
    registry: Priced | None = None,
    limits: CallLimits = NO_LIMITS,
    **options: Any,
) -> Estimate:
    estimator = Estimator(registry or priced(), history, lambda *_: limits, **options)
    for request in requests:
        estimator.add(leased(request))
    return estimator.result()


def test_without_earlier_calls_the_cap_is_the_bound_and_no_call_is_made() -> None:
    provider = ScriptedProvider(answers())
    done = estimate(*[make_request()] * 3, registry=priced(provider))
    (row,) = done.models
    assert provider.calls == []
    assert (done.jobs, done.calls, row.calls) == (3, 3, 3)
    assert (row.output_tokens.low, row.output_tokens.usual, row.output_tokens.high) == (192, 768, 3072)
    assert "fewer than 20 earlier calls" in row.output_from
    assert row.input_tokens.low < row.input_tokens.usual < row.input_tokens.high
    assert row.cost_usd is not None
    assert row.cost_usd.high > row.cost_usd.usual > row.cost_usd.low > 0
    assert done.seconds is None


def test_earlier_calls_narrow_the_answers_and_correct_the_input() -> None:
    history = History((past([100, 120] * 50),), trial=True)
    (before,) = estimate(make_request()).models
    (row,) = estimate(*[make_request()] * 100, history=history).models
    assert row.output_tokens.usual == pytest.approx(11_000)
    assert 9_000 < row.output_tokens.low < 11_000 < row.output_tokens.high < 13_500
    # The records' estimate times the share, not a quarter of the characters.
    assert row.input_tokens.usual < before.input_tokens.usual * 100
    assert row.counted_by == "estimate x 0.50, as billed in 100 calls"
    assert row.output_from == "100 earlier calls"


def test_answers_to_other_questions_may_be_much_shorter_or_longer_than_those_of_earlier_batches() -> None:
    (row,) = estimate(*[make_request()] * 100, history=History((past([100, 120] * 200),))).models
    assert row.output_tokens.low == pytest.approx(4_400)
    assert row.output_tokens.high == pytest.approx(27_500)
    assert row.output_from == "400 earlier calls"


def test_a_count_by_another_counter_is_no_measure_of_what_is_billed() -> None:
    (row,) = estimate(make_request(), history=History((past([100] * 50, counted_by="o200k_base"),))).models
    assert row.counted_by == "estimate of 4 characters a token"
    assert row.output_tokens.usual == 100


def test_few_or_foreign_calls_are_no_basis() -> None:
    for other in (past([100] * 5), past([100] * 50, model="other")):
        (row,) = estimate(make_request(), history=History((other,))).models
        assert "fewer than 20 earlier calls" in row.output_from


def test_a_lane_takes_the_time_that_is_expected_of_it_and_twice_with_a_judge_that_reads_what_came_back() -> None:
    class Lanes(LaneChooser):
        def expected_time(self, *_: object) -> tuple[timedelta, str]:
            return timedelta(hours=2), "a batch takes two hours"

    class Batched(ScriptedProvider):
        def plan(self, request: JobRequest, prompt: Prompt) -> Call:
            return replace(super().plan(request, prompt), lane="provider_batch")

    def seconds(**config: Any) -> tuple[float, float, str]:
        registry = priced(Batched(answers()))
        done = estimate(make_request(config=config), registry=registry, lanes=Lanes.__new__(Lanes))
        assert [row.lane for row in done.models] == ["provider_batch"]
        assert done.seconds is not None
        return done.seconds.low, done.seconds.usual, done.bound_by

    assert seconds() == (0.0, 7_200.0, "a batch takes two hours")
    assert seconds(checkers=WITH_JUDGE, judge="scripted:judge-1")[1] == 14_400.0


def test_calls_with_the_same_prompt_go_before_others() -> None:
    history = History((past([100] * 30), past([900] * 30, prompt="summarization")))
    (row,) = estimate(make_request(), history=history).models
    assert row.output_tokens.usual == 100


def test_jobs_without_a_call_are_counted_by_their_outcome() -> None:
    done = estimate(
        make_request(context=()),
        make_request(config={"min_sources": 3}),
        make_request(response="It has.", config={"provider": "none such"}),
        make_request(config={"provider": "none such"}),
    )
    assert done.uncalled == {Outcome.NO_EVIDENCE: 1, Outcome.ABSTAINED: 1}
    assert (done.check_only, done.calls, done.models) == (1, 0, ())
    assert list(done.problems.values()) == [1]


def further(*requests: JobRequest, **options: Any) -> tuple[float, float, float]:
    """The cost of what follows the answers, as a share of theirs."""
    (row,) = estimate(*requests, **options).models
    assert row.further_usd is not None
    assert row.cost_usd is not None
    low, usual, high = (usd / row.cost_usd.usual for usd in row.further_usd)
    return low, usual, high


def test_judges_and_second_rounds_cost_the_share_of_the_answers_that_they_cost_before() -> None:
    calls = (past([100] * 40, further_usd=0.01),)
    assert further(make_request(), history=History(calls)) == pytest.approx((0, 0.25, 0.5))
    assert further(make_request(), history=History(calls, trial=True)) == pytest.approx((0.1875, 0.25, 0.3125))
    # Those of jobs that asked for a judge say nothing of jobs that did not.
    asked = past([100] * 40, further_usd=0.03, asks_more=True)
    assert further(make_request(), history=History((*calls, asked)))[1] == pytest.approx(0.25)
    judged = make_request(config={"checkers": WITH_JUDGE, "judge": "scripted:judge-1"})
    assert further(judged, history=History((*calls, asked)))[1] == pytest.approx(0.75)


def test_without_earlier_calls_what_follows_is_a_guess_by_what_the_jobs_ask_for() -> None:
    assert further(make_request()) == (0, 0, 0)
    assert further(make_request(), judge="scripted:judge-1", judge_share=0.1) == pytest.approx((0, 0.05, 0.1))
    # A further model reads what the first one did.
    assert further(*[make_request(config={"escalate": ["strong:s"]})] * 8) == pytest.approx((0, 0.25, 1), rel=0.01)
    low, usual, high = further(make_request(config={"checkers": WITH_JUDGE, "judge": "scripted:judge-1"}))
    assert (low, usual) == (0, pytest.approx(high / 2))


def test_the_price_of_a_further_model_that_is_unknown_is_named_and_not_in_the_cost() -> None:
    registry = priced()
    registry.unpriced = ("strong",)
    done = estimate(make_request(config={"escalate": ["strong:s"]}), registry=registry)
    assert done.unpriced == ("strong:s",)
    assert done.cost_usd == done.models[0].cost_usd


@pytest.mark.parametrize(
    ("limits", "seconds", "cause"),
    [
        (CallLimits(requests_per_minute=30), 200, "the requests a minute"),
        (CallLimits(output_tokens_per_minute=1_000), 600, "the output tokens a minute"),
        (CallLimits(concurrency=4), 50, "4 calls at once"),
    ],
)
def test_the_slowest_limit_tells_the_time(limits: CallLimits, seconds: float, cause: str) -> None:
    done = estimate(*[make_request()] * 100, history=History((past([100] * 30),)), limits=limits)
    assert done.seconds is not None
    assert done.seconds.usual == pytest.approx(seconds)
    assert done.bound_by.startswith(cause)
