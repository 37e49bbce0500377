"""Renews the leases of a process, from a thread of its own, while the event loop is alive."""

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from datetime import timedelta
from time import monotonic

from tasks.errors import NightdeskError
from tasks.ports import LeaseKey
from worker.ledger.postgres import PostgresLedger

log = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 4
"""A lease survives three renewals that fail."""

STALLED_LEASES = 3
"""A loop that gave no sign of life for so many lease times is dead: its leases are no longer renewed."""


class LeaseKeeper:
    """Keeps leases by one batched UPDATE per quarter of a lease.

    It has its own thread and connection, so that a loop that stalls for seconds does not lose all leases at once;
    and it watches the loop's heartbeat, so that a loop that is dead does not keep them for ever: ``dead`` is then
    called, on the keeper's thread.
    """

    def __init__(
        self,
        database_url: str,
        lease_for: timedelta,
        loop: asyncio.AbstractEventLoop,
        *,
        dead: Callable[[], None] | None = None,
    ) -> None:
        self._url = database_url
        self._lease_for = lease_for
        self._loop = loop
        self._dead = dead
        self._silences = 0
        self._held: dict[LeaseKey, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._alive_at = monotonic()
        self._renewed_at = -math.inf
        self._thread = threading.Thread(target=self._run, name="lease keeper", daemon=True)

    def start(self) -> None:
        """Start renewing; call on the loop."""
        self._beat()
        self._thread.start()

    async def stop(self) -> None:
        """Stop renewing and wait for the thread, the loop going on."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def hold(self, key: LeaseKey, lost: Callable[[], None]) -> None:
        """Keep a lease; ``lost`` is called on the loop when it is gone."""
        with self._lock:
            self._held[key] = lost

    def release(self, key: LeaseKey) -> None:
        """Stop keeping a lease."""
        with self._lock:
            self._held.pop(key, None)

    def surely_held(self, key: LeaseKey, confirmed_at: float) -> bool:
        """Whether a lease that the ledger confirmed at that time (monotonic), or renewed since, can't have run out."""
        with self._lock:
            latest = max(confirmed_at, self._renewed_at) if key in self._held else confirmed_at
        # What was confirmed may have been renewed a quarter of its time before.
        return monotonic() - latest < self._lease_for.total_seconds() / 2

    def _beat(self) -> None:
        self._alive_at = monotonic()
        if not self._stop.is_set():
            self._loop.call_later(1.0, self._beat)

    def _run(self) -> None:
        every = self._lease_for.total_seconds() / RENEWALS_PER_LEASE
        with asyncio.Runner() as runner:
            ledger = PostgresLedger(self._url, connections=1)
            opened = False
            while not self._stop.wait(every):
                try:
                    if not opened:
                        runner.run(ledger.open())
                        opened = True
                    self._renew(runner, ledger)
                except NightdeskError as error:
                    log.warning("leases could not be renewed: %s", error)
                    if not opened:
                        # A pool that failed to open can't be opened again.
                        ledger = PostgresLedger(self._url, connections=1)
            if opened:
                runner.run(ledger.close())

    def _renew(self, runner: asyncio.Runner, ledger: PostgresLedger) -> None:
        if monotonic() - self._alive_at > STALLED_LEASES * self._lease_for.total_seconds():
            log.critical("the event loop gave no sign of life for %d lease times: leases lapse", STALLED_LEASES)
            self._silences += 1
            # Not at once: a process that was frozen as a whole thaws thread by thread.
            if self._silences > 1 and self._dead is not None:
                self._dead()
            return
        self._silences = 0
        with self._lock:
            keys = list(self._held)
        asked_at = monotonic()
        lost = runner.run(ledger.renew(keys, self._lease_for))
        for key in keys:
            if key.job_id in lost:
                self._tell(key)
        # Only now: those that were lost are not held any more.
        self._renewed_at = asked_at

    def _tell(self, key: LeaseKey) -> None:
        with self._lock:
            lost = self._held.pop(key, None)
        if lost is not None:
            log.info("the lease of job %s is gone; its work is dropped", key.job_id)
            self._loop.call_soon_threadsafe(lost)
