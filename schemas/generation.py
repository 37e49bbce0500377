"""The caller's configuration of one answer, with its defaults."""

from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field, field_validator

from schemas.base import Contract
from schemas.quality import QualityConstants
from schemas.states import Step
from schemas.structured import READY_MADE


class GenerationMode(StrEnum):
    """The kind of answer that the prompt requests."""

    SIMPLE = "simple"
    GROUNDED = "grounded"
    ANALYTICAL = "analytical"
    CONVERSATIONAL = "conversational"
    COMPARISON = "comparison"
    SUMMARIZATION = "summarization"


class OutputFormat(StrEnum):
    """The format of the rendered answer; ``auto`` depends on the intent or the query."""

    PLAIN = "plain"
    MARKDOWN = "markdown"
    JSON = "json"
    BULLETS = "bullets"
    TABLE = "table"
    STEPS = "steps"
    AUTO = "auto"


class CitationStyle(StrEnum):
    """The style of citations in the answer."""

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
    """The treatment of an answer with unsupported claims if grounding is required."""

    FLAG = "flag"
    REDACT = "redact"
    RETRY = "retry"
    REJECT = "reject"


class MissingCitations(StrEnum):
    """The outcome of an answer with fewer citations than ``min_citations``."""

    PARTIAL = "partial"
    FAILED = "failed"


class Strictness(StrEnum):
    """The errors of a claim with which it is never supported, however well its words fit."""

    STRICT = "strict"
    """Each fact that differs from the nearest place in the sources, or that none of them holds."""
    BALANCED = "balanced"
    """A contradiction, and a number that no source holds."""
    LENIENT = "lenient"
    """None: errors are named, and the words decide."""


class Lane(StrEnum):
    """The way to call the provider."""

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
    """The canonical form that the prompt requests from the model."""

    SEGMENTS = "segments"
    """JSON: segments of text with source numbers and verbatim quotes."""
    NATIVE = "native"
    """The provider's own citation blocks."""
    MARKERS = "markers"
    """Running text with ``[N]`` markers."""


class FallbackMessages(Contract):
    """Texts in place of an answer; None uses Nightdesk's own."""

    no_evidence: str | None = None
    abstained: str | None = None
    rejected: str | None = None
    failed: str | None = None
    refused: str | None = Field(default=None, description="none: the caller's own text for failed, if there is one")


class Sampling(Contract):
    """Sampling parameters besides temperature; sent if the provider has them, else recorded as dropped."""

    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None


