"""Waits until the jobs of a batch are final, keeps its workers alive meanwhile, and tells how it goes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.states import FINAL_STATES
from tasks.errors import LedgerUnavailable
from tasks.ports import Ledger
from worker.cli.session import Session
from worker.ledger.fleet import LaneNotice
from worker.limits.remedies import event, remedy
from worker.local import LocalServerError
from worker.supervise.workers import WorkerFailed, WorkerSpec

LEDGER_PATIENCE_S = 60.0
"""Seconds to wait for a ledger that went away, before giving up; the jobs stay where they are."""

LANES_EVERY_S = 2.0
"""Seconds between two looks at the lanes."""

FASTEST_LOOK_S = 0.2
SLOWEST_LOOK_S = 5.0
"""Seconds between two looks; a big batch takes longer to count, and is looked at less often."""

LOOK_SHARE = 0.05
"""Share of the time that may go into looking."""

MOST_RESTARTS = 3
"""How often a worker is started again before its death counts as a failure."""

ELSEWHERE_AT_ONCE = 200

Found = TypeVar("Found")


class Progress(Protocol):
    """Who is told how it goes."""

    def status(self, status: BatchStatus) -> None:
        """The batch as it stands."""

    def note(self, message: str) -> None:
        """Something a person should know."""


@dataclass(slots=True)
class LaneWatch:
    """Tells once of each provider that can't be reached, and of each lane that is paused."""

    read: Callable[[], Awaitable[Sequence[LaneNotice]]]
    note: Callable[[str], None]
    _noted: set[tuple[str, str, str, bool]] = field(default_factory=set)
    _read_at: float = float("-inf")

    async def look(self) -> None:
        """Read what there is to tell, every few seconds."""
        now = time.monotonic()
        if now - self._read_at < LANES_EVERY_S:
            return
        self._read_at = now
        for lane in await self.read():
            key = (lane.provider, lane.lane, lane.model, lane.paused)
            if key not in self._noted:
                self._noted.add(key)
                self.note(f"{event(lane)}. {_CONSEQUENCE[lane.paused]}. To mend it: {remedy(lane)}")


_CONSEQUENCE = {False: "Its jobs wait, and go on by themselves once it answers", True: "Its jobs are held"}


@dataclass(slots=True)
class Watch:
    """Keeps alive the workers that a command relies on, and counts how often it had to."""

    session: Session
    note: Callable[[str], None]
    check_only: bool = False
    """Only workers that check are needed."""
    lanes: LaneWatch | None = None
    """Looked at while jobs are waited for."""
    _expected: dict[str, WorkerSpec] = field(default_factory=dict)
    _restarts: dict[str, int] = field(default_factory=dict)

    def staff(self) -> None:
        """Start workers where none are, and from now on expect those that run to go on."""
        started = {spec.name: spec for spec in self.session.staff_if_missing(check_only=self.check_only)}
        running = {name: worker_process.spec for name, worker_process in self.session.supervisor.running().items()}
        self._expected = {**started, **running}

    def look(self) -> None:
        """Start again what ended; raises ``WorkerFailed`` when that keeps happening."""
        if not self._expected:
            return
        supervisor = self.session.supervisor
        for name in self._expected.keys() - supervisor.running().keys():
            count = self._restarts[name] = self._restarts.get(name, 0) + 1
            if count > MOST_RESTARTS:
                raise WorkerFailed(supervisor.exit_report(name))
            if supervisor.start(self._expected[name], ephemeral=True):
                self.note(f"the worker {name} ended by itself and was started again; its log: {supervisor.log(name)}")


async def wait_until_final(
    ledger: Ledger, batch_id: UUID, elsewhere: Iterable[UUID], watch: Watch, progress: Progress
) -> BatchStatus:
    """Return when no job of a batch can move by itself: all are final, or those that are not are held.

    Args:
        ledger: open.
        batch_id: the batch.
        elsewhere: jobs of other batches to wait for too.
        watch: the workers, and embedded servers, to keep alive.
        progress: told of each look.
    """
    open_elsewhere = list(dict.fromkeys(elsewhere))
    stuck_before = False
    while True:
        watch.look()
        began = time.monotonic()
        status = await patiently(watch.session, progress, lambda: ledger.reading.batch_status(batch_id))
        progress.status(status)
        if watch.lanes is not None:
            await patiently(watch.session, progress, watch.lanes.look)
        remaining = status.jobs - status.final
        held = sum(status.held.values())
        if not remaining:
            open_elsewhere = await _not_final(watch, ledger, open_elsewhere, progress)
            if not open_elsewhere:
                return status
        # Seen twice, so that a hold that is being released is not taken for the end.
        stuck = 0 < remaining == held
        if stuck and stuck_before:
            return status
        stuck_before = stuck
        pause = (time.monotonic() - began) / LOOK_SHARE
        await asyncio.sleep(min(max(pause, FASTEST_LOOK_S), SLOWEST_LOOK_S))


async def wait_for_jobs(ledger: Ledger, job_ids: Iterable[UUID], watch: Watch, progress: Progress) -> None:
    """Return when none of these jobs, of any batch, can move by itself."""
    moving = list(dict.fromkeys(job_ids))
    while moving := await _not_final(watch, ledger, moving, progress):
        watch.look()
        if watch.lanes is not None:
            await patiently(watch.session, progress, watch.lanes.look)
        await asyncio.sleep(FASTEST_LOOK_S)


async def _not_final(watch: Watch, ledger: Ledger, ids: list[UUID], progress: Progress) -> list[UUID]:
    """The jobs that can still move; looks only as far as the first few that can."""
    moving: list[UUID] = []
    for at in range(0, len(ids), ELSEWHERE_AT_ONCE):
        chunk = ids[at : at + ELSEWHERE_AT_ONCE]
        views = await patiently(watch.session, progress, lambda chunk=chunk: ledger.reading.views(chunk))  # type: ignore[misc]
        moving += [view.job_id for view in views if view.state not in FINAL_STATES and view.held_reason is None]
        if moving:
            return moving + ids[at + ELSEWHERE_AT_ONCE :]
    return moving


async def patiently(session: Session, progress: Progress, look: Callable[[], Awaitable[Found]]) -> Found:
    """Look again while the ledger is away; a restart of the database is nothing to give up for.

    The time counts from the first refusal: before that a look may have waited on a connection that went silent, and the
    next one has a new connection.
    """
    deadline: float | None = None
    while True:
        try:
            return await look()
        except LedgerUnavailable as error:
            if deadline is None:
                deadline = time.monotonic() + LEDGER_PATIENCE_S
                progress.note(f"{error}; waiting for it for up to {LEDGER_PATIENCE_S:.0f} s")
            if time.monotonic() >= deadline:
                raise
            try:
                await asyncio.to_thread(session.restart_servers)
            except LocalServerError as problem:
                progress.note(str(problem))
        await asyncio.sleep(1.0)
