"""Judges in provider batches over PostgreSQL, the SDK and a stub on a sped-up clock: half the price, and no answer lost."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from schemas.generation import Lane
from schemas.job import JobRequest
from tasks.calls.retry import RetryPolicy
from tests.integration.test_lane_choice import STALLS_S
from tests.judge_harness import PARAPHRASE, QUOTE, SOURCE
from tests.lane_harness import LaneHarness, over
from tests.stub.judge import JUDGE
from tests.stub.server import Stub, running_stub

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
JOBS = 6
JUDGE_CALLS = """
SELECT a.lane, a.outcome, count(*)::int AS calls, sum(a.cost_usd) AS usd
FROM attempt a WHERE a.purpose = 'judge' GROUP BY 1, 2 ORDER BY 1, 2
"""


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    monkeypatch.setattr(JUDGE, "trusting", True)
    monkeypatch.setattr(JUDGE, "truth", {PARAPHRASE: QUOTE})
    with running_stub() as stub:
        yield stub


def answers_to_judge(lane: Lane) -> list[JobRequest]:
    """Answers that words leave open, each with a question of its own, so that no two share a verdict."""
    config = {"lane": lane, "checkers": ["structure", "lexical", "judge"], "judge": "openai"}
    return [
        JobRequest(query="q", context=[f"{SOURCE} Note {n}."], response=PARAPHRASE, config=config) for n in range(JOBS)
    ]


async def parked(harness: LaneHarness, lane: Lane = Lane.PROVIDER_BATCH, time_left: timedelta | None = None) -> None:
    await harness.submit(*answers_to_judge(lane), time_left=time_left)
    await harness.check()
    assert await harness.tally() == {("provider_batch", "open"): JOBS}
    (row,) = await harness.rows("SELECT count(*) AS n FROM job WHERE state = 'pending' AND step = 'check'")
    assert row.n == JOBS


async def judged(harness: LaneHarness) -> dict[tuple[str, str], int]:
    """Calls of judges by lane and outcome, once every job has its verdict from one reply."""
    records = await harness.rows(
        "SELECT j.outcome, g.grounding -> 'failed_checkers' AS failed FROM job j JOIN generation_record g ON g.job_id = j.id"
    )
    assert [(row.outcome, row.failed) for row in records] == [("answered", {})] * JOBS
    assert set(harness.stub.billed.values()) == {1}
    assert sum(harness.stub.billed.values()) == JOBS
    calls = await harness.rows(JUDGE_CALLS)
    usd = {(row.lane, row.outcome): row.usd / row.calls for row in calls}
    if {("provider_batch", "ok"), ("standard", "ok")} <= usd.keys():
        assert usd["standard", "ok"] == 2 * usd["provider_batch", "ok"] > 0
    return {(row.lane, row.outcome): row.calls for row in calls}


def test_judges_of_a_night_ride_in_a_batch_and_a_check_goes_on_with_their_verdicts(
    database_url: str, stub: Stub
) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await parked(harness)
        await harness.forward(HOUR)
        await harness.look()
        assert len(stub.remote.batches) == 1
        await harness.check()
        assert await judged(harness) == {("provider_batch", "ok"): JOBS}
        waits = await harness.rows("SELECT (timing_ms ->> 'provider_batch_wait')::float8 AS ms FROM generation_record")
        assert [row.ms >= HOUR.total_seconds() * 1000 for row in waits] == [True] * JOBS, waits

    stub.remote.ends_after_s = 0
    over(database_url, stub, scenario)


def test_judges_leave_a_batch_that_stalls_before_the_deadline_of_their_jobs(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        # A job that names its lane stays in it; its judge does not, for its answer is there.
        await parked(harness, time_left=8 * HOUR)
        await harness.lane.turn()
        await harness.forward(7 * HOUR + 41 * MINUTE)
        await harness.look()
        assert stub.remote.cancels == ["batch_0"]
        await harness.check()
        assert await judged(harness) == {
            ("provider_batch", "ok"): JOBS // 2,
            ("provider_batch", "error:cancelled"): JOBS // 2,
            ("standard", "ok"): JOBS // 2,
        }
        (late,) = await harness.rows("SELECT count(*) AS n FROM job WHERE finished_at > deadline")
        assert late.n == 0

    stub.remote.ends_after_s = STALLS_S
    over(database_url, stub, scenario)


def test_a_judge_that_failed_in_its_batch_is_asked_at_once(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await parked(harness, Lane.AUTO)
        await harness.lane.turn()
        await harness.look()
        await harness.check()
        assert await judged(harness) == {("provider_batch", "error:overloaded"): JOBS, ("standard", "ok"): JOBS}

    stub.remote.ends_after_s, stub.remote.errored = 0, 1.0
    over(database_url, stub, scenario)


def test_a_judge_whose_batch_is_lost_waits_for_a_person_where_unknown_outcomes_do(
    database_url: str, stub: Stub
) -> None:
    async def scenario(harness: LaneHarness) -> None:
        harness.calls.policy = RetryPolicy(hold_unknown=True)
        await parked(harness)
        await harness.look()
        await harness.forward(25 * HOUR)
        await harness.look()
        await harness.check()
        assert await harness.tally() == {("provider_batch", "unknown"): JOBS}, "no call is paid for again"
        states = await harness.rows("SELECT DISTINCT state, held_reason FROM job")
        assert [(row.state, row.held_reason) for row in states] == [("scheduled", "unknown_outcome")]

    stub.remote.ends_after_s, stub.remote.refuses_content = 0, 500
    over(database_url, stub, scenario)
