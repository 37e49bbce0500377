"""Renews the leases that a process holds, from a thread of its own, while the event loop is alive."""

import asyncio
import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from tasks.errors import NightdeskError
from tasks.ports import READ_FIRST_S, STALL_S
from worker.cancellation import is_set_within
from worker.ledger.database import Admit
from worker.ledger.postgres import PostgresLedger
from worker.scheduling.held_leases import HeldLeases

log = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 4
"""A lease survives three renewals that fail."""

PATIENCE = 0.2
"""Share of the time between two renewals that a connection may take to answer."""

LEAST_PATIENCE_S = 1.0
"""A busy server may take so long."""

RETRY_S = 0.5
"""Seconds between a failed renewal, or a job that another transaction had locked, and the next try."""

CONNECTIONS = 2
"""Renewals alternate between them: when one is silent, the other one is open and was used a moment ago."""

BEAT_S = 1.0
"""Seconds between two signs of life of the loop."""

AFTER_STALL_S = 10.0
"""Seconds after a stall of the loop in which a lost lease may be lost by it."""

STALLED_LEASES = 3
"""A loop that gave no sign of life for so many lease times is dead: its leases are no longer renewed."""


class LeaseRenewer:
    """Renews leases by one batched UPDATE per quarter of a lease.

    It has its own thread, loop and connections: a loop that stalls for seconds, or a silent connection, does not lose all
    leases at once. It watches the loop's heartbeat: a dead loop does not keep its leases without end, and ``dead`` is
    called, on the renewer's thread.

    Attributes:
        leases: those that it renews.
    """

    def __init__(
        self,
        database_url: str,
        lease_for: timedelta,
        loop: asyncio.AbstractEventLoop,
        *,
        dead: Callable[[], None] | None = None,
        admit: Admit | None = None,
    ) -> None:
        self._admit = admit
        self._url = database_url
        self.leases = HeldLeases(lease_for)
        self._lease_for = lease_for
        self._loop = loop
        self._dead = dead
        self._silences = 0
        self._every_s = lease_for.total_seconds() / RENEWALS_PER_LEASE
        self._stopping = False
        self._own_loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._alive_at = monotonic()
        self._stalled_at = -math.inf
        self._thread = threading.Thread(target=self._run, name="lease renewer", daemon=True)

    def start(self) -> None:
        """Begins to renew; called on the loop."""
        self._beat()
        self._thread.start()

    async def stop(self) -> None:
        """Stops and waits for the thread, while the loop goes on."""
        self._stopping = True
        with suppress(RuntimeError):  # it has ended already
            self._own_loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)

    def _beat(self) -> None:
        if self._is_late():
            self._stalled_at = monotonic()
        self._alive_at = monotonic()
        if not self._stopping:
            self._loop.call_later(BEAT_S, self._beat)

    def _is_late(self) -> bool:
        return monotonic() - self._alive_at > BEAT_S + STALL_S

    def _lose(self, lost: Callable[[], object]) -> None:
        """Tells a holder of its loss, on the loop; one that stood still first reads the answers that wait in its sockets.

        They are paid for. What a job writes meanwhile names its old lease, so the ledger takes no more than the answer.
        """
        if self._is_late() or monotonic() - self._stalled_at < AFTER_STALL_S:
            self._loop.call_later(READ_FIRST_S, lost)
        else:
            lost()

    def _run(self) -> None:
        try:
            self._own_loop.run_until_complete(self._renew_until_stop())
        finally:
            self._own_loop.close()

    async def _renew_until_stop(self) -> None:
        ledger: PostgresLedger | None = None
        retry_s = min(RETRY_S, self._every_s)
        due = monotonic() + self._every_s
        pause_s = self._every_s
        while not await is_set_within(self._stop, pause_s):
            try:
                lives = self._loop_lives()
                if lives:
                    ledger = ledger or await self._connect()
                    await self._renew(ledger, only_locked=monotonic() < due)
                if monotonic() >= due:
                    due = monotonic() + self._every_s
                pause_s = retry_s if lives and self.leases.locked else max(0.0, due - monotonic())
            except NightdeskError as error:
                log.warning("leases could not be renewed: %s", error)
                pause_s = retry_s
            except Exception:
                # The leases of the whole process depend on this thread: it goes on after any error.
                log.exception("renewing leases broke")
                pause_s = retry_s
        if ledger is not None:
            await ledger.close()

    async def _connect(self) -> PostgresLedger:
        patience_s = max(LEAST_PATIENCE_S, PATIENCE * self._every_s)
        ledger = PostgresLedger(
            self._url, connections=CONNECTIONS, patience_s=patience_s, repeats=True, admit=self._admit
        )
        await ledger.open()
        return ledger

    def _loop_lives(self) -> bool:
        if monotonic() - self._alive_at <= STALLED_LEASES * self._lease_for.total_seconds():
            self._silences = 0
            return True
        log.critical("the event loop gave no sign of life for %d lease times: leases lapse", STALLED_LEASES)
        self._silences += 1
        # Not at once: a process that was frozen as a whole thaws thread by thread.
        if self._silences > 1 and self._dead is not None:
            self._dead()
        return False

    async def _renew(self, ledger: PostgresLedger, *, only_locked: bool) -> None:
        keys = self.leases.keys(only_locked=only_locked)
        requested_at = monotonic()
        renewal = await ledger.queue.renew(keys, self._lease_for)
        for key in keys:
            if key.job_id in renewal.lost and (lost := self.leases.release(key)) is not None:
                log.info("the lease of job %s is gone; its work is dropped", key.job_id)
                self._loop.call_soon_threadsafe(self._lose, lost)
        locked = {key for key in keys if key.job_id in renewal.locked}
        # Only now, without the lost leases.
        self.leases.note_renewal(locked, None if only_locked else requested_at)
