"""Writes results as JSON lines: one per line of input, in its order; and the claims that judges decided, as rows."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any
from uuid import UUID

import orjson

from schemas.claim_error import ErrorKind
from schemas.failure import Failure, FailureKind
from schemas.grounding import Claim
from schemas.job import JobRequest
from schemas.record import JobResult
from schemas.states import FINAL_STATES, JobState, Outcome
from tasks.answers.texts import INVALID
from tasks.ports import InputLine, JobView, Refused, Repeated, ResultLine, StoredResult
from worker.ledger.postgres import PostgresLedger
from worker.ledger.views import PostgresReading
from worker.operations.file_form import FileForm
from worker.operations.row_files import JOB_COLUMNS, RESULT_COLUMNS, failed_row, result_row, writing_rows

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
        with writing_rows(file, form, RESULT_COLUMNS) as write:

            def write_page(contents: Sequence[bytes]) -> None:
                for content in contents:
                    write(result_row(content))

            yield write_page


async def write_failed(
    file: IO[bytes], ledger: PostgresLedger, batch_id: UUID, form: FileForm = FileForm.JSONL
) -> Tally:
    """Writes the jobs of a batch that ended without an answer, as rows of input with the reason."""
    tally = Tally()
    with writing_rows(file, form, JOB_COLUMNS) as write:
        async for view in ledger.reading.batch_views(batch_id):
            if (row := failed_row(view)) is not None:
                write(row)
                tally.lines += 1
                tally.states[view.state.value] += 1
    return tally


@dataclass(frozen=True, slots=True)
class Wish:
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


async def result_lines(ledger: PostgresLedger, batch_id: UUID, wish: Wish = ALL) -> AsyncIterator["ResultLine"]:
    """The results of a batch as they stand now, one by one."""
    count = 0
    async for line in _Results(ledger, batch_id, None, wish.after).lines(None):
        if wish.matches(line):
            yield line
            count += 1
            if count == wish.limit:
                return


async def job_lines(ledger: PostgresLedger, job_ids: Sequence[UUID]) -> list["ResultLine"]:
    """The results of some jobs as they stand now, in this order."""
    by_id = {stored.result.job_id: stored for stored in await ledger.reading.results(job_ids)}
    return [_of_job(by_id[job_id], by_id[job_id].result.position) for job_id in job_ids if job_id in by_id]


async def stream_results(ledger: PostgresLedger, batch_id: UUID, wish: Wish = ALL) -> AsyncIterator[bytes]:
    """The results of a batch as they stand now, as pieces of JSON lines of some hundred kilobytes."""
    piece = bytearray()
    async for line in result_lines(ledger, batch_id, wish):
        piece += line.content + b"\n"
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


@dataclass(frozen=True, slots=True)
class _Results:
    ledger: PostgresLedger
    batch_id: UUID | None
    result: Callable[[JobView], JobResult] | None
    after: int = -1
    """Position of the last line before those wanted."""

    async def lines(self, extra: Iterable[InputLine] | None) -> AsyncIterator[ResultLine]:
        """By position: the jobs of the batch, and the ``extra`` lines of its input."""
        async for page in self.pages(extra):
            for line in page:
                yield line

    async def pages(self, extra: Iterable[InputLine] | None) -> AsyncIterator[list[ResultLine]]:
        """The same as pages, none of them empty."""
        extra_lines = self._extra_lines(extra)
        next_extra = await anext(extra_lines, None)
        if self.batch_id is not None:
            async for page in self._of_batch(self.ledger.reading, self.batch_id):
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
        async for page in self._pages(extra):
            ids = [line.job_id for line in page if isinstance(line, Repeated)]
            results = await self._of_jobs(self.ledger.reading, ids) if ids else {}
            for line in page:
                if isinstance(line, Refused):
                    yield self._of_refused(line)
                elif (stored := results.get(line.job_id)) is not None:
                    yield _of_job(stored, line.position)

    def _of_batch(self, reading: PostgresReading, batch_id: UUID) -> AsyncIterator[list[ResultLine]]:
        return (
            reading.batch_results(batch_id, self.after)
            if self.result is None
            else self._rendered(reading, batch_id, self.result)
        )

    async def _rendered(
        self, reading: PostgresReading, batch_id: UUID, render: Callable[[JobView], JobResult]
    ) -> AsyncIterator[list[ResultLine]]:
        # A new rendering needs the sources and the messages.
        async for view in reading.batch_views(batch_id):
            yield [_render(view, render).line()]

    async def _of_jobs(self, reading: PostgresReading, ids: Sequence[UUID]) -> dict[UUID, StoredResult]:
        if self.result is None:
            stored_results = await reading.results(ids)
        else:
            stored_results = [_render(view, self.result) for view in await reading.views(ids)]
        return {stored.result.job_id: stored for stored in stored_results}

    async def _pages(self, extra: Iterable[InputLine] | None) -> AsyncIterator[list[InputLine]]:
        page: list[InputLine] = []
        async for line in self._listed(extra):
            page.append(line)
            if len(page) == PAGE:
                yield page
                page = []
        yield page

    async def _listed(self, extra: Iterable[InputLine] | None) -> AsyncIterator[InputLine]:
        if extra is not None:
            for line in extra:
                yield line
        elif self.ledger is not None and self.batch_id is not None:
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


def _render(view: JobView, render: Callable[[JobView], JobResult]) -> StoredResult:
    grounding = view.record.grounding if view.record is not None else None
    return StoredResult(render(view), grounding.errors if grounding is not None else {})


def _of_job(stored: StoredResult, position: int) -> ResultLine:
    result = stored.result
    if position != result.position:
        # The line repeats a job by its idempotency key; its place in this output is what a reader goes by.
        warning = f"the same job was handed in before, as number {result.position} of batch {result.batch_id}"
        result = result.model_copy(update={"position": position, "warnings": (*result.warnings, warning)})
    return StoredResult(result, stored.errors).line(position)


def judged_rows(view: JobView) -> Iterator[dict[str, Any]]:
    """A row for each claim of a final job that a judge decided: claim, evidence, verdict, probability, judge.

    ``reused_from`` is the attempt of a cached verdict; None: the judge was called for this job.

    The claim is quoted from the response, the evidence from the sources, best first; none where neither the judge nor
    the lexical layer found a place. Verdict and probability are those of all layers; the judge's own are in
    ``judge_verdict`` and ``judge_probability``, the probability without it in ``before``, and the versions of the other
    layers in ``lexical`` and ``local``. With a ``label`` added, ``nightdesk calibrate`` takes a row.
    """
    grounding = view.record.grounding if view.record is not None else None
    if grounding is None:
        return
    for claim in grounding.claims:
        if claim.checker == "judge":
            yield {
                "claim": claim.text,
                "evidence": _quotes(claim, view.request),
                "verdict": claim.verdict.value,
                "probability": claim.score,
                "judge": grounding.checkers.get("judge"),
                "judge_verdict": claim.judge.verdict.value if claim.judge else None,
                "judge_probability": claim.judge.probability if claim.judge else None,
                "before": claim.judge.before if claim.judge else None,
                "lexical": grounding.checkers.get("lexical"),
                "local": grounding.checkers.get("local"),
                "reused_from": str(claim.reused_from.attempt_id) if claim.reused_from else None,
                "job_id": str(view.job_id),
                "run": view.run,
            }


def _quotes(claim: Claim, request: JobRequest) -> list[str]:
    return [request.context[span.source_index].content[span.start : span.end] for span in claim.evidence]
