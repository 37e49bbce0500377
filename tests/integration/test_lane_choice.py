"""The lane ``auto`` over PostgreSQL, the SDK and a stub on a sped-up clock: batches that stall are left in time, and paid once."""

import asyncio
import re
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest

from schemas.generation import Lane
from tests.lane_harness import LaneHarness, lane_jobs, over
from tests.stub.server import Stub, running_stub
from worker.doctor.backlog import check_remote
from worker.operations.overview import batch_overview

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
JOBS = 6
STALLS_S = 10**6


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running_stub() as stub:
        stub.remote.ends_after_s = STALLS_S
        yield stub


async def in_a_batch(harness: LaneHarness, count: int = JOBS, time_left: timedelta | None = 8 * HOUR) -> None:
    await harness.submit(*lane_jobs(count), time_left=time_left)
    await harness.generate()
    await harness.lane.turn()
    assert len(harness.stub.remote.batches) == 1


async def check_moved(harness: LaneHarness) -> None:
    """Half of the calls were done in the batch, the others at once, and each was paid for once."""
    await harness.generate()
    half = JOBS // 2
    assert await harness.tally() == {
        ("provider_batch", "ok"): half,
        ("provider_batch", "error:cancelled"): half,
        ("standard", "ok"): half,
    }
    assert set(harness.stub.billed.values()) == {1}
    assert sum(harness.stub.billed.values()) == JOBS
    costs = await harness.rows("SELECT lane, outcome, sum(cost_usd) AS usd FROM attempt GROUP BY 1, 2")
    paid = {(row.lane, row.outcome): row.usd for row in costs}
    assert paid["standard", "ok"] == 2 * paid["provider_batch", "ok"] > 0
    assert paid["provider_batch", "error:cancelled"] == 0
    (spilled,) = await harness.rows("SELECT count(*) AS jobs FROM job_event WHERE kind = 'spill'")
    assert spilled.jobs == half
    late = await harness.rows(
        "SELECT id FROM job WHERE state <> 'available' OR step <> 'check' OR deadline < nightdesk_now()"
    )
    assert late == []


