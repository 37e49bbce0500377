"""Takes jobs from workers that died: the dispatch duty, with the rule of when it may run."""

from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from uuid import UUID

from schemas.states import HeldReason
from tasks.ports import Ledger

ROWS = 500
"""Jobs a rescue takes at most; the next one follows a second later."""


ABANDONED_AFTER = timedelta(minutes=1)
"""A living worker closes the attempt of a job that was taken from it (cancelled, expired) well within that time."""


@dataclass(slots=True)
class Rescue:
    """Rescues expired leases once the ledger was reachable for one lease time without a break.

    A ledger that just came back finds every lease expired; its holders are alive and renew within a lease time.
    """

    ledger: Ledger
    lease_for: timedelta
    hold_unknown: bool = False
    _reachable_since: float | None = None

    async def run(self) -> list[UUID]:
        """Rescue if the rule allows; returns the job ids. Raises ``LedgerUnavailable``; call ``broken`` then."""
        server_age = await self.ledger.server_age()
        now = monotonic()
        if self._reachable_since is None:
            self._reachable_since = now
        reachable_for = min(timedelta(seconds=now - self._reachable_since), server_age)
        if reachable_for < self.lease_for:
            return []
        return await self.ledger.rescue(ROWS, HeldReason.UNKNOWN_OUTCOME if self.hold_unknown else None)

    def broken(self) -> None:
        """Note that the ledger could not be reached: the time counts anew."""
        self._reachable_since = None
