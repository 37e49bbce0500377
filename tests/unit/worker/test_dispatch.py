"""The duties of dispatch over a real ledger, and what it does while Redis or the ledger is away."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from schemas.record import JobResult
from schemas.states import JobState, Step
from tasks import results
from tasks.errors import BrokerUnavailable
from tasks.ports import JobView, Rendered
from tests.builders import make_batch, make_config, make_final, make_jobs, make_request
from tests.lent_ledger import LentLedger
from worker.scheduling import dispatch, outbox, rescue
from worker.scheduling.dispatch import Dispatch, Pace
from worker.scheduling.rescue import Rescue
from worker.scheduling.urgent_workers import UrgentWorkers

LEASE = timedelta(seconds=60)
READ = make_config(checkers=("structure", "lexical", "local"))


class RecordingDoorbell:
    """Remembers what it was told; away, it raises."""

    def __init__(self) -> None:
        self.published: dict[UUID, bytes] = {}
        self.away = False
        self.lost = False
        self.remembered = 0
        self.submissions = 0
        self.runs: dict[UUID, int] = {}
        self.refused: set[UUID] = set()

    def _reach(self) -> None:
        if self.away:
            raise BrokerUnavailable("away")

    async def unread_submissions(self) -> int:
        self._reach()
        return self.submissions

    async def publish(self, results: Sequence[Rendered]) -> dict[UUID, Exception]:
        self._reach()
        for job_id, run, result, _ in results:
            if job_id not in self.refused and run >= self.runs.get(job_id, 0):
                self.published[job_id], self.runs[job_id] = result, run
        return {job_id: ValueError("refused") for job_id, *_ in results if job_id in self.refused}

    async def withdraw(self, results: Sequence[tuple[UUID, int]]) -> None:
        self._reach()
        for job_id, run in results:
            if self.runs.get(job_id) == run:
                del self.published[job_id], self.runs[job_id]

    async def forget(self, job_ids: Sequence[UUID]) -> None:
        self._reach()

    async def lost_its_data(self) -> bool:
        self._reach()
        return self.lost

    async def remember(self) -> None:
        self._reach()
        self.lost = False
        self.remembered += 1


class DispatchHarness:
    """A ledger, a recording doorbell and the dispatch between them."""

    def __init__(self) -> None:
        self.ledger = LentLedger()
        self.doorbell = RecordingDoorbell()
        self.woken: list[Step] = []
        self.generate = SimpleNamespace(throttled=False, in_use=0, wake=lambda: self.woken.append(Step.GENERATE))
        pace = Pace(publish_older_than=timedelta(0), check_backlog=3, local_model_wait=timedelta(hours=1))
        feeds: Any = {Step.GENERATE: self.generate}
        self.feeds, self.pace = feeds, pace
        self.urgent_workers = UrgentWorkers()
        self.others_serve = True
        self.dispatch = self.worker("first")

    def worker(self, name: str) -> Dispatch:
        """The dispatch of one more worker."""
        return Dispatch(
            self.ledger,
            self.doorbell,
            Rescue(self.ledger.duties, LEASE),
            self.feeds,
            name,
            self.pace,
            urgent_workers=self.urgent_workers,
            others_serve=lambda: self.others_serve,
        )

    async def tick(self) -> None:
        """Tick, and publish what that wakes."""
        await self.dispatch.tick()
        while self.dispatch.outbox._work.is_set():
            if not await self.dispatch.outbox.step():
                self.dispatch.outbox.rest()

    async def submit(self, count: int, **request: Any) -> tuple[UUID, ...]:
        jobs = make_jobs(*(make_request(f"{n}?", **request) for n in range(count)))
        return (await self.ledger.submission.submit(make_batch(), [jobs])).job_ids

    async def finish(self, count: int) -> list[UUID]:
        await self.submit(count)
        jobs = await self.ledger.queue.lease(Step.GENERATE, "w", LEASE, count)
        await self.ledger.queue.finish([make_final(job) for job in jobs])
        return [job.job_id for job in jobs]


async def test_while_redis_is_away_the_ledgers_duties_go_on_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    harness = DispatchHarness()
    harness.doorbell.away = True
    job_ids = await harness.finish(2)
    late = await harness.submit(1, deadline=datetime.now(UTC) + timedelta(seconds=5))
    harness.ledger.advance(timedelta(seconds=10))
    await harness.tick()
    await harness.tick()
    (view,) = await harness.ledger.reading.views(late)
    assert view.state is JobState.EXPIRED
    assert sum("Redis can't be reached" in record.message for record in caplog.records) == 1

    harness.doorbell.away = False
    await harness.tick()
    assert set(harness.doorbell.published) == {*job_ids, *late}


async def test_generation_is_throttled_while_the_check_is_behind() -> None:
    harness = DispatchHarness()
    await harness.submit(4, response="An answer.")
    await harness.submit(2)
    await harness.tick()

    assert harness.generate.throttled

    await harness.ledger.queue.lease(Step.CHECK, "w", LEASE, 4)
    await harness.submit(4, response="An answer.", config=READ)
    await harness.tick()
    assert harness.generate.throttled, "the checks of the local model count, too"

    await harness.ledger.queue.lease(Step.LOCAL, "w", LEASE, 4)
    await harness.tick()
    assert not harness.generate.throttled


async def test_a_duty_that_breaks_does_not_keep_the_others_from_their_turn(caplog: pytest.LogCaptureFixture) -> None:
    harness = DispatchHarness()
    job_ids = await harness.finish(1)
    await harness.submit(1, scheduled_at=datetime.now(UTC) + timedelta(seconds=5))
    harness.ledger.advance(timedelta(seconds=10))

    async def breaks(limit: int) -> int:
        raise ZeroDivisionError

    harness.ledger.duties.promote = breaks  # type: ignore[method-assign]
    await harness.tick()

    assert set(harness.doorbell.published) == set(job_ids)
    assert "the duty _promote broke" in caplog.text


async def test_a_rescue_waits_until_the_ledger_was_reachable_for_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(rescue, "monotonic", lambda: clock[0])

    harness = DispatchHarness()
    harness.ledger.advance(timedelta(hours=1))
    await harness.submit(1)
    (job,) = await harness.ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
    harness.ledger.advance(LEASE * 2)
    duty = Rescue(harness.ledger.duties, LEASE)

    async def rescued(seconds: int = 0) -> list[UUID]:
        for _ in range(seconds):
            clock[0] += 1
            duty.reached(timedelta(hours=1))
        return await duty.run()

    duty.reached(timedelta(hours=1))
    assert await rescued(59) == []
    duty.broken()
    assert await rescued(60) == []
    clock[0] += LEASE.total_seconds() / 2 + 1
    # Nothing failed, but nothing was heard of the ledger for half a lease either.
    assert await rescued(60) == []
    assert await rescued(1) == [job.job_id]


# ---- who leads -------------------------------------------------------------------------------------------------


async def test_one_worker_does_the_duties_and_another_takes_over_when_it_stops_or_dies() -> None:
    harness = DispatchHarness()
    second = harness.worker("second")

    async def leads() -> tuple[bool, bool]:
        return (await harness.dispatch.tick() and harness.dispatch.leads, await second.tick() and second.leads)

    assert await leads() == (True, False)
    await harness.dispatch.resign()
    await second.tick()
    assert await leads() == (False, True)
    harness.ledger.advance(harness.pace.lead_for + timedelta(seconds=1))
    assert await leads() == (True, False), "the second was not seen for as long as it may lead"


async def test_a_worker_that_reaches_redis_takes_over_from_one_that_does_not() -> None:
    harness = DispatchHarness()
    second = harness.worker("second")
    await harness.finish(1)
    harness.doorbell.away = True
    await harness.dispatch.tick()
    await harness.dispatch.tick()
    assert [(await second.tick(), second._leads) for _ in range(2)] == [(3 * harness.pace.tick, False)] * 2

    harness.doorbell.away = False
    harness.dispatch.doorbell = RecordingDoorbell()
    harness.dispatch.doorbell.away = True
    assert [(await second.tick(), second._leads) for _ in range(2)] == [
        (harness.pace.tick, False),
        (harness.pace.tick, True),
    ]
    await harness.dispatch.tick()
    assert not harness.dispatch._leads


async def test_a_job_is_found_without_a_hint() -> None:
    harness = DispatchHarness()
    harness.doorbell.away = True
    await harness.submit(1)
    await harness.tick()
    assert harness.woken == [Step.GENERATE]
    await harness.ledger.queue.lease(Step.GENERATE, "w", LEASE, 1)
    await harness.tick()
    assert harness.woken == [Step.GENERATE]


# ---- publishing ------------------------------------------------------------------------------------------------


async def test_duties_go_on_at_every_tick_while_results_are_published_again() -> None:
    harness = DispatchHarness()
    harness.dispatch.outbox.rows = 2
    done = await harness.finish(7)
    await harness.tick()
    harness.doorbell.published.clear()
    harness.doorbell.lost = True
    steps = 0
    await harness.dispatch.tick()
    while await harness.dispatch.outbox.step():
        steps += 1
        (job_id,) = await harness.submit(1, scheduled_at=datetime.now(UTC) + timedelta(seconds=10 * steps - 5))
        harness.ledger.advance(timedelta(seconds=10))
        await harness.dispatch.tick()
        (view,) = await harness.ledger.reading.views([job_id])
        assert view.state is JobState.AVAILABLE, "between two pages a tick does the other duties"

    assert steps == 4
    assert set(harness.doorbell.published) == set(done)


@pytest.mark.parametrize("fault", ["renders", "refuses"])
async def test_a_result_that_cannot_be_published_keeps_no_other_back(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = DispatchHarness()
    harness.dispatch.outbox.rows = 2
    first, *later_jobs = await harness.finish(6)

    def result_of(view: JobView) -> JobResult:
        if view.job_id == first and fault == "renders":
            raise ValueError("broken")
        return results.result_of(view)

    monkeypatch.setattr(outbox, "result_of", result_of)
    if fault == "refuses":
        harness.doorbell.refused = {first}
    for _ in range(4):
        await harness.tick()
    assert set(harness.doorbell.published) == set(later_jobs)

    harness.doorbell.refused = set()
    monkeypatch.undo()
    harness.ledger.advance(timedelta(hours=1))
    await harness.tick()
    assert set(harness.doorbell.published) == {first, *later_jobs}, "it is tried again later"


@pytest.mark.parametrize("away", [False, True])
async def test_a_worker_helps_with_urgent_jobs_that_their_own_workers_leave(
    monkeypatch: pytest.MonkeyPatch, *, away: bool
) -> None:
    monkeypatch.setattr(dispatch, "HEAD_START", timedelta(0))

    harness = DispatchHarness()
    harness.urgent_workers.present = True
    harness.doorbell.away = away
    await harness.submit(2)
    await harness.tick()
    assert harness.urgent_workers.leave, "nothing urgent waits"
    await harness.submit(1, priority=1)
    harness.ledger.advance(timedelta(seconds=1))
    await harness.tick()
    assert not harness.urgent_workers.leave


async def test_a_worker_of_urgent_jobs_leads_only_where_there_is_no_other() -> None:
    harness = DispatchHarness()
    harness.urgent_workers.only = True
    await harness.tick()
    assert not harness.dispatch.leads
    harness.others_serve = False
    await harness.tick()
    assert harness.dispatch.leads
