"""The search for garbage: at rest, when memory grew, once a minute at the latest, and not while something urgent waits."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from tasks.scheduling.urgency import Urgency
from worker.process import garbage_search
from worker.process.garbage_search import GROWTH_BYTES, LATEST_S, URGENT_PATIENCE, GarbageSearch


class Circle:
    """An object that only a search frees."""

    itself: "Circle"

    def __init__(self) -> None:
        self.itself = self


class Process:
    """A worker by its jobs, memory and clock."""

    def __init__(self) -> None:
        self.jobs, self.resident, self.now = 0, 100 * 2**20, 0.0
        self.urgency = Urgency()
        self.search = GarbageSearch(
            lambda: self.jobs, self.urgency, resident=lambda: self.resident, clock=lambda: self.now
        )

    def finds(self) -> bool:
        """Looks once; True if garbage was found."""
        self.now += 1.0
        circle = weakref.ref(Circle())
        self.search.look()
        return circle() is None


@pytest.fixture(autouse=True)
def no_other_search() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    yield
    if was_enabled:
        gc.enable()


def test_a_worker_at_rest_is_searched_once_after_its_work() -> None:
    process = Process()
    process.now = 20.0
    assert not process.finds(), "nothing was done"
    process.jobs = 3
    assert not process.finds()
    process.jobs = 0
    assert process.finds()
    process.now += 100
    assert not process.finds()


def test_a_worker_with_a_job_now_and_then_is_not_searched_after_each() -> None:
    process = Process()
    searches = []
    for second in range(40):
        process.jobs = second % 2
        searches.append(process.finds())
    assert [second for second, success in enumerate(searches) if success] == [10, 20, 30]


def test_a_worker_that_never_rests_is_searched_once_a_minute() -> None:
    process = Process()
    process.jobs = 500
    searches = [process.finds() for _ in range(3 * int(LATEST_S))]
    assert [second for second, success in enumerate(searches, start=1) if success] == [60, 120, 180]


def test_memory_that_grows_is_searched_at_once_and_counts_from_there() -> None:
    process = Process()
    process.jobs = 500
    process.resident += GROWTH_BYTES - 1
    assert not process.finds()
    process.resident += 1
    assert process.finds()
    process.resident += GROWTH_BYTES - 1
    assert not process.finds()


def test_a_search_waits_for_what_is_urgent_but_not_for_ever() -> None:
    process = Process()
    process.jobs = 500
    process.resident += GROWTH_BYTES
    process.urgency.count = 1
    assert [process.finds() for _ in range(URGENT_PATIENCE + 1)] == [False] * URGENT_PATIENCE + [True]
    process.resident += GROWTH_BYTES
    assert not process.finds()
    process.urgency.count = 0
    assert process.finds()


def test_it_looks_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_search, "LOOK_S", 0.001)
    monkeypatch.setattr(garbage_search, "EARLIEST_S", 0.0)
    jobs = iter([1, 0, 1, 0])

    async def scenario() -> None:
        running = asyncio.create_task(GarbageSearch(lambda: next(jobs, 0), Urgency()).run())
        for _ in range(2):
            circle = weakref.ref(Circle())
            async with asyncio.timeout(5):
                while circle() is not None:  # noqa: ASYNC110 - garbage has no event
                    await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(scenario())
