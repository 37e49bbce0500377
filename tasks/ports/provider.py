"""Model providers, the catalog of those that an installation has, and the model of the local check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

from schemas.generation import AnswerProtocol
from schemas.job import GenerationConfig, JobRequest
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


@dataclass(frozen=True, slots=True)
class Turn:
    """A provider and model in a job's fallback chain; a model of None is the provider's default."""

    provider: str
    model: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Turn":
        """Read ``provider`` or ``provider:model``; a model may hold colons."""
        provider, _, model = text.partition(":")
        return cls(provider, model or None)


@dataclass(frozen=True, slots=True)
class CheapJudge:
    """The cheap model of a vendor that judges what its other models write."""

    turn: Turn
    reasoning_effort: str | None = None
    """Effort at which it writes no thoughts that are paid for; None: the provider's default."""
    least_usd: Decimal = Decimal(0)
    """Cost of a request without claims and passages: no call costs less."""


class Provider(Protocol):
    """One way to call a model. Adapters know no prompt wording; steps know no SDK."""

    name: str

    def protocol(self, config: GenerationConfig) -> AnswerProtocol:
        """The answer protocol of this config: the one it names, else the one this provider serves best.

        Raises ``ProviderError`` (configuration) when the provider has no such protocol.
        """

    def model_of(self, config: GenerationConfig) -> str | None:
        """The model that answers this config: the one it names, else this provider's own; None: not known by name."""

    def plan(self, request: JobRequest, prompt: Prompt) -> Call:
        """Turn a rendered prompt into a call. Pure; raises ``ProviderError`` when the config can't be served."""

    def expected_usd(self, call: Call) -> Decimal | None:
        """The likely cost of a planned call whose answer fills its limit; None: the price is unknown.

        To choose by, not to reserve: see ``Call.reserve_usd``.
        """

    async def call(self, call: Call, listener: Listener | None = None) -> Answered:
        """Make the call once; no retries inside. Raises ``ProviderError`` only.

        With ``call.stream`` a listener gets the text as it comes; the answer is the same as without one. A stream that
        ends without saying so is an error, never a short answer.
        """

    async def close(self) -> None:
        """Release connections."""


@dataclass(frozen=True, slots=True)
class Objection:
    """Something in a job's config that can't be served.

    Attributes:
        field: dotted path in the job.
        message: why, and what can be served.
        certain: False where the workers may have other settings than the door: a warning, not a refusal.
    """

    field: str
    message: str
    certain: bool = True


class Catalog(Protocol):
    """The providers, prices and lanes of an installation, known without calling anyone."""

    def objections(self, config: GenerationConfig, *, generates: bool, priced: bool) -> Sequence[Objection]:
        """Find what can't be served.

        Args:
            config: of the job.
            generates: whether an answer is written; False for a check-only job.
            priced: whether the batch has a ceiling, so that every call needs a known price.
        """


class Everything(Catalog):
    """The catalog of a door that leaves it to the workers."""

    def objections(self, config: GenerationConfig, *, generates: bool, priced: bool) -> Sequence[Objection]:  # noqa: ARG002 - the port's
        """Find nothing."""
        return ()


class ClaimScorer(Protocol):
    """A local model of the check. ``name`` and ``version`` are what a record names; the version changes with its scores."""

    name: str
    version: str
    max_tokens: int
    """Tokens that it reads of a passage and a claim together; a longer passage is cut by it, never the claim."""

    def score(self, pairs: Sequence[tuple[str, str]]) -> Sequence[float]:
        """The log-odds of support for each (evidence, claim), in order: above 0 it rather is supported.

        Called from one thread at a time, with all pairs of an answer. May raise, which leaves its verdicts out.
        """
