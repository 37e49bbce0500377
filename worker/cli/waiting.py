"""Takes a batch of a command towards its results: waits until its jobs are final, and keeps workers and servers alive meanwhile."""

import asyncio
import errno
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from schemas.batch import BatchStatus, FailureCause
from schemas.generation import WINDOWS
from schemas.record import JobResult
from schemas.states import FINAL_STATES, HeldReason, JobState
from tasks.errors import LedgerError, LedgerUnavailable, ServiceUnavailable
from tasks.ports import InputLine, JobView, Refused, Repeated
from worker.cli.outfile import is_replaced, writing
from worker.cli.progress import Reporter, all_wait
from worker.cli.session import Session, queues_of
from worker.cli.terminal import warn
from worker.ledger.postgres import PostgresLedger
from worker.local import LocalServerError
from worker.operations.file_form import FileForm
from worker.operations.free_disk import full_disk_line, low_disk_line
from worker.operations.overview import budget_line, budgets_in_short, unserved_line
from worker.operations.result_lines import Tally, write_results
from worker.settings import Settings
from worker.supervise.workers import Keeper

if TYPE_CHECKING:
    # Commands that submit nothing do without: it brings the reading of inputs along.
    from worker.operations.file_submission import Accepted, Submission


LEDGER_PATIENCE_S = 60.0
"""Seconds to wait for a ledger that went away, before giving up; the jobs stay where they are."""

LANES_EVERY_S = 2.0
"""Seconds between two looks at the lanes."""

FULL_PATIENCE_S = 20.0
"""Seconds to wait for room on a full disk, before giving up."""

DISK_EVERY_S = 10.0
"""Seconds between two looks at the free disk."""

UNSERVED_S = 10.0
"""Seconds without a worker that takes the jobs, after which that is reported."""

OWN_UNSERVED_S = 60.0
"""The same where this command starts the workers itself, and again if they end: a loaded machine takes long to start them."""

CALLBACK_S = 25.0
"""Seconds that the first try of a callback may take after its batch is settled; further ones are for workers that go on."""

BATCHES_EVERY_S = 20.0
"""The same for provider batches, which take hours."""

FASTEST_LOOK_S = 0.2
SLOWEST_LOOK_S = 5.0
"""Seconds between two looks; a big batch takes longer to count, and is looked at less often."""

LOOK_SHARE = 0.05
"""Share of the time that may go into looking."""

MOST_RESTARTS = 3
"""How often a worker is started again before its death counts as a failure."""

VIEWS_AT_ONCE = 200
"""Jobs of other batches looked at together."""

_BY_ITSELF = (None, HeldReason.TENANT_BUDGET.value)
"""Holds of jobs of other batches that are waited for."""

Answer = TypeVar("Answer")


