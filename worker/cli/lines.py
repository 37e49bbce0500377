"""Makes the lines of an output file: one result per line of input, in the order of the input."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import IO
from uuid import UUID

import orjson

from schemas.failure import Failure, FailureKind
from schemas.record import JobResult
from schemas.states import FINAL_STATES, JobState
from tasks.answers.texts import INVALID
from tasks.ports import InputLine, JobView, Ledger, Refused, Repeated
from tasks.results import result_of

FETCHED = 200
"""Jobs of other batches read at a time."""

_NO_ID = UUID(int=0)


@dataclass(slots=True)
class Tally:
    """What was written."""

    lines: int = 0
    states: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)

    @property
    def all_well(self) -> bool:
        """Whether every line holds a job that completed."""
        return self.lines == self.states[JobState.COMPLETED.value]

    @property
    def final(self) -> int:
        """Lines whose job can change no more."""
        return sum(self.states[state.value] for state in FINAL_STATES)


@dataclass(frozen=True, slots=True)
class _Line:
    position: int
    state: str
    held: str | None
    content: bytes


async def write_results(
    file: IO[bytes],
    ledger: Ledger | None,
    batch_id: UUID | None,
    lines: Iterable[InputLine] | None = None,
    result: Callable[[JobView], JobResult] = result_of,
) -> Tally:
    """Write one result for each line of a batch's input, as they stand now.

    Args:
        file: gets a line of JSON for each.
        ledger: open; None where nothing was submitted, and there are only refused lines.
        batch_id: the batch; None where each job stands in another one.
        lines: those that are no jobs of the batch, by position; None: as the ledger has them.
        result: makes the result of a job.
    """
    tally = Tally()
    others = _stored(ledger, batch_id) if lines is None else _listed(lines)
    async for line in _merged(ledger, batch_id, others, result):
        file.write(line.content + b"\n")
        tally.lines += 1
        tally.states[line.state] += 1
        if line.held is not None:
            tally.held[line.held] += 1
    return tally


async def _stored(ledger: Ledger | None, batch_id: UUID | None) -> AsyncIterator[InputLine]:
    if ledger is not None and batch_id is not None:
        async for line in ledger.reading.input_lines(batch_id):
            yield line


async def _listed(lines: Iterable[InputLine]) -> AsyncIterator[InputLine]:
    for line in lines:
        yield line


async def _merged(
    ledger: Ledger | None,
    batch_id: UUID | None,
    others: AsyncIterator[InputLine],
    result: Callable[[JobView], JobResult],
) -> AsyncIterator[_Line]:
    """By position: the jobs of the batch, and the other lines of its input."""
    rendered = _rendered(ledger, batch_id, others, result)
    other = await anext(rendered, None)
    if ledger is not None and batch_id is not None:
        async for view in ledger.reading.batch_views(batch_id):
            while other is not None and other.position < view.position:
                yield other
                other = await anext(rendered, None)
            yield _of_job(view, view.position, result)
    while other is not None:
        yield other
        other = await anext(rendered, None)


async def _rendered(
    ledger: Ledger | None,
    batch_id: UUID | None,
    others: AsyncIterator[InputLine],
    result: Callable[[JobView], JobResult],
) -> AsyncIterator[_Line]:
    page: list[InputLine] = []
    while True:
        other = await anext(others, None)
        if other is not None:
            page.append(other)
            if len(page) < FETCHED:
                continue
        ids = [line.job_id for line in page if isinstance(line, Repeated)]
        views = {view.job_id: view for view in await ledger.reading.views(ids)} if ledger is not None and ids else {}
        for line in page:
            if isinstance(line, Refused):
                yield _of_refused(line, batch_id)
            elif (view := views.get(line.job_id)) is not None:
                yield _of_job(view, line.position, result)
        if other is None:
            return
        page = []


def _of_job(view: JobView, position: int, made: Callable[[JobView], JobResult]) -> _Line:
    result = made(view)
    if position != view.position:
        # The line repeats a job by its idempotency key; its place in this output is what a reader goes by.
        told = f"the same job was handed in before, as number {view.position} of batch {view.batch_id}"
        result = result.model_copy(update={"position": position, "warnings": (*result.warnings, told)})
    return _Line(position, view.state.value, view.held_reason, result.model_dump_json().encode())


def _of_refused(line: Refused, batch_id: UUID | None) -> _Line:
    """A refused line in the form of a result; it has no job, so no job id."""
    result = JobResult(
        job_id=_NO_ID,
        custom_id=line.custom_id,
        position=line.position,
        batch_id=batch_id or _NO_ID,
        state=JobState.FAILED,
        response=INVALID,
        reasoning=str(line),
        failure=Failure(kind=FailureKind.INVALID_REQUEST, message=str(line)),
    ).model_dump(mode="json")
    result["job_id"] = None
    result["batch_id"] = str(batch_id) if batch_id else None
    return _Line(line.position, JobState.FAILED.value, None, orjson.dumps(result))
