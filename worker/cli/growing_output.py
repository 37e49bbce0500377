"""Writes results into the output file while their batch runs, in the order in which they come."""

import io
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from worker.cli.outfile import STDOUT, draft_of
from worker.ledger.postgres import PostgresLedger
from worker.operations.file_form import FileForm
from worker.operations.result_lines import job_lines, page_writer

EVERY_S = 5.0
"""Seconds between two looks for new results; a shorter run writes its file at the end alone."""

OVERLAP = timedelta(seconds=30)
"""A result may be committed so long after the moment that it bears."""

PAGE = 200
"""Results read and written at a time."""


def grows(output: str, form: FileForm) -> bool:
    """Tells an output that can be appended to: a file of lines or rows that is not packed."""
    path = Path(output)
    return (
        output != STDOUT
        and path.suffix != ".gz"
        and form is not FileForm.PARQUET
        and (path.is_file() or not path.exists())
    )


def place_of(output: str) -> Path:
    """The file itself: through a link to what it names."""
    return Path(output).resolve()


@dataclass(slots=True)
class GrowingOutput:
    """A file of the results so far; the file of the whole batch, in order, takes its place at the end.

    It is written anew from the ledger, so a run that goes on with a batch writes nothing twice, and it takes its name once it
    holds all results that were there when it began.
    """

    path: Path
    form: FileForm
    batch_id: UUID
    before: Callable[[Path], object]
    """Called before the file takes its name."""
    warn: Callable[[str], None]
    results: int = 0
    _after: tuple[datetime, UUID] | None = None
    _positions: bytearray = field(default_factory=bytearray)
    """For each position, whether it was written."""
    _open: ExitStack = field(default_factory=ExitStack)
    _file: int | None = None
    _buffer: io.BytesIO = field(default_factory=io.BytesIO)
    _write: Callable[[Sequence[bytes]], object] | None = None
    _named: bool = False
    _broken: bool = False
    _next_at: float = field(default_factory=lambda: time.monotonic() + EVERY_S)

    async def update(self, ledger: PostgresLedger) -> None:
        """Appends the results that came since the last look; a file that can't be written is warned of once."""
        if self._broken or time.monotonic() < self._next_at:
            return
        try:
            await self._append_all(ledger)
            if self.results and not self._named:
                self.before(self.path)
                draft_of(self.path).replace(self.path)
                self._named = True
        except OSError as error:
            self._broken = True
            self.warn(f"{self.path} can't be written while the run goes on: {error}; it is tried again at the end")
        self._next_at = time.monotonic() + EVERY_S

    def close(self) -> None:
        """Ends the file as it is; a draft without a name goes."""
        self._open.close()
        if self._file is not None:
            os.close(self._file)
            self._file = None
            if not self._named:
                draft_of(self.path).unlink(missing_ok=True)

    async def _append_all(self, ledger: PostgresLedger) -> None:
        if self._after is not None:
            self._after = (self._after[0] - OVERLAP, UUID(int=0))
        while page := await ledger.browsing.ended(self.batch_id, self._after, PAGE):
            fresh = [row for row in page if not self._positions[row.position : row.position + 1].count(1)]
            await self._append(ledger, [row.id for row in fresh])
            for row in fresh:
                self._positions.extend(bytes(max(0, row.position + 1 - len(self._positions))))
                self._positions[row.position] = 1
            self._after = page[-1].finished_at, page[-1].id
            if len(page) < PAGE:
                break

    async def _append(self, ledger: PostgresLedger, job_ids: Sequence[UUID]) -> None:
        if not job_ids:
            return
        lines = await job_lines(ledger, job_ids)
        if self._file is None:
            self._file = os.open(draft_of(self.path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            self._write = self._open.enter_context(page_writer(self._buffer, self.form))
        assert self._write is not None
        self._write([line.content for line in lines])
        # All of it in one call, so that a run that is killed leaves whole lines.
        content = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        end = os.lseek(self._file, 0, os.SEEK_CUR)
        try:
            while content:
                content = content[os.write(self._file, content) :]
        except OSError:
            # Half a line is worse than none.
            os.ftruncate(self._file, end)
            raise
        self.results += len(lines)
