"""Takes a batch from its files to its results: submit, wait, write, with workers for as long as that lasts."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from uuid import UUID

from schemas.batch import BatchStatus
from tasks.ports import Ledger
from worker.cli.crew import posts
from worker.cli.exits import BAD_INPUT, INCOMPLETE, OK
from worker.cli.interrupts import run_interruptible
from worker.cli.lines import Tally, write_results
from worker.cli.messages import tell, warn
from worker.cli.notes import Notes, load_notes
from worker.cli.outfile import check_output, writing
from worker.cli.progress import Silent, progress
from worker.cli.session import Session, session
from worker.cli.submitting import Submission
from worker.cli.waiting import Watch, wait_until_final
from worker.settings import Settings

Afterwards = Callable[[Ledger, UUID], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Order:
    """What a run is to do."""

    output: str
    files: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    """Of the batch: name, key, ceiling."""
    resume: UUID | None = None
    """A batch to go on with, instead of files."""
    strict: bool = False
    quiet: bool = False
    with_workers: bool = True
    afterwards: Afterwards | None = None
    """Done with the ledger still open, when all is written."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run."""

    batch_id: UUID | None
    status: BatchStatus | None
    tally: Tally
    notes: Notes
    seconds: float

    @property
    def exit_code(self) -> int:
        """See ``exits``."""
        if self.batch_id is None:
            return BAD_INPUT
        return OK if self.tally.all_well else INCOMPLETE


@dataclass(slots=True)
class _Course:
    """How far a run has come, for whoever has to explain its end."""

    batch_id: UUID | None = None
    submitting: UUID | None = None


def run_batch(settings: Settings, order: Order) -> Report:
    """Do a run from start to finish.

    Raises: what the parts raise, all mapped by ``exits``; KeyboardInterrupt after saying how to go on.
    """
    began = time.monotonic()
    check_output(order.output, order.files)
    submission = None
    if order.resume is None:
        submission = Submission(order.files, order.said, settings, strict=order.strict)
        if submission.empty:
            return _nothing_valid(order, submission, began)
    course = _Course(batch_id=order.resume)
    with session(settings) as desk:
        try:
            with progress(quiet=order.quiet) as told:
                return run_interruptible(_run(desk, order, submission, told, course, began))
        except KeyboardInterrupt:
            tell(_interrupted(course, order.output))
            raise


def _nothing_valid(order: Order, submission: Submission, began: float) -> Report:
    notes = Notes(tuple(submission.intake.bad))
    with writing(order.output) as file:
        tally = run_interruptible(write_results(file, None, None, notes))
    warn(f"none of {tally.lines} lines holds a valid job; nothing was submitted")
    return Report(None, None, tally, notes, time.monotonic() - began)


async def _run(
    desk: Session, order: Order, submission: Submission | None, told: Silent, course: _Course, began: float
) -> Report:
    # Workers take a second to start; meanwhile the jobs are submitted.
    if submission is not None:
        _staff(desk, order)
    async with desk.ledger() as ledger:
        if submission is not None:
            notes = await _submit(desk, ledger, order, submission, told, course)
        else:
            assert course.batch_id is not None
            notes = load_notes(desk.place, course.batch_id)
            status = await ledger.batch_status(course.batch_id)
            if status.final < status.jobs:
                _staff(desk, order)
        batch_id = course.batch_id
        assert batch_id is not None
        watch = Watch(desk, {post.name: post for post in posts()} if order.with_workers else {}, told.note)
        status = await wait_until_final(desk, ledger, batch_id, notes.elsewhere.values(), watch, told)
        with writing(order.output) as file:
            tally = await write_results(file, ledger, batch_id, notes)
        if order.afterwards is not None:
            await order.afterwards(ledger, batch_id)
    return Report(batch_id, status, tally, notes, time.monotonic() - began)
