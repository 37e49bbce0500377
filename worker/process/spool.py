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
from tasks.ports import Attempts, ClosedAttempt
from worker.ledger.addresses import hosts_of
from worker.supervise.files import make_directory, open_lock, sync_directory, try_lock

log = logging.getLogger(__name__)

REPLAY_ROWS = 50
"""Answers per statement of a replay."""

_ENTRY: TypeAdapter[ClosedAttempt] = TypeAdapter(ClosedAttempt)


def spool_folder(home: Path, database_url: str) -> Path:
    """The spool directory of a home for one ledger: answers of one must never be replayed into another."""
    parts = urlsplit(database_url)
    ledger = f"{hosts_of(database_url)}{parts.path}?{parts.query}"
    return home / "spool" / hashlib.sha256(ledger.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of answers, one JSON line each; locked as long as its writer lives."""

    path: Path
    lock: int

    def remove(self) -> None:
        """Deletes the file and frees its lock."""
        self.path.unlink(missing_ok=True)
        os.close(self.lock)

    def leave(self) -> None:
        """Frees the lock and leaves the file to the next process."""
        os.close(self.lock)


class Spool:
    """The segments of one process.

    A segment is written once, brought to disk, and removed when all its answers are in the ledger. The lock on it ends
    with its process, so the next process recognises the abandoned segments.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: list[Segment] = []

    async def keep(self, rows: Sequence[ClosedAttempt]) -> None:
        """Writes answers to a new segment; on return they survive a crash. Raises ``OSError`` (disk full, read-only)."""
        lines = b"".join(_ENTRY.dump_json(row) + b"\n" for row in rows)
        self._segments.append(await asyncio.to_thread(self._write, lines))

    def _write(self, lines: bytes) -> Segment:
        for folder in (self._folder.parent.parent, self._folder.parent, self._folder):
            make_directory(folder, 0o700)
        # Containers that share a home may share process ids too.
        path = self._folder / f"{secrets.token_hex(8)}.jsonl"
        lock = open_lock(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            offset = 0
            while offset < len(lines):
                offset += os.pwrite(lock, lines[offset:], offset)
            os.fsync(lock)
            sync_directory(self._folder)
        except BaseException:
            path.unlink(missing_ok=True)
            os.close(lock)
            raise
        return Segment(path, lock)

    def clear(self) -> None:
        """Removes this process's segments, whose answers are in the ledger."""
        while self._segments:
            self._segments.pop().remove()

    def leave(self) -> None:
        """Leaves the segments to the next process, because their answers could not be written."""
        while self._segments:
            self._segments.pop().leave()

    def abandoned(self) -> Iterator[Segment]:
        """Yields the segments of dead processes, each locked by us; the caller removes or leaves it."""
        with suppress(FileNotFoundError):
            for path in sorted(self._folder.glob("*.jsonl")):
                if any(path == segment.path for segment in self._segments):
                    continue
                lock = open_lock(path)
                if not try_lock(lock):
                    os.close(lock)
                elif not path.exists() or os.fstat(lock).st_size == 0:
                    Segment(path, lock).remove()
                else:
                    yield Segment(path, lock)


def abandoned_segments(folder: Path) -> int:
    """The number of segments in a folder that wait for a worker."""
    waiting = 0
    for segment in Spool(folder).abandoned():
        waiting += 1
        segment.leave()
    return waiting


async def replay(spool: Spool, attempts: Attempts) -> int:
    """Writes the answers of dead processes into the ledger; returns their number.

    Harmless at any repetition: a closed attempt stays as it is, and a completion that lost is stored beside the winner.
    Raises ``LedgerUnavailable``; the remaining answers stay.
    """
    replayed = 0
    for segment in spool.abandoned():
        try:
            rows, unreadable = _rows(segment.path)
            unwritten = 0
            for at in range(0, len(rows), REPLAY_ROWS):
                unwritten += await _close(attempts, rows[at : at + REPLAY_ROWS])
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
    """Returns the answers of a segment, and the number of lines that this version can't read."""
    rows: list[ClosedAttempt] = []
    unreadable = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                rows.append(_ENTRY.validate_json(line))
            except ValidationError:
                log.exception("line %d of the spool %s can't be read and is left out", number, path)
                # A crash cut off a line without its end before any promise about it.
                unreadable += line.endswith(b"\n")
    return rows, unreadable


async def _close(attempts: Attempts, rows: Sequence[ClosedAttempt]) -> int:
    """Writes answers; returns the number that could not be written for a defect of ours."""
    try:
        await attempts.close_attempts(rows)
    except Unstorable as error:
        if len(rows) == 1:
            log.exception("the answer of attempt %s can't be stored", rows[0].id)
            return 1 if rows[0].answer is None else await _close(attempts, [_without_answer(rows[0], error)])
    except NightdeskError:
        raise
    except Exception:
        if len(rows) == 1:
            log.exception("the answer of attempt %s could not be written", rows[0].id)
            return 1
    else:
        return 0
    return sum([await _close(attempts, [row]) for row in rows])


def _without_answer(row: ClosedAttempt, error: Unstorable) -> ClosedAttempt:
    """The end of an attempt with a paid but unstorable answer: its cost is recorded, its job stays in its step."""
    failure = Failure(kind=FailureKind.UNSTORABLE, message=str(error), at=datetime.now(UTC))
    return replace(row, outcome=f"error:{failure.kind.value}", spent=True, failure=failure, answer=None, then=None)
