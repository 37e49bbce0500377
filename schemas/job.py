"""The submission of one job: the question, its sources, and its config with the defaults."""

import json
import re
from functools import cache, lru_cache
from typing import Annotated, Any
from uuid import NAMESPACE_URL, UUID, uuid5

from pydantic import AfterValidator, Field, NonNegativeInt, field_validator, model_validator
from pydantic_core import from_json, to_json

from schemas.base import Contract, Moment, Submitted, share_field_names
from schemas.generation import (
    OWN_CHECKER,
    AnswerProtocol,
    CheckerName,
    CitationStyle,
    GenerationMode,
    Lane,
    MissingCitations,
    OnUngrounded,
    OutputFormat,
    Strictness,
    Style,
)
from schemas.quality import QualityConstants
from schemas.states import Step
from schemas.structured import READY_MADE

# ---- the config ------------------------------------------------------------------------------------------------------


Layer = Annotated[
    CheckerName | Annotated[str, Field(pattern=OWN_CHECKER)],
    Field(union_mode="left_to_right", description="a layer of Nightdesk, or a checker of the installation's own"),
]
"""A layer of the check by its name."""

Layers = Annotated[tuple[Layer, ...], Field(max_length=20)]

ModelName = Annotated[str, Field(min_length=1, max_length=300)]
"""A model, a provider, or both by a colon; it stands in keys of the ledger's indexes, and of Redis."""

Word = Annotated[str, Field(max_length=256)]
"""A name, an id of others, or few words."""

Key = Annotated[Word, Field(min_length=1)]
"""An id that a producer gives."""

Wording = Annotated[str, Field(max_length=20_000)]
"""Texts for the model or the reader."""


class FallbackMessages(Submitted):
    """Texts in place of an answer; None uses Nightdesk's own."""

    no_evidence: Wording | None = None
    abstained: Wording | None = None
    rejected: Wording | None = None
    failed: Wording | None = None
    refused: Wording | None = Field(default=None, description="none: the caller's own text for failed, if there is one")


class Sampling(Submitted):
    """Sampling parameters besides temperature; sent if the provider has them, else recorded as dropped."""

    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    seed: int | None = None
    stop: Annotated[tuple[Word, ...], Field(max_length=100)] | None = None


_OWN_MARKER = re.compile(r"(?=.{1,100}$)[^{}|`\r\n]*(?:\{(?:index|title)\}[^{}|`\r\n]*)+")


