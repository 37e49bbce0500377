"""Keeps answers on disk: those that the ledger does not have, and for a while those that a failing ledger may lose again."""

import asyncio
import fcntl
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from time import monotonic
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from schemas.failure import Failure, FailureKind
from schemas.states import JobState
from tasks.errors import NightdeskError, Unstorable
from tasks.ports import ClosedAttempt, OnLost
from worker.ledger.attempts import PostgresAttempts
from worker.ledger.stored_rows import cause
from worker.supervise.files import make_directory, open_lock, sync_directory, try_lock

log = logging.getLogger(__name__)

REPLAY_ROWS = 50
"""Answers per statement."""

SEGMENT_S = 30.0
"""Seconds after which answers go to a new segment: the oldest are removed as one."""

_ENTRY: TypeAdapter[ClosedAttempt] = TypeAdapter(ClosedAttempt)


class Retention(StrEnum):
    """Reasons to keep answers; each is the end of its segments' names."""

    UNWRITTEN = ".jsonl"
    """The ledger does not have them yet."""
    STORED = ".stored"
    """The ledger has them, and may lose them in a fail-over."""
    LOST = ".lost"
    """The ledger knows nothing of their jobs, which it had accepted."""


def spool_root(home: Path) -> Path:
    """The folder of all spools of a home."""
    return home.expanduser().absolute() / "spool"


def spool_folder(home: Path, ledger_id: UUID) -> Path:
    """The spool of a home for one ledger, by the id that stands in the ledger itself, whatever its address is."""
    return spool_root(home) / str(ledger_id)


@dataclass(slots=True)
class Segment:
    """A file of answers, one JSON line each; locked as long as its writer lives."""

    path: Path
    lock: int
    retention: Retention
    begun_at: float = field(default_factory=monotonic)
    written_at: float = field(default_factory=monotonic)
    """When the last answer came into it, or into the ledger."""

    def append(self, lines: bytes, *, sync: bool) -> None:
        """Appends whole lines or none; with ``sync`` they survive a power cut."""
        end = os.fstat(self.lock).st_size
        try:
            offset = 0
            while offset < len(lines):
                offset += os.pwrite(self.lock, lines[offset:], end + offset)
            if sync:
                os.fsync(self.lock)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self.lock, end)
            raise
        self.written_at = monotonic()

    def rename(self, retention: Retention) -> None:
        """Keeps its answers for another reason from now on."""
        self.path = self.path.rename(self.path.with_suffix(retention.value))
        self.retention, self.written_at = retention, monotonic()

    def remove(self) -> None:
        """Deletes the file and frees its lock."""
        self.path.unlink(missing_ok=True)
        os.close(self.lock)

    def leave(self) -> None:
        """Frees the lock and leaves the file to the next process."""
        os.close(self.lock)


