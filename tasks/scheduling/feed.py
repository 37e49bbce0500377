"""Admits jobs to a process's event loop: hints are merged, leased within the free slots, and run until done."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, Protocol
from uuid import UUID

from schemas.job import MAX_REQUEST_BYTES
from schemas.states import Step
from tasks.errors import LedgerUnavailable, NightdeskError
from tasks.ports import Leased, LeaseKey, LeaseRoom, Queue, Room
from tasks.scheduling.hint_line import HintLine
from tasks.scheduling.leased_ahead import LeasedAhead
from tasks.scheduling.load import Load
from tasks.scheduling.loop_turns import LoopTurns
from tasks.scheduling.urgent_workers import UrgentWorkers

log = logging.getLogger(__name__)

GATHER = 25
"""Freed slots that are gathered before the next lease: without it a steady load leases one row a statement."""

GATHER_WAIT = timedelta(milliseconds=50)
"""How long freed slots are gathered at most."""

CPU_GATHER_WAIT = timedelta(milliseconds=500)
"""The same of a step whose jobs wait for the CPU in their slots: a slot that is free meanwhile delays nothing."""

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


Run = Callable[[Leased], Awaitable[Leased | None]]
"""Takes a job through a step."""


class LeaseHolder(Protocol):
    """Renews the leases of running jobs and says which are lost."""

    def hold(self, key: LeaseKey, lost: Callable[[], None]) -> None:
        """Keep a lease; ``lost`` is called on the loop when it is gone."""
        ...

    def release(self, key: LeaseKey) -> None:
        """Stop keeping a lease."""
        ...


def urgent_slots(slots: int) -> int:
    """Calls of urgent jobs that a process makes beyond its ``slots``; at least one."""
    return max(1, int(slots * URGENT_SHARE))


class Feed:
    """Feeds one step of a process.

    ``run`` takes one job, whose slot is free when it returns; every job has its own task, so the slowest of a lease
    delays no other. A job that it returns goes to ``then``, under the same lease.
    """

    def __init__(
        self,
        step: Step,
        *,
        slots: int,
        worker: str,
        lease_for: timedelta,
        queue: Queue,
        keeper: LeaseHolder,
        run: Run,
        prepare: Callable[[Leased], Run] | None = None,
        forget: Callable[[Leased], None] = lambda _: None,
        then: Callable[[Leased], None] | None = None,
        permitted: Callable[[], Room | None] = lambda: None,
        waits: Callable[[UUID], bool] = lambda _: False,
        load: Load | None = None,
        turns: LoopTurns | None = None,
        urgent_workers: UrgentWorkers | None = None,
        gather_wait: timedelta | None = None,
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
        self._prepare = prepare
        """Begins the work on a job that is leased ahead of a slot; returns what takes it on. None: no job is."""
        self._forget = forget
        """Lets go of a job that was prepared and does not begin here."""
        self._then = then
        self._permitted = permitted
        """How many more jobs may wait for permits; None: as many as there are slots."""
        self._waits = waits
        """Tells by its id whether a job waits for a permit now."""
        self._gather_wait = gather_wait
        """How long freed slots are gathered; None: ``GATHER_WAIT``."""
        self._load = load or Load()
        """What the jobs of this step that run here hold."""
        self._let_go = False
        """The ledger holds jobs whose messages were let go."""
        self._backlog = False
        """The last lease without a hint found jobs: there may be more."""
        self._nothing_found = BACKLOG_LOOK
        self._urgent_looked = float("-inf")
        self._urgent_slots = urgent_slots(slots)
        self._running: dict[asyncio.Task[None], Leased] = {}
        self._running_urgent: set[asyncio.Task[None]] = set()
        self._storing: set[asyncio.Task[None]] = set()
        """Of these the ones whose slot is free already."""
        self._ahead = LeasedAhead[Run](slots if prepare is not None else 0)
        self._turns = turns or LoopTurns(self._load.urgency)
        # None of them has a local model.
        watched = None if step is Step.LOCAL else urgent_workers
        self._urgent_workers = watched or UrgentWorkers()
        self._leasing = False
        """The pump waits for the ledger."""
        self._express: asyncio.Task[None] | None = None
        """The lease of urgent jobs under way beside the pump."""
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
        self._note_free()
        try:
            yield
        finally:
            # Taken again: an answer that can't be checked yet keeps its slot.
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

    def _idle_claim(self) -> timedelta:
        return IDLE_CLAIM if self._running or self._unhinted else IDLE_LOOK

    async def admit(self, ids: Sequence[UUID], *, urgent: bool) -> None:
        """Return when every id was passed to a lease, or after ``HINT_PATIENCE``; jobs that others have are passed over."""
        if not ids or self._stopping:
            return
        line = self._urgent if urgent else self._bulk
        hint = line.add(ids)
        if urgent:
            self._begin_express()
        if hint.ids:
            self._wake.set()
        try:
            async with asyncio.timeout(HINT_PATIENCE.total_seconds()):
                await hint.done.wait()
        except TimeoutError:
            if line.drop(hint):
                self._let_go = True
                self._wake.set()

    # ---- urgent hints ----

    def take_urgent(self, job_ids: Sequence[UUID]) -> bool:
        """Lease urgent jobs at once, without a message; False: there are no slots for them here, or workers for them elsewhere."""
        if self._urgent_workers.leave or self._urgent or self._express_room() < len(job_ids):
            return False
        self._urgent.add(job_ids)
        self._begin_express()
        return True

    def _express_room(self) -> int:
        """Urgent jobs that may be leased beside what the pump leases; those that find no slot are first for the next."""
        if self._stopping or self._load.room(urgent=True) is None:
            return 0
        room = min(self._free(urgent=True), LEASE_ROWS)
        permitted = self._permitted()
        return max(0, room if permitted is None else min(room, permitted.urgent))

    def _begin_express(self) -> None:
        """Lease hinted urgent jobs, if there is room, whatever the pump waits for."""
        if self._urgent and self._express is None and (ids := self._urgent.take(self._express_room())):
            work = self._lease_express(ids)
            self._express = asyncio.get_running_loop().create_task(work, name=f"express {self.step}")

    async def _lease_express(self, ids: list[UUID]) -> None:
        try:
            while ids:
                room = self._load.beside() if self._leasing else None
                self._start(await self._lease_within(room, len(ids), ids=ids, min_priority=1))
                ids = self._urgent.take(self._express_room())
        except Exception as error:
            # Their messages are done: they are found in the ledger.
            self._let_go = True
            if isinstance(error, LedgerUnavailable):
                log.warning("urgent jobs of %s wait for the ledger: %s", self.step, error)
            else:
                log.exception("leasing urgent jobs for %s broke", self.step)
        finally:
            self._express = None
            if self._urgent or self._let_go:
                self._wake.set()

    # ---- the pump ----

    async def _feed(self) -> None:
        while not self._stopping:
            try:
                await self._lease_once()
            except LedgerUnavailable as error:
                log.warning("%s waits for the ledger: %s", self.step, error)
                await self._sleep(LEDGER_PAUSE)
            except Exception:
                # The feed is the process's heart: what was asked for stays hinted in the ledger, so go on.
                log.exception("leasing for %s broke", self.step)
                await self._sleep(LEDGER_PAUSE)

    async def _lease_once(self) -> None:
        """Wait for work and slots, lease once, and start what was leased."""
        # Before anything is looked at: a change from here on ends the wait below.
        self._wake.clear()
        await self._give_back(self._ahead.stuck())
        self._begin_express()
        permitted = self._permitted()
        if permitted is not None:
            await self._lease_permitted(permitted)
            return
        hints_wait = await self._has_hints()
        await self._gather()
        if self._stopping:
            return
        urgent_room, bulk_room = self._room()
        if hints_wait:
            if ids := self._bulk.take(bulk_room):
                self._start(await self._lease(len(ids), ids=ids))
            urgent_room, _ = self._room()
            if self._bulk and urgent_room and self._urgent_look_is_due():
                # Every thread may wait with a hint of bulk jobs, and none be left to bring the hint of an urgent one.
                self._start(await self._lease(urgent_room, min_priority=1))
            if not ids:
                await self._awaken(URGENT_LOOK if self._bulk else IDLE_CLAIM)
        elif bulk_room:
            jobs = await self._lease(bulk_room)
            self._let_go &= len(jobs) == bulk_room
            self._start(jobs)
            self._backlog = bool(jobs)
        elif urgent_room:
            self._start(await self._lease(urgent_room, min_priority=1))

    async def _lease_permitted(self, permitted: Room) -> None:
        """Lease as limits allow: hints of jobs that are not urgent only wake, and the ledger says whose turn it is.

        So no message, and no thread with it, waits for a limit, and what is submitted later but more urgent, or by
        another tenant, does not wait behind what was hinted before.
        """
        self._bulk.release()
        free_urgent, free_bulk = self._room(ahead=0)
        urgent_room, bulk_room = min(free_urgent, permitted.urgent), min(free_bulk, permitted.bulk)
        jobs: list[Leased] = []
        if bulk_room:
            jobs = await self._lease(bulk_room)
        elif urgent_room and self._urgent_look_is_due():
            jobs = await self._lease(urgent_room, min_priority=1)
        self._start(jobs)
        if jobs:
            self._nothing_found = BACKLOG_LOOK
            if bulk_room:
                await self._sleep(GATHER_WAIT)
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

    def _room(self, ahead: int | None = None) -> tuple[int, int]:
        """Free slots for urgent jobs, and for others with those leased ahead; none for those whose bytes are used up."""
        ahead = self._ahead.room if ahead is None else ahead
        bulk = 0 if self.throttled or self._urgent_workers.only else self._free() + ahead
        takes_urgent = not self._urgent_workers.leave and self._load.room(urgent=True)
        urgent_room = min(self._free(urgent=True), LEASE_ROWS) if takes_urgent else 0
        return urgent_room, min(bulk, LEASE_ROWS) if self._load.room(urgent=False) else 0

    def _free(self, *, urgent: bool = False) -> int:
        """Slots that are free for urgent jobs, or for others.

        Urgent ones have theirs whatever the others take: answers that wait for their check may take more than there are.
        """
        free = self.slots - self.in_use
        if urgent:
            free += self._urgent_slots
            free = max(free, self._urgent_slots - len(self._running_urgent - self._storing))
        return max(0, free)

    async def _has_hints(self) -> bool:
        """True if hints wait; False when it is time to look without one."""
        urgent_room, bulk_room = self._room()
        if not (self._urgent or self._bulk or (self._unhinted and bulk_room)):
            # The hint of an urgent job may wait at another worker that has no slot for it.
            held_up = urgent_room and not bulk_room and not self._urgent_workers.only
            await self._awaken(URGENT_LOOK if held_up else self._idle_claim())
        return bool(self._urgent or self._bulk)

    @property
    def _unhinted(self) -> bool:
        """The ledger is known, or likely, to hold jobs without a message."""
        return self._let_go or self._backlog

    async def _awaken(self, within: timedelta) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), within.total_seconds())

    async def _gather(self) -> None:
        """Give freed slots a moment to gather, so that one lease serves several."""
        until = monotonic() + (self._gather_wait or GATHER_WAIT).total_seconds()
        # Jobs that were leased ahead take the slots meanwhile.
        while self._gathers and (monotonic() < until or self._ahead.is_full_by_half):
            await self._sleep(GATHER_WAIT)

    @property
    def _gathers(self) -> bool:
        _, room = self._room()
        more_wait = self._bulk or self._unhinted
        return bool(more_wait) and not self._urgent and not self._stopping and 0 < room < min(GATHER, self.slots // 4)

    async def _lease(self, limit: int, **terms: Any) -> list[Leased]:
        """Lease for the pump."""
        self._leasing = True
        try:
            return await self._lease_within(None, limit, **terms)
        finally:
            self._leasing = False

    async def _lease_within(
        self,
        room: LeaseRoom | None,
        limit: int,
        *,
        ids: Sequence[UUID] | None = None,
        min_priority: int | None = None,
    ) -> list[Leased]:
        room = room or self._load.room(urgent=min_priority is not None) or LeaseRoom(0)
        jobs = await self._queue.lease(
            self.step,
            self._worker,
            self._lease_for,
            limit,
            ids=ids,
            min_priority=min_priority,
            max_priority=0 if ids is None and self._urgent_workers.leave else None,
            room=room,
        )
        if ids is not None and len(jobs) < len(ids) and _may_have_crossed(room, jobs):
            # Their messages are done: they are found in the ledger when there is room again.
            self._let_go = True
        return jobs

    def take(self, job: Leased) -> None:
        """Run a job that this process has leased already, whatever the slots."""
        self._load.hold(job)
        self._begin(job, self._run)

    def _start(self, jobs: list[Leased]) -> None:
        """Begin leased jobs; those without a slot begin when one comes free."""
        for job in jobs:
            self._load.hold(job)
            if self._fits(job):
                self._begin(job, self._run)
            elif self._prepare is not None:
                key = LeaseKey(job.job_id, job.token)
                self._ahead.add(job, self._prepare(job))
                self._keeper.hold(key, partial(self._drop, key))

    def _fits(self, job: Leased) -> bool:
        return self._prepare is None or self._free(urgent=job.priority > 0) > 0

    def _begin(self, job: Leased, run: Run) -> None:
        task = asyncio.get_running_loop().create_task(self._run_one(job, run), name=f"{self.step} {job.job_id}")
        self._running[task] = job
        self._ahead.note_start()
        if job.priority > 0:
            self._running_urgent.add(task)
        task.add_done_callback(self._ended)
        self._keeper.hold(LeaseKey(job.job_id, job.token), _cancel(task))

    def _drop(self, key: LeaseKey) -> None:
        if (job := self._ahead.drop(key)) is not None:
            self._load.release(job)
            self._forget(job)

    async def _give_back(self, leases: Sequence[LeaseKey]) -> None:
        """Let others have jobs that found no slot here."""
        for key in leases:
            self._keeper.release(key)
            self._drop(key)
        if leases:
            await self._hand_back(leases)

    async def _run_one(self, job: Leased, run: Run) -> None:
        try:
            if job.priority <= 0:
                await self._turns.wait()
            next_job = await run(job)
        finally:
            self._keeper.release(LeaseKey(job.job_id, job.token))
        if next_job is not None and self._then is not None:
            # Without a turn of the loop in between: the lease is renewed on.
            self._then(next_job)

    def _ended(self, task: asyncio.Task[None]) -> None:
        job = self._running.pop(task)
        self._load.release(job)
        self._running_urgent.discard(task)
        if task.cancelled():
            # Perhaps before it had its turn to begin.
            self._forget(job)
        self._ahead.note_end()
        self._note_free()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s left an error behind; it is rescued", task.get_name(), exc_info=error)

    def _note_free(self) -> None:
        while self._ahead and not self._stopping:
            if not self._free(urgent=self._ahead.has_urgent):
                break
            self._begin(*self._ahead.take())
        self._begin_express()
        self._wake.set()

    async def _sleep(self, pause: timedelta) -> None:
        await asyncio.sleep(pause.total_seconds())

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
        if self._express is not None:
            await self._express
        await self._give_back(self._ahead.keys())
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
        await self._hand_back([LeaseKey(job.job_id, job.token) for job in unfinished.values()])
        return len(unfinished)

    async def _give_back_waiting(self) -> None:
        """Interrupts the jobs that wait for a permit, and lets others have them."""
        waiting = {task: job for task, job in self._running.items() if self._waits(job.job_id)}
        if not waiting:
            return
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting, timeout=CANCEL_AGAIN.total_seconds())
        await self._hand_back([LeaseKey(job.job_id, job.token) for job in waiting.values()])

    async def _hand_back(self, leases: Sequence[LeaseKey]) -> None:
        """Releases the leases of interrupted jobs at once, but for those with open calls, whose outcome is not known yet."""
        try:
            await self._queue.hand_back(leases)
        except NightdeskError as error:
            log.warning("jobs of step %s wait for their rescue: %s", self.step, error)


def _may_have_crossed(room: LeaseRoom, jobs: Sequence[Leased]) -> bool:
    """True if a lease may have passed over jobs for their bytes or their risk."""
    brought = sum(job.request_bytes for job in jobs)
    return brought + MAX_REQUEST_BYTES > room.request_bytes or room.risk < 1 or any(job.rescues for job in jobs)


def _cancel(task: asyncio.Task[None]) -> Callable[[], None]:
    def lost() -> None:
        task.cancel()

    return lost
