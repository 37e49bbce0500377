"""Feeds a process's event loop with jobs: as many as it has room for are leased, and run until done."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID

from schemas.states import Step
from tasks.errors import LedgerUnavailable, NightdeskError
from tasks.ports import Lease, LeaseKey, Room
from worker.ledger.queue import PostgresQueue
from worker.scheduling.held_leases import HeldLeases
from worker.scheduling.load import Load
from worker.scheduling.urgent_workers import UrgentWorkers

log = logging.getLogger(__name__)

GATHER_WAIT = timedelta(milliseconds=50)
"""How long freed slots are gathered before the next lease: without it a steady load leases one row a statement."""

URGENT_SHARE = 0.02
"""Slots that a process has for urgent jobs beyond its others, as a share of these."""

LEASE_ROWS = 200
"""Jobs a lease takes at most; ``Load`` bounds the bytes that they bring."""

IDLE_LOOK = timedelta(seconds=20)
"""Between looks of a step that nothing wakes; dispatch does each second while jobs wait for the step."""

URGENT_LOOK = timedelta(milliseconds=500)
"""While bulk jobs have no slots or wait for limits, urgent ones are looked for in the ledger this often."""

WAITING_LOOK = timedelta(milliseconds=100)
"""How often a process that stops looks for jobs that wait for a permit."""

CANCEL_AGAIN = timedelta(seconds=5)
"""How long a job that is cut off may take to note it, before it is cut off again."""

LEDGER_PAUSE = timedelta(seconds=1)
"""Between tries while the ledger can't be reached."""


Run = Callable[[Any], Awaitable[None]]
"""Takes a job through a step."""


def urgent_slots(slots: int) -> int:
    """Calls of urgent jobs that a process makes beyond its ``slots``; at least one."""
    return max(1, int(slots * URGENT_SHARE))


