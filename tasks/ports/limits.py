"""Limits on provider calls: permission before a call, and its result after it."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from schemas.failure import Failure
from schemas.model_call import Completion
from tasks.ports.provider import Call
from tasks.ports.rows import Leased


@dataclass(frozen=True, slots=True)
class Permit:
    """Permission to make one call now. Each is handed back exactly once: ``answered``, ``failed`` or ``unused``."""

    id: UUID
    provider: str
    model: str
    lane: str
    reserved: tuple[float, ...]
    """What was reserved, in the order of the limiter's dimensions."""
    taken_at_s: float
    """By the clock of the process that granted it."""
    waited_ms: float
    shared: bool = False
    """Granted by the account that all workers share."""
    body_bytes: int = 0


class DenyReason(StrEnum):
    """Why a call may not be made now."""

    LIMIT = "rate_limit"
    """The limit is used up for longer than a job waits with its lease held."""
    BREAKER = "breaker"
    """The provider failed many times in a row and is left alone for a while."""
    LANE_PAUSED = "lane_paused"
    """Quota used up, key or model refused, or no connection; an operator (or the automatic retry) lets the lane go on."""


@dataclass(frozen=True, slots=True)
class Denied:
    """No permission: come back after ``delay``, or when the lane goes on."""

    why: DenyReason
    delay: timedelta


@dataclass(frozen=True, slots=True)
class Room:
    """Numbers of further jobs that may be leased to wait for permits: urgent ones, and others."""

    urgent: int
    bulk: int


class Limits(Protocol):
    """The limits of every provider and model, shared by all workers."""

    async def permit(self, job: Leased, call: Call) -> Permit | Denied:
        """Wait for permission, a few seconds at most; raises ``LedgerUnavailable`` when a pause can't be confirmed."""

    def answered(self, permit: Permit, completion: Completion) -> None:
        """The call got an answer: correct what was reserved, learn from the provider's headers."""

    def failed(self, permit: Permit, failure: Failure) -> bool:
        """Slow down, open the breaker or pause the lane, as the failure asks for; True if the lane is paused for it."""

    def unused(self, permit: Permit) -> None:
        """No call was made: everything reserved is given back."""
