"""Turn a completion into an answer: parse its canonical form, render it, and locate every citation in its source."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from schemas.answer import CanonicalAnswer, Citation, Segment, SegmentCitation
from schemas.completion import Completion, FinishReason, NativeCitation
from schemas.generation import AnswerProtocol, OutputFormat
from schemas.job import JobRequest, SourceContext
from schemas.prompt import Prompt, SourcePart
from tasks.evidence import SourceSearch, content_words
from tasks.markers import Marker, cut_segments, find_markers, references_start
from tasks.quotes import locate
from tasks.render import Mark, Piece, Rendered, render, resolve_format, strip_markers
from tasks.segments import read_segments
from tasks.sentences import Span, sentence_spans, words
from tasks.statements import Statement, is_hedge, why_not_checkable

SNIPPET_CHARACTERS = 150
DECENT_MATCH = 0.35
"""Least share (by weight) of a sentence's words in a source for us to name the place a marker without quote relies on."""

_NONE = re.compile(r"\s*\[none\][:.]?\s*", re.IGNORECASE)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SHOWN_QUOTE = 80


@dataclass(frozen=True, slots=True)
class Processed:
    """An answer ready to be checked.

    Attributes:
        response: the rendered text; for a check-only job the given one, unchanged.
        canonical: what it was rendered from; citations of sources that do not exist are left out.
        structured: the object asked for by ``output_schema``, or the response itself when its format is JSON.
        parsed: False when the completion was not of its protocol or a part of it was lost.
        abstained: the model itself says that the sources do not answer, and cites nothing.
        statements: the response's sentences in order, with the citations of each.
        markers: every citation marker in the response, in order, those that name no source included.
    """

    response: str
    citations: tuple[Citation, ...]
    canonical: CanonicalAnswer
    structured: dict[str, Any] | None
    parsed: bool
    abstained: bool
    warnings: tuple[str, ...]
    output_format: OutputFormat
    statements: tuple[Statement, ...]
    markers: tuple[Span, ...]


def postprocess(request: JobRequest, prompt: Prompt | None, completion: Completion | None) -> Processed:
    """Make the answer of a completion, or of the response given with a check-only job.

    Args:
        request: the job's request.
        prompt: what the model was shown; None for a check-only job (all sources count as shown, in order).
        completion: None for a check-only job.
    """
    shown = prompt.snapshot.shown if prompt else tuple(range(len(request.context)))
    labels = [_label(request.context[index], number) for number, index in enumerate(shown, start=1)]
    if completion is None:
        parsed = _read_given(request.response or "", shown, request)
        rendered = parsed.rendered
    else:
        parsed = _read(completion, len(shown))
        rendered = None
    if rendered is None:
        rendered = render(
            parsed.answer,
            request.config.citation_style,
            resolve_format(request),
            labels,
            show_markers=request.config.include_citations,
        )
    return _assemble(request, prompt, completion, parsed, rendered, shown)


# ---- reading the canonical form --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Read:
    answer: CanonicalAnswer
    parsed: bool = True
    data: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    rendered: Rendered | None = None
    unknown: tuple[Marker, ...] = ()


def _read(completion: Completion, known: int) -> _Read:
    text = _UNSTORABLE.sub("\ufffd", completion.text)
    if completion.protocol is AnswerProtocol.SEGMENTS:
        if (read := read_segments(text)) is not None:
            answer, warnings = _clean_segments(read.answer, known)
            return _Read(answer, read.complete, read.data, (*read.repairs, *warnings))
        running = _read_markers(text, known)
        warning = "the answer is not the JSON object asked for; it was read as running text"
        return replace(running, parsed=False, warnings=(warning, *running.warnings))
    if completion.protocol is AnswerProtocol.NATIVE:
        return _read_native(text, completion.native_citations, known)
    return _read_markers(text, known)


def _read_markers(text: str, known: int) -> _Read:
    text, sufficient = _without_none(text)
    text = text[: references_start(text)].rstrip()
    markers = find_markers(text)
    segments = cut_segments(text, markers, known)
    answer = CanonicalAnswer(segments=segments, sufficient=sufficient and not _only_hedges(segments))
    return _Read(answer, warnings=_unknown_warning((n for m in markers for n in m.numbers), known))


def _without_none(text: str) -> tuple[str, bool]:
    found = _NONE.match(text)
    return (text[found.end() :], False) if found else (text, True)


def _only_hedges(segments: Sequence[Segment]) -> bool:
    """Whether an answer without a citation says nothing but that there is no answer."""
    if not segments or any(segment.citations for segment in segments):
        return False
    texts = [segment.text for segment in segments if segment.text.strip()]
    return any(map(is_hedge, texts)) and all(why_not_checkable(text) for text in texts)


