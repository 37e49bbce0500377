"""Searches a worker for garbage when nothing waits for it; Python's own search, which may come at any moment, is off there."""

import asyncio
import gc
import logging
import time
from collections.abc import Callable

import psutil

from tasks.scheduling.urgency import Urgency

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks at the process."""

GROWTH_BYTES = 64 * 2**20
"""Growth of the resident memory since the last search after which the next one comes: so much garbage may lie there at most."""

EARLIEST_S = 10.0
"""Seconds between two searches at rest: a worker with a job now and then is at rest after each."""

LATEST_S = 60.0
"""Seconds after the last search at which the next one comes, if there was work since."""

URGENT_PATIENCE = 10
"""Looks in a row that a search is put off because something urgent is in hand."""


def resident_bytes() -> int:
    """The memory that the process has in use."""
    return int(psutil.Process().memory_info().rss)


class GarbageSearch:
    """Decides once a second whether to search; belongs to one event loop, which stands still for a search.

    With a thousand jobs in hand a search takes a tenth of a second, whatever it finds; a job leaves hardly any garbage, for
    what refers to nothing in a circle is freed at once.

    Args:
        jobs: number of jobs in hand.
        urgency: of the process; a search is put off for what is urgent.
        resident: bytes of memory in use.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        jobs: Callable[[], int],
        urgency: Urgency,
        *,
        resident: Callable[[], int] = resident_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = jobs
        self._urgency = urgency
        self._resident = resident
        self._clock = clock
        self._has_worked = False
        """There were jobs since the last search."""
        self._put_off = 0
        self._searched_at = clock()
        self._resident_after = resident()

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Searches if it is time to."""
        jobs = self._jobs()
        self._has_worked |= jobs > 0
        if not self._is_due(jobs):
            return
        if self._urgency.count and self._put_off < URGENT_PATIENCE:
            self._put_off += 1
            return
        self._search()

    def _is_due(self, jobs: int) -> bool:
        pause_s = LATEST_S if jobs else EARLIEST_S
        if self._has_worked and self._clock() - self._searched_at >= pause_s:
            return True
        return self._resident() - self._resident_after >= GROWTH_BYTES

    def _search(self) -> None:
        began = self._clock()
        objects = gc.collect()
        self._searched_at = self._clock()
        self._resident_after = self._resident()
        self._has_worked, self._put_off = False, 0
        log.debug("searched for garbage in %.0f ms: %d objects", 1000 * (self._searched_at - began), objects)
