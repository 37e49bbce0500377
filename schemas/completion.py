"""The result of a paid call: the raw answer, its usage, and the snapshot of the provider."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import Field

from schemas.base import Contract, Usd
from schemas.generation import AnswerProtocol


class FinishReason(StrEnum):
    """The reason that the model stopped, in one vocabulary for all providers."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    CONTEXT_EXCEEDED = "context_exceeded"
    INTERRUPTED = "interrupted"
    """The stream or response ended without a reason."""
    OTHER = "other"


class Usage(Contract):
    """Tokens of one call, with one meaning for all providers: ``input_tokens`` includes cached tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in Usage.model_fields})


class SharedFrom(Contract):
    """The origin of a shared answer: another job of the same tenant with an identical request."""

    job_id: UUID
    attempt_id: UUID = Field(description="the call that was made and paid for")
    answered_at: datetime = Field(description="when its answer was stored, by the ledger's clock")


class ProviderSnapshot(Contract):
    """The request to a provider and its response, enough to explain and repeat the call; contains no secret."""

    provider: str
    model_asked: str | None = None
    model_returned: str | None = None
    service_tier_asked: str | None = None
    service_tier_returned: str | None = None
    lane: str = "standard"
    protocol: AnswerProtocol | None = None
    fallback_from: tuple[str, ...] = Field(
        default=(), description="'provider: kind of failure' of the earlier providers in the fallback chain"
    )
    endpoint: str | None = Field(default=None, description="host and path, without credentials or query")
    request_id: str | None = None
    parameters_sent: dict[str, Any] = Field(default_factory=dict)
    parameters_dropped: dict[str, str] = Field(
        default_factory=dict, description="parameter: reason that it was not sent"
    )
    sdk: str | None = Field(default=None, description="name and version")
    rate_limits: dict[str, str] = Field(default_factory=dict, description="rate-limit headers as received")
    shared_from: SharedFrom | None = Field(
        default=None, description="origin of a shared answer; request id, model and tier returned are those of its call"
    )


class NativeCitation(Contract):
    """A citation in the provider's own form, with positions in the answer and source numbers of the prompt."""

    start: int
    end: int
    source_number: int = Field(description="1-based, as shown to the model")
    quote: str


class Completion(Contract):
    """One answer of a provider, parsed only for its text, its finish reason and its usage."""

    text: str
    finish_reason: FinishReason
    protocol: AnswerProtocol
    native_citations: tuple[NativeCitation, ...] = ()
    refusal: str | None = None
    sanitised: bool = Field(default=False, description="characters that the ledger cannot store were replaced")
    usage: Usage | None = None
    cost_usd: Usd | None = Field(default=None, description="None: the price is unknown; never 0 for unknown")
    snapshot: ProviderSnapshot
