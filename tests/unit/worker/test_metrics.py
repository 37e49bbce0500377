"""The counters of a worker, their way into the exposition, and the names that docs use."""

import re
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from schemas.failure import Failure, FailureKind
from schemas.grounding import Grounding, Verdict
from schemas.model_call import Usage
from schemas.record import TimingMs
from schemas.states import JobState, Outcome, Step
from tasks.estimates.estimate import first_lease
from tasks.ports import Advance, CacheResult, CacheStatus, CallFacts, ClosedAttempt, FinalFacts, Purpose
from tests.builders import make_answer, make_batch, make_final, make_record, make_request
from worker.http.exposition import LedgerFigures
from worker.ledger.fleet import LaneNotice
from worker.ledger.gauges import GaugeReading
from worker.ledger.inspection import LedgerHealth
from worker.ledger.metric_totals import Total
from worker.telemetry import metrics
from worker.telemetry.metering import Metering
from worker.telemetry.metrics import Kind
from worker.telemetry.tally import MOST_MODELS, Tally

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def a_final(**changes: Any) -> FinalFacts:
    job = first_lease(uuid4(), make_request(), make_batch())
    state, outcome = (JobState.FAILED, None) if "failure" in changes else (JobState.COMPLETED, Outcome.PARTIAL)
    return make_final(job, record=make_record(job, **changes), state=state, outcome=outcome).facts


def a_close(outcome: str = "ok", model: str = "m-1", **changes: Any) -> ClosedAttempt:
    facts = CallFacts(1, Purpose.GENERATE, "openai", model, "standard", 40.0, 1_500.0)
    return ClosedAttempt(uuid4(), uuid4(), uuid4(), Step.GENERATE, outcome, spent=False, facts=facts, **changes)


def exposition(*tallies: Tally, lanes: Iterable[LaneNotice] = ()) -> str:
    """The text for Prometheus after the sums of some workers came together in the ledger."""
    sums: dict[Any, float] = {}
    for tally in tallies:
        for series, value in tally.take().items():
            sums[series] = sums.get(series, 0.0) + value
    figures = LedgerFigures()
    health = LedgerHealth(dict.fromkeys(Step, 3), 0, 0, 0, 0, 0, 0, 0, lanes=list(lanes))
    reading = GaugeReading(
        dict.fromkeys(Step, 7.5), {"check": 2}, led=True, leader_has_broker=False, check_behind=False, batches=[]
    )
    figures.take(
        health, [("completed", "answered", "", 5)], reading, [Total(*name, value) for name, value in sums.items()]
    )
    registry = CollectorRegistry()
    registry.register(figures)
    return generate_latest(registry).decode()


def test_jobs_count_by_outcome_and_cause_with_verdicts_and_times() -> None:
    grounding = Grounding(grounding_score=0.5, counts={Verdict.SUPPORTED: 2, Verdict.CONTRADICTED: 1})
    tally = Tally()
    tally.add(a_final(grounding=grounding, timing_ms=TimingMs(llm=3_000, total=3_100)))
    tally.add(a_final(failure=Failure(kind=FailureKind.BAD_ANSWER, message="?")))

    text = exposition(tally)
    assert 'nightdesk_jobs_finished_total{cause="",outcome="partial",state="completed"} 1.0' in text
    assert 'nightdesk_jobs_finished_total{cause="bad_answer",outcome="",state="failed"} 1.0' in text
    assert 'nightdesk_claims_total{verdict="supported"} 2.0' in text
    assert 'nightdesk_grounding_score_bucket{le="0.5"} 1.0' in text
    assert 'nightdesk_grounding_score_bucket{le="0.4"} 0.0' in text
    assert 'nightdesk_job_seconds_sum{part="llm"} 3.0' in text


def test_calls_count_by_outcome_with_cost_tokens_and_waits() -> None:
    tally = Tally()
    answer = make_answer(usage=Usage(input_tokens=90, cached_input_tokens=40, output_tokens=9))
    tally.add(a_close(answer=answer, cost_usd=Decimal("0.002")))
    tally.add(a_close(answer=answer))
    snooze = Advance(JobState.SCHEDULED, Step.GENERATE, 0, event="snooze")
    tally.add(a_close("error:rate_limited", cost_usd=Decimal(0), then=snooze))
    tally.add(a_close("unknown"))
    tally.add(CacheResult(CacheStatus.REUSED))

    text = exposition(tally)
    labels = 'lane="standard",model="m-1",outcome="{}",provider="openai",purpose="generate"'
    for outcome, calls in (("ok", 2), ("rate_limited", 1), ("unknown", 1)):
        assert f"nightdesk_calls_total{{{labels.format(outcome)}}} {calls}.0" in text
    assert 'nightdesk_call_cost_usd_total{lane="standard",model="m-1",provider="openai"} 0.002' in text
    assert 'nightdesk_calls_unpriced_total{model="m-1",provider="openai"} 1.0' in text
    assert 'nightdesk_call_tokens_total{kind="cached_input",model="m-1",provider="openai"} 80.0' in text
    assert 'nightdesk_call_seconds_bucket{lane="standard",le="2.0",model="m-1",provider="openai"} 2.0' in text
    assert 'nightdesk_permit_wait_seconds_count{provider="openai"} 4.0' in text
    assert 'nightdesk_job_edges_total{event="snooze"} 1.0' in text
    assert "nightdesk_shared_answers_total 1.0" in text


def test_models_beyond_many_share_a_label() -> None:
    tally = Tally()
    for number in range(MOST_MODELS + 5):
        tally.add(a_close("error:not_found", f"no-{number}"))
        tally.add(a_close("ok", f"m-{number}", answer=make_answer()))
    sums = tally.take()
    tally.restore(sums)
    later = Tally()
    later.know([Total(*name, value) for name, value in sums.items()])
    later.add(a_close("ok", "one-more", answer=make_answer()))
    later.add(a_close("error:not_found", "m-0"))

    for each, models in (
        (tally, {"other", *(f"m-{number}" for number in range(MOST_MODELS))}),
        (later, {"other", "m-0"}),
    ):
        assert set(re.findall(r'nightdesk_calls_total\{.*model="([^"]+)"', exposition(each))) == models


def test_a_job_that_breaks_the_count_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    broken = a_close(answer=make_answer(), cost_usd="much")
    meter = Metering()
    for observation in (broken, broken, a_close("unknown")):
        meter.observe(observation)

    assert meter.sums()["nightdesk_observations_dropped_total", ()] == 2
    assert len(caplog.records) == 1


def test_every_metric_is_exposed_and_on_the_page() -> None:
    rows = dict(re.findall(r"^\| `(nightdesk_\w+)` \| (?:\w+) \| (.*?) \|", PAGE.read_text(), re.MULTILINE))
    heads = {metric.name if metric.kind is Kind.HISTOGRAM else metric.samples[0]: metric for metric in metrics.ALL}

    assert set(rows) == set(heads)
    for name, metric in heads.items():
        assert re.findall(r"`(\w+)`", rows[name]) == list(metric.labels), name
    exposed = set(re.findall(r"^# HELP (\w+)", exposition(), re.MULTILINE))
    assert exposed == set(heads) - {metric.samples[0] for metric in metrics.PROCESS} - {metrics.HTTP_SECONDS.name}
