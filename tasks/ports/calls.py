"""Provider calls ready to be made, and their answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from schemas.model_call import Completion, Prompt


@dataclass(slots=True)
class Call:
    """A provider call ready to be made: everything pure is done, so its hash is known before it is sent.

    ``body`` is what goes on the wire (without credentials); ``parameters_dropped`` says why a parameter asked for is not in it.
    Nothing of a call changes, but that an adapter may take its body to send it.
    """

    provider: str
    model: str | None
    lane: str
    protocol: AnswerProtocol
    body: bytes
    request_hash: bytes
    timeout_s: float
    reserve_usd: Decimal | None
    """Worst-case cost; None: the price is unknown."""
    prompt: Prompt
    request: JobRequest
    parameters_sent: dict[str, Any] = field(default_factory=dict)
    parameters_dropped: dict[str, str] = field(default_factory=dict)
    stream: bool = False
    """The answer comes piece by piece."""
    endpoint: str | None = None
    """Where it goes: host and path, without credentials or query; None: nowhere that has an address."""

    def take_body(self) -> bytes:
        """Returns the body and lets go of it: it is as large as all sources, and whoever calls again plans another call."""
        body, self.body = self.body, b""
        return body


@dataclass(frozen=True, slots=True)
class Answered:
    """A provider's answer: the bytes as received and what the adapter parsed of them."""

    raw: bytes
    completion: Completion
    remote_id: str | None = None
    """The provider's id of a response that is under way in its background: the answer is still to come."""


@dataclass(slots=True)
class Listener:
    """Receives a streamed answer while it comes.

    ``so_far`` is set by the provider and asked by the step when the call ends without its answer, whatever ended it:
    an error, the time limit, or the worker's own stop. None: nothing came.
    """

    on_text: Callable[[str], None]
    """Gets each piece of the answer's text, in order; never raises, never waits."""
    on_end: Callable[[], None] = lambda: None
    """Called by the step when no more text comes; never raises."""
    so_far: Callable[[], Answered | None] = lambda: None
