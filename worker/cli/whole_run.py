"""Takes files from the submission to their results, or a batch that is there already: ``run``, ``check`` and ``demo``.

``submit`` does the first half of it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.states import HeldReason, JobState, Step
from tasks.errors import SameInputSubmitted, ServiceUnavailable
from tasks.ports import InputLine, Refused, Repeated
from worker.cli.exits import run_interruptible
from worker.cli.outfile import check_output
from worker.cli.progress import Reporter, reporting
from worker.cli.session import Session, has_ledger, session
from worker.cli.submitting import (
    announce,
    ask_models,
    earlier_batch,
    known_batch,
    new_submission,
)
from worker.cli.summary import Report, describe, earlier_lines, kept_lines, raised_ceiling
from worker.cli.terminal import actor, tell, warn
from worker.cli.waiting import BatchRun, Watch, naming_full_disk
from worker.ledger.database import HOT_S
from worker.ledger.fleet import LaneNotice
from worker.ledger.postgres import PostgresLedger
from worker.local import LocalServerError
from worker.operations.answerers import Answerers, find_answerers
from worker.operations.counts import count_of
from worker.operations.file_form import FileForm
from worker.operations.file_intake import InputOrder
from worker.operations.file_submission import Accepted, Submission, wake
from worker.operations.result_lines import Tally
from worker.settings import Settings


@dataclass(slots=True, kw_only=True)
class WholeRun:
    """A whole run: its order, and how far it has come."""

    output: str = ""
    order: InputOrder | None = None
    """The files."""
    batch_id: UUID | None = None
    """A batch to go on with, instead of files; then that of the files."""
    waits: bool = True
    """False: the files are handed in, and nothing is written."""
    quiet: bool = False
    with_workers: bool = True
    preflight: bool = True
    """Make sure of the provider's key and model before anything is submitted."""
    form: FileForm = FileForm.JSONL
    """Of the output."""
    afterwards: Callable[[PostgresLedger, UUID], Awaitable[None]] | None = None
    """Done with the ledger still open, when all is written."""

    began: float = field(default_factory=time.monotonic, init=False)
    answerers: Answerers = field(init=False)
    submission: Submission | None = field(default=None, init=False)
    earlier: BatchStatus | None = field(default=None, init=False)
    """Of a batch with the same input that was there already."""
    raised: Decimal | None = field(default=None, init=False)
    """The higher ceiling for a batch that is there already."""

    def report(self, settings: Settings) -> Report:
        """Does the run from start to finish.

        Raises: what its parts raise, see ``exits``; KeyboardInterrupt after saying how to go on.
        """
        try:
            return self._report(settings)
        except KeyboardInterrupt:
            tell(f"Interrupted. {self.how_to_go_on()}")
            raise

    def _report(self, settings: Settings) -> Report:
        if self.waits:
            check_output(self.output, self.order.files if self.order is not None else ())
        first_step = Step.CHECK if self._check_only else Step.GENERATE
        self.answerers = run_interruptible(find_answerers(settings, first_step, starts=self.with_workers))
        looks = False
        if self.order is not None:
            submission = new_submission(self.order, settings, self.answerers, **({} if self.quiet else {"tell": tell}))
            if submission.empty:
                return self._nothing_submitted(submission.intake.refused)
            self.submission = submission
            if not self.quiet:
                announce(submission, self.answerers)
            looks = submission.may_be_known and (not settings.embedded() or has_ledger(settings))
            if self.preflight and not looks:
                ask_models(settings, submission, self.answerers)
        # What only hands in leaves the schema of a server to 'migrate' and 'up'.
        writes = self.order is not None and (self.waits or settings.embedded())
        with session(settings, writes=writes, staffs=self.with_workers) as opened:
            if looks:
                if (earlier := earlier_batch(opened, submission, quiet=self.quiet)) is not None:
                    self._take(earlier, submission)
                elif self.preflight:
                    ask_models(settings, submission, self.answerers)
            try:
                with naming_full_disk(settings), reporting(quiet=self.quiet) as reporter:
                    return run_interruptible(self._run(opened, reporter))
            except (ServiceUnavailable, LocalServerError):
                tell(self.how_to_go_on())
                raise

    @property
    def _check_only(self) -> bool:
        """Tells that nothing is generated, and only workers that check are needed."""
        return self.order is not None and self.order.check_only

    def _nothing_submitted(self, refused: Sequence[InputLine]) -> Report:
        warn(f"none of {count_of(len(refused), 'line')} holds a valid job; nothing was submitted")
        tally = Tally(len(refused), Counter({JobState.FAILED.value: len(refused)} if refused else {}))
        return Report(None, None, tally, refused, time.monotonic() - self.began)

    def how_to_go_on(self) -> str:
        """The whereabouts of the jobs, and the command that takes the run up again."""
        if self.batch_id is not None and self.waits:
            return (
                f"The jobs of batch {self.batch_id} stay in the ledger, those that are done too. Go on with: "
                f"nightdesk run --resume {self.batch_id} -o {self.output}"
            )
        if self.batch_id is not None:
            return f"The batch was submitted. Look at it with: nightdesk status {self.batch_id}"
        if self.submission is None:
            return "Nothing was submitted."
        if self.submission.receipt is not None:
            return "The jobs stay in the ledger, those that are done too. The same command finds them again."
        # It is written whole or not at all.
        return f"Nothing was submitted, unless 'nightdesk status {self.submission.batch.id}' knows of it."

    def _take(self, earlier: BatchStatus, submission: Submission) -> None:
        """Goes on with the batch that the same input has already, and says so."""
        if not self.quiet:
            for line in [
                *(earlier_lines(earlier) if self.waits else ()),
                *kept_lines(earlier, submission.batch),
            ]:
                tell(line)
        self.raised = raised_ceiling(earlier, submission.batch)
        self.earlier, self.batch_id, self.submission = earlier, earlier.batch_id, None

    async def _run(self, opened: Session, reporter: Reporter) -> Report:
        """Submits or takes up the batch, waits for it, writes its results."""
        async with opened.ledger(statement_s=HOT_S) as ledger:
            watch = Watch(opened, ledger, reporter, check_only=self._check_only)
            run = BatchRun(watch, self.batch_id)
            if self.waits and self.answerers.here and not opened.supervisor.difference():
                await _resume_lanes(ledger)
            accepted = None if self.submission is None else await self._submit(run, self.submission)
            if self.raised is not None and self.batch_id is not None:
                await ledger.actions.set_budget(self.batch_id, self.raised, actor())
            if not self.waits:
                accepted = accepted or await _accepted(ledger, self.earlier)
                return Report(self.batch_id, self.earlier, Tally(), run.lines or (), 0.0, accepted=accepted)
            if accepted is None:
                await self._take_up(run)
            elif accepted.batch_id is None and not accepted.repeated:
                return self._nothing_submitted(run.lines or ())
            status = await run.wait()
            lanes: Sequence[LaneNotice] = ()
            if status is not None and HeldReason.LANE_PAUSED in status.held:
                lanes = await watch.patiently(ledger.fleet.lane_notices)
            failures = await watch.failure_causes(status)
            tally = await run.write(self.output, form=self.form)
            if self.afterwards is not None and run.batch_id is not None:
                await self.afterwards(ledger, run.batch_id)
            seconds = time.monotonic() - self.began
            return Report(run.batch_id, status, tally, run.lines or (), seconds, tuple(lanes), failures)

    async def _submit(self, run: BatchRun, submission: Submission) -> Accepted | None:
        """The outcome of a submission; None where another command made a batch of the same input meanwhile."""
        # They take a second to start; meanwhile the jobs are submitted.
        staffing = asyncio.create_task(run.watch.staff()) if self._staffs(run) else None
        try:
            try:
                accepted = await run.submit(submission)
            finally:
                starting = staffing is not None and await staffing
        except SameInputSubmitted:
            if (earlier := await known_batch(run.watch.ledger, submission)) is None:
                raise
            self._take(earlier, submission)
            run.batch_id = earlier.batch_id
            return None
        self.batch_id = accepted.batch_id
        opened = run.watch.session
        if self.waits and not self.quiet:
            tell(describe(accepted))
        # Workers that start now look for jobs by themselves, and Celery would be loaded only to ring. A Redis of somebody else's
        # is rung all the same: the person should know that it is away.
        if not opened.settings.embedded() or (opened.supervisor.running() and not starting):
            await wake(accepted.hints, opened.settings, opened.where, warn)
        return accepted

    def _staffs(self, run: BatchRun) -> bool:
        """Tells that this command starts workers: not beside those elsewhere that have other settings.

        Else it would be left to chance who answers.
        """
        elsewhere = not self.answerers.here and not run.watch.session.supervisor.running()
        if elsewhere and self.with_workers and not self.quiet:
            tell("this command starts no workers: those that run have other settings")
        return self.with_workers and not elsewhere

    async def _take_up(self, run: BatchRun) -> None:
        batch_id = run.batch_id
        assert batch_id is not None
        elsewhere = [line.job_id for line in await run.input_lines() if isinstance(line, Repeated)]
        status = await run.watch.patiently(lambda: run.watch.ledger.reading.batch_status(batch_id))
        for_a_person = sum(jobs for reason, jobs in status.held.items() if HeldReason(reason).needs_person)
        if self._staffs(run) and (status.final + for_a_person < status.jobs or await run.watch.still_moving(elsewhere)):
            await run.watch.staff()


async def _resume_lanes(ledger: PostgresLedger) -> None:
    """Lets paused lanes go on: whoever runs again may have mended the cause, and a call that is refused pauses them again."""
    if await ledger.fleet.paused_lanes():
        jobs = await ledger.actions.release(None, HeldReason.LANE_PAUSED, actor())
        tell(f"calls that were paused are tried again: {count_of(jobs, 'held job')} released")


async def _accepted(ledger: PostgresLedger, earlier: BatchStatus | None) -> Accepted:
    """The outcome of a submission whose batch is there."""
    assert earlier is not None
    lines = [line async for line in ledger.reading.input_lines(earlier.batch_id)]
    return Accepted(
        earlier.batch_id,
        created=False,
        jobs=earlier.jobs,
        refused=tuple(line for line in lines if isinstance(line, Refused)),
        repeated=tuple(line for line in lines if isinstance(line, Repeated)),
        submitted_at=earlier.created_at,
    )
