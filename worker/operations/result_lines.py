"""Writes results as JSON lines: one per line of input, in its order."""

import io
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, NamedTuple
from uuid import UUID

import orjson

from schemas.claim_error import ErrorKind
from schemas.failure import Failure, FailureKind
from schemas.record import JobResult
from schemas.states import FINAL_STATES, JobState, Outcome
from tasks.answers.texts import INVALID
from tasks.ports import InputLine, JobView, Refused, Repeated, ResultLine, StoredResult
from worker.ledger.pages import in_pages
from worker.ledger.postgres import PostgresLedger
from worker.operations.file_form import FileForm
from worker.operations.row_files import result_row, writing_rows

PAGE = 200
"""Lines read at a time whose jobs stand in other batches."""

PIECE_BYTES = 256_000
"""Least size of a piece of a stream of results, but for the last."""

_NO_ID = UUID(int=0)


@dataclass(slots=True)
class Tally:
    """Counts of the lines that were written."""

    lines: int = 0
    states: Counter[str] = field(default_factory=Counter)
    errors: Counter[ErrorKind] = field(default_factory=Counter)

    def add(self, page: Sequence[ResultLine]) -> None:
        """Counts lines."""
        self.lines += len(page)
        self.states.update([line.state for line in page])
        for errors in [line.errors for line in page if line.errors]:
            self.errors.update(errors)

    @property
    def error_kinds(self) -> dict[str, int]:
        """Claims by the kind of their error, most frequent first."""
        return {kind.value: count for kind, count in sorted(self.errors.items(), key=lambda each: (-each[1], each[0]))}

    @property
    def waiting(self) -> int:
        """Jobs that are not final: held, or under way."""
        return sum(self.states[state.value] for state in JobState if state not in FINAL_STATES)

    @property
    def all_well(self) -> bool:
        """Tells that every line holds a job that completed."""
        return self.lines == self.states[JobState.COMPLETED.value]


async def write_results(
    file: IO[bytes],
    ledger: PostgresLedger,
    batch_id: UUID | None,
    lines: Iterable[InputLine] | None = None,
    result: Callable[[JobView], JobResult] | None = None,
    *,
    form: FileForm = FileForm.JSONL,
) -> Tally:
    """Writes one result for each line of a batch's input, as they stand now.

    Args:
        file: gets a line of JSON for each.
        ledger: open.
        batch_id: the batch; None where each job is in another one.
        lines: those that are no jobs of the batch, by position; None: as the ledger has them.
        result: makes the result of a job anew; None: as it is stored.
        form: of the file.
    """
    tally = Tally()
    with page_writer(file, form) as write:
        async for page in _Results(ledger, batch_id, result).pages(lines):
            write([line.content for line in page])
            tally.add(page)
    return tally


@contextmanager
def page_writer(file: IO[bytes], form: FileForm) -> Iterator[Callable[[Sequence[bytes]], object]]:
    """A function that writes results, which come as JSON, to a file of this form."""
    if form is FileForm.JSONL:
        # As they are: they need not be read for that.
        yield lambda contents: file.write(b"\n".join([*contents, b""]))
    else:
        with writing_rows(file, form) as write:

            def write_page(contents: Sequence[bytes]) -> None:
                for content in contents:
                    write(result_row(content))

            yield write_page


class Wish(NamedTuple):
    """Which results of a batch a reader wants: those that meet all that is named."""

    state: JobState | None = None
    outcome: Outcome | None = None
    after: int = -1
    """Position of the last line that the reader has."""
    limit: int | None = None
    """Most lines, at least 1."""

    def matches(self, line: ResultLine) -> bool:
        """Tells whether a line is wanted, by its state and its outcome."""
        if self.state is not None and line.state != self.state.value:
            return False
        return self.outcome is None or orjson.loads(line.content)["outcome"] == self.outcome.value


ALL = Wish()


async def result_lines(ledger: PostgresLedger, batch_id: UUID, wish: Wish = ALL) -> AsyncIterator[ResultLine]:
    """The results of a batch as they stand now, one by one."""
    count = 0
    async for page in _Results(ledger, batch_id, after=wish.after).pages():
        for line in page:
            if wish.matches(line):
                yield line
                count += 1
                if count == wish.limit:
                    return


