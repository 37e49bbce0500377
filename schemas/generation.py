"""The choices of a caller's configuration: kinds of answers, formats, styles, checkers, lanes."""

from datetime import timedelta
from enum import StrEnum


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

    @classmethod
    def _missing_(cls, value: object) -> "OutputFormat | None":
        """The format that other programs call by another name."""
        return {"bullet_points": cls.BULLETS, "step_by_step": cls.STEPS, "prose": cls.PLAIN}.get(str(value))


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


Style = CitationStyle | str
"""A style of citations: one of Nightdesk, or a marker of the caller's own with ``{index}`` or ``{title}``."""


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
    """The weight of claims that are undecided: neither supported nor contradicted by words, and read by nobody."""

    STRICT = "strict"
    """They count as unsupported: the outcome is partial, and ``on_ungrounded`` applies to them."""
    BALANCED = "balanced"
    """They make an answer without other faults unverified."""
    LENIENT = "lenient"
    """They count as supported."""


class Lane(StrEnum):
    """The way to call the provider."""

    STANDARD = "standard"
    BACKGROUND = "background"
    """A response in OpenAI's background, within 8 hours."""
    BACKGROUND_2H = "background_2h"
    """The same within 2 hours."""
    PROVIDER_BATCH = "provider_batch"
    AUTO = "auto"


WINDOWS = {Lane.BACKGROUND: timedelta(hours=8), Lane.BACKGROUND_2H: timedelta(hours=2)}
"""Time in which the provider means to answer a response in the background; it promises none."""


class CheckerName(StrEnum):
    """A layer of the hallucination check."""

    STRUCTURE = "structure"
    LEXICAL = "lexical"
    LOCAL = "local"
    JUDGE = "judge"


OWN_CHECKER = r"^[a-z][a-z0-9_]{0,63}$"
"""The pattern of the names of an installation's own checkers."""


class AnswerProtocol(StrEnum):
    """The canonical form that the prompt requests from the model."""

    SEGMENTS = "segments"
    """JSON: segments of text with source numbers and verbatim quotes."""
    NATIVE = "native"
    """The provider's own citation blocks."""
    MARKERS = "markers"
    """Running text with ``[N]`` markers."""
