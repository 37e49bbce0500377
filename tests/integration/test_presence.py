"""Messages of workers over PostgreSQL: live workers, paused lanes, and the fair order of tenants."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import psycopg

from schemas.failure import FailureKind
from schemas.states import HeldReason, JobState, Step
from tasks.ports import Advance, LeaseKey
from tests.builders import make_batch, make_config, make_jobs, make_request
from tests.servers import advance_clock
from worker.ledger.fleet import Present
from worker.ledger.postgres import PostgresLedger

LEASE = timedelta(seconds=60)


def over(url: str, scenario: Callable[[PostgresLedger], Awaitable[None]], **settings: dict[str, float]) -> None:
    async def work() -> None:
        async with PostgresLedger(url, connections=1, tenant_shares=settings.get("shares")) as ledger:
            await scenario(ledger)

    asyncio.run(work())


def test_workers_tell_each_other_which_steps_they_serve(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        assert (await ledger.fleet.beat("a", {Step.CHECK})).steps == {Step.CHECK}
        assert (await ledger.fleet.beat("b", {Step.LOCAL, Step.CHECK})).steps == {Step.CHECK, Step.LOCAL}
        assert (await ledger.fleet.beat("door")).steps == {Step.CHECK, Step.LOCAL}
        assert (await ledger.inspection.health(stuck_after=LEASE)).served == {Step.CHECK, Step.LOCAL}
        await ledger.fleet.leave("b")
        assert (await ledger.fleet.beat("a", {Step.CHECK})).steps == {Step.CHECK}
        await ledger.fleet.beat("b", {Step.LOCAL})
        await asyncio.to_thread(advance_clock, database_url, timedelta(seconds=30))
        assert await ledger.fleet.beat("a", {Step.GENERATE}) == Present(1, frozenset({Step.GENERATE}))
        assert (await ledger.inspection.health(stuck_after=LEASE)).served == {Step.GENERATE}

    over(database_url, scenario)


def test_workers_of_urgent_jobs_serve_no_step_and_are_known_as_such(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        assert not (await ledger.fleet.beat("a", {Step.CHECK})).urgent
        own = await ledger.fleet.beat("u", urgent_only=True)
        assert (own.workers, own.steps, own.urgent) == (2, {Step.CHECK}, True)
        assert (await ledger.fleet.beat("a", {Step.CHECK})).urgent
        health = await ledger.inspection.health(stuck_after=LEASE)
        assert (health.served, health.urgent_workers) == ({Step.CHECK}, True)
        assert (await ledger.gauges.read()).workers == {"generate": 0, "check": 1, "local": 0, "urgent": 1}
        await asyncio.to_thread(advance_clock, database_url, timedelta(seconds=30))
        assert not (await ledger.fleet.beat("a", {Step.CHECK})).urgent

    over(database_url, scenario)


def begin_check(database_url: str, job_id: UUID, step: str = "check") -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE job SET step = %s WHERE id = %s", [step, job_id])


def test_a_queue_has_no_worker_while_jobs_wait_and_none_is_present(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        assert await ledger.fleet.unserved() == [], "nothing waits"
        await ledger.submission.submit(make_batch(), [make_jobs(make_request(), make_request(response="It is ready."))])
        await ledger.fleet.beat("a", {Step.CHECK})
        assert await ledger.fleet.unserved() == ["generate"]
        await ledger.fleet.beat("b", {Step.GENERATE})
        assert await ledger.fleet.unserved() == []
        assert sorted(await ledger.fleet.workers()) == ["a", "b"]
        await asyncio.to_thread(advance_clock, database_url, timedelta(seconds=30))
        assert sorted(await ledger.fleet.unserved()) == ["check", "generate"]
        # A worker of a busy machine may be late with its presence, and renews its leases all the same.
        receipt = await ledger.submission.submit(make_batch(), [make_jobs(make_request("b?"))])
        (job,) = await ledger.queue.lease(Step.GENERATE, "b", LEASE, 1)
        assert await ledger.fleet.unserved() == ["check"]
        # It may check an answer of its own, but takes none of others.
        await asyncio.to_thread(begin_check, database_url, job.job_id)
        assert sorted(await ledger.fleet.unserved()) == ["check", "generate"]
        await asyncio.to_thread(begin_check, database_url, job.job_id, "generate")

        delay = Advance(JobState.SCHEDULED, job.step, job.round, timedelta(minutes=2), event="snooze")
        assert await ledger.fleet.next_try(job.batch_id) is None, "it does not wait"
        assert await ledger.queue.defer(LeaseKey(job.job_id, job.token), delay)
        (view,) = await ledger.reading.views([job.job_id])
        assert await ledger.fleet.next_try(job.batch_id) == view.scheduled_at
        assert await ledger.fleet.next_try(receipt.batch_id) is None

    over(database_url, scenario)


def test_jobs_move_to_another_step_only_while_no_worker_serves_theirs(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        request = make_request(response="It is ready.", config=make_config(checkers=("local",)))
        receipt = await ledger.submission.submit(make_batch(), [make_jobs(request)])
        await ledger.fleet.beat("a", {Step.LOCAL})
        wait = timedelta(seconds=25)
        assert await ledger.duties.reassign(Step.LOCAL, Step.CHECK, timedelta(0), 9) == []
        await ledger.fleet.beat("b", {Step.CHECK})
        await asyncio.to_thread(advance_clock, database_url, timedelta(seconds=30))
        assert await ledger.duties.reassign(Step.LOCAL, Step.CHECK, 2 * wait, 9) == []
        assert await ledger.duties.reassign(Step.LOCAL, Step.CHECK, wait, 9) == list(receipt.job_ids)

    over(database_url, scenario)


async def hold_two(ledger: PostgresLedger) -> list[JobState]:
    receipt = await ledger.submission.submit(make_batch(), [make_jobs(make_request("a?"), make_request("b?"))])
    for job in await ledger.queue.lease(Step.GENERATE, "w", LEASE, 2):
        hold_move = Advance(JobState.SCHEDULED, job.step, job.round, held_reason=HeldReason.LANE_PAUSED, event="hold")
        assert await ledger.queue.defer(LeaseKey(job.job_id, job.token), hold_move)
    return [view.state for view in await ledger.reading.views(receipt.job_ids)]


def test_a_release_lets_paused_lanes_and_their_jobs_go_on_together(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        await ledger.fleet.pause_lane("openai", "standard", "no credit")
        await ledger.fleet.pause_lane("openai", "standard", "another reason")
        await ledger.fleet.pause_lane("anthropic", "standard", "spend limit")
        assert await ledger.fleet.paused_lanes() == [("anthropic", "standard", ""), ("openai", "standard", "")]
        health = await ledger.inspection.health(stuck_after=LEASE)
        assert [(lane.provider, lane.why) for lane in health.lanes] == [
            ("openai", "no credit"),
            ("anthropic", "spend limit"),
        ]
        assert set(await hold_two(ledger)) == {JobState.SCHEDULED}
        assert await ledger.actions.release(None, HeldReason.BUDGET, "me") == 0
        assert len(await ledger.fleet.paused_lanes()) == 2
        assert await ledger.actions.release(None, HeldReason.LANE_PAUSED, "me") == 2
        assert await ledger.fleet.paused_lanes() == []
        assert len(await ledger.queue.lease(Step.GENERATE, "w", LEASE, 9)) == 2

    over(database_url, scenario)


def test_lanes_are_tried_again_after_their_time_and_not_before(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        await ledger.fleet.pause_lane("openai", "standard", "no credit")
        await hold_two(ledger)
        assert await ledger.fleet.retry_lanes(timedelta(hours=1)) == []
        assert await ledger.queue.lease(Step.GENERATE, "w", LEASE, 9) == []
        await asyncio.to_thread(advance_clock, database_url, timedelta(hours=2))
        assert await ledger.fleet.retry_lanes(timedelta(hours=1)) == [("openai", "standard", "")]
        assert len(await ledger.queue.lease(Step.GENERATE, "w", LEASE, 9)) == 2
        assert await ledger.fleet.paused_lanes() == []

    over(database_url, scenario)


def test_paused_lanes_and_unreachable_servers_are_reported(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger) -> None:
        away = {"provider": "local", "since_s": 1_000.0, "why": "local can't be reached: refused"}
        await ledger.fleet.beat("w1", [Step.GENERATE], [away])
        await ledger.fleet.beat("w2", [Step.GENERATE], [{**away, "since_s": 2_000.0}])
        await ledger.fleet.pause_lane("openai", "standard", "no such model", model="m", kind=FailureKind.NOT_FOUND)
        notices = await ledger.fleet.lane_notices()
        assert [(notice.provider, notice.model, notice.kind, notice.paused) for notice in notices] == [
            ("local", "", FailureKind.UNAVAILABLE, False),
            ("openai", "m", FailureKind.NOT_FOUND, True),
        ]
        assert notices[0].since.timestamp() == 1_000.0

        lost = {**away, "lane": "provider_batch", "kind": "configuration", "why": "no provider 'local'"}
        await ledger.fleet.beat("w2", [Step.GENERATE], [away, lost])
        (unserved,) = [each for each in await ledger.fleet.lane_notices() if each.kind is FailureKind.CONFIGURATION]
        assert (unserved.lane, unserved.paused) == ("provider_batch", False)
        assert unserved.event.startswith(
            "calls to local wait in the lane provider_batch since 1970-01-01 00:16 UTC for a"
        )
        await ledger.fleet.beat("w2", [Step.GENERATE])

        await ledger.fleet.pause_lane("local", "standard", "away", kind=FailureKind.UNAVAILABLE)
        assert [notice.paused for notice in await ledger.fleet.lane_notices()] == [True, True]
        await ledger.actions.release(None, HeldReason.LANE_PAUSED, "me")
        await asyncio.to_thread(advance_clock, database_url, timedelta(minutes=1))
        assert await ledger.fleet.lane_notices() == [], "of a worker that is gone nothing is told"

    over(database_url, scenario)
