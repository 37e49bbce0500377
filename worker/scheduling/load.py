"""Bounds the bytes and the risk of the jobs that a process holds."""

from dataclasses import dataclass, field

from tasks.defaults import MAX_BYTES_IN_FLIGHT
from tasks.ports import Lease, LeaseRoom, risk_of

URGENT_BYTES = 0.1
"""Share of the bytes that only urgent jobs get, so that big bulk jobs never fill them all."""


@dataclass(slots=True)
class Suspicion:
    """The sum of the risks of the jobs that a process runs, over all its steps."""

    risk: float = 0.0


@dataclass(slots=True)
class Load:
    """Requests that one step of a process holds.

    Attributes:
        max_bytes: bound of the bytes; the job that crosses it is still taken, so that the biggest one has its turn.
        suspicion: shared by the steps of the process.
    """

    max_bytes: int = MAX_BYTES_IN_FLIGHT
    suspicion: Suspicion = field(default_factory=Suspicion)
    bytes: int = 0

    def hold(self, job: Lease) -> None:
        """Counts a leased job."""
        self.bytes += job.request_bytes
        self.suspicion.risk += risk_of(job.rescues)

    def release(self, job: Lease) -> None:
        """Counts a job no more."""
        self.bytes -= job.request_bytes
        self.suspicion.risk -= risk_of(job.rescues)

    def room(self, *, urgent: bool) -> LeaseRoom | None:
        """Bounds of the next lease; None: nothing more is taken until a job ends."""
        free = int(self.max_bytes * (1 if urgent else 1 - URGENT_BYTES)) - self.bytes
        return LeaseRoom(free, max(0.0, 1.0 - self.suspicion.risk)) if free > 0 else None
