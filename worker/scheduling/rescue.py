"""Takes jobs from workers that died: the dispatch duty, with the rule of when it may run."""

from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from uuid import UUID

from schemas.states import HeldReason
from tasks.defaults import MAX_RESCUES
from worker.ledger.duties import PostgresDuties

ROWS = 500
"""Jobs a rescue takes at most; the next one follows a second later."""


LONGEST_GAP = timedelta(seconds=2.5)
"""Least time between two answers of the ledger that counts as a break; the leader asks it every second."""


@dataclass(slots=True)
class Rescue:
    """Rescues expired leases once the ledger was reachable for one lease time without a break.

    A ledger that just came back finds every lease expired; its holders are alive and renew within a lease time. A gap
    counts as a break although nothing failed: a worker that waited for a connection could not renew either.
    """

    duties: PostgresDuties
    lease_for: timedelta
    hold_unknown: bool = False
    max_rescues: int = MAX_RESCUES
    rescued: int = 0
    """Jobs so far."""
    _reachable_since: float | None = None
    _reached_at: float | None = None
    _server_age: timedelta = timedelta(0)

    def reached(self, server_age: timedelta) -> None:
        """Note that the ledger was reached, and how long its server has been up."""
        now = monotonic()
        longest = max(LONGEST_GAP, self.lease_for / 2).total_seconds()
        if self._reachable_since is None or self._reached_at is None or now - self._reached_at > longest:
            self._reachable_since = now
        self._reached_at = now
        self._server_age = server_age

    def allowed(self) -> bool:
        """True if the rule allows a rescue now."""
        if self._reachable_since is None:
            return False
        return min(timedelta(seconds=monotonic() - self._reachable_since), self._server_age) >= self.lease_for

    async def run(self) -> list[UUID]:
        """Rescue if the rule allows; returns the job ids. Raises ``LedgerUnavailable``."""
        if not self.allowed():
            return []
        reason = HeldReason.UNKNOWN_OUTCOME if self.hold_unknown else None
        jobs = await self.duties.rescue(ROWS, reason, self.max_rescues)
        self.rescued += len(jobs)
        return jobs

    def broken(self) -> None:
        """Notes that the ledger could not be reached: the time starts again."""
        self._reachable_since = None
