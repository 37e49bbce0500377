"""Keeps answers on disk that arrive while the ledger is away, until they are in it."""

import asyncio
import fcntl
import hashlib
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from schemas.failure import Failure, FailureKind
from tasks.errors import NightdeskError, Unstorable
from tasks.ports import ClosedAttempt, Ledger
from worker.ledger.database import hosts_of
from worker.supervise.files import make_directory, open_lock, sync_directory, try_lock

log = logging.getLogger(__name__)

REPLAY_ROWS = 50
"""Answers a statement when a spool is replayed."""

_ENTRY: TypeAdapter[ClosedAttempt] = TypeAdapter(ClosedAttempt)


def spool_folder(home: Path, database_url: str) -> Path:
    """Where a home spools for one ledger: answers of one must never be replayed into another."""
    parts = urlsplit(database_url)
    ledger = f"{hosts_of(database_url)}{parts.path}?{parts.query}"
    return home / "spool" / hashlib.sha256(ledger.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of answers, one JSON line each; locked as long as the process that wrote it lives."""

    path: Path
    lock: int

    def remove(self) -> None:
        """Delete the file and free its lock."""
        self.path.unlink(missing_ok=True)
        os.close(self.lock)

    def leave(self) -> None:
        """Free the lock and leave the file to the next process."""
        os.close(self.lock)


class Spool:
    """The segments of one process.

    A segment is written once, brought to disk, and removed when all its answers are in the ledger. The lock on it ends
    with its process, so whoever starts next knows which segments nobody will write any more.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine: list[Segment] = []

    async def keep(self, rows: Sequence[ClosedAttempt]) -> None:
        """Write answers to a new segment; on return they survive a crash. Raises ``OSError`` (disk full, read-only)."""
        lines = b"".join(_ENTRY.dump_json(row) + b"\n" for row in rows)
        self._mine.append(await asyncio.to_thread(self._write, lines))

    def _write(self, lines: bytes) -> Segment:
        for folder in (self._folder.parent.parent, self._folder.parent, self._folder):
            make_directory(folder, 0o700)
        # Containers that share a home may share process ids too.
        path = self._folder / f"{secrets.token_hex(8)}.jsonl"
        lock = open_lock(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            written = 0
            while written < len(lines):
                written += os.pwrite(lock, lines[written:], written)
            os.fsync(lock)
            sync_directory(self._folder)
        except BaseException:
            path.unlink(missing_ok=True)
            os.close(lock)
            raise
        return Segment(path, lock)

    def clear(self) -> None:
        """Remove this process's segments: all they hold is in the ledger."""
        while self._mine:
            self._mine.pop().remove()

    def leave(self) -> None:
        """End with answers that could not be written: their segments stay for the next process."""
        while self._mine:
            self._mine.pop().leave()

    def abandoned(self) -> Iterator[Segment]:
        """The segments of processes that are gone, each locked by us; the caller removes or leaves it."""
        with suppress(FileNotFoundError):
            for path in sorted(self._folder.glob("*.jsonl")):
                if any(path == mine.path for mine in self._mine):
                    continue
                lock = open_lock(path)
                if not try_lock(lock):
                    os.close(lock)
                elif not path.exists() or os.fstat(lock).st_size == 0:
                    Segment(path, lock).remove()
                else:
                    yield Segment(path, lock)


def left_behind(folder: Path) -> int:
    """How many segments wait in a folder for a worker to write them."""
    waiting = 0
    for segment in Spool(folder).abandoned():
        waiting += 1
        segment.leave()
    return waiting


async def replay(spool: Spool, ledger: Ledger) -> int:
    """Write what processes that are gone left in the spool; returns how many answers that were.

    Harmless however often: an attempt that is closed stays as it is, and a completion that lost stands beside the
    winner. Raises ``LedgerUnavailable``; what was not written stays.
    """
    replayed = 0
    for segment in spool.abandoned():
        try:
            rows, unreadable = _rows(segment.path)
            unwritten = 0
            for at in range(0, len(rows), REPLAY_ROWS):
                unwritten += await _close(ledger, rows[at : at + REPLAY_ROWS])
        except BaseException:
            segment.leave()
            raise
        replayed += len(rows) - unwritten
        if unwritten or unreadable:
            # A later version of this program may be able to.
            log.error("%d answers of the spool %s stay there", unwritten + unreadable, segment.path)
            segment.leave()
        else:
            segment.remove()
        log.warning(
            "%d answers that came while the ledger was away were written from %s", len(rows) - unwritten, segment.path
        )
    return replayed


def _rows(path: Path) -> tuple[list[ClosedAttempt], int]:
    """The answers of a segment, and the number of lines that this version can't read."""
    rows: list[ClosedAttempt] = []
    unreadable = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                rows.append(_ENTRY.validate_json(line))
            except ValidationError:
                log.exception("line %d of the spool %s can't be read and is left out", number, path)
                # A line without its end was cut off by a crash before anything was promised of it.
                unreadable += line.endswith(b"\n")
    return rows, unreadable


async def _close(ledger: Ledger, rows: Sequence[ClosedAttempt]) -> int:
    """Write answers; returns how many could not be written for a defect of ours."""
    try:
        await ledger.attempts.close_attempts(rows)
    except Unstorable as error:
        if len(rows) == 1:
            log.exception("the answer of attempt %s can't be stored", rows[0].id)
            return 1 if rows[0].answer is None else await _close(ledger, [_without_answer(rows[0], error)])
    except NightdeskError:
        raise
    except Exception:
        if len(rows) == 1:
            log.exception("the answer of attempt %s could not be written", rows[0].id)
            return 1
    else:
        return 0
    return sum([await _close(ledger, [row]) for row in rows])


def _without_answer(row: ClosedAttempt, error: Unstorable) -> ClosedAttempt:
    """The end of an attempt whose answer was paid for and can't be kept: its cost is recorded, its job not moved on."""
    failure = Failure(kind=FailureKind.UNSTORABLE, message=str(error), at=datetime.now(UTC))
    return replace(row, outcome=f"error:{failure.kind.value}", spent=True, failure=failure, answer=None, then=None)
