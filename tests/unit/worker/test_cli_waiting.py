import asyncio
import errno
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from schemas.batch import BatchStatus
from tasks.errors import LedgerUnavailable
from tasks.ports import JobView
from worker.cli import waiting
from worker.cli.progress import Reporter
from worker.cli.session import Session
from worker.cli.waiting import DiskFull, Watch, naming_full_disk
from worker.ledger.fleet import LaneNotice
from worker.ledger.postgres import PostgresLedger
from worker.settings import Settings

BATCH = uuid4()
NEXT_TRY = datetime(2026, 11, 24, 3, 7, 30, tzinfo=UTC)


def status(states: dict[str, int], holds: dict[str, int] | None = None, **fields: Any) -> BatchStatus:
    fields_of_status = {
        "batch_id": BATCH, "key": None, "name": None, "tenant": "default", "created_at": datetime.now(UTC),
        "not_before": None, "deadline": None, "paused": False, "cancelled_at": None, "max_cost_usd": None,
        "reserved_usd": Decimal(0), "spent_usd": Decimal(0), "priced_usd": Decimal(0), "unpriced_jobs": 0, "jobs": sum(states.values()), "states": states,
        "outcomes": {}, "held": holds or {}, "unpublished": 0, "possibly_billed_twice": 0,
    }  # fmt: skip
    return BatchStatus(**{**fields_of_status, **fields})


class RecordingPrinter(Reporter):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.looks: list[BatchStatus] = []
        self.next_tries: list[datetime | None] = []

    def status(self, status: BatchStatus, next_at: datetime | None = None) -> None:
        self.looks.append(status)
        self.next_tries.append(next_at)

    def note(self, message: str) -> None:
        self.notes.append(message)


class ScriptedLedger:
    """A ledger and a session that answer from a script."""

    def __init__(self, *answers: BatchStatus | Exception) -> None:
        self._answers: Iterator[BatchStatus | Exception] = iter(answers)
        self.reading = self
        self.fleet = self
        self.supervisor = self
        self.processes: dict[str, Any] = {}
        self.settings = Settings()

    async def batch_status(self, _: UUID) -> BatchStatus:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def views(self, _: Sequence[UUID]) -> list[JobView]:
        return []

    async def next_try(self, _: UUID) -> datetime | None:
        return NEXT_TRY

    def running(self) -> dict[str, Any]:
        return self.processes

    async def lane_notices(self) -> list[LaneNotice]:
        return []

    async def unserved(self) -> list[str]:
        return []


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None:
        return

    monkeypatch.setattr(waiting.asyncio, "sleep", at_once)


def wait(*answers: BatchStatus | Exception) -> tuple[BatchStatus, RecordingPrinter]:
    scripted, printer = ScriptedLedger(*answers), RecordingPrinter()
    watch = Watch(cast("Session", scripted), cast("PostgresLedger", scripted), printer)
    end = asyncio.run(watch.wait(BATCH))
    assert end is not None
    return end, printer


def test_the_wait_ends_when_all_remaining_jobs_stay_held() -> None:
    held_status = status({"completed": 1, "scheduled": 2}, {"budget": 2})
    end, printer = wait(
        status({"scheduled": 2, "running": 1}, {"budget": 2}),
        held_status,
        status({"completed": 1, "scheduled": 1, "available": 1}, {"budget": 1}),
        held_status,
        held_status,
        AssertionError("looked once too often"),
    )
    assert end.held == {"budget": 2}
    assert len(printer.looks) == 5


def test_jobs_that_wait_for_their_time_are_not_held() -> None:
    end, printer = wait(*[status({"scheduled": 1})] * 5, status({"completed": 1}))
    assert end.final == 1
    assert printer.next_tries == [NEXT_TRY] * 5 + [None]


def test_the_wait_outlasts_a_short_outage_of_the_ledger() -> None:
    away = LedgerUnavailable("PostgreSQL at here can't be reached")
    end, printer = wait(status({"running": 1}), away, away, status({"completed": 1}))
    assert end.final == 1
    assert len(printer.notes) == 1


def test_a_long_outage_of_the_ledger_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LEDGER_PATIENCE_S", 0.0)
    with pytest.raises(LedgerUnavailable):
        wait(status({"running": 1}), LedgerUnavailable("away"), AssertionError("asked again"))


def test_a_full_disk_ends_the_wait_and_a_moment_of_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.cli.waiting.DISK_EVERY_S", 0.0)
    free = [1_000_000]
    monkeypatch.setattr("worker.operations.free_disk.free_bytes", lambda _: free[0])
    printer = RecordingPrinter()
    watch = Watch(cast("Session", ScriptedLedger()), cast("PostgresLedger", None), printer)
    for free[0] in (1_000_000, 1_000_000, 900_000_000, 1_000_000):
        watch._look_at_disk()
    assert [" is full (1 MB free)" in note for note in printer.notes] == [True, True], "each time that it becomes full"
    monkeypatch.setattr("worker.cli.waiting.FULL_PATIENCE_S", 0.0)
    with pytest.raises(DiskFull, match="make room there"):
        watch._look_at_disk()


@pytest.mark.parametrize(
    ("error", "free", "expected"),
    [
        (LedgerUnavailable("server closed the connection"), 1_000_000, DiskFull),
        (OSError(errno.ENOSPC, "No space left on device"), 1_000_000, DiskFull),
        (LedgerUnavailable("server closed the connection"), 10**9, LedgerUnavailable),
        (OSError(errno.EACCES, "Permission denied"), 1_000_000, PermissionError),
    ],
)
def test_the_effects_of_a_full_disk_are_told_as_a_full_disk(
    error: Exception, free: int, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.operations.free_disk.free_bytes", lambda _: free)
    with pytest.raises(expected), naming_full_disk(Settings()):
        raise error