@dataclass(slots=True)
class Watch:
    """Looks at jobs until they end, and meanwhile starts again what ends too soon: workers and embedded servers."""

    session: Session
    ledger: PostgresLedger
    """Open."""
    reporter: Reporter
    check_only: bool = False
    """Only workers that check are needed."""
    _keeper: Keeper | None = None
    """Of the workers that are expected to run."""
    _noted: set[object] = field(default_factory=set)
    """What was reported once."""
    _looked_at: dict[str, float] = field(default_factory=dict)
    """The last look at each thing."""
    _settled_since: float | None = None
    _unserved_since: float | None = None
    _full_since: float | None = None

    async def staff(self) -> bool:
        """Starts workers where none are, and from now on expects those that run to go on; True if it started some."""
        started = await asyncio.to_thread(self.session.staff_if_missing, check_only=self.check_only)
        supervisor = self.session.supervisor
        specs = {spec.name: spec for spec in started}
        specs |= {name: process.spec for name, process in supervisor.running().items()}
        self._keeper = Keeper(supervisor, specs.values(), self.reporter.note, most=MOST_RESTARTS) if specs else None
        return bool(started)

    async def keep_workers(self) -> None:
        """Starts again the workers that ended; raises ``WorkerFailed`` when that keeps happening."""
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.look, time.monotonic())

    def _note_once(self, key: object, message: str) -> None:
        if key not in self._noted:
            self._noted.add(key)
            self.reporter.note(message)

    def _is_due(self, thing: str, every_s: float) -> bool:
        """Tells that a look is due that is taken so often, and takes note of it."""
        now = time.monotonic()
        if now - self._looked_at.get(thing, float("-inf")) < every_s:
            return False
        self._looked_at[thing] = now
        return True

    async def patiently(self, look: Callable[[], Awaitable[Answer]]) -> Answer:
        """Looks again while the ledger is away; a restart of the database is nothing to give up for.

        The time counts from the first refusal: before that a look may have waited on a connection that went silent, and
        the next one has a new connection.
        """
        deadline: float | None = None
        while True:
            try:
                return await look()
            except LedgerUnavailable as error:
                if deadline is None:
                    # No restart helps a server without room.
                    patience = FULL_PATIENCE_S if full_disk_line(self.session.settings) else LEDGER_PATIENCE_S
                    deadline = time.monotonic() + patience
                    self.reporter.note(f"{self._outage(error)}; waiting for it for up to {patience:.0f} s")
                if time.monotonic() >= deadline:
                    raise LedgerUnavailable(self._outage(error)) from error
            await asyncio.sleep(1.0)

    def _outage(self, error: LedgerUnavailable) -> str:
        """The cause of an outage: a full disk, where the embedded server has one, says more than a refused connection."""
        settings = self.session.settings
        return full_disk_line(settings) or low_disk_line(settings) or str(error)

    async def wait(self, batch_id: UUID | None, elsewhere: Iterable[UUID] = ()) -> BatchStatus | None:
        """Returns when no job of a batch can move by itself: all are final, or those that are not are held.

        ``elsewhere`` are jobs of other batches to wait for too.
        """
        moving = list(dict.fromkeys(elsewhere))
        stuck_before = False
        while True:
            await self.keep_workers()
            began = time.monotonic()
            status = None if batch_id is None else await self._look_at_batch(batch_id)
            await self._look_at_lanes()
            self._look_at_disk()
            remaining = 0 if status is None else status.jobs - status.final
            if not remaining:
                moving = await self.still_moving(moving)
                if not moving and not (status and self._waits_for_callback(status)):
                    return status
                if moving and status is not None:
                    self._note_once(
                        "elsewhere",
                        "the jobs of this batch are final; lines of the input wait for jobs of other batches, "
                        f"the first of them {moving[0]} (nightdesk show)",
                    )
            if status is not None:
                renewed = await self._look_at_budgets(status)
                # Seen twice, so that a hold that is being released is not taken for the end.
                stuck = 0 < remaining == sum(status.held.values()) and not renewed
                if stuck and stuck_before:
                    return status
                stuck_before = stuck
            pause = (time.monotonic() - began) / LOOK_SHARE
            await asyncio.sleep(min(max(pause, FASTEST_LOOK_S), SLOWEST_LOOK_S))

    async def _look_at_batch(self, batch_id: UUID) -> BatchStatus:
        """Reports the state of a batch; while all its jobs wait for their time, with the time at which the first goes on."""
        status = await self.patiently(lambda: self.ledger.reading.batch_status(batch_id))
        next_at = await self.patiently(lambda: self.ledger.fleet.next_try(batch_id)) if all_wait(status) else None
        self.reporter.status(status, next_at)
        await self._look_at_remote(status)
        return status

    async def failure_causes(self, status: BatchStatus | None) -> tuple[FailureCause, ...]:
        """The causes of the jobs that failed, if any did."""
        if status is None or not status.states.get(JobState.FAILED):
            return ()
        batch_id = status.batch_id
        return await self.patiently(lambda: self.ledger.figures.failure_causes(batch_id))

    def _waits_for_callback(self, status: BatchStatus) -> bool:
        """True for a while if the workers that this command is about to stop have a callback to deliver."""
        callback = status.callback
        if (
            self._keeper is None
            or callback is None
            or callback.state != "waiting"
            or callback.tries
            or callback.last_error
        ):
            return False
        self._settled_since = self._settled_since or time.monotonic()
        return time.monotonic() - self._settled_since < CALLBACK_S

    async def _look_at_lanes(self) -> None:
        if not self._is_due("lanes", LANES_EVERY_S):
            return
        for lane in await self.patiently(self.ledger.fleet.lane_notices):
            self._note_once(
                (lane.provider, lane.lane, lane.model, lane.paused),
                f"{lane.event}. {lane.consequence.capitalize()}. To fix it: {lane.remedy}",
            )
        await self._look_at_workers(time.monotonic())

    async def _look_at_workers(self, now: float) -> None:
        """Reports a queue that has had jobs and no worker for a while, until it has one; workers take seconds to start."""
        queues = await self.patiently(self.ledger.fleet.unserved)
        if not queues:
            self._unserved_since = None
        elif self._unserved_since is None:
            self._unserved_since = now
        elif now - self._unserved_since >= (UNSERVED_S if self._keeper is None else OWN_UNSERVED_S):
            self._note_once(self._unserved_since, unserved_line(queues, queues_of(self.session.supervisor.running())))

    async def _look_at_remote(self, status: BatchStatus) -> None:
        """Reports once each provider batch and background lane in which jobs wait, and its cancel."""
        if not status.states.get(JobState.PENDING) or not self._is_due("batches", BATCHES_EVERY_S):
            return
        for notice in await self.patiently(lambda: self.ledger.remote_overview.notices(status.batch_id)):
            in_background = notice.lane in WINDOWS
            key = (notice.lane if in_background else notice.remote_id, notice.spilled_at is not None)
            if in_background or notice.remote_id is not None:
                self._note_once(key, notice.event)

    async def _look_at_budgets(self, status: BatchStatus) -> bool:
        """Reports once for each period that jobs wait for a budget; true if money comes by itself, in the next period."""
        budgets = await self.patiently(lambda: budgets_in_short(self.ledger, status))
        for budget in budgets:
            self._note_once((budget.key, budget.period, budget.begins_at), budget_line(budget))
        if any(budget.too_small for budget in budgets):
            return False
        # The next period of a tenant's budget comes, whether its beginning is known yet or not.
        return HeldReason.TENANT_BUDGET in status.held or any(budget.next_at is not None for budget in budgets)

    def _look_at_disk(self) -> None:
        """Reports once that the disk is nearly full; raises ``DiskFull`` once it has been full for a while."""
        if not self._is_due("disk", DISK_EVERY_S):
            return
        if not (full := full_disk_line(self.session.settings)):
            self._full_since = None
            if line := low_disk_line(self.session.settings):
                self._note_once("disk", line)
        elif self._full_since is None:
            # Calls that are paid now could not be stored, so the workers have to end where it stays so.
            self._full_since = time.monotonic()
            self.reporter.note(f"{full}. This command waits for it for {FULL_PATIENCE_S:.0f} s")
        elif time.monotonic() - self._full_since >= FULL_PATIENCE_S:
            raise DiskFull(full)

    async def still_moving(self, ids: list[UUID]) -> list[UUID]:
        """The jobs that can still move; looks only as far as the first few that can."""
        for start in range(0, len(ids), VIEWS_AT_ONCE):
            page = ids[start : start + VIEWS_AT_ONCE]
            views = await self.patiently(lambda page=page: self.ledger.reading.views(page))  # type: ignore[misc]
            moving = [
                view.job_id for view in views if view.state not in FINAL_STATES and view.held_reason in _BY_ITSELF
            ]
            if moving:
                return moving + ids[start + VIEWS_AT_ONCE :]
        return []


class DiskFull(ServiceUnavailable):
    """The disk of the embedded servers has no room; what is stored stays."""


@contextmanager
def naming_full_disk(settings: Settings) -> Iterator[None]:
    """Raises ``DiskFull`` in place of what a full disk led to."""
    try:
        yield
    except (ServiceUnavailable, LedgerError, LocalServerError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        if not (line := full_disk_line(settings)):
            raise
        raise DiskFull(line) from error


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
        return await self.watch.wait(self.batch_id, elsewhere)

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
            with writing(output, self.batch_id) as file:
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
