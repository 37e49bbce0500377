"""Makes the lines of an output file: one result per line of input, in the order of the input."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import IO
from uuid import UUID

import orjson

from schemas.failure import Failure, FailureKind
from schemas.record import JobResult
from schemas.states import FINAL_STATES, JobState
from tasks.answers.texts import INVALID
from tasks.ports import JobView, Ledger
from tasks.results import result_of
from worker.cli.intake import BadLine
from worker.cli.notes import Notes

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
    notes: Notes,
    result: Callable[[JobView], JobResult] = result_of,
) -> Tally:
    """Write all results of a batch as they stand now, the refused lines among them.

    Without a ledger and a batch there are only refused lines. ``result`` makes the result of a job.
    """
    tally = Tally()
    async for line in _merged(ledger, batch_id, notes, result):
        file.write(line.content + b"\n")
        tally.lines += 1
        tally.states[line.state] += 1
        if line.held is not None:
            tally.held[line.held] += 1
    return tally


async def _merged(
    ledger: Ledger | None, batch_id: UUID | None, notes: Notes, result: Callable[[JobView], JobResult]
) -> AsyncIterator[_Line]:
    """By position: what the batch holds, and what it does not."""
    others = _others(ledger, batch_id, notes, result)
    other = await anext(others, None)
    if ledger is not None and batch_id is not None:
        async for view in ledger.batch_views(batch_id):
            while other is not None and other.position < view.position:
                yield other
                other = await anext(others, None)
            yield _of_job(view, view.position, result)
    while other is not None:
        yield other
        other = await anext(others, None)


async def _others(
    ledger: Ledger | None, batch_id: UUID | None, notes: Notes, result: Callable[[JobView], JobResult]
) -> AsyncIterator[_Line]:
    bad = {line.position: line for line in notes.bad}
    positions = sorted([*bad, *notes.elsewhere])
    for at in range(0, len(positions), FETCHED):
        chunk = positions[at : at + FETCHED]
        ids = [notes.elsewhere[position] for position in chunk if position in notes.elsewhere]
        views = {view.job_id: view for view in await ledger.views(ids)} if ledger is not None and ids else {}
        for position in chunk:
            if position in bad:
                yield _of_bad(bad[position], batch_id)
            elif (view := views.get(notes.elsewhere[position])) is not None:
                yield _of_job(view, position, result)


def _of_job(view: JobView, position: int, made: Callable[[JobView], JobResult]) -> _Line:
    result = made(view)
    if position != view.position:
        # The line repeats a job by its idempotency key; its place in this output is what a reader goes by.
        told = f"the same job was handed in before, as number {view.position} of batch {view.batch_id}"
        result = result.model_copy(update={"position": position, "warnings": (*result.warnings, told)})
    return _Line(position, view.state.value, view.held_reason, result.model_dump_json().encode())


def _of_bad(bad: BadLine, batch_id: UUID | None) -> _Line:
    """A refused line in the form of a result; it has no job, so no job id."""
    result = JobResult(
        job_id=_NO_ID,
        custom_id=bad.custom_id,
        position=bad.position,
        batch_id=batch_id or _NO_ID,
        state=JobState.FAILED,
        response=INVALID,
        reasoning=str(bad),
        failure=Failure(kind=FailureKind.INVALID_REQUEST, message=str(bad)),
    ).model_dump(mode="json")
    result["job_id"] = None
    result["batch_id"] = str(batch_id) if batch_id else None
    return _Line(bad.position, JobState.FAILED.value, None, orjson.dumps(result))
