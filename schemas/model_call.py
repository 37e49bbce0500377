"""A call of a model: its prompt, which refers to the request's sources, its completion, and its cost."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PlainSerializer

from schemas.base import Contract
from schemas.generation import AnswerProtocol
from schemas.states import Outcome

# ---- the cost --------------------------------------------------------------------------------------------------------


def plain_usd(amount: Decimal) -> str:
    """The amount as it stands in JSON."""
    return format(amount.normalize(), "f")


Usd = Annotated[Decimal, PlainSerializer(plain_usd, return_type=str, when_used="json")]
"""An amount of US dollars: exact, and in JSON a plain decimal string (``"0.0123"``, never ``"0E-8"``)."""


def total_usd(*amounts: Decimal | None) -> Decimal | None:
    """The sum of amounts; None where one is unknown."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Decimal(0)) if len(known) == len(amounts) else None


# ---- the prompt ------------------------------------------------------------------------------------------------------


class Role(StrEnum):
    """The speaker of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class TextPart(Contract):
    """Literal text of a message."""

    type: Literal["text"] = "text"
    text: str


class SourcePart(Contract):
    """A reference to a span ``[start, end)`` of one of the request's sources, in code points."""

    type: Literal["source"] = "source"
    source_index: NonNegativeInt
    start: NonNegativeInt
    end: NonNegativeInt


class Message(Contract):
    """One message as a sequence of parts."""

    role: Role
    parts: tuple[Annotated[TextPart | SourcePart, Field(discriminator="type")], ...]

    def text(self, contents: Sequence[str]) -> str:
        """The exact text, with the text of each source span.

        Args:
            contents: the contents of the request's sources, by ``source_index``.
        """
        return "".join(
            part.text if isinstance(part, TextPart) else contents[part.source_index][part.start : part.end]
            for part in self.parts
        )


class LeftOutReason(StrEnum):
    """The reason that the prompt omits a source."""

    DUPLICATE = "duplicate"
    """It has the same words as another source."""
    BUDGET = "budget"
    """``max_context_tokens`` was reached."""
    BLANK = "blank"
    """It has no word."""


class LeftOut(Contract):
    """A source that the prompt omits; ``of`` is the ``source_index`` of the source that it repeats."""

    source_index: NonNegativeInt
    reason: LeftOutReason
    of: NonNegativeInt | None = None


class Flag(StrEnum):
    """A kind of text that imitates the prompt or steers the model."""

    SOURCE_TAG = "source_tag"
    """A tag that opens or closes a source, also disguised."""
    TURN = "turn"
    """A line that speaks as the system or the assistant."""
    COMMAND = "command"
    """An order to disregard the instructions."""
    CHAT_TOKEN = "chat_token"  # noqa: S105 - no password
    """A special token of a chat template."""
    ANSWER = "answer"
    """JSON like that of an answer."""
    HIDDEN = "hidden"
    """Characters that hide or reorder text."""
    MARKER = "marker"
    """Numbers in brackets like those of citations; common in honest texts."""


class SourceFlag(Contract):
    """A finding in a source of the prompt."""

    source_index: NonNegativeInt
    kind: Flag


class MessagesSnapshot(Contract):
    """The exact messages of a call, without repeating the sources; ``sha256`` proves them.

    ``shown`` maps the source number in the prompt (position + 1) to the ``source_index`` of the request. The tokens are
    those of the whole prompt and of its sources; ``counted_by`` names the tokenizer or ``estimate``. ``questions`` go
    beside the messages to a provider that returns a probability for each; the hash covers them.
    """

    messages: tuple[Message, ...]
    shown: tuple[int, ...]
    protocol: AnswerProtocol
    sha256: str
    questions: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    flags: tuple[SourceFlag, ...] = ()
    prompt_tokens: NonNegativeInt | None = None
    source_tokens: NonNegativeInt | None = None
    counted_by: str | None = None

    def texts(self, contents: Sequence[str]) -> list[tuple[Role, str]]:
        """Role and exact text of each message, in order."""
        return [(message.role, message.text(contents)) for message in self.messages]

    def proves(self, contents: Sequence[str]) -> bool:
        """Tells whether the messages with these sources are the messages of the call."""
        return hash_messages(self.texts(contents), self.questions) == self.sha256