class Feed:
    """Feeds one step of a process.

    ``run`` takes one job, whose slot is free when it returns; every job has its own task, so the slowest of a lease
    delays no other.

    Args:
        step: the step.
        slots: jobs that run at once; urgent ones have some beyond these.
        worker: name of this worker in leases.
        lease_for: time of a lease.
        queue: lends the jobs.
        leases: those that this process holds.
        run: takes a job through the step.
        permitted: how many more jobs may wait for permits; None: any number.
        waits: tells by its id whether a job waits for a permit now.
        load: what the jobs of this step that run here hold.
        urgent_workers: know whether workers that take nothing else serve urgent jobs.
        unread: another process reads the jobs.
    """

    def __init__(
        self,
        step: Step,
        *,
        slots: int,
        worker: str,
        lease_for: timedelta,
        queue: PostgresQueue,
        leases: HeldLeases,
        run: Run,
        permitted: Callable[[], Room | None] = lambda: None,
        waits: Callable[[UUID], bool] = lambda _: False,
        load: Load | None = None,
        urgent_workers: UrgentWorkers | None = None,
        unread: bool = False,
    ) -> None:
        self.step = step
        self.slots = slots
        self.throttled = False
        """Set by dispatch while the next step is behind: nothing new is leased."""
        self._worker = worker
        self._lease_for = lease_for
        self._queue = queue
        self._leases = leases
        self._run = run
        self._permitted = permitted
        self._waits = waits
        self._unread = unread
        self._load = load or Load()
        self._backlog = True
        """The last look found jobs: there may be more."""
        self._urgent_looked = -math.inf
        self._urgent_slots = urgent_slots(slots)
        self._running: dict[asyncio.Task[None], Lease] = {}
        self._storing: set[asyncio.Task[None]] = set()
        """Running jobs whose slot is free already."""
        # None of them has a local model.
        watched = None if step is Step.LOCAL else urgent_workers
        self._urgent_workers = watched or UrgentWorkers()
        self._wake = asyncio.Event()
        self._stopping = False
        self._pump: asyncio.Task[None] | None = None

    @property
    def in_use(self) -> int:
        """Slots that are taken now."""
        return len(self._running) - len(self._storing)

    @contextmanager
    def free_slot(self) -> Iterator[None]:
        """Lets another job have the slot of the one whose task this is, while its answer is stored.

        At most as many answers as there are slots are stored at once. With the ledger away they wait, but no call begins.
        """
        task = asyncio.current_task()
        if task not in self._running or len(self._storing) >= self.slots:
            yield
            return
        self._storing.add(task)
        self._note_room()
        try:
            yield
        finally:
            self._storing.discard(task)

    def start(self) -> None:
        """Begin to lease; needs the running loop."""
        self._pump = asyncio.get_running_loop().create_task(self._feed(), name=f"feed {self.step}")

    def wake(self, *, urgent: bool = False) -> None:
        """Looks in the ledger now: there is work, or room for more."""
        if urgent:
            self._urgent_looked = -math.inf
        self._wake.set()

    # ---- leasing ----

    async def _feed(self) -> None:
        while not self._stopping:
            try:
                await self._lease_once()
            except LedgerUnavailable as error:
                log.warning("%s waits for the ledger: %s", self.step, error)
                await asyncio.sleep(LEDGER_PAUSE.total_seconds())
            except Exception:
                # The feed is the process's heart: what waits for it stays in the ledger, so go on.
                log.exception("leasing for %s broke", self.step)
                await asyncio.sleep(LEDGER_PAUSE.total_seconds())

    async def _lease_once(self) -> None:
        """Leases as many jobs as there is room for and starts them; without any it waits for a change or the next look."""
        # Before anything is looked at: a change from here on ends the wait below.
        self._wake.clear()
        urgent_room, bulk_room = self._room()
        jobs = 0
        if bulk_room:
            jobs = await self._lease(bulk_room)
            self._backlog = bool(jobs)
        elif urgent_room and self._urgent_looked + URGENT_LOOK.total_seconds() <= monotonic():
            self._urgent_looked = monotonic()
            jobs = await self._lease(urgent_room, min_priority=1)
        if jobs and bulk_room:
            await asyncio.sleep(GATHER_WAIT.total_seconds())
        elif not jobs:
            held_up = urgent_room and not bulk_room and not self._urgent_workers.only
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), (URGENT_LOOK if held_up else IDLE_LOOK).total_seconds())

    def _room(self) -> tuple[int, int]:
        """Urgent jobs, and others, to lease now: as slots, bytes and limits allow."""
        permitted = self._permitted() or Room(LEASE_ROWS, LEASE_ROWS)
        free = self.slots - self.in_use
        bulk = max(0, free)
        if self.throttled or self._urgent_workers.only or not self._load.room(urgent=False):
            bulk = 0
        urgent = max(0, free + self._urgent_slots)
        if self._urgent_workers.leave or not self._load.room(urgent=True):
            urgent = 0
        return min(urgent, permitted.urgent, LEASE_ROWS), min(bulk, permitted.bulk, LEASE_ROWS)

    async def _lease(self, limit: int, *, min_priority: int | None = None) -> int:
        """Leases and starts jobs; returns their number."""
        jobs = await self._queue.lease(
            self.step,
            self._worker,
            self._lease_for,
            limit,
            min_priority=min_priority,
            max_priority=0 if self._urgent_workers.leave else None,
            room=self._load.room(urgent=min_priority is not None),
            unread=self._unread,
        )
        for job in jobs:
            self._begin(job)
        return len(jobs)

    def _note_room(self) -> None:
        """Looks for the next job, where there are likely to be more."""
        if self._backlog:
            self._wake.set()

    # ---- running ----

    def _begin(self, job: Lease) -> None:
        self._load.hold(job)
        task = asyncio.get_running_loop().create_task(self._run_one(job), name=f"{self.step} {job.job_id}")
        self._running[task] = job
        task.add_done_callback(self._ended)
        self._leases.hold(_key(job), task.cancel)

    async def _run_one(self, job: Lease) -> None:
        try:
            await self._run(job)
        finally:
            self._leases.release(_key(job))

    def _ended(self, task: asyncio.Task[None]) -> None:
        job = self._running.pop(task)
        self._load.release(job)
        self._note_room()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s left an error behind; it is rescued", task.get_name(), exc_info=error)

    # ---- stopping ----

    def stop_admitting(self) -> None:
        """Leases nothing more."""
        self._stopping = True
        self._wake.set()

    async def drain(self, within: timedelta) -> int:
        """Lets running jobs end; interrupts the unfinished ones after ``within`` and returns their number.

        Those that wait for a permit go back: a process that stops makes no new calls.
        """
        end = monotonic() + within.total_seconds()
        self.stop_admitting()
        if self._pump is not None:
            await self._pump
        while self._running and (left_s := end - monotonic()) > 0:
            await self._give_back_waiting()
            if self._running:
                await asyncio.wait(self._running, timeout=min(left_s, WAITING_LOOK.total_seconds()))
        unfinished = dict(self._running)
        waiting = set(unfinished)
        while waiting:
            # Again and again: Python 3.11's wait_for swallows a cancellation that comes with what it waits for.
            for task in waiting:
                task.cancel()
            _, waiting = await asyncio.wait(waiting, timeout=CANCEL_AGAIN.total_seconds())
        await self._hand_back([_key(job) for job in unfinished.values()])
        return len(unfinished)

    async def _give_back_waiting(self) -> None:
        """Interrupts the jobs that wait for a permit, and lets others have them."""
        waiting = {task: job for task, job in self._running.items() if self._waits(job.job_id)}
        if not waiting:
            return
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting, timeout=CANCEL_AGAIN.total_seconds())
        await self._hand_back([_key(job) for job in waiting.values()])

    async def _hand_back(self, leases: Sequence[LeaseKey]) -> None:
        """Releases the leases of interrupted jobs at once, but for those with open calls, whose outcome is not known yet."""
        try:
            await self._queue.hand_back(leases)
        except NightdeskError as error:
            log.warning("jobs of step %s wait for their rescue: %s", self.step, error)


def _key(job: Lease) -> LeaseKey:
    return LeaseKey(job.job_id, job.token)
