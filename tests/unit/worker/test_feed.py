"""The feed over a real ledger: no job twice, none lost, urgent before bulk, slots and bytes bounded, a stop that ends."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.states import JobState, Step
from tasks.errors import LedgerUnavailable
from tasks.ports import Lease, LeaseKey, Room
from tests.builders import make_batch, make_jobs, make_request
from tests.lent_ledger import LentLedger
from worker.scheduling import feed
from worker.scheduling.feed import Feed
from worker.scheduling.load import Load
from worker.scheduling.urgent_workers import UrgentWorkers

CEILING_S = 30
LONG = timedelta(seconds=CEILING_S)


class Keeper:
    """Holds leases and renews none."""

    def __init__(self) -> None:
        self.losses: dict[LeaseKey, Callable[[], None]] = {}

    def hold(self, key: LeaseKey, lost: Callable[[], None]) -> None:
        self.losses[key] = lost

    def release(self, key: LeaseKey) -> None:
        del self.losses[key]


class Works:
    """A feed whose jobs run until they are let go."""

    def __init__(self, *, slots: int = 40, free: bool = True, **options: Any) -> None:
        self.ledger = LentLedger()
        self.keeper = Keeper()
        self.ran: list[UUID] = []
        self.most = 0
        self.interrupted: list[UUID] = []
        self.gate = asyncio.Event()
        self.changed = asyncio.Condition()
        if free:
            self.gate.set()
        self.feed = Feed(
            Step.GENERATE, slots=slots, worker="w", lease_for=timedelta(seconds=60), queue=self.ledger.queue,
            leases=self.keeper, run=self._run, **options,
        )  # fmt: skip

    async def _run(self, job: Lease) -> None:
        self.most = max(self.most, self.feed.in_use)
        async with self.changed:
            self.ran.append(job.job_id)
            self.changed.notify_all()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.interrupted.append(job.job_id)
            raise

    async def submit(self, count: int, **request: Any) -> list[UUID]:
        jobs = make_jobs(*(make_request(f"{n}?", **request) for n in range(count)))
        return list((await self.ledger.submission.submit(make_batch(), [jobs])).job_ids)

    async def until_ran(self, count: int) -> None:
        async with asyncio.timeout(CEILING_S), self.changed:
            await self.changed.wait_for(lambda: len(self.ran) >= count)

    async def states(self, ids: list[UUID]) -> set[JobState]:
        return {view.state for view in await self.ledger.reading.views(ids)}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_LOOK", "GATHER_WAIT", "URGENT_LOOK", "LEDGER_PAUSE"):
        monkeypatch.setattr(feed, name, timedelta(milliseconds=1))


async def test_each_job_runs_once_however_often_it_is_hinted() -> None:
    works = Works()
    ids = await works.submit(300)
    works.feed.start()
    for count in range(0, 300, 50):
        works.feed.wake(urgent=bool(count % 100))
        await works.until_ran(count)
    await works.until_ran(300)
    assert await works.feed.drain(LONG) == 0

    assert sorted(works.ran) == sorted(ids)
    assert works.most <= 40
    assert works.keeper.losses == {}


@pytest.mark.parametrize("hinted", [True, False])
async def test_urgent_jobs_run_while_others_have_all_slots(monkeypatch: pytest.MonkeyPatch, *, hinted: bool) -> None:
    if hinted:
        monkeypatch.setattr(feed, "URGENT_LOOK", LONG)
    works = Works(slots=50, free=False)
    await works.submit(80)
    works.feed.start()
    await works.until_ran(50)
    urgent = await works.submit(1, priority=9)
    works.feed.wake(urgent=hinted)
    await works.until_ran(51)
    assert works.ran[50:] == urgent
    works.gate.set()
    await works.until_ran(81)
    await works.feed.drain(LONG)


async def test_a_slot_is_free_for_another_job_while_an_answer_is_stored() -> None:
    works = Works(slots=1, free=False)
    stored = asyncio.Event()

    async def store(job: Lease) -> None:
        with works.feed.free_slot():
            works.ran.append(job.job_id)
            async with works.changed:
                works.changed.notify_all()
            await stored.wait()

    works.feed._run = store
    await works.submit(2)
    works.feed.start()
    await works.until_ran(2)
    stored.set()
    assert await works.feed.drain(LONG) == 0


async def test_the_bytes_of_all_that_runs_are_bounded_and_the_biggest_job_has_its_turn() -> None:
    load = Load(max_bytes=10)
    works = Works(load=load, free=False)
    ids = await works.submit(3)
    works.feed.start()
    for number in range(3):
        await works.until_ran(number + 1)
        assert works.feed.in_use == 1
        works.gate.set()
        works.gate.clear()
    await works.feed.drain(LONG)
    assert sorted(works.ran) == sorted(ids)
    assert load.bytes == 0


async def test_limits_bound_what_is_leased() -> None:
    room = Room(urgent=2, bulk=2)
    works = Works(permitted=lambda: room, free=False)
    await works.submit(5)
    works.feed.start()
    await works.until_ran(2)
    room = Room(urgent=0, bulk=0)
    urgent = await works.submit(1, priority=9)
    room = Room(urgent=1, bulk=0)
    await works.until_ran(3)
    assert urgent[0] in works.ran
    await works.feed.drain(timedelta(0))


async def test_nothing_is_leased_while_the_next_step_is_behind() -> None:
    works = Works()
    works.feed.throttled = True
    await works.submit(1)
    urgent = await works.submit(1, priority=9)
    works.feed.start()
    await works.until_ran(1)
    assert works.ran == urgent
    works.feed.throttled = False
    works.feed.wake()
    await works.until_ran(2)
    await works.feed.drain(LONG)


async def test_urgent_jobs_are_left_to_their_own_workers_until_these_need_help() -> None:
    own = UrgentWorkers(present=True)
    works = Works(urgent_workers=own)
    urgent, bulk = await works.submit(1, priority=9), await works.submit(1)
    works.feed.start()
    await works.until_ran(1)
    assert works.ran == bulk
    own.help()
    works.feed.wake()
    await works.until_ran(2)
    assert works.ran[1:] == urgent
    await works.feed.drain(LONG)


async def test_a_job_whose_lease_is_lost_is_interrupted() -> None:
    works = Works(free=False)
    await works.submit(1)
    works.feed.start()
    await works.until_ran(1)
    for lost in list(works.keeper.losses.values()):
        lost()
    assert await works.feed.drain(LONG) == 0
    assert works.interrupted == works.ran


def test_a_job_that_breaks_and_a_ledger_that_is_away_end_no_feed() -> None:
    async def scenario() -> None:
        works = Works()
        lease, run_one, tries = works.ledger.queue.lease, works.feed._run, 0

        async def sometimes(*arguments: Any, **terms: Any) -> Any:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise LedgerUnavailable("away") if tries == 1 else ZeroDivisionError
            return await lease(*arguments, **terms)

        async def breaks(job: Lease) -> None:
            await run_one(job)
            raise ZeroDivisionError

        works.ledger.queue.lease = sometimes  # type: ignore[method-assign]
        works.feed._run = breaks
        ids = await works.submit(3)
        works.feed.start()
        await works.until_ran(3)
        await works.feed.drain(LONG)
        assert sorted(works.ran) == sorted(ids)
        assert works.feed.in_use == 0

    asyncio.run(scenario())


@contextmanager
def stopping(works: Works) -> Iterator[None]:
    works.feed.stop_admitting()
    yield
    assert works.keeper.losses == {}
    assert works.feed.in_use == 0


async def test_a_stop_lets_running_jobs_end_and_takes_no_others() -> None:
    works = Works(slots=2, free=False)
    await works.submit(5)
    works.feed.start()
    await works.until_ran(2)
    with stopping(works):
        works.feed.wake(urgent=True)
        draining = asyncio.create_task(works.feed.drain(LONG))
        works.gate.set()
        assert await draining == 0
    assert len(works.ran) == 2
    assert works.interrupted == []


async def test_a_stop_gives_back_what_does_not_end_in_time() -> None:
    works = Works(free=False)
    ids = await works.submit(3)
    works.feed.start()
    await works.until_ran(3)
    with stopping(works):
        assert await works.feed.drain(timedelta(0)) == 3
    assert sorted(works.interrupted) == sorted(ids)
    assert await works.states(ids) == {JobState.AVAILABLE}


async def test_a_stop_gives_back_what_waits_for_a_permit_at_once() -> None:
    works = Works(free=False)
    ids = await works.submit(3)
    works.feed._waits = set(ids[:2]).__contains__
    works.feed.start()
    await works.until_ran(3)
    with stopping(works):
        draining = asyncio.create_task(works.feed.drain(LONG))
        while len(works.interrupted) < 2:  # noqa: ASYNC110 - an interruption has no event
            await asyncio.sleep(0)
        works.gate.set()
        assert await draining == 0
    assert sorted(works.interrupted) == sorted(ids[:2])
    assert await works.states(ids[:2]) == {JobState.AVAILABLE}
