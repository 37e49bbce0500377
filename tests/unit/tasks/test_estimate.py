"""The estimate of jobs by the planning code: tokens, cost, time, and jobs that make no call."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from uuid_utils.compat import uuid7

from schemas.generation import CheckerName, Lane
from schemas.job import JobRequest
from schemas.model_call import Usage
from schemas.states import Outcome
from tasks.calls.call_history import History, Pace, PastCalls
from tasks.calls.estimate import CallLimits, Estimate, Estimator
from tasks.calls.forecast import Forecaster, first_lease
from tasks.calls.response_cache import SharePolicy
from tasks.ports import Leased, NewBatch
from tests.builders import make_request
from tests.scripted_provider import Registry, ScriptedProvider, answers

NO_HISTORY, NO_LIMITS = History(), CallLimits()

IN_USD, OUT_USD = Decimal("0.000001"), Decimal("0.000004")


class Tariff:
    def __init__(self, *unpriced: str) -> None:
        self.unpriced = unpriced

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
        "provider": "scripted", "model": "scripted-1", "lane": "standard", "purpose": "generate", "batch": None, "calls": calls,
        "input_tokens": inputs * calls, "output_tokens": sum(outputs), "counted": 1_000.0 * calls, "billed": inputs * calls,
        "prompt": "grounded", "counted_by": "estimate", "seconds": latency_s * calls,
    }  # fmt: skip
    return PastCalls(**{**fields, **changes})


def estimate(
    *requests: JobRequest,
    history: History = NO_HISTORY,
    registry: Registry | None = None,
    limits: CallLimits = NO_LIMITS,
    tariff: Tariff | None = None,
    **options: Any,
) -> Estimate:
    registry = registry or Registry(ScriptedProvider(answers()))
    forecaster = Forecaster(registry, history, **options)
    estimator = Estimator(tariff or Tariff(), history, lambda *_: limits)
    for request in requests:
        estimator.add(forecaster.forecast(leased(request)))
    return estimator.result()


def test_without_earlier_calls_the_cap_is_the_bound_and_no_call_is_made() -> None:
    provider = ScriptedProvider(answers())
    done = estimate(*[make_request()] * 3, registry=Registry(provider))
    (row,) = done.models
    assert provider.calls == []
    assert (done.jobs, done.calls, row.calls.usual) == (3, 3, 3)
    assert (row.output_tokens.low, row.output_tokens.usual, row.output_tokens.high) == (192, 768, 3072)
    assert "no earlier calls" in row.output_from
    assert row.input_tokens.low < row.input_tokens.usual < row.input_tokens.high
    assert row.cost_usd is not None
    assert row.cost_usd.high > row.cost_usd.usual > row.cost_usd.low > 0
    assert done.time.seconds is None


def test_earlier_calls_narrow_the_answers_and_correct_the_input() -> None:
    history = History((past([100, 120] * 50),), same_kind=True)
    (before,) = estimate(make_request()).models
    (row,) = estimate(*[make_request()] * 100, history=history).models
    assert row.output_tokens.usual == pytest.approx(11_000)
    assert 9_000 < row.output_tokens.low < 11_000 < row.output_tokens.high < 13_000
    # The records' estimate times the share, not a quarter of the characters.
    assert row.input_tokens.usual < before.input_tokens.usual * 100
    assert row.counted_by == "estimate x 0.50, as billed in 100 calls"
    assert row.output_from == "100 earlier calls"


def test_answers_to_other_questions_may_be_much_shorter_or_longer_than_those_of_earlier_batches() -> None:
    earlier = [past([100, 120] * 200, batch=uuid7()) for _ in range(6)]
    (row,) = estimate(*[make_request()] * 100, history=History(tuple(earlier[:1]))).models
    assert row.output_tokens.low == pytest.approx(4_400, rel=0.1)
    assert row.output_tokens.high == pytest.approx(27_500, rel=0.1)
    assert row.output_from == "400 earlier calls, of 1 batch"
    (row,) = estimate(*[make_request()] * 100, history=History(tuple(earlier))).models
    assert row.output_tokens.low < 5_000, "six alike may be six of the same questions"


def test_bounds_reach_as_far_as_any_earlier_batch() -> None:
    apart = [past([each] * 400, batch=uuid7()) for each in (20.0, 180.0, 100.0, 100.0)]
    (row,) = estimate(*[make_request()] * 100, history=History(tuple(apart))).models
    assert row.output_tokens.low == pytest.approx(2_000)
    assert row.output_tokens.high == pytest.approx(50_000)
    few = [past([1_000.0] * 5, batch=uuid7()), past([100.0] * 995, batch=uuid7())]
    (row,) = estimate(*[make_request()] * 100, history=History(tuple(few))).models
    assert row.output_tokens.high < 30_000, "five calls are no batch to go by"


def test_a_count_by_another_counter_is_no_measure_of_what_is_billed() -> None:
    (row,) = estimate(make_request(), history=History((past([100] * 50, counted_by="o200k_base"),))).models
    assert row.counted_by == "estimate of 4 characters a token"
    assert row.output_tokens.usual == 100


def test_few_or_foreign_calls_are_no_basis() -> None:
    for other in (past([100] * 5), past([100] * 50, model="other")):
        (row,) = estimate(make_request(), history=History((other,))).models
        assert "no earlier calls" in row.output_from


def test_answers_of_another_lane_are_as_long_but_not_as_late() -> None:
    (row,) = estimate(make_request(), history=History((past([100] * 50, lane="background", latency_s=7_000.0),))).models
    assert (row.lane, row.output_tokens.usual, row.latency_s) == ("standard", 100, 0.0)


def test_a_lane_takes_the_time_that_is_expected_of_it() -> None:
    lane_s = {"standard": None, "provider_batch": (7_200.0, "a batch takes two hours")}
    estimator = Estimator(
        Tariff(), NO_HISTORY, lambda *_: NO_LIMITS, lane_s=lambda _provider, _model, lane: lane_s[lane]
    )
    answer = Forecaster(Registry(ScriptedProvider(answers())), NO_HISTORY).forecast(leased(make_request()))
    assert answer.answer is not None
    batch = replace(answer.answer, lane="provider_batch", judge="scripted:judge-1", judge_lane=Lane.PROVIDER_BATCH)
    estimator.add(replace(answer, answer=batch))
    result = estimator.result()
    assert [(row.purpose, row.lane) for row in result.models] == [
        ("generate", "provider_batch"),
        ("judge", "provider_batch"),
    ]
    assert result.time.seconds is not None
    # A judge reads what came back.
    assert (result.time.seconds.low, result.time.seconds.usual) == (0.0, 14_400.0)
    assert result.time.bound_by == "a batch takes two hours"


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


def test_an_unknown_price_is_named_and_is_no_zero() -> None:
    done = estimate(make_request(), tariff=Tariff("scripted"))
    assert done.unpriced == ("scripted:scripted-1",)
    assert done.models[0].cost_usd is None


def test_judges_and_second_rounds_follow_as_often_as_before() -> None:
    judge = past(
        [20] * 20, inputs=1_000, provider="judge", model="j", purpose="judge", answer=("scripted", "scripted-1")
    )
    done = estimate(*[make_request()] * 80, history=History((past([100] * 40), judge)))
    row = done.models[1]
    assert (row.purpose, row.calls.usual) == ("judge", 40)
    assert (row.input_tokens.usual, row.output_tokens.usual) == (40_000, 800)
    assert row.calls.low < 40 < row.calls.high
    assert row.cost_usd is not None
    assert row.cost_usd.usual == pytest.approx(40_000e-6 + 800 * 4e-6)


def test_other_questions_may_need_a_judge_more_or_less_often_than_those_of_earlier_batches() -> None:
    def calls(*batches: tuple[UUID, int], same_kind: bool = False) -> tuple[float, float, float]:
        """The judge's calls for 1,000 answers, after batches of 100 answers of which some needed a judge."""
        judges = [
            past(
                [20] * count,
                inputs=50,
                provider="judge",
                model="j",
                purpose="judge",
                batch=batch,
                answer=("scripted", "scripted-1"),
            )
            for batch, count in batches
            if count
        ]
        answered = [past([100] * 100, batch=batch) for batch, _ in batches]
        history = History((*answered, *judges), same_kind=same_kind)
        row = estimate(*[make_request()] * 1_000, history=history, judge="judge:j", judge_share=Decimal("0.1")).models[
            1
        ]
        assert row.purpose == "judge"
        return row.calls.low, row.calls.usual, row.calls.high

    first, second = uuid7(), uuid7()
    low, usual, high = calls((first, 28))
    assert (low, usual) == (0, pytest.approx(280))
    assert high > 560
    trial = calls((first, 28), same_kind=True)
    assert (trial[0] > 150, trial[2] < 400) == (True, True), "of the same questions only the sample is uncertain"
    assert calls((first, 28), (second, 0))[1] == pytest.approx(140)
    assert calls((first, 0)) == (0, 0, pytest.approx(300)), "none so far does not mean none"