class Spool:
    """The segments of one process.

    The lock on a segment ends with its process, so the next process recognises the abandoned ones.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._segments: list[Segment] = []

    async def keep(self, rows: Sequence[ClosedAttempt]) -> None:
        """Writes answers that the ledger does not have; on return they survive a power cut. Raises ``OSError`` (disk full, read-only)."""
        await asyncio.to_thread(self._write, rows, Retention.UNWRITTEN)

    async def keep_stored(self, rows: Sequence[ClosedAttempt]) -> None:
        """Writes answers that the ledger has; on return they survive the end of this process."""
        await asyncio.to_thread(self._write, rows, Retention.STORED)

    async def keep_lost(self, rows: Sequence[ClosedAttempt]) -> None:
        """Writes answers whose jobs the ledger lost, and says so."""
        await asyncio.to_thread(self._write, rows, Retention.LOST)
        log_lost(rows, self._folder)

    def _write(self, rows: Sequence[ClosedAttempt], retention: Retention) -> None:
        lines = b"".join(map(_line, rows))
        since = monotonic() - SEGMENT_S
        segment = next((own for own in self._segments if own.retention is retention and own.begun_at > since), None)
        if segment is not None:
            segment.append(lines, sync=retention is not Retention.STORED)
            return
        for folder in (self._folder.parent.parent, self._folder.parent, self._folder):
            make_directory(folder, 0o700)
        # Containers that share a home may share process ids too.
        path = self._folder / f"{secrets.token_hex(8)}{retention.value}"
        segment = Segment(path, open_lock(path), retention)
        try:
            fcntl.flock(segment.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            segment.append(lines, sync=retention is not Retention.STORED)
            if retention is not Retention.STORED:
                sync_directory(self._folder)
        except BaseException:
            segment.remove()
            raise
        self._segments.append(segment)

    def note_stored(self) -> None:
        """Notes that the ledger has all answers that it did not have."""
        for segment in self._segments:
            if segment.retention is Retention.UNWRITTEN:
                segment.rename(Retention.STORED)

    def expire(self, before: float) -> None:
        """Removes segments whose answers the ledger has had since then (monotonic)."""
        for segment in [own for own in self._segments if own.retention is Retention.STORED and own.written_at < before]:
            self._segments.remove(segment)
            segment.remove()

    def adopt(self, segment: Segment) -> None:
        """Takes over a segment of a dead process whose answers are in the ledger now."""
        if segment.retention is not Retention.STORED:
            segment.rename(Retention.STORED)
        self._segments.append(segment)

    def leave(self) -> None:
        """Leaves the segments to the next process."""
        while self._segments:
            self._segments.pop().leave()

    async def write_again(self, attempts: PostgresAttempts, further: Sequence[ClosedAttempt], on_lost: OnLost) -> None:
        """Writes all answers of this process's segments, and further ones, into a ledger that may have lost some."""
        await write_answers(attempts, further, on_lost)
        for segment in list(self._segments):
            rows, unreadable = await asyncio.to_thread(read_answers, segment.path)
            lost: list[ClosedAttempt] = []
            await write_answers(attempts, rows, lost.extend)
            if segment.retention is not Retention.LOST:
                on_lost(lost)
            elif not lost and not unreadable:
                segment.rename(Retention.STORED)

    def abandoned(self) -> Iterator[Segment]:
        """Yields the segments of dead processes, each locked by us; the caller removes or leaves it."""
        own = {segment.path for segment in self._segments}
        for path in sorted(self._folder.glob("*")):
            if path.suffix not in set(Retention) or path in own:
                continue
            try:
                lock = open_lock(path)
            except OSError as error:
                # A folder, a link, or the file of another user: the others go on.
                log.error("what lies in the spool stays there, for it can't be opened: %s", error)  # noqa: TRY400
                continue
            if not try_lock(lock):
                os.close(lock)
            elif not path.exists() or os.fstat(lock).st_size == 0:
                Segment(path, lock, Retention(path.suffix)).remove()
            else:
                yield Segment(path, lock, Retention(path.suffix))


def _line(row: ClosedAttempt) -> bytes:
    """The entry of an answer; empty for one without a JSON form, which keeps back no other."""
    try:
        return _ENTRY.dump_json(row) + b"\n"
    except ValueError:
        log.critical("the answer of attempt %s is only in memory: it can't be spooled", row.id, exc_info=True)
        return b""


def abandoned_segments(home: Path) -> dict[Path, list[Retention]]:
    """The segments of dead processes in all spools of a home, by folder, with the reasons that they are kept for."""
    waiting: dict[Path, list[Retention]] = {}
    with suppress(FileNotFoundError):
        for folder in sorted(spool_root(home).iterdir()):
            for segment in Spool(folder).abandoned():
                waiting.setdefault(folder, []).append(segment.retention)
                segment.leave()
    return waiting


def lost_answers(home: Path) -> dict[Path, list[ClosedAttempt]]:
    """The paid answers of a home whose jobs their ledger lost, by file, also of living processes."""
    return {
        path: rows for path in sorted(spool_root(home).glob(f"*/*{Retention.LOST}")) if (rows := read_answers(path)[0])
    }