class GenerationConfig(Submitted):
    """The configuration of the answer and the check of one job; an unknown key is an error, so that no typo is ignored."""

    mode: GenerationMode = Field(default=GenerationMode.GROUNDED, description="kind of answer")
    output_format: OutputFormat = Field(default=OutputFormat.MARKDOWN, description="shape of the rendered answer")
    citation_style: Annotated[CitationStyle | str, Field(union_mode="left_to_right")] = Field(
        default=CitationStyle.NUMBERED,
        description=f"{', '.join(CitationStyle)}, or a marker of your own with {{index}} or {{title}}: '({{index}})'",
    )
    include_citations: bool = Field(default=True, description="show citation markers in the answer")
    min_citations: int = Field(
        default=1, ge=0, le=100, description="fewer citations: see missing_citations; needs include_citations"
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
    provider: ModelName | None = Field(
        default=None, description="name of a configured provider; none: from the settings"
    )
    model: ModelName | None = Field(default=None, description="model id, passed through; none: from the settings")
    fallbacks: Annotated[tuple[ModelName, ...], Field(max_length=20)] = Field(
        default=(),
        description="providers tried next, in order, as 'provider' or 'provider:model'; none: from the settings",
    )
    escalate: Annotated[tuple[ModelName, ...], Field(max_length=5)] = Field(
        default=(),
        description="models asked next, in order, as 'provider' or 'provider:model', when the check does not support the "
        "answer, or the model abstains although the sources suffice; the best answer wins",
    )
    lane: Lane = Field(default=Lane.STANDARD, description="way of calling the provider")
    answer_protocol: AnswerProtocol | None = Field(
        default=None,
        description="form of the model's answer; none: the best one of the provider. An output_schema needs segments",
    )
    max_tokens: int = Field(default=1024, ge=1, le=1_000_000, description="most tokens of the answer")
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        default=None, description="sent where the provider has it, else recorded as dropped"
    )
    sampling: Sampling | None = Field(
        default=None, description="top_p, top_k, min_p, three penalties, seed, stop; as temperature"
    )
    reasoning_effort: Word | None = Field(default=None, description="passed through where the provider has it")
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
    free_values: Annotated[tuple[Word, ...], Field(max_length=1_000)] = Field(
        default=(),
        description="paths of the object whose values need not stand in the sources, such as $.confidence or $.items[*].rank",
    )
    min_sources: NonNegativeInt = Field(default=1, description="fewer sources: abstain without a call")
    min_relevance: float = Field(
        default=0.4,
        ge=0,
        le=1,
        description="least mean of the relevance scores, where they are on a scale from 0 to 1; 0: they decide nothing",
    )
    max_context_tokens: int = Field(
        default=8000, ge=100, description="sources beyond it are trimmed at a sentence end or left out, with a warning"
    )
    allow_html: bool = Field(
        default=False,
        description="HTML, links with unknown schemes and images of the model's text stay; else they are made harmless",
    )
    max_response_length: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="characters; a longer answer gets a second round, then it is cut at a sentence end"
    )
    language: Word | None = Field(default=None, description="of the answer; none: that of the query")
    role: Wording | None = Field(default=None, description="role and tone of the answer")
    audience: Wording | None = Field(default=None, description="readers of the answer")
    plain_language: bool = Field(default=False, description="short sentences, everyday words, terms explained")
    style: Wording | None = Field(default=None, description="the reader's wishes for the wording, in words")
    fallback_messages: FallbackMessages | None = Field(
        default=None, description="texts for no_evidence, abstained, rejected, failed, refused; none: Nightdesk's own"
    )
    quality: QualityConstants | None = Field(
        default=None, description="constants of answer_quality and sufficient_context to change; none: as in quality.md"
    )
    checkers: Layers = Field(
        default=(CheckerName.STRUCTURE, CheckerName.LEXICAL),
        description="layers of the check, and checkers of NIGHTDESK_CHECKERS by name",
    )
    strictness: Strictness | None = Field(
        default=None,
        description="undecided claims count as unsupported, unverified or supported; none: from the settings",
    )
    judge: ModelName | None = Field(
        default=None,
        description="model for the layer 'judge', as 'provider' or 'provider:model', different from the model that "
        "answers; none: from the settings",
    )
    max_attempts: int = Field(default=4, ge=1, le=100, description="spent failures per step")
    timeout_s: float = Field(default=60.0, gt=0, le=3600, description="seconds a call may take")
    prompt_name: Word | None = Field(default=None, description="template; none: by mode")
    prompt_version: Word | None = Field(default=None, description="its version; none: the newest")

    @property
    def check_step(self) -> Step:
        """The step that checks the answer: the one of workers with the local model if a checker needs it."""
        return Step.LOCAL if CheckerName.LOCAL in self.checkers else Step.CHECK

    @model_validator(mode="before")
    @classmethod
    def _marker_of_its_own(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        # Of both names the later one holds: a job's own comes after that of its batch.
        return {
            "citation_style" if key == "citation_format" else key: each
            for key, each in value.items()
            if each is not None or key != "citation_style"
        }

    @field_validator("citation_style")
    @classmethod
    def _known_style(cls, value: Style) -> Style:
        if isinstance(value, CitationStyle) or _OWN_MARKER.fullmatch(value):
            return value
        raise ValueError(
            f"must be one of {', '.join(map(repr, map(str, CitationStyle)))}, or a text of at most 100 characters with {{index}} "
            "or {title} in it, such as '[{index}]', and without line breaks, bars, backticks and other braces"
        )

    @field_validator("escalate")
    @classmethod
    def _each_model_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if twice := next((name for at, name in enumerate(value) if name in value[:at]), None):
            raise ValueError(f"names {twice!r} twice; a model is asked once")
        return value

    @field_validator("output_schema")
    @classmethod
    def _ready_made_by_name(cls, value: dict[str, Any] | str | None) -> dict[str, Any] | str | None:
        if isinstance(value, str) and value not in READY_MADE:
            raise ValueError(f"there is no ready-made schema {value!r}; there are {', '.join(READY_MADE)}")
        return value


class Recheck(Submitted):
    """The options for another check of a stored answer; None keeps the value of the job's config."""

    checkers: Layers | None = None
    judge: ModelName | None = None
    id: UUID | None = Field(
        default=None,
        description="id of the command; the jobs of one command share cached judge verdicts, other jobs do not",
    )

    def apply(self, config: GenerationConfig) -> GenerationConfig:
        """The config of the check; a judge that is named is asked."""
        layers = self.checkers or config.checkers
        if self.judge and CheckerName.JUDGE not in layers:
            layers = (*layers, CheckerName.JUDGE)
        return config.model_copy(update={"checkers": layers, "judge": self.judge or config.judge})


# ---- the question and its sources ------------------------------------------------------------------------------------


MAX_METADATA_CHARACTERS = 100_000
"""Most characters of JSON; each job stores it and each result returns it."""

MAX_METADATA_LEVELS = 32
"""Deepest nesting of objects and lists; deeper nesting breaks parsers downstream."""


def _check_bounds(metadata: dict[str, Any]) -> dict[str, Any]:
    if not metadata:
        return metadata
    levels = 0
    inside: list[Any] = [metadata]
    while inside:
        levels += 1
        if levels > MAX_METADATA_LEVELS:
            raise ValueError(f"is nested more than {MAX_METADATA_LEVELS} levels deep; make it flatter")
        values = (value for outer in inside for value in (outer.values() if isinstance(outer, dict) else outer))
        inside = [value for value in values if isinstance(value, dict | list | tuple)]
    try:
        size = len(json.dumps(metadata, ensure_ascii=False, default=str, allow_nan=False))
    except ValueError:
        raise ValueError("holds NaN or Infinity, which is no value of JSON: write null, or leave its key out") from None
    if size > MAX_METADATA_CHARACTERS:
        raise ValueError(
            f"holds {size:,} characters of JSON, at most {MAX_METADATA_CHARACTERS:,} are allowed; remove some"
        )
    return metadata


Metadata = Annotated[dict[str, Any], AfterValidator(_check_bounds)]
"""A JSON object within both limits."""


SOURCE_NAMESPACE = uuid5(NAMESPACE_URL, "nightdesk:source")
"""Namespace of the ids from a source's content (UUIDv5)."""

TRACEPARENT = r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
"""The header of W3C Trace Context."""

MAX_SOURCES = 2_000
MAX_SOURCE_CHARACTERS = 1_000_000
MAX_QUERY_CHARACTERS = 20_000
MAX_INSTRUCTIONS_CHARACTERS = 100_000
MAX_TURNS = 1_000
MAX_TURN_CHARACTERS = 100_000
MAX_RESPONSE_CHARACTERS = 200_000
"""Far more than the claims that are checked of one; each further one makes the result longer for every reader."""
MAX_SOURCE_ID_CHARACTERS = 2_048
"""Ids of chunks and documents may be URLs."""
MAX_REQUEST_BYTES = 16_000_000
"""Largest job as stored JSON: more than any model can read."""
MAX_VALUES = 125_000
"""Most JSON values of a job, names of fields not counted: twenty metadata for each of 2,000 sources are 50,000."""
MAX_LINE_BYTES = 4 * MAX_REQUEST_BYTES
"""Largest job as a line of a file: characters in the form \\uXXXX take up to three times their stored bytes."""

SHOWN_METADATA = (
    "title",
    "page",
    "article",
    "section",
    "section_hierarchy",
    "source_path",
    "product_name",
    "document_type",
    "date",
)
"""The only metadata keys of a source in the prompt."""


Turn = Annotated[str, Field(max_length=MAX_TURN_CHARACTERS)]
"""The text of one side of a conversation."""


@cache
def _field_names(model: type[Contract]) -> frozenset[str]:
    return frozenset(model.model_fields)


@cache
def _all_field_names(model: type[Contract]) -> set[str]:
    """One set for all values of which every field is given; see ``share_field_names``."""
    return set(model.model_fields)


class SourceContext(Submitted):
    """One retrieved chunk of the job.

    A missing id is derived from the content (UUIDv5), so the same chunk has the same id in every job. Unknown keys (a
    plain ``title`` beside ``content`` is usual) go to ``metadata``.
    """

    content: Annotated[str, Field(max_length=MAX_SOURCE_CHARACTERS)]
    chunk_id: Annotated[str, Field(max_length=MAX_SOURCE_ID_CHARACTERS)] = ""
    document_id: Annotated[str, Field(max_length=MAX_SOURCE_ID_CHARACTERS)] = ""
    metadata: Metadata = Field(default_factory=dict)
    relevance_score: Annotated[float, Field(allow_inf_nan=False)] | None = None
    sub_query: Annotated[str, Field(max_length=MAX_QUERY_CHARACTERS)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_plain_forms(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"content": value}
        if not isinstance(value, dict):
            return value
        names = _field_names(cls)
        if names >= value.keys():
            return value
        fields = {key: value[key] for key in value if key in names}
        extra = {key: value[key] for key in value if key not in names}
        if isinstance(about := fields.get("metadata") or {}, dict):
            fields["metadata"] = {**extra, **about}
        return fields

    @model_validator(mode="after")
    def _derive_ids(self) -> "SourceContext":
        if not self.chunk_id:
            object.__setattr__(self, "chunk_id", str(uuid5(SOURCE_NAMESPACE, self.content)))
        if not self.document_id:
            title = self.metadata.get("source_path") or self.metadata.get("title")
            basis = f"document:{title}" if title else f"content:{self.content}"
            object.__setattr__(self, "document_id", str(uuid5(SOURCE_NAMESPACE, basis)))
        return self

    @classmethod
    def from_stored(cls, stored: Any) -> "SourceContext":
        """Makes a source of its stored form without validation; the form of another version is validated."""
        if not isinstance(stored, dict) or stored.keys() != _field_names(cls):
            return cls.model_validate(stored)
        # In the order of the contract, which is that of its JSON; the ledger's has an order of its own.
        fields = {name: stored[name] for name in cls.model_fields}
        if fields["relevance_score"] is not None:
            fields["relevance_score"] = float(fields["relevance_score"])
        source = cls.__new__(cls)
        # The state of every pydantic model, as ``__setstate__`` takes it from a pickle. ``model_construct`` goes through defaults
        # and aliases for it, which takes twenty times as long: longer than to validate.
        source.__setstate__(
            {
                "__dict__": fields,
                "__pydantic_fields_set__": _all_field_names(cls),
                "__pydantic_extra__": None,
                "__pydantic_private__": None,
            }
        )
        return source


@cache
def _default_config() -> GenerationConfig:
    """One immutable config for all requests without a config of their own."""
    return GenerationConfig()


MOST_SHARED_CONFIG = 4_000
"""Bytes of JSON; a longer config has a schema of its own, and a cache of such would be larger than what it saves."""


def _stored_config(stored: dict[str, Any]) -> GenerationConfig | dict[str, Any]:
    """The config of its stored form, one object for all jobs that have the same; a long one as it is, for its request to validate."""
    document = to_json(stored)
    return _shared_config(document) if len(document) <= MOST_SHARED_CONFIG else stored


@lru_cache(maxsize=64)
def _shared_config(document: bytes) -> GenerationConfig:
    return GenerationConfig.model_validate(from_json(document))


class JobRequest(Submitted):
    """One question with its sources and config; the immutable request of a job.

    With ``response`` the job is *check-only*: generation is skipped, ``query`` is optional, and the supplied answer is
    checked. Unknown top-level keys go to ``metadata``.
    """

    query: Annotated[str, Field(max_length=MAX_QUERY_CHARACTERS)] = ""
    context: Annotated[tuple[SourceContext, ...], Field(max_length=MAX_SOURCES)] = ()
    config: GenerationConfig = Field(default_factory=_default_config)
    system_instructions: Annotated[str, Field(max_length=MAX_INSTRUCTIONS_CHARACTERS)] | None = None
    conversation_history: Annotated[tuple[tuple[Turn, Turn], ...], Field(max_length=MAX_TURNS)] = Field(
        default=(), description="turns as (speaker, text), or as (question, answer)"
    )
    custom_id: Key | None = None
    message_id: Key | None = None
    retrieval_record_id: Word | None = None
    trace_id: Word | None = None
    request_id: Word | None = None
    traceparent: Annotated[str, Field(pattern=TRACEPARENT)] | None = Field(
        default=None,
        description="W3C trace context of the producer, whose spans those of the job join (docs/traces.md)",
    )
    intent: Word | None = None
    aggregate: bool = False
    priority: int = Field(default=0, ge=-100, le=100, description="higher goes first")
    scheduled_at: Moment | None = None
    deadline: Moment | None = None
    metadata: Metadata = Field(default_factory=dict)
    idempotency_key: Key | None = None
    response: Annotated[str, Field(max_length=MAX_RESPONSE_CHARACTERS)] | None = Field(
        default=None, description="an answer that already exists: a check-only job"
    )

    @model_validator(mode="before")
    @classmethod
    def _collect_unknown_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        extra = unknown_keys(value)
        about = value.get("metadata") or {}
        if not extra or not isinstance(about, dict):
            return value
        names = _field_names(cls)
        fields = {key: value[key] for key in value if key in names}
        fields["metadata"] = {**{key: value[key] for key in extra}, **about}
        return fields

    @model_validator(mode="after")
    def _query_unless_check_only(self) -> "JobRequest":
        if self.response is None and not self.query.strip():
            raise ValueError("'query' is missing or empty (only a check-only job, one with 'response', may omit it)")
        return self

    @classmethod
    def from_stored(cls, stored: Any) -> "JobRequest":
        """Makes a request of its stored form, written by this version of the contract.

        The sources are nearly all of it, and they were validated before they were stored: they are taken as they are.
        """
        if not isinstance(stored, dict) or not isinstance(stored.get("context"), list):
            return cls.model_validate(stored)
        fields = {**stored, "context": ()}
        if isinstance(config := stored.get("config"), dict):
            fields["config"] = _stored_config(config)
        request = cls.model_validate(fields)
        sources = tuple(SourceContext.from_stored(source) for source in stored["context"])
        return share_field_names(request.model_copy(update={"context": sources}))

    @property
    def check_only(self) -> bool:
        """True if the request supplies the answer, so that only the check runs."""
        return self.response is not None

    @property
    def fixed_format(self) -> OutputFormat | None:
        """The output format; None where the query decides. With ``aggregate``, running text becomes a list of points."""
        configured = self.config.output_format
        if self.aggregate and configured in {OutputFormat.AUTO, OutputFormat.MARKDOWN, OutputFormat.PLAIN}:
            return OutputFormat.BULLETS
        return None if configured is OutputFormat.AUTO else configured


def unknown_keys(raw: dict[str, Any]) -> list[str]:
    """The top-level keys of a raw request outside the contract, in order; they go to ``metadata``."""
    names = _field_names(JobRequest)
    return [] if names >= raw.keys() else [key for key in raw if key not in names]
