import asyncio
import os
import stat
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from schemas.states import Step
from tasks.errors import LedgerError, LedgerUnavailable, SchemaMismatch, Unstorable
from tasks.ports import ClosedAttempt, Leased
from tests.builders import (
    closed_error,
    closed_ok,
    later,
    make_answer,
    make_attempt,
    make_batch,
    make_jobs,
    make_request,
    to_check,
)
from tests.lent_ledger import LentLedger
from worker.ledger.attempts import PostgresAttempts
from worker.process import journal as journal_module
from worker.process.journal import LedgerJournal
from worker.process.spool import Spool, abandoned_segments, lost_answers, read_answers, spool_folder, write_back

LEASE = timedelta(seconds=60)


class Fickle(LentLedger):
    """A ledger that can go away, and that can't keep some attempts."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.unstorable: set[UUID] = set()
        self.broken: set[UUID] = set()

    @cached_property
    def attempts(self) -> "FickleAttempts":
        return FickleAttempts(self)

    @property
    def away(self) -> bool:
        return self.error is not None

    @away.setter
    def away(self, away: bool) -> None:
        self.error = LedgerUnavailable("away") if away else None


class FickleAttempts(PostgresAttempts):
    """The attempts of such a ledger."""

    def __init__(self, ledger: Fickle) -> None:
        super().__init__(ledger._database, LEASE)
        self._ledger = ledger

    async def close_attempts(self, closed: Sequence[ClosedAttempt], on_lost: Any = None) -> set[UUID]:
        if self._ledger.error is not None:
            raise self._ledger.error
        if any(attempt.id in self._ledger.unstorable and attempt.answer is not None for attempt in closed):
            raise Unstorable("no")
        if any(attempt.id in self._ledger.broken for attempt in closed):
            raise TypeError("a defect of ours")
        return await super().close_attempts(closed, on_lost)


async def calling(ledger: LentLedger, count: int) -> list[tuple[Leased, ClosedAttempt]]:
    """Jobs whose answers have just come."""
    requests = [make_request(f"{number}?") for number in range(count)]
    await ledger.submission.submit(make_batch(), [make_jobs(*requests)])
    answered = []
    for leased in await ledger.queue.lease(Step.GENERATE, "w", LEASE, count):
        attempt = make_attempt(leased)
        await ledger.attempts.open_attempts([attempt])
        answer = make_answer("It opens at nine [1]. \u2713 \U0001f4f0")
        answered.append((leased, closed_ok(leased, attempt, answer=answer, then=to_check(leased))))
    return answered


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*"))


def answers_in(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in files(folder))


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "KEEP_EVERY_S", 0.01)
    monkeypatch.setattr(journal_module, "KEEP_AFTER_S", 0.02)
    monkeypatch.setattr("worker.batching.RETRY_PAUSE", timedelta(milliseconds=20))


class ToldSpool(Spool):
    """Tells of the end of each look that its journal takes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._looked = asyncio.Event()

    def expire(self, before: float) -> None:
        super().expire(before)
        self._looked.set()

    async def until(self, true: Callable[[], object]) -> None:
        """Wait until something holds after a look."""
        async with asyncio.timeout(30):
            while not true():
                self._looked.clear()
                await self._looked.wait()


async def cut_off(closing: Coroutine[Any, Any, None]) -> None:
    """Cancel the close of a journal as soon as it waits."""
    stop = asyncio.create_task(closing)
    await asyncio.sleep(0)
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stop


async def test_spooled_answers_are_read_back_unchanged(tmp_path: Path) -> None:
    ledger = LentLedger()
    (leased, ok), (other, _) = await calling(ledger, 2)
    failed = closed_error(other, make_attempt(other), then=later(other, delay=LEASE, event="retry"))
    got: list[ClosedAttempt] = []

    class Notes(PostgresAttempts):
        async def close_attempts(self, closed: Sequence[ClosedAttempt], on_lost: Any = None) -> set[UUID]:
            got.extend(closed)
            return set()

    spool = Spool(tmp_path / "home" / "spool" / "x")
    await spool.keep([ok, failed])
    spool.leave()

    assert await write_back(Spool(tmp_path / "home" / "spool" / "x"), Notes(ledger._database, LEASE)) == 2
    assert got == [ok, failed]
    assert leased.job_id == ok.job_id


