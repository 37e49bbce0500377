"""The estimate of jobs by the planning code: tokens, cost, time, and jobs that make no call."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from uuid_utils.compat import uuid7

from schemas.generation import CheckerName, Lane
from schemas.job import JobRequest
from schemas.model_call import Usage
from schemas.states import Outcome
from tasks.estimates.call_history import History, PastCalls
from tasks.estimates.estimate import CallLimits, Estimate, Estimator, first_lease
from tasks.lanes.choice import LaneChooser
from tasks.ports import Leased, NewBatch
from tests.builders import make_request
from tests.scripted_provider import Registry, ScriptedProvider, answers

NO_HISTORY, NO_LIMITS = History(), CallLimits()

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
        "provider": "scripted", "model": "scripted-1", "lane": "standard", "purpose": "generate", "calls": calls,
        "input_tokens": inputs * calls, "output_tokens": sum(outputs), "counted": 1_000.0 * calls, "billed": inputs * calls,
        "prompt": "grounded", "counted_by": "estimate", "seconds": latency_s * calls,
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
        estimator.add(estimator.forecast(leased(request)))
    return estimator.result()


def test_without_earlier_calls_the_cap_is_the_bound_and_no_call_is_made() -> None:
    provider = ScriptedProvider(answers())
    done = estimate(*[make_request()] * 3, registry=priced(provider))
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
        assert "no earlier calls" in row.output_from


def test_answers_of_another_lane_are_as_long_but_not_as_late() -> None:
    (row,) = estimate(make_request(), history=History((past([100] * 50, lane="background", latency_s=7_000.0),))).models
    assert (row.lane, row.output_tokens.usual, row.latency_s) == ("standard", 100, 0.0)


def test_a_lane_takes_the_time_that_is_expected_of_it() -> None:
    class Lanes(LaneChooser):
        def expected_time(self, *_: object) -> tuple[timedelta, str]:
            return timedelta(hours=2), "a batch takes two hours"

    estimator = Estimator(priced(), NO_HISTORY, lambda *_: NO_LIMITS)
    planned = estimator.forecast(leased(make_request()))
    assert planned.kind is not None
    estimator.lanes = Lanes.__new__(Lanes)
    kind = planned.kind._replace(lane="provider_batch", judge="scripted:judge-1", judge_lane=Lane.PROVIDER_BATCH.value)
    estimator.add(planned._replace(kind=kind))
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
    def calls(answered: int, judged: int, *, trial: bool = False) -> tuple[float, float, float]:
        """The judge's calls for 1,000 answers, after some of which some needed a judge."""
        answer = ("scripted", "scripted-1")
        judges = past([20] * judged, inputs=50, provider="judge", model="j", purpose="judge", answer=answer)
        history = History((past([100] * answered), *([judges] if judged else [])), trial=trial)
        options = {"judge": "judge:j", "judge_share": Decimal("0.1")}
        row = estimate(*[make_request()] * 1_000, history=history, **options).models[1]
        assert row.purpose == "judge"
        return tuple(row.calls)

    low, usual, high = calls(100, 28)
    assert (low, usual) == (0, pytest.approx(280))
    assert high > 560
    trial = calls(100, 28, trial=True)
    assert (trial[0] > 150, trial[2] < 400) == (True, True), "of the same questions only the sample is uncertain"
    assert calls(100, 0) == (0, 0, pytest.approx(300)), "none so far does not mean none"


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