def _clean_segments(answer: CanonicalAnswer, known: int) -> tuple[CanonicalAnswer, tuple[str, ...]]:
    """Leave out sources that do not exist, and take markers that the model wrote into the text all the same."""
    segments: list[Segment] = []
    named: list[int] = []
    for segment in answer.segments:
        text = _UNSTORABLE.sub("\ufffd", segment.text)
        citations = [citation for citation in segment.citations if 1 <= citation.source <= known]
        named.extend(citation.source for citation in segment.citations)
        if markers := find_markers(text):
            cut = cut_segments(text, markers, known)
            text = "".join(part.text for part in cut)
            cited = {citation.source for citation in citations}
            written = dict.fromkeys(citation.source for part in cut for citation in part.citations)
            citations.extend(SegmentCitation(source=source) for source in written if source not in cited)
            named.extend(number for marker in markers for number in marker.numbers)
        segments.append(Segment(text=text, citations=tuple(citations)))
    return CanonicalAnswer(segments=tuple(segments), sufficient=answer.sufficient), _unknown_warning(named, known)


def _read_native(text: str, native: Sequence[NativeCitation], known: int) -> _Read:
    text, sufficient = _without_none(text)
    shift = len(text)
    usable = [one for one in native if 1 <= one.source_number <= known and 0 <= one.start < one.end]
    offset = max((one.end for one in usable), default=0) - shift
    # A [none] cut off the front moves every position; without it they stand as given.
    moved = offset if not sufficient and offset > 0 else 0
    by_end: dict[int, list[SegmentCitation]] = {}
    cuts = {shift} | {span.end for span in sentence_spans(text)}
    for one in usable:
        start, end = max(0, one.start - moved), min(shift, one.end - moved)
        end = _past_punctuation(text, end)
        cuts.update((start, end))
        by_end.setdefault(end, []).append(SegmentCitation(source=one.source_number, quote=one.quote))
    segments = []
    left = 0
    for cut in sorted(cuts):
        citations = tuple(by_end.get(cut, ()))
        if cut > left or citations:
            segments.append(Segment(text=text[left:cut], citations=citations))
        left = max(left, cut)
    answer = CanonicalAnswer(segments=tuple(segments), sufficient=sufficient and not _only_hedges(segments))
    return _Read(answer, warnings=_unknown_warning((one.source_number for one in native), known))


def _past_punctuation(text: str, end: int) -> int:
    while end < len(text) and text[end] in ".!?。！？" and not text[end - 1 : end].isspace():
        end += 1
    return end


def _unknown_warning(numbers: Iterator[int] | Sequence[int], known: int) -> tuple[str, ...]:
    unknown = sorted({number for number in numbers if not 1 <= number <= known})
    if not unknown:
        return ()
    return (f"cited source(s) that were not given: {', '.join(map(str, unknown))}",)


# ---- the answer of a check-only job ----------------------------------------------------------------------------


def _read_given(text: str, shown: Sequence[int], request: JobRequest) -> _Read:
    """Read an existing answer without changing it: its own markers are the rendered ones."""
    known = len(shown)
    body = references_start(text)
    titles = [str(request.context[index].metadata.get("title") or "") for index in shown]
    markers = find_markers(text[:body], titles)
    segments = cut_segments(text[:body], markers, known)
    ranks: dict[int, int] = {}
    marks = []
    cited = [(i, citation.source) for i, segment in enumerate(segments) for citation in segment.citations]
    position = 0
    for marker in markers:
        for number in marker.numbers:
            if not 1 <= number <= known:
                continue
            rank = ranks.setdefault(number, len(ranks) + 1)
            # A number named twice in one group is one citation of its segment, at its first marker.
            if position < len(cited) and cited[position][1] == number:
                marks.append(Mark(cited[position][0], number, rank, marker.start, marker.end))
                position += 1
    pieces = (Piece(0, body, body),) if body else ()
    unknown = tuple(marker for marker in markers if any(not 1 <= number <= known for number in marker.numbers))
    return _Read(
        CanonicalAnswer(segments=segments, sufficient=not _only_hedges(segments)),
        warnings=_unknown_warning([number for marker in markers for number in marker.numbers], known),
        rendered=Rendered(text, tuple(marks), pieces),
        unknown=unknown,
    )


# ---- putting it together ---------------------------------------------------------------------------------------


def _assemble(
    request: JobRequest,
    prompt: Prompt | None,
    completion: Completion | None,
    read: _Read,
    rendered: Rendered,
    shown: Sequence[int],
) -> Processed:
    markers = sorted(
        {Span(mark.start, mark.end) for mark in rendered.marks} | {Span(m.start, m.end) for m in read.unknown}
    )
    sentences = _sentences(rendered, request.config.language)
    citations, warnings = _citations(request, read.answer, rendered, shown, sentences, markers)
    statements = _statements(sentences, citations, read.unknown, len(shown))
    cited = bool(citations)
    answer = read.answer
    notes = [*read.warnings, *warnings, *_notes(request, prompt, completion, rendered.text, citations)]
    if not answer.sufficient and cited:
        notes.append("by its own word the answer covers only what the sources say")
    output_format = resolve_format(request)
    return Processed(
        response=rendered.text,
        citations=tuple(citations),
        canonical=answer,
        structured=_structured(
            request, read.data, rendered.text, output_format, is_given=completion is None, notes=notes
        ),
        parsed=read.parsed,
        abstained=not answer.sufficient and not cited,
        warnings=tuple(dict.fromkeys(notes)),
        output_format=output_format,
        statements=tuple(statements),
        markers=tuple(markers),
    )