async def test_only_the_owner_can_read_the_spool(tmp_path: Path) -> None:
    ((_, ok),) = await calling(LentLedger(), 1)
    spool = Spool(tmp_path / "home" / "spool" / "x")
    await spool.keep([ok])
    (path,) = files(tmp_path / "home" / "spool" / "x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_answers_are_spooled_during_an_outage_and_removed_after_it(tmp_path: Path) -> None:
    ledger, folder = Fickle(), tmp_path / "home" / "spool" / "x"
    answered = await calling(ledger, 120)
    journal = LedgerJournal(ledger, spool := ToldSpool(folder))
    ledger.away = True
    closing = [asyncio.create_task(journal.close_attempt(closed)) for _, closed in answered]
    await spool.until(lambda: sum(len(path.read_bytes().splitlines()) for path in files(folder)) == 120)
    ledger.away = False

    assert all(await asyncio.gather(*closing))
    await spool.until(lambda: not files(folder))
    await journal.close()
    views = await ledger.reading.views([leased.job_id for leased, _ in answered])
    assert {view.step for view in views} == {Step.CHECK}


@pytest.mark.parametrize(
    "error", [LedgerError("lost every deadlock"), SchemaMismatch("no such column"), RuntimeError("a defect of ours")]
)
async def test_no_error_of_the_ledger_costs_an_answer(tmp_path: Path, error: Exception) -> None:
    ledger, folder = Fickle(), tmp_path / "home" / "spool" / "x"
    answered = await calling(ledger, 20)
    journal = LedgerJournal(ledger, spool := ToldSpool(folder))
    ledger.error = error
    closing = [asyncio.create_task(journal.close_attempt(closed)) for _, closed in answered]
    await spool.until(lambda: files(folder))
    assert not any(task.done() for task in closing)
    ledger.error = None

    assert all(await asyncio.gather(*closing))
    await journal.close()
    assert not files(folder)


async def test_a_stop_leaves_unwritten_answers_on_disk(tmp_path: Path) -> None:
    ledger, folder = Fickle(), tmp_path / "home" / "spool" / "x"
    answered = await calling(ledger, 5)
    ledger.broken = {answered[0][1].id}
    journal = LedgerJournal(ledger, Spool(folder))
    closing = [asyncio.create_task(journal.close_attempt(closed)) for _, closed in answered]
    await asyncio.wait_for(asyncio.gather(*closing[1:]), 10)
    await cut_off(journal.close())
    closing[0].cancel()
    assert files(folder)
    # The defect is still there: a start is possible, and nothing is lost.
    await write_back(Spool(folder), ledger.attempts)
    assert files(folder)
    ledger.broken = set()
    assert await write_back(Spool(folder), ledger.attempts) > 0

    assert not files(folder)
    views = await ledger.reading.views([leased.job_id for leased, _ in answered])
    assert [view.step for view in views] == [Step.CHECK] * 5


async def test_an_answer_that_can_not_be_written_keeps_back_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "home" / "spool" / "x"
    (_, first), (_, second) = await calling(LentLedger(), 2)
    await Spool(folder).keep([replace(first, outcome="error:\ud800"), second])
    ((row,),) = [read_answers(path)[0] for path in files(folder)]
    assert row == second
    assert f"attempt {first.id} is only in memory" in caplog.text


def test_a_truncated_line_or_an_unstorable_answer_costs_no_other_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        ledger, folder = Fickle(), tmp_path / "home" / "spool" / "x"
        answered = await calling(ledger, 3)
        ledger.unstorable = {answered[1][1].id}
        spool = Spool(folder)
        await spool.keep([closed for _, closed in answered])
        spool.leave()
        (path,) = files(folder)
        path.write_bytes(path.read_bytes() + b'{"id": "')

        assert await write_back(Spool(folder), ledger.attempts) == 3
        assert not files(folder)
        views = await ledger.reading.views([leased.job_id for leased, _ in answered])
        assert [view.step for view in views] == [Step.CHECK, Step.GENERATE, Step.CHECK]
        detail = await ledger.reading.job_detail(answered[1][0].job_id)
        assert [attempt["outcome"] for attempt in detail.attempts] == ["error:unstorable"]

    asyncio.run(scenario())
    assert "line 4 of the spool" in caplog.text
    assert "can't be stored" in caplog.text


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a link": lambda path: path.symlink_to(path.parent.parent),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "other bytes": lambda path: path.write_bytes(b"\x00\xff secret\n" * 3),
    "depth": lambda path: path.write_bytes(b"[" * 200_000 + b"\n"),
}


@pytest.mark.parametrize("ending", [".jsonl", ".lost"])
@pytest.mark.parametrize("what", IN_THE_WAY)
async def test_what_is_no_segment_stays_and_keeps_no_answer_back(
    what: str, ending: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger, home = Fickle(), tmp_path / "home"
    folder = spool_folder(home, UUID(int=7))
    (_, closed), *_ = await calling(ledger, 1)
    spool = Spool(folder)
    await spool.keep([closed])
    spool.leave()
    in_the_way = folder / f"0{ending}"
    IN_THE_WAY[what](in_the_way)

    assert len(abandoned_segments(home)[folder]) >= 1
    assert lost_answers(home) == {}
    assert await write_back(Spool(folder), ledger.attempts) == 1
    assert [path.name for path in folder.iterdir()] == [in_the_way.name]
    assert "the spool" in caplog.text
    assert "secret" not in caplog.text


def test_a_full_disk_is_logged_and_the_answer_stays_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        ledger = Fickle()
        ((_, ok),) = await calling(ledger, 1)
        journal = LedgerJournal(ledger, spool := ToldSpool(tmp_path / "home" / "spool" / "x"))
        ledger.away = True
        closing = asyncio.create_task(journal.close_attempt(ok))
        await spool.until(lambda: "only in memory" in caplog.text)
        ledger.away = False
        assert await closing
        await journal.close()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    asyncio.run(scenario())
    assert "No space left on device" in caplog.text
    assert not files(tmp_path / "home" / "spool" / "x")