def test_a_judge_that_jobs_ask_for_is_in_the_estimate_before_its_first_call() -> None:
    checkers = (CheckerName.STRUCTURE, CheckerName.LEXICAL, CheckerName.JUDGE)
    done = estimate(make_request(config={"checkers": checkers, "judge": "scripted:judge-1"}))
    assert [(row.purpose, row.model, row.calls.usual) for row in done.models[1:]] == [("judge", "judge-1", 1)]


def test_further_models_of_a_cascade_are_in_the_estimate_of_the_jobs_that_name_them_alone() -> None:
    earlier = past([20] * 20, provider="strong", model="s", purpose="escalate", answer=("scripted", "scripted-1"))
    history = History((past([100] * 40), earlier))
    plain, cascade = make_request(), make_request(config={"escalate": ["strong:s"]})

    assert [row.purpose for row in estimate(*[plain] * 8, history=history).models] == ["generate"]
    done = estimate(*[cascade] * 8, history=history)
    answer, further = done.models
    assert (further.provider, further.model, further.purpose) == ("strong", "s", "escalate")
    assert (further.calls.low, further.calls.usual, further.calls.high) == (0, 2, 8)
    assert further.input_tokens.high == pytest.approx(answer.input_tokens.usual)
    assert further.cost_usd is not None
    assert further.cost_usd.high == pytest.approx(answer.cost_usd.usual if answer.cost_usd else 0, rel=0.01)


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
    assert done.time.seconds is not None
    assert done.time.seconds.usual == pytest.approx(seconds)
    assert done.time.bound_by.startswith(cause)


def test_the_pace_of_earlier_batches_bounds_the_time() -> None:
    history = History((past([100] * 30),), {("scripted", "scripted-1"): Pace(0.5, 2.0)})
    seconds = estimate(*[make_request()] * 100, history=history).time.seconds
    assert seconds is not None
    assert (seconds.usual, seconds.high) == (50, 200)


def test_identical_jobs_of_a_tenant_that_shares_have_one_key() -> None:
    forecaster = Forecaster(Registry(ScriptedProvider(answers())), History(), SharePolicy(frozenset({"desk"})))
    keys = [forecaster.forecast(leased(make_request(query))).answer for query in ("Why?", "Why?", "Who?")]
    first, same, other = (each.share_key if each else None for each in keys)
    assert first is not None
    assert first == same != other
