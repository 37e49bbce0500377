"""Responses in a provider's background: the provider's side, and the ledger's side, which keeps their ids."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from schemas.generation import Lane
from tasks.ports.provider import Answered, Call
from tasks.ports.remote_batches import RemoteResult

# ---- the provider ------------------------------------------------------------------------------------------------


class RemoteResponses(Protocol):
    """The background of one provider; a response is created by ``Provider.call``.

    Every method raises ``ProviderError`` only; none tries again. ``NOT_FOUND``: the provider has no such response any more.
    """

    async def check(self, remote_id: str) -> RemoteResult | None:
        """Fetch a response; None: it is under way."""

    async def cancel(self, remote_id: str) -> RemoteResult | None:
        """Ask the provider to end a response early; returns what it came to, or None while that is open."""

    async def forget(self, remote_id: str) -> None:
        """Remove a response from the provider's store."""

    def answer(self, call: Call, result: RemoteResult) -> Answered:
        """Parse a result as the answer of a single call is parsed. Raises ``ProviderError``."""


# ---- the ledger --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenResponse:
    """A response that a worker looks after for a while; the id is that of its attempt.

    Attributes:
        remote_id: the provider's id.
        age: time since its attempt was opened, by the ledger's clock.
        looks: number of times that it was looked after, this time included.
        closed: its attempt is closed: its answer is stored, or its outcome was given up as unknown.
        has_job: a job waits for it.
        cancelled: the provider was asked to end it.
        spilled: it is to end for the deadline of its job, which goes on by another lane.
        due_in: until that deadline; None: its job stays in this lane.
        overdue: time since it was due to be looked after.
    """

    id: UUID
    remote_id: str
    provider: str
    model: str
    lane: Lane
    age: timedelta
    looks: int
    closed: bool
    has_job: bool
    cancelled: bool
    spilled: bool
    due_in: timedelta | None = None
    overdue: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class ResponseLoad:
    """The open responses of a model whose jobs have a deadline to be moved for."""

    calls: int = 0
    body_bytes: int = 0