def test_a_batch_that_stalls_is_left_in_time_and_its_answers_are_kept(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await in_a_batch(harness)
        await harness.forward(7 * HOUR + 30 * MINUTE)
        await harness.look()
        assert stub.remote.cancels == []
        await harness.forward(10 * MINUTE)
        await harness.look()
        assert stub.remote.cancels == ["batch_0"]
        await check_moved(harness)
        reasons = await harness.rows(
            "SELECT DISTINCT a.lane, c.parsed #>> '{snapshot,lane}' AS lane_stored, c.parsed #>> '{snapshot,lane_reason}' AS reason "
            "FROM completion c JOIN attempt a ON a.id = c.attempt_id ORDER BY 1"
        )
        assert [(row.lane, row.lane_stored) for row in reasons] == [("provider_batch",) * 2, ("standard",) * 2]
        assert reasons[0].reason.endswith(
            " to the deadline; a batch is expected to take 2 h (none was observed), with gathering and margin 2 h 25 min"
        )
        pattern = "1[0-9] min to the deadline; a batch is expected to take 7 h 4[0-9] min \\(as 1 of the last 1\\), .*"
        assert re.fullmatch(pattern, reasons[1].reason)

    over(database_url, stub, scenario)


def test_a_batch_that_stalls_is_left_before_the_last_window_ends(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        # It opens once more before the deadline: the batch is left at the end of that window.
        opened = await harness.now() - HOUR
        window = f"{opened:%H:%M}-{opened + 7 * HOUR:%H:%M} UTC"
        await harness.submit(*lane_jobs(JOBS), time_left=32 * HOUR, window=window)
        await harness.generate()
        (row,) = await harness.rows("SELECT due_at - nightdesk_now() AS due_in FROM provider_batch_call LIMIT 1")
        assert 30 * HOUR - MINUTE <= row.due_in <= 30 * HOUR
        await harness.lane.turn()
        await harness.forward(29 * HOUR + 30 * MINUTE)
        await harness.ledger.duties.close_windows()
        await harness.look()
        assert stub.remote.cancels == []
        await harness.forward(10 * MINUTE)
        await harness.look()
        await check_moved(harness)

    over(database_url, stub, scenario)


def test_a_worker_that_ends_between_cancel_and_move_loses_nothing(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await in_a_batch(harness)
        stub.remote.stalls.add("cancel")
        await harness.forward(7 * HOUR + 41 * MINUTE)
        dying = asyncio.create_task(harness.lane.turn())
        assert await asyncio.to_thread(stub.remote.stalled.wait, 30)
        dying.cancel()
        await asyncio.wait({dying})
        (batch,) = await harness.rows("SELECT spilled_at IS NOT NULL AS meant, cancelled_at FROM provider_batch")
        assert (batch.meant, batch.cancelled_at) == (True, None)
        await harness.look(harness.new_lane())
        await check_moved(harness)

    over(database_url, stub, scenario)


def test_calls_that_wait_for_a_batch_near_their_deadline_are_taken_back_unpaid(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        await harness.submit(*lane_jobs(JOBS), time_left=8 * HOUR)
        await harness.submit(*lane_jobs(1, Lane.PROVIDER_BATCH), time_left=8 * HOUR)
        await harness.generate()
        await harness.forward(7 * HOUR + 41 * MINUTE)
        await harness.lane.turn()
        assert [await harness.lane._withdraw() for _ in range(2)] == [True, False]
        (remote_batch,) = stub.remote.batches.values()
        assert len(remote_batch.rows) == 1, "a job that names its lane stays in it"
        await harness.generate()
        assert await harness.tally() == {
            ("provider_batch", "open"): 1,
            ("provider_batch", "error:cancelled"): JOBS,
            ("standard", "ok"): JOBS,
        }
        await harness.forward(HOUR)
        assert len(await harness.ledger.duties.expire(10)) == JOBS + 1

    over(database_url, stub, scenario)


def test_jobs_share_a_batch_only_with_deadlines_of_the_same_hour(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        for time_left in (None, 8 * HOUR, 8 * HOUR, 11 * HOUR):
            await harness.submit(*lane_jobs(1), time_left=time_left)
        await harness.generate()
        await harness.lane.turn()
        sizes = sorted(len(batch.rows) for batch in stub.remote.batches.values())
        assert sizes in ([1, 1, 2], [1, 1, 1, 1]), "two submissions a moment apart may be of two hours"
        due = await harness.rows("SELECT due_at IS NULL AS open, calls FROM provider_batch ORDER BY 1 DESC")
        assert [row.calls for row in due if row.open] == [1]

    over(database_url, stub, scenario)


def test_the_times_of_batches_are_learned_and_the_next_jobs_choose_by_them(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        times = harness.ledger.remote_batches.times
        await in_a_batch(harness, 1, None)
        model = (await harness.rows("SELECT model FROM provider_batch"))[0].model
        await harness.forward(40 * MINUTE)
        assert (await times("openai", model, Lane.PROVIDER_BATCH)).open_s == [pytest.approx(2_400, abs=120)]
        (batch,) = stub.remote.batches.values()
        batch.ends_at = 0.0
        await harness.look()
        assert (await times("openai", model, Lane.PROVIDER_BATCH)).ended_s == [pytest.approx(2_420, abs=120)]
        await harness.submit(*lane_jobs(1), time_left=HOUR + 10 * MINUTE)
        await harness.submit(*lane_jobs(2), time_left=HOUR)
        await harness.generate()
        tally = await harness.tally()
        assert (tally["provider_batch", "open"], tally["standard", "ok"]) == (1, 2)
        await harness.forward(timedelta(days=8))
        assert (await times("openai", model, Lane.PROVIDER_BATCH)).ended_s == []

    over(database_url, stub, scenario, unobserved=timedelta(days=1))


def test_a_batch_that_no_job_waits_for_tells_nothing_of_times(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        job_ids = await harness.submit(*lane_jobs(1), time_left=None)
        await harness.generate()
        await harness.lane.turn()
        await harness.ledger.actions.cancel(job_ids, "a person")
        await harness.look()
        rows = await harness.rows("SELECT model, state, cancelled_at IS NOT NULL AS cancelled FROM provider_batch")
        assert [(row.state, row.cancelled) for row in rows] == [("collected", True)]
        times = await harness.ledger.remote_batches.times("openai", rows[0].model, Lane.PROVIDER_BATCH)
        assert (times.ended_s, times.open_s) == ([], [])

    over(database_url, stub, scenario)


def test_operators_see_where_calls_wait_and_what_was_moved(database_url: str, stub: Stub) -> None:
    async def scenario(harness: LaneHarness) -> None:
        ledger = harness.ledger
        (job_id, *_) = await harness.submit(*lane_jobs(JOBS), time_left=8 * HOUR)
        await harness.generate()
        batch_id = (await ledger.reading.job_detail(job_id)).view.batch_id
        (waiting,) = await ledger.remote_overview.notices(batch_id)
        assert waiting.event.startswith(f"{JOBS} calls to openai:gpt-")
        assert re.search(" have waited for [0-9]+ s to be sent in a batch$", waiting.event)
        (attempt,) = (await ledger.reading.job_detail(job_id)).attempts
        assert (attempt["provider_batch_name"], attempt["lane_reason"][:17]) == (None, "8 h to the deadli")
        await harness.lane.turn()
        (open_notice,) = (await batch_overview(ledger, batch_id)).remote
        pattern = f"{JOBS} calls have been in the openai batch batch_0 for [0-9]+ (s|min), promised by [0-9-]+ [0-9:]+"
        assert re.fullmatch(pattern, open_notice.event)
        assert await ledger.remote_overview.notices(uuid4()) == []
        assert list(check_remote([open_notice])) == []
        stub.remote.stalls.add("cancel")
        await harness.forward(7 * HOUR + 41 * MINUTE)
        batches = [row.id for row in await harness.rows("SELECT id FROM provider_batch LIMIT 1")]
        await ledger.remote_batches.note_spilled(batches)
        await ledger.remote_batches.note_cancelled(batches)
        await harness.forward(16 * MINUTE)
        health = await ledger.inspection.health(stuck_after=HOUR)
        (finding,) = check_remote(health.remote)
        assert "it is cancelled for the deadline" in finding.what
        (batch,) = stub.remote.batches.values()
        batch.cancelled, batch.ends_at = True, 0.0
        for row in batch.rows:
            row.fate = "canceled"
        await harness.look()
        overview = await batch_overview(ledger, batch_id)
        assert (overview.batches[0].spilled, overview.batches[0].provider_batches) == (JOBS, ())

    over(database_url, stub, scenario)
