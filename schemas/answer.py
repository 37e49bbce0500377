"""The answer: its canonical form from the model, and the citations from the renderer."""

from pydantic import Field

from schemas.base import Contract


class SegmentCitation(Contract):
    """A reference of a segment: the source number in the prompt (1-based) and the quoted words."""

    source: int
    quote: str = ""


class Segment(Contract):
    """A part of the answer, usually one sentence, with its citations."""

    text: str
    citations: tuple[SegmentCitation, ...] = ()


class CanonicalAnswer(Contract):
    """An answer before rendering; every style and format is rendered from it alone."""

    segments: tuple[Segment, ...] = ()
    sufficient: bool = Field(default=True, description="False: the model itself says the sources do not answer")


class Citation(Contract):
    """A citation in the rendered answer. All positions are half-open, in Unicode code points.

    ``start_pos``/``end_pos`` are the span of the marker in the response, ``source_start``/``source_end`` the span of
    the quoted words in the source's content (None without a located quote).
    """

    source_index: int = Field(ge=0, description="0-based index into the request's context")
    rank: int = Field(ge=1, description="order of first appearance in the answer, 1-based; the number shown")
    chunk_id: str
    document_id: str
    quoted_text: str = Field(description="exact words of the source")
    text_snippet: str = Field(description="the first characters of the source, for display")
    start_pos: int = Field(ge=0)
    end_pos: int = Field(ge=0)
    source_start: int | None = None
    source_end: int | None = None
    relevance_score: float | None = None
    page: str | int | None = None
    article: str | int | None = None
    section: str | None = None
    verified: bool = Field(
        description="True: located in the source: the quoted words, or the passage that fits an unquoted marker's sentence best"
    )