async def write_back(spool: Spool, attempts: PostgresAttempts, *, adopts: bool = False) -> int:
    """Writes the answers of dead processes into the ledger; returns their number.

    Harmless at any repetition: a closed attempt stays as it is, and a completion that lost is stored beside the winner.
    What the ledger knows nothing of stays on disk. With ``adopts`` the rest is kept as long as answers of this process, in case the
    ledger loses it again; else it is removed. Raises ``LedgerUnavailable``; the remaining answers stay.
    """
    replayed = 0
    for segment in spool.abandoned():
        try:
            rows, unreadable = read_answers(segment.path)
            lost: list[ClosedAttempt] = []
            unwritten = await write_answers(attempts, rows, lost.extend)
            stay = unwritten + unreadable
            if lost and len(lost) == len(rows) and segment.retention is Retention.LOST:
                log_lost(lost, segment.path)
                stay += len(lost)
            elif lost:
                await spool.keep_lost(lost)
        except BaseException:
            segment.leave()
            raise
        stored = len(rows) - unwritten - len(lost)
        if segment.retention is not Retention.STORED:
            log.warning("%d answers that came while the ledger was away were written from %s", stored, segment.path)
            replayed += stored
        if unwritten or unreadable:
            # A later version of this program may be able to.
            log.error("%d answers of the spool %s stay there", unwritten + unreadable, segment.path)
        if stay:
            segment.leave()
        elif adopts:
            spool.adopt(segment)
        else:
            segment.remove()
    return replayed


def log_lost(lost: Sequence[ClosedAttempt], path: Path) -> None:
    """Says which paid answers the ledger knows nothing of."""
    log.critical(
        "the ledger knows nothing of %d paid answers, though it had accepted their jobs: it lost its last commits. Batches: %s. "
        "The answers are kept in %s; submit the batches again (the same keys), see docs/failures.md",
        len(lost),
        ", ".join(batches_of(lost)),
        path,
    )


def batches_of(rows: Sequence[ClosedAttempt]) -> list[str]:
    """The batches of answers, as far as they are known."""
    return sorted({str(row.opening.batch_id) if row.opening is not None else "unknown" for row in rows})


def read_answers(path: Path) -> tuple[list[ClosedAttempt], int]:
    """Returns the answers of a segment, and the number of lines that this version can't read."""
    rows: list[ClosedAttempt] = []
    unreadable = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    rows.append(_ENTRY.validate_json(line))
                except ValidationError as error:
                    # Without the values, which are a person's.
                    log.error("line %d of the spool %s can't be read and is left out: %s", number, path, cause(error))  # noqa: TRY400
                    # A crash cut off a line without its end before any promise about it.
                    unreadable += line.endswith(b"\n")
    except OSError as error:
        log.error("the rest of the spool %s can't be read: %s", path, error)  # noqa: TRY400
        unreadable += 1
    return rows, unreadable


async def write_answers(attempts: PostgresAttempts, rows: Sequence[ClosedAttempt], on_lost: OnLost) -> int:
    """Writes answers into the ledger; returns the number that could not be written for a defect of ours."""
    pages = [rows[at : at + REPLAY_ROWS] for at in range(0, len(rows), REPLAY_ROWS)]
    return sum([await _close(attempts, [_without_lease(row) for row in page], on_lost) for page in pages])


def _without_lease(row: ClosedAttempt) -> ClosedAttempt:
    """The same end for a job that nobody holds any more: it would wait for its lease to run out."""
    if row.then is None or row.then.state is not JobState.RUNNING:
        return row
    return replace(row, then=replace(row.then, state=JobState.AVAILABLE))


async def _close(attempts: PostgresAttempts, rows: Sequence[ClosedAttempt], on_lost: OnLost) -> int:
    try:
        await attempts.close_attempts(rows, on_lost)
    except Unstorable as error:
        if len(rows) == 1:
            log.exception("the answer of attempt %s can't be stored", rows[0].id)
            return 1 if rows[0].answer is None else await _close(attempts, [_without_answer(rows[0], error)], on_lost)
    except NightdeskError:
        raise
    except Exception:
        if len(rows) == 1:
            log.exception("the answer of attempt %s could not be written", rows[0].id)
            return 1
    else:
        return 0
    return sum([await _close(attempts, [row], on_lost) for row in rows])


def _without_answer(row: ClosedAttempt, error: Unstorable) -> ClosedAttempt:
    """The end of an attempt with a paid but unstorable answer: its cost is recorded, its job stays in its step."""
    failure = Failure(kind=FailureKind.UNSTORABLE, message=str(error), at=datetime.now(UTC))
    return replace(row, outcome=f"error:{failure.kind.value}", spent=True, failure=failure, answer=None, then=None)
