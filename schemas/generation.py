"""How an answer is to be made: the caller's configuration of one generation, with its defaults."""

from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from schemas.base import Contract


class GenerationMode(StrEnum):
    """What kind of answer the model is asked for."""

    SIMPLE = "simple"
    GROUNDED = "grounded"
    ANALYTICAL = "analytical"
    CONVERSATIONAL = "conversational"
    COMPARISON = "comparison"
    SUMMARIZATION = "summarization"


class OutputFormat(StrEnum):
    """The shape of the rendered answer; ``auto`` is decided from intent or query."""

    PLAIN = "plain"
    MARKDOWN = "markdown"
    JSON = "json"
    BULLETS = "bullets"
    TABLE = "table"
    STEPS = "steps"
    AUTO = "auto"


class CitationStyle(StrEnum):
    """How the renderer writes a citation into the answer."""

    SOURCE = "source"
    """``[Source 1]``"""
    NUMBERED = "numbered"
    """``[1]``"""
    INLINE = "inline"
    """``(Source: title)``"""
    FOOTNOTE = "footnote"
    """superscript numbers"""
    ENDNOTE = "endnote"
    """numbers with a reference list at the end"""


class OnUngrounded(StrEnum):
    """What happens to an answer whose claims are not all supported, when grounding is required."""

    FLAG = "flag"
    REDACT = "redact"
    RETRY = "retry"
    REJECT = "reject"


class Lane(StrEnum):
    """How the provider is called."""

    STANDARD = "standard"
    BACKGROUND = "background"
    PROVIDER_BATCH = "provider_batch"
    AUTO = "auto"


class CheckerName(StrEnum):
    """A layer of the hallucination check."""

    STRUCTURE = "structure"
    LEXICAL = "lexical"
    LOCAL = "local"
    JUDGE = "judge"


class AnswerProtocol(StrEnum):
    """The canonical form in which the model is asked to answer."""

    SEGMENTS = "segments"
    """JSON: segments of text with source numbers and verbatim quotes."""
    NATIVE = "native"
    """The provider's own citation blocks."""
    MARKERS = "markers"
    """Running text with ``[N]`` markers."""


class FallbackMessages(Contract):
    """Texts shown instead of an answer; None takes Nightdesk's own."""

    no_evidence: str | None = None
    abstained: str | None = None
    failed: str | None = None


class Sampling(Contract):
    """Sampling parameters beyond temperature; sent where the provider has them, else recorded as dropped."""

    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None


class GenerationConfig(Contract):
    """How one job is answered and checked. An unknown key is an error, so that a typo is never silently ignored."""

    mode: GenerationMode = GenerationMode.GROUNDED
    output_format: OutputFormat = OutputFormat.MARKDOWN
    citation_style: CitationStyle = CitationStyle.NUMBERED
    include_citations: bool = True
    min_citations: Annotated[int, Field(ge=0, le=100)] = 1
    require_grounding: bool = True
    on_ungrounded: OnUngrounded = OnUngrounded.FLAG
    provider: str | None = Field(default=None, description="name of a configured provider; None: from the settings")
    model: str | None = Field(default=None, description="model id, passed through; None: from the settings")
    fallbacks: tuple[str, ...] = Field(
        default=(), description="providers tried next, in order, as 'provider' or 'provider:model'"
    )
    lane: Lane = Lane.STANDARD
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=1024, description="most tokens of the answer")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    sampling: Sampling | None = None
    reasoning_effort: str | None = None
    stream: bool = False
    output_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema the answer must satisfy")
    min_sources: Annotated[int, Field(ge=0)] = 1
    min_relevance: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.4, description="least mean of the relevance scores given; without scores the rule does not apply"
    )
    max_context_tokens: Annotated[int, Field(ge=100)] = 8000
    max_response_length: Annotated[int, Field(ge=1)] | None = Field(default=None, description="characters")
    language: str | None = Field(default=None, description="of the answer; None: that of the query")
    role: str | None = None
    audience: str | None = None
    fallback_messages: FallbackMessages | None = None
    checkers: tuple[CheckerName, ...] = (CheckerName.STRUCTURE, CheckerName.LEXICAL)
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(default=4, description="spent failures per step")
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 60.0
    prompt_name: str | None = None
    prompt_version: str | None = None


class Budget(Contract):
    """A batch's ceiling on cost."""

    max_cost_usd: Annotated[Decimal, Field(ge=0)]
