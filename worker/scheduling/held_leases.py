"""Knows the leases of a process's jobs, for the feeds that run these and for the thread that renews them."""

import math
import threading
from collections.abc import Callable, Collection
from datetime import timedelta
from time import monotonic

from tasks.ports import LeaseKey


class HeldLeases:
    """The leases of this process's jobs. Feeds hold and release them, the renewer renews them, from its own thread."""

    def __init__(self, lease_for: timedelta) -> None:
        self._lease_for = lease_for
        self._losses: dict[LeaseKey, Callable[[], object]] = {}
        self._locked: Collection[LeaseKey] = ()
        self._renewed_at = -math.inf
        self._lock = threading.Lock()

    def hold(self, key: LeaseKey, lost: Callable[[], object]) -> None:
        """Adds a lease; ``lost`` is called on the loop after its loss."""
        with self._lock:
            self._losses[key] = lost

    def surely_held(self, key: LeaseKey, confirmed_at: float) -> bool:
        """Tells whether a lease that the ledger confirmed at that time (monotonic), or renewed since, can't have run out."""
        with self._lock:
            is_renewed = key in self._losses and key not in self._locked
            latest = max(confirmed_at, self._renewed_at) if is_renewed else confirmed_at
        # The ledger may have renewed it a quarter of its time before it confirmed it.
        return monotonic() - latest < self._lease_for.total_seconds() / 2

    @property
    def locked(self) -> bool:
        """True if some were locked by another transaction at the last renewal, and not renewed."""
        return bool(self._locked)

    def keys(self, *, only_locked: bool) -> list[LeaseKey]:
        """The leases to renew."""
        with self._lock:
            return [key for key in self._losses if not only_locked or key in self._locked]

    def release(self, key: LeaseKey) -> Callable[[], object] | None:
        """Keeps a lease no more; returns the call that tells its holder of a loss."""
        with self._lock:
            return self._losses.pop(key, None)

    def note_renewal(self, locked: Collection[LeaseKey], requested_at: float | None) -> None:
        """Notes the leases that were locked; all others were renewed, unless ``requested_at`` is None."""
        with self._lock:
            self._locked = locked
            if requested_at is not None:
                self._renewed_at = requested_at
