"""Locates every citation of a rendered answer in its source, to the code point."""

from collections.abc import Sequence

from schemas.answer import CanonicalAnswer, Citation, SegmentCitation
from schemas.job import JobRequest, SourceContext
from tasks.answers.parse import storable
from tasks.answers.rendered import Mark, Rendered, strip_markers
from tasks.answers.styles import scalar, section_path
from tasks.text.evidence import OutOfTime, SourceSearch, ensure_time
from tasks.text.quotes import locate
from tasks.text.sentences import Span, words
from tasks.text.wording import content_words

SNIPPET_CHARACTERS = 150
DECENT_MATCH = 0.35
"""Least share (by weight) of a sentence's words that a source must contain to locate a marker without a quote."""

_SHOWN_QUOTE = 80


def locate_citations(
    request: JobRequest,
    answer: CanonicalAnswer,
    rendered: Rendered,
    source_indexes: Sequence[int],
    *,
    sentences: Sequence[tuple[Span, int]],
    markers: Sequence[Span],
) -> tuple[list[Citation], list[str]]:
    """All citations in the order of their markers, and a warning for each quote that its source does not contain.

    A citation without a quote gets the passage of its source that fits its sentence best, if one fits well enough.

    Args:
        request: the job's request.
        answer: the canonical answer.
        rendered: the same answer as text.
        source_indexes: the source index of each source number - 1.
        sentences: the sentences of the text, each with the position up to which markers belong to it.
        markers: all markers in the text.
    """
    citations: list[Citation] = []
    warnings: list[str] = []
    places = _Places(request, rendered.text, sentences, markers)
    for mark in rendered.marks:
        source_index = source_indexes[mark.source - 1]
        source = request.context[source_index]
        for reference in answer.segments[mark.segment].citations:
            if reference.source != mark.source:
                continue
            place = None
            try:
                ensure_time()
                if not reference.quote.strip():
                    place = places.of(mark.start, source_index)
                elif (place := locate(reference.quote, source.content)) is None:
                    warnings.append(_not_there(reference, mark.rank, request, source_indexes))
            except OutOfTime as error:
                warnings.append(f"not all citations were looked up in their sources: {error}")
            citations.append(_citation(source, source_index, mark, place))
    return citations, warnings


def _not_there(reference: SegmentCitation, rank: int, request: JobRequest, source_indexes: Sequence[int]) -> str:
    quote = " ".join(storable(reference.quote).split())
    quote = quote if len(quote) <= _SHOWN_QUOTE else quote[:_SHOWN_QUOTE] + "…"
    matching = [
        number
        for number, index in enumerate(source_indexes, 1)
        if reference.quote.strip() in request.context[index].content
    ]
    elsewhere = f" (it stands in context[{source_indexes[matching[0] - 1]}])" if matching else ""
    return f'a quote does not stand in the source [{rank}] it is attributed to{elsewhere}: "{quote}"'


class _Places:
    """Locates the passage of a source that fits a sentence which cites it without a quote."""

    def __init__(
        self, request: JobRequest, text: str, sentences: Sequence[tuple[Span, int]], markers: Sequence[Span]
    ) -> None:
        self._request = request
        self._sentences = sentences
        self._text = text
        self._markers = markers
        self._search: SourceSearch | None = None
        self._words: list[frozenset[str]] = []

    def of(self, position: int, source_index: int) -> Span | None:
        if self._search is None:
            bare = strip_markers(self._text, self._markers)
            self._words = [content_words(words(bare[span.start : span.end])) for span, _ in self._sentences]
            self._search = SourceSearch(self._request.context, frozenset[str]().union(*self._words))
        for (span, reach), sentence_words in zip(self._sentences, self._words, strict=True):
            if span.start <= position <= reach:
                match = self._search.best(sentence_words, source_index)
                return (
                    self._search.span(match, sentence_words)
                    if match is not None and match.score >= DECENT_MATCH
                    else None
                )
        return None


def _citation(source: SourceContext, source_index: int, mark: Mark, place: Span | None) -> Citation:
    about = source.metadata
    return Citation(
        source_index=source_index,
        rank=mark.rank,
        chunk_id=source.chunk_id,
        document_id=source.document_id,
        quoted_text=source.content[place.start : place.end] if place else "",
        text_snippet=source.content[:SNIPPET_CHARACTERS],
        start_pos=mark.start,
        end_pos=mark.end,
        source_start=place.start if place else None,
        source_end=place.end if place else None,
        relevance_score=source.relevance_score,
        page=scalar(about.get("page")),
        article=scalar(about.get("article")),
        section=section_path(about),
        verified=place is not None,
    )
