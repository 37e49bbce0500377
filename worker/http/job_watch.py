"""Lets any number of requests wait for jobs, with one statement a look for all of them."""

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from tasks.errors import LedgerError, ServiceUnavailable
from worker.cancellation import cancel
from worker.ledger.outage import OutageLasts
from worker.ledger.tenancy import JobVersion, Tenancy

log = logging.getLogger(__name__)

LOOK_S = 0.1
"""Seconds between two looks."""

LOOK_SHARE = 0.2
"""Share of the time that may go into looking: with many waiters it takes longer, and is done less often."""


@dataclass(eq=False, slots=True)
class _Waiter:
    tag: str | None
    """Of the version that the caller has; None: only the end counts."""
    changed: asyncio.Future[None]


class JobWatch:
    """Looks at the jobs that requests wait for, as long as there are any; belongs to one event loop."""

    def __init__(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy
        self._waiters: defaultdict[UUID, set[_Waiter]] = defaultdict(set)
        self._looking: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()
        """Set when the service stops: nothing waits any more."""

    async def change(
        self, job_id: UUID, tag: str | None, within_s: float, departure: asyncio.Future[None] | None = None
    ) -> None:
        """Returns when a job is final or, with a ``tag``, of another version; at the latest after ``within_s`` seconds.

        It also returns once ``departure`` is done: nobody waits any more.
        """
        if self.closed.is_set():
            return
        waiter = _Waiter(tag, asyncio.get_running_loop().create_future())
        self._waiters[job_id].add(waiter)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="watch jobs")

        def leave(_: object) -> None:
            _wake(waiter)

        if departure is not None:
            departure.add_done_callback(leave)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await waiter.changed
        finally:
            if departure is not None:
                departure.remove_done_callback(leave)
            self._waiters[job_id].discard(waiter)
            if not self._waiters[job_id]:
                del self._waiters[job_id]

    async def close(self) -> None:
        """Lets every waiter go on at once, with its job as it is."""
        self.closed.set()
        for waiters in self._waiters.values():
            for waiter in waiters:
                _wake(waiter)
        if self._looking is not None:
            await cancel(self._looking)

    async def _look(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while self._waiters:
                began = clock()
                for version in await self._versions():
                    self._compare(version)
                await asyncio.sleep(max(LOOK_S, (clock() - began) / LOOK_SHARE))
        finally:
            self._looking = None

    async def _versions(self) -> list[JobVersion]:
        try:
            return await self._tenancy.versions(list(self._waiters))
        except (ServiceUnavailable, LedgerError) as error:
            # Each waiter reads its job itself at the end, and learns then that the ledger is away.
            if not isinstance(error, OutageLasts):
                log.warning("jobs can't be watched now: %s", error)
            return []

    def _compare(self, version: JobVersion) -> None:
        for waiter in self._waiters.get(version.job_id, ()):
            if version.final or waiter.tag not in {None, version.tag}:
                _wake(waiter)


def _wake(waiter: _Waiter) -> None:
    if not waiter.changed.done():
        waiter.changed.set_result(None)