def hash_messages(texts: Sequence[tuple[Role, str]], questions: Sequence[str] = ()) -> str:
    """SHA-256 (hex) over roles and texts, each after its length in bytes so that no two lists collide.

    Questions follow the messages like messages with the role ``question``.
    """
    digest = hashlib.sha256()
    entries = [(role.value, text) for role, text in texts] + [("question", text) for text in questions]
    for role, text in entries:
        for field in (role.encode(), text.encode()):
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
    return digest.hexdigest()


class Ask(Contract):
    """One round of a job that has several: the model, and what the check found in its answer."""

    round: NonNegativeInt
    level: NonNegativeInt = Field(description="0: the model of the job; then those of escalate, in order")
    purpose: Literal["generate", "reask", "correct", "escalate"]
    provider: str | None = None
    model: str | None = None
    outcome: Outcome | None = Field(default=None, description="of this answer, had it been the last; null: no answer")
    parsed: bool = Field(default=True, description="it is in the form asked for")
    complete: bool = Field(default=True, description="it did not break off")
    empty: bool = False
    fails: bool = Field(default=False, description="with this answer the job would fail")
    violations: NonNegativeInt = Field(default=0, description="faults of its object by output_schema")
    supported: NonNegativeInt = Field(default=0, description="its claims and values with support")
    ungrounded: NonNegativeInt = Field(default=0, description="those without")
    contradicted: NonNegativeInt = Field(default=0, description="of these, those that a source contradicts")
    grounding_score: float | None = None
    confidence: float | None = None
    shortfall: str | None = Field(default=None, description="reason to ask the next model; null: none")
    better: bool = Field(default=True, description="than each answer before it")
    won: bool = False
    cost_usd: Usd | None = Field(default=None, description="of this round, its judge included; null: unknown")


class Correction(Contract):
    """The reason for a further round, stored with the job for the next prompt and for the record.

    When no further round is begun, the job returns to the round with the best answer; ``given_up`` is the reason.
    """

    purpose: Literal["reask", "correct", "escalate"] = Field(
        description="the form was not met, claims were not supported, or the next model is asked"
    )
    problems: tuple[str, ...] = Field(default=(), description="problems of the answer before, each in a sentence")
    previous: str = Field(default="", description="raw text of the answer before")
    asks: tuple[Ask, ...] = Field(default=(), description="the rounds before this one")
    age_ms: NonNegativeFloat = Field(default=0.0, description="the job's age at the start of the round")
    cost_usd: Usd | None = Field(default=None, description="the job's cost at the start of the round; null: unknown")
    given_up: str | None = None


class Prompt(Contract):
    """A rendered prompt: the name and version of its template, and its messages."""

    name: str
    version: str
    template_sha256: str
    snapshot: MessagesSnapshot
    reply_schema: dict[str, Any] | None = Field(
        default=None,
        exclude=True,
        repr=False,
        description="schema of a JSON reply; only during the call, never stored",
    )
    pairs: tuple[str, ...] = Field(
        default=(), description="of a judge request: the SHA-256 of each claim with its evidence, in order"
    )


# ---- the completion --------------------------------------------------------------------------------------------------


class FinishReason(StrEnum):
    """The reason that the model stopped, in one vocabulary for all providers."""

    STOP = "stop"
    LENGTH = "length"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    CONTEXT_EXCEEDED = "context_exceeded"
    TOOL_CALL = "tool_call"
    """It called a tool, though none was offered."""
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
    lane_reason: str | None = Field(default=None, description="reason of the lane, of a job with the lane 'auto'")
    protocol: AnswerProtocol | None = None
    fallback_from: tuple[str, ...] = Field(
        default=(), description="'provider: kind of failure' of the earlier providers in the fallback chain"
    )
    endpoint: str | None = Field(default=None, description="host and path, without credentials or query")
    request_id: str | None = None
    response_id: str | None = Field(default=None, description="the provider's id of a response in its background")
    parameters_sent: dict[str, Any] = Field(default_factory=dict)
    parameters_dropped: dict[str, str] = Field(
        default_factory=dict, description="parameter: reason that it was not sent"
    )
    sdk: str | None = Field(default=None, description="name and version")
    rate_limits: dict[str, str] = Field(
        default_factory=dict, description="rate-limit headers as received, and the provider's clock"
    )
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