class GenerationConfig(Contract):
    """The configuration of the answer and the check of one job; an unknown key is an error, so that no typo is ignored."""

    mode: GenerationMode = Field(default=GenerationMode.GROUNDED, description="kind of answer")
    output_format: OutputFormat = Field(default=OutputFormat.MARKDOWN, description="shape of the rendered answer")
    citation_style: CitationStyle = Field(default=CitationStyle.NUMBERED, description="style of citations")
    include_citations: bool = Field(default=True, description="show citation markers in the answer")
    min_citations: Annotated[int, Field(ge=0, le=100)] = Field(
        default=1, description="fewer citations: see missing_citations; needs include_citations"
    )
    missing_citations: MissingCitations = Field(
        default=MissingCitations.PARTIAL, description="outcome of a job with fewer than min_citations"
    )
    require_grounding: bool = Field(default=True, description="claims without support change the outcome")
    on_ungrounded: OnUngrounded = Field(
        default=OnUngrounded.FLAG, description="treatment of an answer with unsupported claims"
    )
    ungrounded_appendix: bool = Field(
        default=True, description="flagged claims are also listed under the answer; never in JSON or a table"
    )
    provider: str | None = Field(default=None, description="name of a configured provider; none: from the settings")
    model: str | None = Field(default=None, description="model id, passed through; none: from the settings")
    fallbacks: tuple[str, ...] = Field(
        default=(),
        description="providers tried next, in order, as 'provider' or 'provider:model'; none: from the settings",
    )
    lane: Lane = Field(default=Lane.STANDARD, description="way of calling the provider")
    answer_protocol: AnswerProtocol | None = Field(
        default=None,
        description="form of the model's answer; none: the best one of the provider. An output_schema needs segments",
    )
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = Field(default=1024, description="most tokens of the answer")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, description="sent where the provider has it, else recorded as dropped"
    )
    sampling: Sampling | None = Field(default=None, description="top_p, top_k, seed, stop; as temperature")
    reasoning_effort: str | None = Field(default=None, description="passed through where the provider has it")
    stream: bool = Field(default=False, description="publish tokens as they come")
    share: bool = Field(
        default=True,
        description="use the answer of an identical request, and offer this answer to others, if the settings allow it "
        "for the tenant; false: always a call",
    )
    output_schema: dict[str, Any] | Annotated[str, Field(json_schema_extra={"enum": [*READY_MADE]})] | None = Field(
        default=None,
        description="JSON Schema of an object beside the answer, or AnswerWithSources or ComparisonResult",
    )
    free_values: tuple[str, ...] = Field(
        default=(),
        description="paths of the object whose values need not stand in the sources, such as $.confidence or $.items[*].rank",
    )
    min_sources: Annotated[int, Field(ge=0)] = Field(default=1, description="fewer sources: abstain without a call")
    min_relevance: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.4, description="least mean of the relevance scores; without scores the rule does not apply"
    )
    max_context_tokens: Annotated[int, Field(ge=100)] = Field(
        default=8000, description="sources beyond it are trimmed at a sentence end or left out, with a warning"
    )
    allow_html: bool = Field(
        default=False,
        description="HTML, links with unknown schemes and images of the model's text stay; else they are made harmless",
    )
    max_response_length: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="characters; a longer answer gets a second round, then it is cut at a sentence end"
    )
    language: str | None = Field(default=None, description="of the answer; none: that of the query")
    role: str | None = Field(default=None, description="role and tone of the answer")
    audience: str | None = Field(default=None, description="readers of the answer")
    plain_language: bool = Field(default=False, description="short sentences, everyday words, terms explained")
    style: str | None = Field(default=None, description="the reader's wishes for the wording, in words")
    fallback_messages: FallbackMessages | None = Field(
        default=None, description="texts for no_evidence, abstained, rejected, failed, refused; none: Nightdesk's own"
    )
    quality: QualityConstants | None = Field(
        default=None, description="constants of answer_quality and sufficient_context to change; none: as in quality.md"
    )
    checkers: tuple[CheckerName, ...] = Field(
        default=(CheckerName.STRUCTURE, CheckerName.LEXICAL), description="layers of the check"
    )
    strictness: Strictness = Field(
        default=Strictness.STRICT, description="errors of a claim with which it is never supported"
    )
    judge: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="model for the layer 'judge', as 'provider' or 'provider:model', different from the model that "
        "answers; none: from the settings",
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(default=4, description="spent failures per step")
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = Field(default=60.0, description="seconds a call may take")
    prompt_name: str | None = Field(default=None, description="template; none: by mode")
    prompt_version: str | None = Field(default=None, description="its version; none: the newest")

    @property
    def check_step(self) -> Step:
        """The step that checks the answer: the one of workers with the local model if a checker needs it."""
        return Step.LOCAL if CheckerName.LOCAL in self.checkers else Step.CHECK

    @field_validator("output_schema")
    @classmethod
    def _ready_made_by_name(cls, value: dict[str, Any] | str | None) -> dict[str, Any] | str | None:
        if isinstance(value, str) and value not in READY_MADE:
            raise ValueError(f"there is no ready-made schema {value!r}; there are {', '.join(READY_MADE)}")
        return value


class Recheck(Contract):
    """The options for another check of a stored answer; None keeps the value of the job's config."""

    checkers: tuple[CheckerName, ...] | None = None
    judge: Annotated[str, Field(min_length=1)] | None = None
    id: UUID | None = Field(
        default=None,
        description="id of the command; the jobs of one command share cached judge verdicts, other jobs do not",
    )

    def apply(self, config: GenerationConfig) -> GenerationConfig:
        """The config of the check."""
        overrides = {"checkers": self.checkers, "judge": self.judge}
        return config.model_copy(update={name: value for name, value in overrides.items() if value is not None})
