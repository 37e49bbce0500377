"""Locate every citation of a rendered answer in its source, to the code point."""

from collections.abc import Sequence

from schemas.answer import CanonicalAnswer, Citation, SegmentCitation
from schemas.job import JobRequest, SourceContext
from tasks.answers.reading import UNSTORABLE
from tasks.answers.rendered import Mark, Rendered, strip_markers
from tasks.answers.styles import scalar, section_path
from tasks.text.evidence import SourceSearch, content_words
from tasks.text.quotes import locate
from tasks.text.sentences import Span, words

SNIPPET_CHARACTERS = 150
DECENT_MATCH = 0.35
"""Least share (by weight) of a sentence's words in a source for us to name the place a marker without quote relies on."""

_SHOWN_QUOTE = 80


def locate_citations(
    request: JobRequest,
    answer: CanonicalAnswer,
    rendered: Rendered,
    shown: Sequence[int],
    *,
    sentences: Sequence[tuple[Span, int]],
    markers: Sequence[Span],
) -> tuple[list[Citation], list[str]]:
    """All citations in the order of their markers, and what is to be said of those whose words are not there.

    A citation without a quote gets the place in its source that its sentence relies on, if there is a decent one.

    Args:
        request: the job's request.
        answer: the canonical answer.
        rendered: the same answer as text.
        shown: the source index of each source number - 1.
        sentences: the sentences of the text, each with the position up to which markers belong to it.
        markers: all markers in the text.
    """
    citations: list[Citation] = []
    warnings: list[str] = []
    places = _Places(request, rendered.text, sentences, markers)
    for mark in rendered.marks:
        source_index = shown[mark.source - 1]
        source = request.context[source_index]
        for wanted in answer.segments[mark.segment].citations:
            if wanted.source != mark.source:
                continue
            if wanted.quote.strip():
                place = locate(wanted.quote, source.content)
                if place is None:
                    warnings.append(_not_there(wanted, mark.rank, request, shown))
            else:
                place = places.of(mark.start, source_index)
            citations.append(_citation(source, source_index, mark, place))
    return citations, warnings


def _not_there(wanted: SegmentCitation, rank: int, request: JobRequest, shown: Sequence[int]) -> str:
    quote = " ".join(UNSTORABLE.sub("\ufffd", wanted.quote).split())
    quote = quote if len(quote) <= _SHOWN_QUOTE else quote[:_SHOWN_QUOTE] + "…"
    others = [number for number, index in enumerate(shown, 1) if wanted.quote.strip() in request.context[index].content]
    elsewhere = f" (it stands in context[{shown[others[0] - 1]}])" if others else ""
    return f'a quote does not stand in the source [{rank}] it is attributed to{elsewhere}: "{quote}"'


class _Places:
    """Where in a source a sentence that cites it without a quote finds its words."""

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
        for (span, reach), said in zip(self._sentences, self._words, strict=True):
            if span.start <= position <= reach:
                match = self._search.best(said, source_index)
                return self._search.span(match, said) if match is not None and match.score >= DECENT_MATCH else None
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
