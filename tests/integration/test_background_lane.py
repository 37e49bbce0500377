"""The lane ``background`` over PostgreSQL and the SDK against a stub on a sped-up clock: created once, collected, paid right."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import psycopg
import pytest

from schemas.generation import Lane
from schemas.model_call import Usage
from schemas.states import JobState
from tests.lane_harness import LaneHarness, lane_jobs, over
from tests.stub.server import Stub, running_stub
from worker.ledger.packing import reply_text
from worker.providers.prices import Prices

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
STALLS_S = 10**6


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running_stub() as stub:
        stub.background.ends_after_s = STALLS_S
        yield stub


def finish(stub: Stub) -> None:
    """End every response that is under way."""
    for response in stub.background.responses.values():
        response.ends_at = min(response.ends_at, 0.0)


async def state_of(harness: LaneHarness) -> dict[str, int]:
    rows = await harness.rows("SELECT state || ' ' || step AS name, count(*)::int AS jobs FROM job GROUP BY 1")
    return {row.name: row.jobs for row in rows}


def test_responses_are_created_once_collected_and_paid_by_their_window(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        eight = await harness.submit(*lane_jobs(3, Lane.BACKGROUND))
        await harness.submit(*lane_jobs(2, Lane.BACKGROUND_2H))
        await harness.generate()
        assert await state_of(harness) == {"pending generate": 5}
        assert await harness.tally() == {("background", "open"): 3, ("background_2h", "open"): 2}
        await harness.look()
        await harness.look()
        (notice,) = [each for each in await harness.ledger.remote_overview.notices() if each.lane is Lane.BACKGROUND]
        assert notice.event.startswith("3 calls to openai:gpt-6-luna have been in the lane background for ")
        detail = await harness.ledger.reading.job_detail(eight[0])
        assert detail.attempts[0]["provider_batch_name"] in stub.background.responses
        finish(stub)
        await harness.look()
        assert await state_of(harness) == {"available check": 5}
        assert await harness.tally() == {("background", "ok"): 3, ("background_2h", "ok"): 2}
        assert set(stub.background.creations.values()) == {1}
        assert sum(stub.billed.values()) == 5
        assert stub.background.removed == set(stub.background.responses), "nothing stays at the provider"
        await check_records(harness)

    over(database_url, stub, scenario, unobserved=24 * HOUR)


def test_a_worker_that_stops_notes_the_response_that_was_just_created(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await harness.submit(*lane_jobs(1, Lane.BACKGROUND))
        with psycopg.connect(database_url) as other:
            other.execute("LOCK TABLE provider_batch IN EXCLUSIVE MODE")
            generating = asyncio.create_task(harness.generate())
            while not await harness.rows("SELECT pid FROM pg_locks WHERE NOT granted"):
                assert not generating.done()
            closing = asyncio.create_task(harness.responses.close())
            # Time to end, for a close that waits for nothing.
            for _ in range(5):
                await harness.rows("SELECT 1")
            assert not closing.done()
        await closing
        assert await state_of(harness) == {"pending generate": 1}
        await generating
        finish(stub)
        await harness.look()
        assert await harness.tally() == {("background", "ok"): 1}

    over(database_url, stub, scenario, unobserved=24 * HOUR)


async def check_records(harness: LaneHarness) -> None:
    """Each answer is at its job, its cost that of the window, and its record names the response."""
    prices = Prices("openai", "https://api.openai.com/v1")
    rows = await harness.rows(
        "SELECT a.lane, a.model, a.usage, a.cost_usd, a.timing_ms, c.parsed, c.frame, r.head ->> 'query' AS query, b.remote_id "
        "FROM attempt a JOIN completion c ON c.attempt_id = a.id JOIN job_request r ON r.job_id = a.job_id "
        "JOIN provider_batch b ON b.id = a.id"
    )
    shares = {"background": (Decimal("0.6"), "8h"), "background_2h": (Decimal("0.7"), "2h")}
    for row in rows:
        share, window = shares[row.lane]
        standard = prices.cost_usd(row.model, None, Usage(**row.usage), None)
        assert standard is not None
        assert row.cost_usd == standard * share
        snapshot = row.parsed["snapshot"]
        assert snapshot["parameters_sent"]["background_options"] == {"completion_window": window}
        assert (snapshot["lane"], snapshot["response_id"]) == (row.lane, row.remote_id)
        assert row.query.split()[3] in reply_text(row.frame)
        assert row.timing_ms["background_wait"] > 0


@pytest.mark.parametrize(
    ("fate", "outcome", "state"),
    [
        ("failed", "error:overloaded", "scheduled generate"),
        ("incomplete", "ok", "available check"),
        ("expired", "error:expired", "scheduled generate"),
    ],
)
def test_an_end_without_an_answer_is_of_its_kind(
    database_url: str, stub: Stub, fate: str, outcome: str, state: str
) -> None:
    async def scenario(harness: LaneHarness) -> None:
        setattr(stub.background, fate, 1.0)
        await harness.submit(*lane_jobs(1, Lane.BACKGROUND))
        await harness.generate()
        finish(stub)
        await harness.look()
        assert await state_of(harness) == {state: 1}
        (attempt,) = await harness.rows("SELECT outcome, spent, cost_usd FROM attempt")
        assert (attempt.outcome, attempt.spent) == (outcome, fate == "failed")
        assert (attempt.cost_usd > 0) is (fate == "incomplete")

    over(database_url, stub, scenario, unobserved=24 * HOUR)


def test_a_response_that_its_provider_lost_is_an_unknown_outcome_at_its_worst_price(
    database_url: str, stub: Stub
) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await harness.submit(*lane_jobs(1, Lane.BACKGROUND))
        await harness.generate()
        stub.background.removed.update(stub.background.responses)
        await harness.look()
        assert await harness.tally() == {("background", "open"): 1}, "a new response may not be known everywhere yet"
        await harness.look()
        (attempt,) = await harness.rows("SELECT outcome, cost_usd = reserved_usd AS worst FROM attempt")
        assert (attempt.outcome, attempt.worst) == ("unknown", True)

    over(database_url, stub, scenario, unobserved=24 * HOUR)


def test_a_cancelled_job_cancels_its_response_and_pays_what_was_done(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        job_ids = await harness.submit(*lane_jobs(8, Lane.BACKGROUND))
        await harness.generate()
        stub.background.late = 0.5
        await harness.ledger.actions.cancel(job_ids, "a person")
        await harness.look()
        assert len(stub.background.cancels) == 8
        tally = await harness.tally()
        assert set(tally) == {("background", "ok"), ("background", "error:cancelled")}
        costs = await harness.rows("SELECT outcome, bool_and(cost_usd = 0) AS free FROM attempt GROUP BY 1")
        assert {row.outcome: row.free for row in costs} == {"ok": False, "error:cancelled": True}
        assert sum(stub.billed.values()) == tally["background", "ok"]
        assert await state_of(harness) == {"cancelled generate": 8}

    over(database_url, stub, scenario, unobserved=24 * HOUR)


def test_auto_moves_up_through_the_windows_and_pays_each_answer_once(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        stub.remote.ends_after_s = STALLS_S
        await harness.submit(*lane_jobs(4), time_left=20 * HOUR)
        await harness.generate()
        assert await harness.tally() == {("background", "open"): 4}, "a batch may take 24 h"
        await harness.forward(17 * HOUR + 30 * MINUTE)
        stub.background.late = 0.5
        await harness.look()
        await harness.generate()
        done = (await harness.tally())["background", "ok"]
        moved = 4 - done
        assert 0 < done < 4
        assert (await harness.tally())["background_2h", "open"] == moved
        await harness.forward(2 * HOUR + 10 * MINUTE)
        stub.background.late = 0.0
        await harness.look()
        await harness.generate()
        assert await harness.tally() == {
            ("background", "ok"): done,
            ("background", "error:cancelled"): moved,
            ("background_2h", "error:cancelled"): moved,
            ("standard", "ok"): moved,
        }
        assert sum(stub.billed.values()) == 4
        late = await harness.rows("SELECT id FROM job WHERE state <> 'available' OR deadline < nightdesk_now()")
        assert late == []

    over(database_url, stub, scenario, unobserved=24 * HOUR)


def test_auto_asks_at_once_where_the_model_has_no_window(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        stub.background.refuses = "background_options.completion_window is not supported with this model"
        await harness.submit(*lane_jobs(2), time_left=10 * HOUR)
        await harness.generate()
        assert await state_of(harness) == {"available check": 2}
        assert (await harness.tally())["standard", "ok"] == 2
        (job_id,) = await harness.submit(*lane_jobs(1, Lane.BACKGROUND))
        await harness.generate()
        assert (await harness.ledger.reading.job_detail(job_id)).view.state is JobState.FAILED

    over(database_url, stub, scenario, unobserved=24 * HOUR)
