"""The feed over the in-memory ledger: merging hints, slots, urgency, idle claims, stopping."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count, pairwise
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.states import JobState, Step
from tasks.errors import LedgerError, LedgerUnavailable
from tasks.ports import Leased, LeaseKey, LeaseRoom, Room
from tasks.scheduling import feed, leased_ahead
from tasks.scheduling.feed import Feed, Run, urgent_slots
from tasks.scheduling.leased_ahead import LeasedAhead
from tasks.scheduling.load import Load, Suspicion
from tasks.scheduling.loop_turns import LoopTurns
from tasks.scheduling.urgency import Urgency
from tasks.scheduling.urgent_workers import HELP_S, UrgentWorkers
from tests.builders import make_batch, make_config, make_jobs, make_request
from tests.fakes.ledger import MemoryLedger


class Keys:
    """A keeper that only remembers."""

    def __init__(self) -> None:
        self.releases: dict[LeaseKey, Callable[[], None]] = {}

    def hold(self, key: LeaseKey, lost: Callable[[], None]) -> None:
        self.releases[key] = lost

    def release(self, key: LeaseKey) -> None:
        del self.releases[key]


class Works:
    """A feed whose jobs run until they are let go; counts the leases it takes."""

    def __init__(
        self,
        *,
        slots: int = 40,
        free: bool = True,
        permitted: Callable[[], Room | None] = lambda: None,
        load: Load | None = None,
        turns: LoopTurns | None = None,
        gather_wait: timedelta | None = None,
        ahead: bool = False,
        waits: Callable[[UUID], bool] = lambda _: False,
        urgent_workers: UrgentWorkers | None = None,
        step: Step = Step.GENERATE,
    ) -> None:
        self.ledger = MemoryLedger()
        self.keys = Keys()
        self.ran: list[UUID] = []
        self.prepared: list[UUID] = []
        self.forgotten: list[UUID] = []
        self.passed_on: list[UUID] = []
        self.gate = asyncio.Event()
        self.interrupted_ids: list[UUID] = []
        self.started = asyncio.Condition()
        self.leases: list[tuple[int, Sequence[UUID] | None]] = []
        if free:
            self.gate.set()
        lease = self.ledger.queue.lease

        async def counted(*arguments: Any, **more: Any) -> list[Leased]:
            jobs = await lease(*arguments, **more)
            self.leases.append((len(jobs), more["ids"]))
            return jobs

        self.ledger.queue.lease = counted  # type: ignore[method-assign]
        self.feed = Feed(
            step, slots=slots, worker="w", lease_for=timedelta(seconds=60),
            queue=self.ledger.queue, keeper=self.keys, run=self._run, permitted=permitted, waits=waits, load=load,
            gather_wait=gather_wait, turns=turns, prepare=self._prepare if ahead else None,
            forget=lambda job: self.forgotten.append(job.job_id), urgent_workers=urgent_workers,
        )  # fmt: skip

    def _prepare(self, job: Leased) -> Run:
        self.prepared.append(job.job_id)

        async def run(older: Leased) -> None:
            assert older.job_id == job.job_id
            self.passed_on.append(job.job_id)
            await self._run(older)

        return run

    async def _run(self, job: Leased) -> None:
        async with self.started:
            self.ran.append(job.job_id)
            self.started.notify_all()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.interrupted_ids.append(job.job_id)
            raise

    async def submit(self, count: int, **request: Any) -> list[UUID]:
        jobs = make_jobs(*(make_request(f"{n}?", **request) for n in range(count)))
        return list((await self.ledger.submission.submit(make_batch(), [jobs])).job_ids)

    async def until_ran(self, count: int) -> None:
        async with asyncio.timeout(5), self.started:
            await self.started.wait_for(lambda: len(self.ran) >= count)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - a count of running jobs has no event
            await asyncio.sleep(0.001)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "IDLE_CLAIM", timedelta(milliseconds=20))
    monkeypatch.setattr(feed, "IDLE_LOOK", timedelta(milliseconds=20))
    monkeypatch.setattr(feed, "GATHER_WAIT", timedelta(milliseconds=1))
    monkeypatch.setattr(feed, "URGENT_LOOK", timedelta(milliseconds=10))
    monkeypatch.setattr(feed, "URGENT_SHARE", 0.06)


def test_hints_that_wait_together_are_leased_together() -> None:
    async def scenario() -> None:
        works = Works(slots=100)
        ids = await works.submit(60)
        admitted = [asyncio.create_task(works.feed.admit(ids[at : at + 5], urgent=False)) for at in range(0, 60, 5)]
        await asyncio.sleep(0)
        works.feed.start()
        await asyncio.gather(*admitted)
        await works.until_ran(60)
        await works.feed.drain(timedelta(seconds=1))

        assert works.leases[0] == (60, ids)
        assert sorted(works.ran) == sorted(ids)

    run(scenario())


def test_no_more_run_than_there_are_slots_and_some_are_for_urgent_jobs_alone() -> None:
    async def scenario() -> None:
        works = Works(slots=38, free=False)
        bulk = await works.submit(50)
        works.feed.start()
        waiting = asyncio.create_task(works.feed.admit(bulk, urgent=False))
        await works.until_ran(38)
        assert (works.feed.in_use, waiting.done()) == (38, False)

        urgent = await works.submit(2, priority=9)
        await asyncio.wait_for(works.feed.admit(urgent, urgent=True), 5)
        await works.until_ran(40)
        assert set(urgent) <= set(works.ran)

        works.gate.set()
        await asyncio.wait_for(waiting, 5)
        await works.until_ran(52)
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_slots_that_come_free_one_by_one_are_filled_together() -> None:
    async def scenario() -> None:
        works = Works(slots=38, free=False, gather_wait=timedelta(minutes=1))
        ended = asyncio.Semaphore(0)
        works.gate.wait = ended.acquire  # type: ignore[assignment]
        await works.submit(60)
        works.feed.start()
        await works.until_ran(38)
        for _ in range(8):
            ended.release()
        await until(lambda: works.feed.in_use == 30)
        assert [jobs for jobs, _ in works.leases] == [38]
        ended.release()
        await works.until_ran(47)
        assert [jobs for jobs, _ in works.leases] == [38, 9]
        await works.feed.drain(timedelta(0))

    run(scenario())


def test_slots_are_free_while_answers_are_stored() -> None:
    async def scenario() -> None:
        works = Works(slots=38, free=False)
        answered, stored = asyncio.Semaphore(0), asyncio.Event()

        async def store() -> None:
            await answered.acquire()
            with works.feed.free_slot():
                await stored.wait()
            await asyncio.Event().wait()

        works.gate.wait = store  # type: ignore[assignment]
        await works.submit(120)
        works.feed.start()
        await works.until_ran(38)
        for _ in range(50):
            answered.release()
        # Not 50: more answers than slots that wait to be stored take slots.
        await works.until_ran(76)
        await until(lambda: works.feed.in_use == 38)
        await asyncio.sleep(0.05)
        assert len(works.ran) == 76

        # Stored, they wait for their checks, and keep others from being called meanwhile.
        stored.set()
        await until(lambda: works.feed.in_use == 76)
        await asyncio.sleep(0.05)
        assert len(works.ran) == 76
        await works.feed.drain(timedelta(0))

    run(scenario())


class Busy:
    """A feed of 95 slots, and 5 for urgent jobs, whose jobs end when told; 50 more are leased ahead when so many ended."""

    def __init__(self) -> None:
        self.works = Works(slots=95, free=False, ahead=True)
        self.ended = asyncio.Semaphore(0)
        self.works.gate.wait = self.ended.acquire  # type: ignore[method-assign]

    async def fill(self) -> list[UUID]:
        ids = await self.works.submit(200)
        self.works.feed.start()
        await self.works.until_ran(95)
        self.end(50)
        await self.works.until_ran(145)
        return ids

    def end(self, count: int) -> None:
        for _ in range(count):
            self.ended.release()

    def ahead(self) -> set[LeaseKey]:
        return {key for key in self.works.keys.releases if key.job_id not in self.works.ran}


def test_jobs_leased_ahead_begin_without_another_lease() -> None:
    async def scenario() -> None:
        busy = Busy()
        ids = await busy.fill()
        assert [jobs for jobs, _ in busy.works.leases] == [95, 100]
        assert {key.job_id for key in busy.ahead()} == set(busy.works.prepared)
        assert len(busy.works.prepared) == 50

        async def none(*_: Any, **__: Any) -> list[Leased]:
            return []

        busy.works.ledger.queue.lease = none  # type: ignore[method-assign]
        busy.end(50)
        await busy.works.until_ran(195)
        busy.end(100)
        await busy.works.feed.drain(timedelta(seconds=5))
        assert sorted(busy.works.ran) == sorted(ids)[:195]
        assert busy.works.passed_on == busy.works.prepared, "each goes on with what was prepared for it"
        assert busy.works.keys.releases == {}

    run(scenario())


def test_jobs_leased_ahead_that_find_no_slot_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        busy = Busy()
        ids = await busy.fill()
        monkeypatch.setattr(leased_ahead, "STUCK_S", 0.0)
        await until(lambda: not busy.ahead())
        views = await busy.works.ledger.reading.views(ids)
        assert [view.state for view in views].count(JobState.AVAILABLE) == 55
        assert busy.works.forgotten == busy.works.prepared
        await busy.works.feed.drain(timedelta(0))

    run(scenario())


def test_a_job_leased_ahead_whose_lease_is_lost_never_begins() -> None:
    async def scenario() -> None:
        busy = Busy()
        await busy.fill()
        lost, *_ = busy.ahead()
        busy.works.keys.releases.pop(lost)()
        busy.end(49)
        await busy.works.until_ran(194)
        assert lost.job_id not in busy.works.ran
        assert busy.works.forgotten == [lost.job_id]
        await busy.works.feed.drain(timedelta(0))

    run(scenario())


def test_a_feed_that_stops_gives_back_what_it_leased_ahead() -> None:
    async def scenario() -> None:
        busy = Busy()
        ids = await busy.fill()
        keys = busy.ahead()
        stopping = asyncio.create_task(busy.works.feed.drain(timedelta(seconds=5)))
        await until(lambda: not busy.ahead())
        assert busy.works.feed.in_use == 95
        views = {view.job_id: view for view in await busy.works.ledger.reading.views(ids)}
        assert {views[key.job_id].state for key in keys} == {JobState.AVAILABLE}
        busy.end(200)
        assert await stopping == 0

    run(scenario())


def test_few_are_leased_ahead_where_calls_take_long() -> None:
    seconds = [0.0]
    waiting = LeasedAhead[None](100, lambda: seconds[0])
    for number in range(100):
        seconds[0] = number * 0.15
        waiting.note_end()
    assert waiting.room == 2
    seconds[0] += 5
    assert waiting.room == 0


def test_as_many_are_leased_ahead_as_came_free_at_once_in_the_last_two_seconds() -> None:
    seconds = [0.0]
    waiting = LeasedAhead[None](300, lambda: seconds[0])
    for burst, room in ((40, 44), (7, 44), (200, 60)):
        seconds[0] += 1
        for _ in range(burst):
            waiting.note_end()
        assert waiting.room == room, "the largest burst and a tenth more, and at most a fifth of the slots"
    seconds[0] += 1.9
    waiting.note_end()
    assert waiting.room == 60
    seconds[0] += 0.2
    assert waiting.room == 1


def test_calls_that_began_at_once_may_end_at_once() -> None:
    seconds = [0.0]
    waiting = LeasedAhead[None](100, lambda: seconds[0])
    for _ in range(30):
        waiting.note_start()
    assert waiting.room == 0, "other workers lease first"
    seconds[0] += leased_ahead.SETTLE_S
    assert waiting.room == 33
    seconds[0] += leased_ahead.STUCK_S
    assert waiting.room == 0


def test_jobs_are_leased_ahead_before_the_first_calls_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leased_ahead, "SETTLE_S", 0.0)

    async def scenario() -> None:
        works = Works(slots=20, free=False, ahead=True)
        ids = await works.submit(60)
        works.feed.start()
        await works.until_ran(20)
        await until(lambda: len(works.prepared) == 20)
        assert sorted(works.ran + works.prepared) == sorted(ids)[:40]
        await works.feed.drain(timedelta(0))

    run(scenario())


@pytest.mark.parametrize(("slots", "most"), [(0, 0), (1, 1), (40, 40), (100, 50), (1000, 200)])
def test_few_slots_may_all_come_free_at_once(slots: int, most: int) -> None:
    assert LeasedAhead[None](slots).most == most


def test_the_wait_for_a_slot_counts_in_all_times_of_a_job() -> None:
    async def scenario() -> None:
        works = Works()
        await works.submit(1)
        (leased,) = await works.ledger.queue.lease(Step.GENERATE, "w", timedelta(seconds=60), 1, ids=None)
        leased = replace(leased, time_left=timedelta(seconds=60))
        seconds = [10.0]
        waiting = LeasedAhead[str](100, lambda: seconds[0])
        waiting.add(leased, "its plan")
        seconds[0] += 1.5

        later_job, work = waiting.take()

        assert work == "its plan"

        assert later_job.waited_ms - leased.waited_ms == later_job.started_ago_ms - leased.started_ago_ms == 1500
        assert later_job.age_ms - leased.age_ms == pytest.approx(1500)
        assert later_job.time_left == timedelta(seconds=58.5)

    run(scenario())


def test_ids_that_others_have_are_passed_over() -> None:
    async def scenario() -> None:
        works = Works()
        ids = await works.submit(3)
        await works.ledger.queue.lease(Step.GENERATE, "other", timedelta(seconds=60), 1, ids=ids[:1])
        works.feed.start()
        await asyncio.wait_for(works.feed.admit([*ids, uuid4()], urgent=False), 5)
        await works.until_ran(2)
        await works.feed.drain(timedelta(seconds=1))

        assert sorted(works.ran) == sorted(ids[1:])

    run(scenario())


def test_jobs_without_a_hint_are_claimed_when_idle() -> None:
    async def scenario() -> None:
        works = Works()
        ids = await works.submit(5)
        works.feed.start()
        await works.until_ran(5)
        await works.feed.drain(timedelta(seconds=1))

        assert sorted(works.ran) == sorted(ids)
        assert works.keys.releases == {}

    run(scenario())


@pytest.mark.parametrize("room", [None, Room(10, 10)])
def test_an_idle_feed_asks_the_ledger_on_notice_of_waiting_jobs(
    monkeypatch: pytest.MonkeyPatch, room: Room | None
) -> None:
    monkeypatch.setattr(feed, "IDLE_LOOK", timedelta(seconds=60))

    async def scenario() -> None:
        works = Works(permitted=lambda: room)
        works.feed.start()
        await works.submit(5)
        while not works.ran:
            # As dispatch does at each tick.
            works.feed.claim()
            await asyncio.sleep(0.01)
        await works.until_ran(5)
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_a_throttled_feed_runs_only_what_is_urgent() -> None:
    async def scenario() -> None:
        works = Works()
        works.feed.throttled = True
        await works.submit(3)
        urgent = await works.submit(1, priority=5)
        works.feed.start()
        await works.until_ran(1)
        await asyncio.sleep(0.1)
        assert works.ran == urgent
        works.feed.throttled = False
        await works.until_ran(4)
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_a_lost_lease_cuts_its_job_off() -> None:
    async def scenario() -> None:
        works = Works(free=False)
        (job_id,) = await works.submit(1)
        works.feed.start()
        await works.until_ran(1)
        (lost,) = works.keys.releases.values()
        lost()
        await until(lambda: works.interrupted_ids == [job_id])
        assert await works.feed.drain(timedelta(seconds=1)) == 0

    run(scenario())


def test_a_stopping_feed_gives_back_jobs_that_wait_for_a_permit() -> None:
    async def scenario() -> None:
        works = Works(free=False, waits=lambda job_id: job_id == waits)
        waits, calls = await works.submit(2)
        works.feed.start()
        await works.until_ran(2)
        draining = asyncio.create_task(works.feed.drain(timedelta(seconds=60)))
        await until(lambda: works.feed.in_use == 1)
        works.gate.set()

        assert await draining == 0
        assert works.interrupted_ids == [waits]
        first, second = await works.ledger.reading.views([waits, calls])
        assert (first.state, second.state) == (JobState.AVAILABLE, JobState.RUNNING)

    run(scenario())


def test_a_stopping_feed_leaves_what_waits_and_cuts_off_what_is_too_slow() -> None:
    async def scenario() -> None:
        works = Works(slots=2, free=False)
        ids = await works.submit(5)
        works.feed.start()
        waiting = asyncio.create_task(works.feed.admit(ids, urgent=False))
        await works.until_ran(2)
        works.feed.stop_admitting()
        await asyncio.wait_for(waiting, 5)
        interrupted = await works.feed.drain(timedelta(milliseconds=10))

        assert (interrupted, sorted(works.interrupted_ids)) == (2, sorted(works.ran))
        states = [view.state for view in await works.ledger.reading.views(ids)]
        assert states.count(JobState.AVAILABLE) == 5, "those that waited, and those that were cut off before a call"
        await asyncio.wait_for(works.feed.admit(ids, urgent=False), 5)

    run(scenario())


@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_few_slots_still_run_bulk_jobs(slots: int) -> None:
    async def scenario() -> None:
        works = Works(slots=slots)
        ids = await works.submit(6)
        works.feed.start()
        await asyncio.wait_for(works.feed.admit(ids, urgent=False), 5)
        await works.until_ran(6)
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_answers_that_wait_for_their_check_take_no_slots_of_urgent_jobs() -> None:
    async def scenario() -> None:
        works = Works(slots=38, free=False)
        stored = asyncio.Event()

        async def store() -> None:
            with works.feed.free_slot():
                await stored.wait()
            await asyncio.Event().wait()

        works.gate.wait = store  # type: ignore[assignment]
        bulk = await works.submit(76)
        works.feed.start()
        await works.until_ran(76)
        stored.set()
        await until(lambda: works.feed.in_use == 76)
        urgent = await works.submit(3, priority=1)
        assert not works.feed.take_urgent(urgent), "more than slots"
        assert works.feed.take_urgent(urgent[:2])
        await works.until_ran(78)
        assert works.ran[76:] == urgent[:2]
        assert not works.feed.take_urgent(urgent[2:]), "both are taken"
        await works.feed.drain(timedelta(0))
        assert set(works.interrupted_ids) == {*bulk, *urgent[:2]}

    run(scenario())


@pytest.mark.parametrize(("slots", "more"), [(1, 1), (2, 1), (8, 1), (33, 1), (34, 2), (1_000, 60)])
def test_urgent_jobs_have_slots_beyond_the_others_and_at_least_one(slots: int, more: int) -> None:
    async def scenario() -> None:
        works = Works(slots=slots, free=False)
        bulk = await works.submit(slots + 1)
        works.feed.start()
        waiting = asyncio.create_task(works.feed.admit(bulk, urgent=False))
        await works.until_ran(slots)
        urgent = await works.submit(more + 1, priority=1)
        hinted = asyncio.create_task(works.feed.admit(urgent, urgent=True))
        await works.until_ran(slots + more)
        await asyncio.sleep(0.05)
        assert set(works.ran[slots:]) < set(urgent)
        assert (works.feed.in_use, urgent_slots(slots)) == (slots + more, more)
        works.gate.set()
        await asyncio.wait_for(asyncio.gather(waiting, hinted), 5)
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_a_full_worker_finds_an_urgent_job_without_its_hint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "IDLE_CLAIM", timedelta(seconds=60))

    async def scenario() -> None:
        works = Works(slots=7, free=False)
        works.feed.start()
        await works.feed.admit(await works.submit(7), urgent=False)
        await works.until_ran(7)
        await asyncio.sleep(0.01)
        urgent = await works.submit(1, priority=9)
        await works.until_ran(8)
        assert works.ran[7:] == urgent
        works.gate.set()
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_a_message_waits_for_slots_only_so_long_and_its_jobs_run_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "HINT_PATIENCE", timedelta(milliseconds=50))
    monkeypatch.setattr(feed, "IDLE_CLAIM", timedelta(seconds=60))

    async def scenario() -> None:
        works = Works(slots=7, free=False)
        works.feed.start()
        bulk = await works.submit(200)
        hints = (works.feed.admit(bulk[at : at + 50], urgent=False) for at in range(0, 200, 50))
        # Every message is done, though hardly a job could begin: its thread is free for what is urgent.
        await asyncio.wait_for(asyncio.gather(*hints), 5)
        assert works.feed.in_use == 7
        urgent = await works.submit(3, priority=9)
        await asyncio.wait_for(works.feed.admit(urgent, urgent=True), 5)
        await works.until_ran(8)
        assert works.ran[7] in urgent

        works.gate.set()
        await works.until_ran(203)
        assert set(works.ran[7:10]) == set(urgent)
        assert sorted(works.ran) == sorted([*bulk, *urgent])
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_slots_are_free_again_when_their_jobs_are_done() -> None:
    async def scenario() -> None:
        works = Works(slots=100)
        ids = await works.submit(25)
        works.feed.start()
        await works.feed.admit(ids, urgent=False)
        await works.until_ran(25)
        await works.feed.drain(timedelta(seconds=1))

        assert works.feed.in_use == 0

    run(scenario())


def test_limits_hold_jobs_back_in_the_ledger_not_in_messages() -> None:
    async def scenario() -> None:
        room = [Room(urgent=5, bulk=3)]
        works = Works(free=False, permitted=lambda: room[0])
        bulk = await works.submit(20)
        works.feed.start()
        # The message is done at once: no thread waits for a limit.
        await asyncio.wait_for(works.feed.admit(bulk, urgent=False), 5)
        await works.until_ran(3)
        room[0] = Room(urgent=5, bulk=0)
        works.feed.nudge()
        await asyncio.sleep(0.05)
        ran = len(works.ran)

        hinted, unhinted = await works.submit(1, priority=9), await works.submit(1, priority=9)
        await asyncio.wait_for(works.feed.admit(hinted, urgent=True), 5)
        await works.until_ran(ran + 2)
        assert set(works.ran[ran:]) == {*hinted, *unhinted}
        await asyncio.sleep(0.05)
        assert len(works.ran) == ran + 2

        room[0] = Room(urgent=0, bulk=4)
        works.feed.nudge()
        await works.until_ran(ran + 6)
        works.gate.set()
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_urgent_jobs_are_found_while_every_message_waits_for_slots() -> None:
    async def scenario() -> None:
        works = Works(slots=38, free=False)
        bulk = await works.submit(80)
        works.feed.start()
        waiting = asyncio.create_task(works.feed.admit(bulk, urgent=False))
        await works.until_ran(38)
        urgent = await works.submit(1, priority=9)
        await works.until_ran(39)
        assert works.ran[38:] == urgent
        assert not waiting.done()
        works.gate.set()
        await asyncio.wait_for(waiting, 5)
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


# ---- urgent jobs before bulk ones ------------------------------------------------------------------------------


class SlowLeases:
    """A feed whose leases of bulk jobs wait for a gate; those of urgent jobs do not."""

    def __init__(self, **options: Any) -> None:
        self.works = Works(free=False, **options)
        self.gate = asyncio.Event()
        self.rooms: list[LeaseRoom] = []
        lease = self.works.ledger.queue.lease

        async def gated(*arguments: Any, **more: Any) -> list[Leased]:
            if more["min_priority"] is None:
                await self.gate.wait()
            else:
                self.rooms.append(more["room"])
            return await lease(*arguments, **more)

        self.works.ledger.queue.lease = gated  # type: ignore[method-assign]


def test_an_urgent_hint_waits_for_no_lease_of_bulk_jobs() -> None:
    async def scenario() -> None:
        slow = SlowLeases()
        works, bulk = slow.works, await slow.works.submit(20)
        works.feed.start()
        waiting = asyncio.create_task(works.feed.admit(bulk, urgent=False))
        await asyncio.sleep(0.01)
        urgent = await works.submit(2, priority=1)
        await asyncio.wait_for(works.feed.admit(urgent, urgent=True), 5)
        await works.until_ran(2)
        assert works.ran == urgent
        # Beside another lease: no job that may end its worker.
        assert [room.risk for room in slow.rooms] == [0.0]
        slow.gate.set()
        await waiting
        await works.until_ran(22)
        works.gate.set()
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_a_job_that_is_not_urgent_begins_by_an_urgent_hint_too() -> None:
    async def scenario() -> None:
        works = Works()
        works.feed.start()
        urgent, other = await works.submit(1, priority=1), await works.submit(1)
        await asyncio.wait_for(works.feed.admit([*urgent, *other], urgent=True), 5)
        await works.until_ran(2)
        assert works.ran == [*urgent, *other]
        works.gate.set()
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_urgent_jobs_are_taken_without_a_message_where_there_are_slots() -> None:
    async def scenario() -> None:
        slow = SlowLeases(slots=38)
        works = slow.works
        works.feed.start()
        urgent = await works.submit(41, priority=1)
        assert not works.feed.take_urgent(urgent), "more than slots"
        assert works.feed.take_urgent(urgent[:30])
        await works.until_ran(30)
        assert works.ran == urgent[:30]
        assert not works.feed.take_urgent(urgent[30:])
        works.feed.stop_admitting()
        assert not works.feed.take_urgent(urgent[30:31]), "it stops"
        works.gate.set()
        slow.gate.set()
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_urgent_jobs_whose_lease_broke_are_found_in_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LEDGER_PAUSE", timedelta(milliseconds=1))

    async def scenario() -> None:
        works = Works()
        lease, breaks = works.ledger.queue.lease, [LedgerError("a defect"), LedgerUnavailable("away")]

        async def broken(*arguments: Any, **more: Any) -> list[Leased]:
            if breaks and more["min_priority"] is not None:
                raise breaks.pop()
            return await lease(*arguments, **more)

        works.ledger.queue.lease = broken  # type: ignore[method-assign]
        works.feed.start()
        urgent = await works.submit(2, priority=1)
        for job_id in urgent:
            await asyncio.wait_for(works.feed.admit([job_id], urgent=True), 5)
            await works.until_ran(urgent.index(job_id) + 1)
        assert (works.ran, breaks) == (urgent, [])
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_the_next_slot_is_for_an_urgent_job_although_others_were_leased_ahead_before() -> None:
    async def scenario() -> None:
        busy = Busy()
        await busy.fill()
        urgent = await busy.works.submit(6, priority=1)
        await busy.works.feed.admit(urgent[:5], urgent=True)
        await busy.works.until_ran(150)
        # All slots are taken. This one was found by another lease than its hint's.
        (job,) = await busy.works.ledger.queue.lease(
            Step.GENERATE, "w", timedelta(seconds=60), 1, ids=urgent[5:], min_priority=1
        )
        busy.works.feed._start([job])
        await asyncio.sleep(0.01)
        assert job.job_id not in busy.works.ran
        busy.end(1)
        await busy.works.until_ran(151)
        assert busy.works.ran[150] == job.job_id
        busy.end(200)
        await busy.works.feed.drain(timedelta(0))

    run(scenario())


@pytest.mark.parametrize(("urgent", "most"), [(0, 40), (1, 1)])
def test_a_few_jobs_begin_a_turn_while_something_urgent_is_in_hand(urgent: int, most: int) -> None:
    async def scenario() -> None:
        # By this clock each turn is a long one.
        works = Works(slots=100, free=False, turns=LoopTurns(Urgency(urgent), partial(next, count())))
        ran: list[int] = []

        async def watch() -> None:
            while len(works.ran) < 40:
                ran.append(len(works.ran))
                await asyncio.sleep(0)

        works.feed.start()
        await works.feed.admit(await works.submit(40), urgent=False)
        await asyncio.wait_for(watch(), 5)
        ran.append(len(works.ran))
        assert max(after - before for before, after in pairwise([0, *ran])) == most
        works.gate.set()
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


# ---- bytes and risk --------------------------------------------------------------------------------------------


def test_slots_stay_free_rather_than_take_more_bytes() -> None:
    async def scenario() -> None:
        load = Load(max_bytes=30_000)
        works = Works(free=False, load=load)
        ids = await works.submit(12, context=["x" * 8_000])
        works.feed.start()
        hinted = asyncio.create_task(works.feed.admit(ids, urgent=False))

        await works.until_ran(2)
        # A message that finds no room is let go in the end: nothing more was taken until then.
        await hinted
        assert (len(works.ran), load.room(urgent=False)) == (works.feed.in_use, None)
        assert works.feed.in_use <= 4

        works.gate.set()
        await works.until_ran(12)
        await works.feed.drain(timedelta(seconds=5))
        assert sorted(works.ran) == sorted(ids)

    run(scenario())


def test_a_job_bigger_than_all_bytes_runs_alone() -> None:
    async def scenario() -> None:
        works = Works(load=Load(max_bytes=1_000))
        ids = await works.submit(3, context=["x" * 8_000])
        works.feed.start()

        await works.until_ran(3)

        await works.feed.drain(timedelta(seconds=5))
        assert [count for count, _ in works.leases if count] == [1, 1, 1]
        assert sorted(works.ran) == sorted(ids)

    run(scenario())


def test_suspects_of_two_steps_do_not_run_together() -> None:
    suspicion = Suspicion()
    generating, checking = Load(1_000, suspicion), Load(1_000, suspicion)
    suspect = replace(leased_of(), rescues=4, request_bytes=10)

    generating.hold(suspect)

    room = checking.room(urgent=False)
    assert room is not None
    assert (room.risk, room.max_rescues, room.request_bytes) == (0.0, 0, 900)
    generating.release(suspect)
    assert checking.room(urgent=False) == LeaseRoom(900, 1.0)
    assert checking.room(urgent=True) == LeaseRoom(1_000, 1.0)


def leased_of() -> Leased:
    async def lease() -> Leased:
        works = Works()
        await works.submit(1)
        (job,) = await works.ledger.queue.lease(Step.GENERATE, "w", timedelta(seconds=60), 1, ids=None)
        return job

    return asyncio.run(lease())


def test_a_slot_that_is_freed_during_a_look_for_urgent_jobs_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_CLAIM", "URGENT_LOOK", "HINT_PATIENCE"):
        monkeypatch.setattr(feed, name, timedelta(seconds=60))

    async def scenario() -> None:
        works = Works(slots=38, free=False)
        ids = await works.submit(50)
        lease = works.ledger.queue.lease

        async def freeing(*arguments: Any, **more: Any) -> list[Leased]:
            if more["min_priority"] is not None:
                works.gate.set()
                await asyncio.wait(works.feed._running)
                await asyncio.sleep(0)
            return await lease(*arguments, **more)

        works.ledger.queue.lease = freeing  # type: ignore[method-assign]
        works.feed.start()
        await works.feed.admit(ids[:38], urgent=False)
        await works.until_ran(38)
        waiting = asyncio.create_task(works.feed.admit(ids[38:], urgent=False))
        await works.until_ran(50)
        await waiting
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_a_backlog_that_was_not_hinted_is_taken_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "IDLE_CLAIM", timedelta(seconds=60))
    monkeypatch.setattr(feed, "LEASE_ROWS", 10)

    async def scenario() -> None:
        works = Works(slots=38, free=False)
        await works.submit(50)
        works.feed.start()
        await asyncio.sleep(0)
        works.feed.nudge()
        await works.until_ran(38)
        works.gate.set()
        await works.feed.drain(timedelta(seconds=1))

    run(scenario())


def test_a_drain_ends_although_leases_can_not_be_handed_back() -> None:
    async def hand_back(leases: Sequence[LeaseKey], /) -> set[UUID]:
        raise LedgerError("a statement kept losing to others")

    async def scenario() -> None:
        works = Works(slots=4, free=False)
        works.ledger.queue.hand_back = hand_back  # type: ignore[method-assign, assignment]
        ids = await works.submit(3)
        works.feed.start()
        await works.feed.admit(ids, urgent=False)
        await works.until_ran(3)

        assert await works.feed.drain(timedelta(0)) == 3

    run(scenario())


@pytest.mark.parametrize("permitted", [None, Room(urgent=5, bulk=5)])
def test_a_worker_of_urgent_jobs_alone_takes_no_others(permitted: Room | None) -> None:
    async def scenario() -> None:
        works = Works(permitted=lambda: permitted, urgent_workers=UrgentWorkers(only=True, present=True))
        bulk, urgent, hinted = (
            await works.submit(5),
            await works.submit(1, priority=1),
            await works.submit(1, priority=2),
        )
        works.feed.start()
        await works.feed.admit(hinted, urgent=True)
        await works.until_ran(2)
        accepted = await works.submit(1, priority=1)
        assert works.feed.take_urgent(accepted)
        await works.until_ran(3)
        await works.feed.drain(timedelta(seconds=1))
        assert set(works.ran) == {*urgent, *hinted, *accepted}
        assert not set(works.ran) & set(bulk)

    run(scenario())


@pytest.mark.parametrize("permitted", [None, Room(urgent=5, bulk=5)])
def test_the_others_leave_urgent_jobs_to_it_unless_they_help(permitted: Room | None) -> None:
    async def scenario() -> None:
        urgent_workers = UrgentWorkers(present=True)
        works = Works(permitted=lambda: permitted, urgent_workers=urgent_workers)
        urgent, bulk = await works.submit(3, priority=1), await works.submit(3)
        assert not works.feed.take_urgent(urgent[:1])
        works.feed.start()
        await works.until_ran(3)
        assert set(works.ran) == set(bulk)
        urgent_workers.help()
        works.feed.nudge()
        await works.until_ran(6)
        await works.feed.drain(timedelta(seconds=1))
        assert set(works.ran) == {*bulk, *urgent}

    run(scenario())


def test_urgent_jobs_are_left_to_no_one_where_they_want_the_local_model() -> None:
    async def scenario() -> None:
        works = Works(step=Step.LOCAL, urgent_workers=UrgentWorkers(present=True))
        checks = {"response": "It is ready.", "config": make_config(checkers=("lexical", "local"))}
        urgent = await works.submit(2, priority=1, **checks)
        works.feed.start()
        await works.until_ran(2)
        await works.feed.drain(timedelta(seconds=1))
        assert set(works.ran) == set(urgent)

    run(scenario())


def test_help_for_workers_of_urgent_jobs_ends_by_itself() -> None:
    now = [100.0]
    urgent_workers = UrgentWorkers(present=True, clock=lambda: now[0])
    assert urgent_workers.leave
    urgent_workers.help()
    assert not urgent_workers.leave
    now[0] += HELP_S
    assert urgent_workers.leave
    urgent_workers.present = False
    assert not urgent_workers.leave
