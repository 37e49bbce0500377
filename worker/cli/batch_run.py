"""Takes a batch of a command towards its results: submit, wait, write; each command does the steps that it is for."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.record import JobResult
from tasks.ports import InputLine, JobView, Refused, Repeated
from worker.cli.outfile import is_replaced, keep_previous, writing
from worker.cli.terminal import warn
from worker.cli.waiting import Watch
from worker.operations.file_form import FileForm
from worker.operations.result_lines import Tally, write_results

if TYPE_CHECKING:
    # Commands that submit nothing do without: it brings the reading of inputs along.
    from worker.operations.file_submission import Accepted, Submission

MOST_WARNINGS = 20
"""Faults of refused lines that are warned of; the output lists them all."""
MOST_PLACES = 5
"""Lines named of those with the same fault."""


@dataclass(slots=True)
class BatchRun:
    """A batch on its way through a command."""

    watch: Watch
    batch_id: UUID | None = None
    """None: every job is in another batch."""
    lines: Sequence[InputLine] | None = None
    """Those of the input that are no jobs of the batch; None: as the ledger has them."""
    force: bool = False
    """Replace results of another batch."""

    async def submit(self, submission: "Submission") -> "Accepted":
        """Writes the files into the ledger."""
        refused = submission.intake.refused
        before = len(refused)
        try:
            accepted = await submission.write(self.watch.ledger, self.watch.reporter.submitting)
        finally:
            warn_of(refused[before:])
        self.batch_id, self.lines = accepted.batch_id, accepted.input_lines
        return accepted

    async def input_lines(self) -> Sequence[InputLine]:
        """The lines of the input that are no jobs of the batch."""
        batch_id = self.batch_id
        if self.lines is None and batch_id is not None:

            async def read() -> list[InputLine]:
                return [line async for line in self.watch.ledger.reading.input_lines(batch_id)]

            self.lines = await self.watch.patiently(read)
        return self.lines or ()

    async def wait(self) -> BatchStatus | None:
        """Waits until no job of the input can move by itself; returns the status of the batch, if there is one."""
        elsewhere = [line.job_id for line in await self.input_lines() if isinstance(line, Repeated)]
        if self.batch_id is not None:
            return await self.watch.wait_for_batch(self.batch_id, elsewhere)
        await self.watch.wait_for_jobs(elsewhere)
        return None

    def keep(self, path: Path) -> None:
        """Keeps a file of anything else beside, unless it is to be replaced."""
        if not self.force:
            keep_previous(path, self.batch_id)

    async def write(
        self,
        output: str,
        result: Callable[[JobView], JobResult] | None = None,
        form: FileForm = FileForm.JSONL,
    ) -> Tally:
        """Writes the results; a file from its beginning when the ledger goes away meanwhile."""
        if not is_replaced(output):
            self.watch.reporter.end()

        async def write() -> Tally:
            with writing(output, self.batch_id, force=self.force) as file:
                return await write_results(file, self.watch.ledger, self.batch_id, self.lines, result, form=form)

        return await (self.watch.patiently(write) if is_replaced(output) else write())


def warn_of(refused: Iterable[Refused]) -> None:
    """Warns of each fault once, with the number of lines that have it and the first of these."""
    faults: dict[tuple[str, str], list[Refused]] = {}
    for line in refused:
        faults.setdefault(((line.place or "").rpartition(" ")[0], line.message), []).append(line)
    for (kind, message), lines in list(faults.items())[:MOST_WARNINGS]:
        numbers = ", ".join((line.place or "").rpartition(" ")[2] for line in lines[:MOST_PLACES])
        more = ", ..." if len(lines) > MOST_PLACES else ""
        noun = kind.rpartition(" ")[2]
        warn(f"{kind}s {numbers}{more} ({len(lines):,} {noun}s): {message}" if len(lines) > 1 else str(lines[0]))
    if len(faults) > MOST_WARNINGS:
        warn("more are refused, for other reasons")
