"""Admits jobs to a process's event loop: hints are merged, leased within the free slots, and run until done."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import Any
from uuid import UUID

from schemas.job import MAX_REQUEST_BYTES
from schemas.states import Step
from tasks.errors import LedgerUnavailable, NightdeskError
from tasks.ports import Lease, LeaseKey, LeaseRoom, Room
from worker.ledger.queue import PostgresQueue
from worker.scheduling.held_leases import HeldLeases
from worker.scheduling.hint_line import HintLine
from worker.scheduling.load import Load
from worker.scheduling.urgent_workers import UrgentWorkers

log = logging.getLogger(__name__)

GATHER = 25
"""Freed slots that are gathered before the next lease: without it a steady load leases one row a statement."""

GATHER_WAIT = timedelta(milliseconds=50)
"""How long freed slots are gathered at most."""

HINT_PATIENCE = timedelta(seconds=1)
"""A message waits so long for slots, with a thread of its process, then its jobs are left to be found in the ledger: were
every thread to wait, nothing else would come in over Redis, and no urgent job."""

URGENT_SHARE = 0.02
"""Slots that a process has for urgent jobs beyond its others, as a share of these."""

LEASE_ROWS = 200
"""Jobs a lease takes at most; ``Load`` bounds the bytes that they bring."""

IDLE_CLAIM = timedelta(seconds=2)
"""A step with free slots that was given nothing for so long asks the ledger itself: the second way of waking."""

IDLE_LOOK = timedelta(seconds=20)
"""The same while nothing runs: then a claim finds the jobs without a hint."""

URGENT_LOOK = timedelta(milliseconds=500)
"""While bulk jobs have no slots or wait for limits, urgent ones are looked for in the ledger this often."""

BACKLOG_LOOK = timedelta(milliseconds=100)
"""While limits hold jobs back: first pause after a lease found nothing; doubles up to ``IDLE_CLAIM``."""

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
        keeper: renews their leases.
        run: takes a job through the step.
        permitted: how many more jobs may wait for permits; None: as many as there are slots.
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
        keeper: HeldLeases,
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
        self._keeper = keeper
        self._run = run
        self._permitted = permitted
        self._waits = waits
        self._unread = unread
        self._load = load or Load()
        self._let_go = False
        """The ledger holds jobs whose messages were let go."""
        self._backlog = False
        """The last lease without a hint found jobs: there may be more."""
        self._nothing_found = BACKLOG_LOOK
        self._urgent_looked = float("-inf")
        self._urgent_slots = urgent_slots(slots)
        self._running: dict[asyncio.Task[None], Lease] = {}
        self._storing: set[asyncio.Task[None]] = set()
        """Running jobs whose slot is free already."""
        # None of them has a local model.
        watched = None if step is Step.LOCAL else urgent_workers
        self._urgent_workers = watched or UrgentWorkers()
        self._urgent = HintLine()
        self._bulk = HintLine()
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
        self._wake.set()
        try:
            yield
        finally:
            self._storing.discard(task)

    def start(self) -> None:
        """Begin to lease; needs the running loop."""
        self._pump = asyncio.get_running_loop().create_task(self._feed(), name=f"feed {self.step}")

    def nudge(self) -> None:
        """Look again: there may be room for more."""
        self._wake.set()

    def claim(self) -> None:
        """Ask the ledger now if nothing runs: jobs wait there, and no hint of them came."""
        if not self._running:
            self._wake.set()

    async def admit(self, ids: Sequence[UUID], *, urgent: bool) -> None:
        """Return when every id was passed to a lease, or after ``HINT_PATIENCE``; jobs that others have are passed over."""
        if not ids or self._stopping:
            return
        line = self._urgent if urgent else self._bulk
        hint = line.add(ids)
        self._wake.set()
        try:
            async with asyncio.timeout(HINT_PATIENCE.total_seconds()):
                await hint.done.wait()
        except TimeoutError:
            if line.drop(hint):
                self._let_go = True
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
                # The feed is the process's heart: what was asked for stays hinted in the ledger, so go on.
                log.exception("leasing for %s broke", self.step)
                await asyncio.sleep(LEDGER_PAUSE.total_seconds())

    async def _lease_once(self) -> None:
        """Wait for work and slots, lease once, and start what was leased."""
        # Before anything is looked at: a change from here on ends the wait below.
        self._wake.clear()
        permitted = self._permitted()
        if permitted is not None:
            await self._lease_permitted(permitted)
            return
        await self._await_work()
        await self._gather()
        if self._stopping:
            return
        urgent_room, bulk_room = self._room()
        if 0 < bulk_room < len(self._bulk):
            # The ledger says whose turn it is: else a tenant would wait behind all that was hinted before.
            self._bulk.release()
            self._let_go = True
        if ids := self._urgent.take(urgent_room):
            await self._lease(len(ids), ids=ids, min_priority=1)
        elif ids := self._bulk.take(bulk_room):
            await self._lease(len(ids), ids=ids)
        elif urgent_room and not bulk_room:
            # The hint of an urgent job may wait at another worker that has no slot for it, or behind threads that all wait here.
            if self._urgent_look_is_due():
                await self._lease(urgent_room, min_priority=1)
            await self._awaken(URGENT_LOOK)
        elif self._urgent or self._bulk or not bulk_room:
            await self._awaken(self._idle_claim())
        else:
            jobs = await self._lease(bulk_room)
            self._let_go &= jobs == bulk_room
            self._backlog = bool(jobs)

    async def _lease_permitted(self, permitted: Room) -> None:
        """Lease as limits allow: hints of jobs that are not urgent only wake, and the ledger says whose turn it is.

        So no message, and no thread with it, waits for a limit, and what is submitted later but more urgent, or by
        another tenant, does not wait behind what was hinted before.
        """
        self._bulk.release()
        free_urgent, free_bulk = self._room()
        urgent_room = min(free_urgent, permitted.urgent)
        bulk_room = min(free_bulk, permitted.bulk)
        jobs = 0
        if ids := self._urgent.take(urgent_room):
            await self._lease(len(ids), ids=ids, min_priority=1)
            return
        if bulk_room:
            jobs = await self._lease(bulk_room)
        elif urgent_room and self._urgent_look_is_due():
            jobs = await self._lease(urgent_room, min_priority=1)
        if jobs:
            self._nothing_found = BACKLOG_LOOK
            if bulk_room:
                await asyncio.sleep(GATHER_WAIT.total_seconds())
        elif bulk_room:
            await self._awaken(self._nothing_found)
            self._nothing_found = min(2 * self._nothing_found, self._idle_claim())
        else:
            await self._awaken(URGENT_LOOK)

    def _urgent_look_is_due(self) -> bool:
        due = self._urgent_looked + URGENT_LOOK.total_seconds() <= monotonic()
        if due:
            self._urgent_looked = monotonic()
        return due

    def _room(self) -> tuple[int, int]:
        """Urgent jobs, and others, to lease now; none of those whose bytes are used up."""
        free = self.slots - self.in_use
        bulk = max(0, free)
        if self.throttled or self._urgent_workers.only or not self._load.room(urgent=False):
            bulk = 0
        urgent = max(0, free + self._urgent_slots)
        if self._urgent_workers.leave or not self._load.room(urgent=True):
            urgent = 0
        return min(urgent, LEASE_ROWS), min(bulk, LEASE_ROWS)

    async def _await_work(self) -> None:
        """Return when hints wait, or it is time to look without one."""
        urgent_room, bulk_room = self._room()
        if not (self._urgent or self._bulk or (self._unhinted and bulk_room)):
            held_up = urgent_room and not bulk_room and not self._urgent_workers.only
            await self._awaken(URGENT_LOOK if held_up else self._idle_claim())

    def _idle_claim(self) -> timedelta:
        return IDLE_CLAIM if self._running or self._unhinted else IDLE_LOOK

    @property
    def _unhinted(self) -> bool:
        """The ledger is known, or likely, to hold jobs without a message."""
        return self._let_go or self._backlog

    async def _awaken(self, within: timedelta) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), within.total_seconds())

    async def _gather(self) -> None:
        """Give freed slots a moment to gather, so that one lease serves several."""
        _, room = self._room()
        if (self._bulk or self._unhinted) and not self._urgent and 0 < room < min(GATHER, self.slots // 4):
            await asyncio.sleep(GATHER_WAIT.total_seconds())

    async def _lease(self, limit: int, *, ids: Sequence[UUID] | None = None, min_priority: int | None = None) -> int:
        """Lease and start jobs; returns their number."""
        room = self._load.room(urgent=min_priority is not None) or LeaseRoom(0)
        jobs = await self._queue.lease(
            self.step,
            self._worker,
            self._lease_for,
            limit,
            ids=ids,
            min_priority=min_priority,
            max_priority=0 if ids is None and self._urgent_workers.leave else None,
            room=room,
            unread=self._unread,
        )
        if ids is not None and len(jobs) < len(ids) and _may_have_crossed(room, jobs):
            # Their messages are done: they are found in the ledger when there is room again.
            self._let_go = True
        for job in jobs:
            self._begin(job)
        return len(jobs)

    # ---- running ----

    def _begin(self, job: Lease) -> None:
        self._load.hold(job)
        task = asyncio.get_running_loop().create_task(self._run_one(job), name=f"{self.step} {job.job_id}")
        self._running[task] = job
        task.add_done_callback(self._ended)
        self._keeper.hold(_key(job), _cancel(task))

    async def _run_one(self, job: Lease) -> None:
        try:
            await self._run(job)
        finally:
            self._keeper.release(_key(job))

    def _ended(self, task: asyncio.Task[None]) -> None:
        job = self._running.pop(task)
        self._load.release(job)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s left an error behind; it is rescued", task.get_name(), exc_info=error)

    # ---- stopping ----

    def stop_admitting(self) -> None:
        """Lease nothing more and let waiting messages return; their jobs stay available in the ledger."""
        self._stopping = True
        self._wake.set()
        self._urgent.release()
        self._bulk.release()

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


def _may_have_crossed(room: LeaseRoom, jobs: Sequence[Lease]) -> bool:
    """True if a lease may have passed over jobs for their bytes or their risk."""
    brought = sum(job.request_bytes for job in jobs)
    return brought + MAX_REQUEST_BYTES > room.request_bytes or room.risk < 1 or any(job.rescues for job in jobs)


def _cancel(task: asyncio.Task[None]) -> Callable[[], None]:
    def lost() -> None:
        task.cancel()

    return lost
