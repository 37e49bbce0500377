"""Takes a batch from its files to its results: submit, wait, write, with workers for as long as that lasts."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.states import HeldReason
from tasks.errors import ServiceUnavailable
from tasks.ports import InputLine, Ledger, Refused, Repeated
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK
from worker.cli.interrupts import run_interruptible
from worker.cli.lines import Tally, write_results
from worker.cli.messages import tell, warn
from worker.cli.outfile import check_output, is_replaced, writing
from worker.cli.progress import Silent, progress
from worker.cli.session import Session, session
from worker.cli.submitting import Submission
from worker.cli.waiting import LaneWatch, Watch, patiently, wait_for_jobs, wait_until_final
from worker.ledger.database import HOT_S
from worker.ledger.fleet import LaneNotice
from worker.local import LocalServerError
from worker.settings import Settings

Afterwards = Callable[[Ledger, UUID], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Order:
    """What a run is to do."""

    output: str
    files: list[str] = field(default_factory=list)
    said: dict[str, Any] = field(default_factory=dict)
    """Of the batch: name, key, ceiling, defaults."""
    resume: UUID | None = None
    """A batch to go on with, instead of files."""
    strict: bool = False
    quiet: bool = False
    with_workers: bool = True
    check_only: bool = False
    """Each line holds an answer: nothing is generated, and only workers that check are needed."""
    afterwards: Afterwards | None = None
    """Done with the ledger still open, when all is written."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run."""

    batch_id: UUID | None
    status: BatchStatus | None
    tally: Tally
    lines: Sequence[InputLine]
    """Those that are no jobs of the batch."""
    seconds: float
    lanes: tuple[LaneNotice, ...] = ()
    """Those without calls at the end, while jobs are held for it."""

    @property
    def exit_code(self) -> int:
        """See ``exits``."""
        if self.batch_id is None and not any(isinstance(line, Repeated) for line in self.lines):
            return BAD_INPUT
        return OK if self.tally.all_well else INCOMPLETE

    @property
    def refused(self) -> list[Refused]:
        """The lines that are no valid jobs."""
        return [line for line in self.lines if isinstance(line, Refused)]


@dataclass(slots=True)
class _Course:
    """How far a run has come, for whoever has to explain its end."""

    order: Order
    submission: Submission | None
    batch_id: UUID | None = None

    def how_to_go_on(self) -> str:
        """What becomes of the jobs, and the command that takes the run up again."""
        if self.batch_id is not None:
            return (
                f"The jobs of batch {self.batch_id} stay in the ledger, those that are done too. Go on with: "
                f"nightdesk run --resume {self.batch_id} -o {self.order.output}"
            )
        if self.submission is not None and self.submission.receipt is not None:
            return "The jobs stay in the ledger, those that are done too. The same command finds them again."
        if self.submission is not None:
            return f"Nothing was submitted, unless 'nightdesk status {self.submission.batch.id}' knows of it."
        return ""


def run_batch(settings: Settings, order: Order) -> Report:
    """Do a run from start to finish.

    Raises: what its parts raise, see ``exits``; KeyboardInterrupt after saying how to go on.
    """
    began = time.monotonic()
    check_output(order.output, order.files)
    submission = None
    if order.resume is None:
        submission = Submission(
            order.files,
            order.said,
            settings,
            strict=order.strict,
            check_only=order.check_only,
            with_workers=order.with_workers,
        )
        if submission.empty:
            return _nothing_valid(order, submission, began)
    course = _Course(order, submission, order.resume)
    with session(settings, writes=submission is not None, staffs=order.with_workers) as desk:
        try:
            with progress(quiet=order.quiet) as told:
                return run_interruptible(_run(desk, course, told, began))
        except KeyboardInterrupt:
            tell(f"Interrupted. {course.how_to_go_on()}")
            raise
        except (ServiceUnavailable, LocalServerError):
            tell(course.how_to_go_on())
            raise


def _nothing_valid(order: Order, submission: Submission, began: float) -> Report:
    lines = submission.intake.bad
    with writing(order.output) as file:
        tally = run_interruptible(write_results(file, None, None, lines))
    warn(f"none of {tally.lines} lines holds a valid job; nothing was submitted")
    return Report(None, None, tally, lines, time.monotonic() - began)


async def _run(desk: Session, course: _Course, told: Silent, began: float) -> Report:
    order = course.order
    watch = Watch(desk, told.note, check_only=order.check_only)
    async with desk.ledger(statement_s=HOT_S) as ledger:
        if course.submission is not None:
            if order.with_workers:
                # They take a second to start; meanwhile the jobs are submitted.
                watch.staff()
            lines = await _submit(desk, ledger, course, told)
        else:
            assert course.batch_id is not None
            lines = await patiently(desk, told, partial(_input_lines, ledger, course.batch_id))
            found = await patiently(desk, told, partial(ledger.reading.batch_status, course.batch_id))
            if order.with_workers and found.final < found.jobs:
                watch.staff()
        batch_id = course.batch_id
        watch.lanes = LaneWatch(ledger.fleet.lane_notices, told.note)
        status: BatchStatus | None = None
        elsewhere = [line.job_id for line in lines if isinstance(line, Repeated)]
        if batch_id is None:
            await wait_for_jobs(ledger, elsewhere, watch, told)
        else:
            status = await wait_until_final(ledger, batch_id, elsewhere, watch, told)
        lanes = []
        if status is not None and HeldReason.LANE_PAUSED in status.held:
            lanes = await patiently(desk, told, ledger.fleet.lane_notices)
        tally = await _write(
            desk, told, order.output, partial(write_results, ledger=ledger, batch_id=batch_id, lines=lines)
        )
        if order.afterwards is not None and batch_id is not None:
            await order.afterwards(ledger, batch_id)
    return Report(batch_id, status, tally, lines, time.monotonic() - began, tuple(lanes))


async def _write(desk: Session, told: Silent, output: str, results: Callable[[IO[bytes]], Awaitable[Tally]]) -> Tally:
    """Write the results; a file from its beginning when the ledger goes away meanwhile."""

    async def write() -> Tally:
        with writing(output) as file:
            return await results(file)

    return await (patiently(desk, told, write) if is_replaced(output) else write())


async def _submit(desk: Session, ledger: Ledger, course: _Course, told: Silent) -> list[InputLine]:
    assert course.submission is not None
    accepted = await course.submission.write(ledger, told.submitting)
    course.batch_id = accepted.batch_id
    if not course.order.quiet:
        tell(accepted.said)
    await course.submission.hint(desk.settings, desk.where)
    return accepted.input_lines


async def _input_lines(ledger: Ledger, batch_id: UUID) -> list[InputLine]:
    return [line async for line in ledger.reading.input_lines(batch_id)]