async def stream_results(
    ledger: PostgresLedger, batch_id: UUID, wish: Wish = ALL, form: FileForm = FileForm.JSONL
) -> AsyncIterator[bytes]:
    """The results of a batch as they stand now, as pieces of a file of some hundred kilobytes."""
    pieces = _Pieces()
    with page_writer(pieces, form) as write:
        async for line in result_lines(ledger, batch_id, wish):
            write([line.content])
            if pieces.waiting >= PIECE_BYTES:
                yield pieces.take()
    if pieces.waiting:
        yield pieces.take()


class _Pieces(io.BytesIO):
    """A file that hands out what was written: its place goes on, its content does not stay."""

    _total = 0

    @property
    def waiting(self) -> int:
        return super().tell()

    def tell(self) -> int:
        return self._total + super().tell()

    def take(self) -> bytes:
        piece = self.getvalue()
        self._total += len(piece)
        self.seek(0)
        self.truncate()
        return piece

    def close(self) -> None:
        """Stays open for the last piece; the writer of Parquet closes what it was given."""


class _Results(NamedTuple):
    ledger: PostgresLedger
    batch_id: UUID | None
    result: Callable[[JobView], JobResult] | None = None
    after: int = -1
    """Position of the last line before those wanted."""

    async def pages(self, extra: Iterable[InputLine] | None = None) -> AsyncIterator[list[ResultLine]]:
        """By position: the jobs of the batch, and the ``extra`` lines of its input; no page is empty."""
        extra_lines = self._extra_lines(extra)
        next_extra = await anext(extra_lines, None)
        if self.batch_id is not None:
            async for page in self._of_batch(self.batch_id):
                between: list[ResultLine] = []
                while next_extra is not None and next_extra.position < page[-1].position:
                    if next_extra.position < page[0].position:
                        yield [next_extra]
                    else:
                        between.append(next_extra)
                    next_extra = await anext(extra_lines, None)
                yield sorted([*page, *between], key=lambda line: line.position) if between else page
        while next_extra is not None:
            yield [next_extra]
            next_extra = await anext(extra_lines, None)

    async def _extra_lines(self, extra: Iterable[InputLine] | None) -> AsyncIterator[ResultLine]:
        async for page in in_pages(self._listed(extra), PAGE):
            results = await self._of_jobs([line.job_id for line in page if isinstance(line, Repeated)])
            for line in page:
                if isinstance(line, Refused):
                    yield self._of_refused(line)
                elif (stored := results.get(line.job_id)) is not None:
                    yield _of_job(stored, line.position)

    async def _of_batch(self, batch_id: UUID) -> AsyncIterator[list[ResultLine]]:
        reading = self.ledger.reading
        if self.result is None:
            async for page in reading.batch_results(batch_id, self.after):
                yield page
        else:
            # A new rendering needs the sources and the messages.
            async for view in reading.batch_views(batch_id):
                yield [StoredResult.of(view, self.result(view)).line()]

    async def _of_jobs(self, ids: Sequence[UUID]) -> dict[UUID, StoredResult]:
        reading = self.ledger.reading
        if self.result is None:
            stored_results = await reading.results(ids)
        else:
            stored_results = [StoredResult.of(view, self.result(view)) for view in await reading.views(ids)]
        return {stored.result.job_id: stored for stored in stored_results}

    async def _listed(self, extra: Iterable[InputLine] | None) -> AsyncIterator[InputLine]:
        for line in extra or ():
            yield line
        if extra is None and self.batch_id is not None:
            async for line in self.ledger.reading.input_lines(self.batch_id, self.after):
                yield line

    def _of_refused(self, line: Refused) -> ResultLine:
        """A refused line in the form of a result; it has no job, so no job id."""
        result = JobResult(
            job_id=_NO_ID,
            custom_id=line.custom_id,
            position=line.position,
            batch_id=self.batch_id or _NO_ID,
            state=JobState.FAILED,
            response=INVALID,
            reasoning=str(line),
            failure=Failure(kind=FailureKind.INVALID_REQUEST, message=str(line)),
        ).model_dump(mode="json")
        result["job_id"] = None
        result["batch_id"] = str(self.batch_id) if self.batch_id else None
        return ResultLine(line.position, JobState.FAILED.value, orjson.dumps(result), {})


def _of_job(stored: StoredResult, position: int) -> ResultLine:
    result = stored.result
    if position != result.position:
        # The line repeats a job by its idempotency key; its place in this output is what a reader goes by.
        warning = f"the same job was handed in before, as number {result.position} of batch {result.batch_id}"
        result = result.model_copy(update={"position": position, "warnings": (*result.warnings, warning)})
    return StoredResult(result, stored.errors).line(position)