def _sentences(rendered: Rendered, language: str | None) -> list[tuple[Span, int]]:
    """The response's sentences, each with the position up to which markers belong to it."""
    code = language.lower()[:2] if language and (len(language) == 2 or language[2:3] in "-_") else "en"  # noqa: PLR2004
    sentences: list[tuple[Span, int]] = []
    for piece in rendered.pieces:
        spans = [
            Span(a + piece.start, b + piece.start)
            for a, b in sentence_spans(rendered.text[piece.start : piece.end], code)
        ]
        reaches = [span.start for span in spans[1:]] + [piece.reach]
        sentences.extend(zip(spans, reaches, strict=True) if spans else ())
    return sentences


def _statements(
    sentences: Sequence[tuple[Span, int]], citations: Sequence[Citation], unknown: Sequence[Marker], known: int
) -> Iterator[Statement]:
    position = 0
    for span, reach in sentences:
        mine = []
        while position < len(citations) and (
            citations[position].start_pos < reach or citations[position].end_pos <= reach
        ):
            mine.append(position)
            position += 1
        numbers = tuple(n for m in unknown if span.start <= m.start < reach for n in m.numbers if not 1 <= n <= known)
        yield Statement(span.start, span.end, tuple(mine), numbers)


def _citations(
    request: JobRequest,
    answer: CanonicalAnswer,
    rendered: Rendered,
    shown: Sequence[int],
    sentences: Sequence[tuple[Span, int]],
    markers: Sequence[Span],
) -> tuple[list[Citation], list[str]]:
    """All citations in the order of their markers, and what is to be said of those whose words are not there."""
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
    quote = " ".join(_UNSTORABLE.sub("\ufffd", wanted.quote).split())
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
                match = self._search.best(said).get(source_index)
                if match is None or match.score < DECENT_MATCH:
                    return None
                return self._search.span(match, said)
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
        page=_scalar(about.get("page")),
        article=_scalar(about.get("article")),
        section=_section(about),
        verified=place is not None,
    )


def _scalar(value: Any) -> str | int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _section(about: Mapping[str, Any]) -> str | None:
    value = about.get("section")
    if value is None:
        value = about.get("section_hierarchy")
    if value is None:
        return None
    return " > ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _label(source: SourceContext, number: int) -> str:
    """What a source is called in the answer: its title and place, else its number."""
    title = " ".join(str(source.metadata.get("title") or source.metadata.get("source_path") or "").split())
    if not title:
        return f"source {number}"
    page = source.metadata.get("page")
    return f"{title}, p. {page}" if page is not None else title


# ---- what a person should know ---------------------------------------------------------------------------------


def _notes(
    request: JobRequest, prompt: Prompt | None, completion: Completion | None, text: str, citations: Sequence[Citation]
) -> Iterator[str]:
    config = request.config
    if prompt is not None:
        yield from _left_out(request, prompt)
    if not text.strip():
        yield "the answer is empty"
    elif config.include_citations and len(citations) < config.min_citations:
        yield f"{len(citations)} citation(s), at least {config.min_citations} wanted"
    if completion is not None:
        if completion.finish_reason is FinishReason.LENGTH:
            yield "the answer was cut off at max_tokens"
        if completion.sanitised or _UNSTORABLE.search(completion.text):
            yield "characters that cannot be stored were replaced"
        if config.max_response_length is not None and len(text) > config.max_response_length:
            yield f"the answer has {len(text)} characters, at most {config.max_response_length} wanted"


def _left_out(request: JobRequest, prompt: Prompt) -> Iterator[str]:
    given, shown = len(request.context), len(prompt.snapshot.shown)
    if shown < given:
        yield f"{given - shown} of {given} sources were left out: max_context_tokens is {request.config.max_context_tokens}"
    for message in prompt.snapshot.messages:
        for part in message.parts:
            if isinstance(part, SourcePart) and part.end < len(request.context[part.source_index].content):
                yield f"context[{part.source_index}] was shown only in part: max_context_tokens"


def _structured(
    request: JobRequest,
    data: dict[str, Any] | None,
    text: str,
    output_format: OutputFormat,
    *,
    is_given: bool,
    notes: list[str],
) -> dict[str, Any] | None:
    if is_given:
        return None
    if request.config.output_schema is not None:
        if data is None:
            notes.append("the object asked for by output_schema is missing")
        return data
    if output_format is OutputFormat.JSON:
        parsed: dict[str, Any] = orjson.loads(text)
        return parsed
    return None
