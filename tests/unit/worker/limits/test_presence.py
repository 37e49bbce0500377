"""Counting workers and trying paused lanes again, over a ledger of the test's own."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from schemas.states import Step
from tasks.errors import LedgerUnavailable
from tests.unit.worker.limits.test_rate_limiter import PausedLanes
from worker.ledger.fleet import Present
from worker.limits import presence
from worker.limits.lanes import Lanes, Unreachable
from worker.limits.presence import Heartbeat
from worker.scheduling.urgent_workers import UrgentWorkers


class PresenceLedger(PausedLanes):
    """A ledger that reports a number of workers, or is unreachable."""

    def __init__(self, *counts: int | None) -> None:
        super().__init__()
        self.counts = list(counts)
        self.departures: list[str] = []
        self.away: list[list[str]] = []
        self.counted = asyncio.Semaphore(0)

    async def beat(
        self,
        worker: str,
        steps: Iterable[Step],
        unreachable: Sequence[dict[str, Any]] = (),
        *,
        urgent_only: bool = False,
        report: Mapping[str, Any] | None = None,
    ) -> Present:
        self.away.append([report["provider"] for report in unreachable])
        self.counted.release()
        count = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        if count is None:
            raise LedgerUnavailable("gone")
        served = frozenset(steps) | ({Step.LOCAL} if count == 3 else set())
        return Present(count, served, tuple(await self.paused_lanes()), timedelta(hours=2))

    async def leave(self, worker: str) -> None:
        self.departures.append(worker)


def present(presence_ledger: PresenceLedger, lane_retry_s: float = 0.0) -> Heartbeat:
    return Heartbeat(
        presence_ledger, "w", frozenset({Step.CHECK}), Lanes(presence_ledger), timedelta(seconds=lane_retry_s)
    )


async def test_the_last_known_presence_stays_while_the_ledger_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "EVERY_S", 0.001)

    presence_ledger = PresenceLedger(3, None, None, 5)
    workers = present(presence_ledger)
    await workers.start(lambda _: None)
    assert (workers.workers, workers.steps) == (3, {Step.CHECK, Step.LOCAL})
    figures = set()
    async with asyncio.timeout(5):
        for _ in range(6):
            await presence_ledger.counted.acquire()
            figures.add((workers.workers, workers.steps))
    await workers.stop()
    assert figures == {(3, frozenset({Step.CHECK, Step.LOCAL})), (5, frozenset({Step.CHECK}))}
    assert presence_ledger.departures == ["w"]


async def test_a_worker_does_not_wait_for_the_ledger_to_say_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LEAVE_S", 0.01)

    class Silent(PresenceLedger):
        async def leave(self, worker: str) -> None:
            await asyncio.Event().wait()

    workers = present(Silent(1))
    await workers.start(lambda _: None)
    async with asyncio.timeout(5):
        await workers.stop()


@pytest.mark.parametrize(("lane_retry_s", "tried"), [(3_600.0, ["openai"]), (0.0, [])])
async def test_a_paused_lane_is_tried_again_only_if_the_settings_say_so(lane_retry_s: float, tried: list[str]) -> None:
    presence_ledger = PresenceLedger(1)
    await presence_ledger.pause_lane("openai", "standard", "no credit")
    notices: list[str] = []
    workers = present(presence_ledger, lane_retry_s)
    await workers.start(notices.append)
    await workers.stop()
    assert notices == tried


async def test_a_worker_says_which_providers_it_can_not_reach() -> None:
    presence_ledger = PresenceLedger(1)
    away = [Unreachable("openai", 1.0, "refused")]
    workers = present(presence_ledger)
    workers.unreachable = lambda: away
    await workers.start(lambda _: None)
    await workers.stop()
    assert presence_ledger.away == [["openai"]]


def test_a_worker_of_urgent_jobs_says_so_until_it_retires() -> None:
    class Fleet(PresenceLedger):
        async def beat(
            self,
            worker: str,
            steps: Iterable[Step],
            unreachable: Sequence[dict[str, Any]] = (),
            *,
            urgent_only: bool = False,
            report: Mapping[str, Any] | None = None,
        ) -> Present:
            beats.append((frozenset(steps), urgent_only))
            return await super().beat(worker, steps, unreachable)

    beats: list[tuple[frozenset[Step], bool]] = []

    async def scenario() -> None:
        for only in (True, False):
            fleet = Fleet(2)
            steps = frozenset({Step.GENERATE})
            workers = Heartbeat(fleet, "w", steps, Lanes(fleet), timedelta(0), urgent_workers=UrgentWorkers(only=only))
            await workers.start(lambda _: None)
            await workers.retire()
            await workers.stop()

    asyncio.run(scenario())
    assert beats == [(frozenset(), True), (frozenset(), False), (frozenset({Step.GENERATE}), False)]
