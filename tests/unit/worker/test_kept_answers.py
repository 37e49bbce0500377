"""Copies of stored answers on disk: for as long as a fail-over of PostgreSQL may lose them, and no longer."""

import math
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tasks.ports import ClosedAttempt
from tests.lent_ledger import LentLedger
from tests.unit.worker.test_spool import ToldSpool, answers_in, calling, files
from worker.process import journal as journal_module
from worker.process.journal import LedgerJournal
from worker.process.spool import Spool, lost_answers, write_back

LONG = timedelta(hours=1)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "KEEP_EVERY_S", 0.01)


def folder_in(home: Path) -> Path:
    return home / "spool" / "018f0e5c-0000-7000-8000-000000000000"


async def test_a_stored_answer_stays_on_disk_until_the_same_server_was_seen_long_after_it(tmp_path: Path) -> None:
    confirmed_at = 0.0
    ledger, folder = LentLedger(), folder_in(tmp_path)
    ((_, closed),) = await calling(ledger, 1)
    journal = LedgerJournal(ledger, spool := ToldSpool(folder), kept_for=LONG, confirmed_at=lambda: confirmed_at)
    await journal.close_attempt(closed)
    await spool.until(lambda: answers_in(folder) == 1)
    (path,) = files(folder)
    assert path.suffix == ".stored"
    confirmed_at = math.inf
    await spool.until(lambda: not files(folder))
    await journal.close()


async def test_copies_outlive_their_process_and_are_kept_by_the_next(tmp_path: Path) -> None:
    ledger, folder = LentLedger(), folder_in(tmp_path)
    answered = await calling(ledger, 3)
    journal = LedgerJournal(ledger, Spool(folder), kept_for=LONG, confirmed_at=lambda: 0.0)
    for _, closed in answered:
        await journal.close_attempt(closed)
    await journal.close()
    assert answers_in(folder) == 3

    spool = Spool(folder)
    assert await write_back(spool, ledger.attempts, adopts=True) == 0
    assert answers_in(folder) == 3
    spool.expire(math.inf)
    assert not files(folder)


async def test_without_a_window_no_copy_is_written(tmp_path: Path) -> None:
    ledger, folder = LentLedger(), folder_in(tmp_path)
    ((_, closed),) = await calling(ledger, 1)
    journal = LedgerJournal(ledger, Spool(folder))
    await journal.close_attempt(closed)
    await journal.close()
    assert not files(folder)


class Forgetful:
    """Attempts of a ledger that knows no job, or all of them."""

    def __init__(self) -> None:
        self.knows = False

    async def close_attempts(
        self, closed: list[ClosedAttempt], on_lost: Callable[[list[ClosedAttempt]], None] | None = None
    ) -> set[object]:
        if not self.knows:
            assert on_lost is not None
            on_lost(closed)
        return set()


async def test_answers_of_lost_jobs_are_named_and_stay_until_the_ledger_knows_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    attempts, folder = Forgetful(), folder_in(tmp_path)
    ((_, closed),) = await calling(LentLedger(), 1)
    dead = Spool(folder)
    await dead.keep([closed])
    dead.leave()
    for _ in range(2):
        spool = Spool(folder)
        assert await write_back(spool, attempts) == 0  # type: ignore[arg-type]
        spool.leave()
        ((path, rows),) = lost_answers(tmp_path).items()
        assert (path.suffix, rows) == (".lost", [closed])
    assert closed.opening is not None
    assert str(closed.opening.batch_id) in caplog.text

    attempts.knows = True
    assert await write_back(Spool(folder), attempts) == 1  # type: ignore[arg-type]
    assert not files(folder)
