"""The answer: the canonical form a model gives, and the citations the renderer makes of it."""

from pydantic import Field

from schemas.base import Contract


class SegmentCitation(Contract):
    """A reference of a segment: the source number as shown to the model (1-based) and the words it relies on."""

    source: int
    quote: str = ""


class Segment(Contract):
    """A piece of the answer, usually one sentence, with what supports it."""

    text: str
    citations: tuple[SegmentCitation, ...] = ()


class CanonicalAnswer(Contract):
    """An answer before rendering; the style and format asked for are made from this alone."""

    segments: tuple[Segment, ...] = ()
    sufficient: bool = Field(default=True, description="False: the model itself says the sources do not answer")


class Citation(Contract):
    """A citation in the rendered answer. All positions are half-open, in Unicode code points.

    ``start_pos``/``end_pos`` are the marker in the response, ``source_start``/``source_end`` the quoted words in
    the source's content (None when the marker names a source without a located quote).
    """

    source_index: int = Field(ge=0, description="0-based index into the request's context")
    rank: int = Field(ge=1, description="order of first appearance in the answer, 1-based; the number shown")
    chunk_id: str
    document_id: str
    quoted_text: str = Field(description="the source's words, exactly as they stand there")
    text_snippet: str = Field(description="the first characters of the source, for display")
    start_pos: int = Field(ge=0)
    end_pos: int = Field(ge=0)
    source_start: int | None = None
    source_end: int | None = None
    relevance_score: float | None = None
    page: str | int | None = None
    article: str | int | None = None
    section: str | None = None
    verified: bool = Field(description="the quoted words stand in the source")
