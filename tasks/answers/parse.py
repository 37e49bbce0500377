"""Parses a completion or a supplied answer into the canonical form: segments with their citations."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from schemas.answer import CanonicalAnswer, Segment, SegmentCitation
from schemas.completion import Completion, NativeCitation
from schemas.generation import AnswerProtocol
from tasks.answers.markers import OPENING, Marker, cut_segments, find_markers, own_brackets, references_start
from tasks.answers.rendered import Mark, Piece, Rendered
from tasks.text.sentences import sentence_spans
from tasks.text.wording import is_denial, is_next_step, why_not_checkable

_NONE = re.compile(r"\s*\[none\][:.]?\s*", re.IGNORECASE)
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""Characters that PostgreSQL cannot store as text: NUL and unpaired surrogates."""


def storable(text: str) -> str:
    """A text with each character that PostgreSQL cannot store replaced by one other, so that offsets stay."""
    return UNSTORABLE.sub("\ufffd", text)


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """An answer in canonical form, with the result of parsing it.

    Attributes:
        answer: cites existing sources only.
        parsed: False if the answer did not follow its protocol or a part of it was lost.
        data: the object for ``output_schema``.
        warnings: repairs and omissions.
        rendered: for a supplied answer, its own text and markers.
        unknown: for a supplied answer, its markers of sources that do not exist.
    """

    answer: CanonicalAnswer
    parsed: bool = True
    data: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    rendered: Rendered | None = None
    unknown: tuple[Marker, ...] = ()


def parse_completion(completion: Completion, source_count: int, sources: Sequence[str] = ()) -> ParsedAnswer:
    """Parses a model's answer by its protocol.

    Args:
        completion: the completion of the provider.
        source_count: number of sources in the prompt; other numbers are dropped with a warning.
        sources: their contents, by number - 1: a bracket copied from a source is no citation.
    """
    text = storable(completion.text)
    if completion.protocol is AnswerProtocol.SEGMENTS:
        if (read := parse_segments(text)) is not None:
            answer, warnings = _clean_segments(read.answer, source_count, sources)
            return ParsedAnswer(answer, read.complete, read.data, (*read.repairs, *warnings))
        running = _parse_markers(text, source_count, sources)
        warning = "the answer is not the requested JSON object; it was parsed as running text"
        return replace(running, parsed=False, warnings=(warning, *running.warnings))
    if completion.protocol is AnswerProtocol.NATIVE:
        return _parse_native(text, completion.native_citations, source_count)
    return _parse_markers(text, source_count, sources)


_COPIED = "{} bracket(s) in the answer were copied from a source and cite nothing; they were removed"


def _parse_markers(text: str, source_count: int, sources: Sequence[str] = ()) -> ParsedAnswer:
    text, sufficient = _without_none(text)
    text = text[: references_start(text)].rstrip()
    markers, copied = _find_citing_markers(text, sources)
    segments = cut_segments(text, markers, source_count)
    answer = CanonicalAnswer(segments=segments, sufficient=sufficient and not _only_hedges(segments))
    warnings = (_COPIED.format(copied),) if copied else ()
    return ParsedAnswer(
        answer, warnings=(*_unknown_warning((n for m in markers for n in m.numbers), source_count), *warnings)
    )


def _find_citing_markers(text: str, sources: Sequence[str]) -> tuple[list[Marker], int]:
    """The markers of a text, without numbers if copied from a source, and the number of copies."""
    if not OPENING.search(text):
        return [], 0
    markers = find_markers(text)
    own = own_brackets(text, markers, sources) if markers and sources else set()
    return [replace(marker, numbers=()) if marker in own else marker for marker in markers], len(own)


def _without_none(text: str) -> tuple[str, bool]:
    match = _NONE.match(text)
    return (text[match.end() :], False) if match else (text, True)


def _only_hedges(segments: Sequence[Segment]) -> bool:
    """Tells whether an answer without citations only says that there is no answer."""
    if not segments or any(segment.citations for segment in segments):
        return False
    text = "".join(segment.text for segment in segments)
    sentences = [text[start:end] for start, end in sentence_spans(text)]
    return any(map(is_denial, sentences)) and all(
        why_not_checkable(sentence) or is_next_step(sentence) for sentence in sentences
    )


def _clean_segments(
    answer: CanonicalAnswer, source_count: int, sources: Sequence[str]
) -> tuple[CanonicalAnswer, tuple[str, ...]]:
    """Drops citations of sources that do not exist, and turns markers in the text into citations."""
    segments: list[Segment] = []
    named: list[int] = []
    all_copied = 0
    for segment in answer.segments:
        text = storable(segment.text)
        citations = [citation for citation in segment.citations if 1 <= citation.source <= source_count]
        named.extend(citation.source for citation in segment.citations)
        markers, copied = _find_citing_markers(text, sources)
        if markers:
            all_copied += copied
            pieces = cut_segments(text, markers, source_count)
            text = "".join(part.text for part in pieces)
            cited = {citation.source for citation in citations}
            sources_in_text = dict.fromkeys(citation.source for part in pieces for citation in part.citations)
            citations.extend(SegmentCitation(source=source) for source in sources_in_text if source not in cited)
            named.extend(number for marker in markers for number in marker.numbers)
        segments.append(Segment(text=text, citations=tuple(citations)))
    warnings = (_COPIED.format(all_copied),) if all_copied else ()
    cleaned = CanonicalAnswer(segments=tuple(segments), sufficient=answer.sufficient and not _only_hedges(segments))
    return cleaned, (*_unknown_warning(named, source_count), *warnings)


def _parse_native(text: str, native: Sequence[NativeCitation], source_count: int) -> ParsedAnswer:
    whole = len(text)
    text, sufficient = _without_none(text)
    moved = whole - len(text)
    by_end: dict[int, list[SegmentCitation]] = {}
    boundaries = {len(text)} | {span.end for span in sentence_spans(text)}
    for citation in native:
        if not 1 <= citation.source_number <= source_count:
            continue
        start, end = (min(max(0, place - moved), len(text)) for place in (citation.start, citation.end))
        end = _past_punctuation(text, end)
        boundaries.update((start, end))
        by_end.setdefault(end, []).append(SegmentCitation(source=citation.source_number, quote=citation.quote))
    segments = []
    markers = find_markers(text)
    piece_start = 0
    for boundary in sorted(boundaries):
        citations = tuple(by_end.get(boundary, ()))
        if boundary > piece_start or citations:
            segments.append(Segment(text=_without_brackets(text, piece_start, boundary, markers), citations=citations))
        piece_start = max(piece_start, boundary)
    answer = CanonicalAnswer(segments=tuple(segments), sufficient=sufficient and not _only_hedges(segments))
    return ParsedAnswer(
        answer, warnings=_unknown_warning((citation.source_number for citation in native), source_count)
    )


def _without_brackets(text: str, start: int, end: int, markers: Sequence[Marker]) -> str:
    """A part of an answer with native citations, without bracketed numbers that only look like citations."""
    inside = [
        replace(marker, start=marker.start - start, end=marker.end - start)
        for marker in markers
        if start <= marker.start and marker.end <= end
    ]
    piece = text[start:end]
    return "".join(segment.text for segment in cut_segments(piece, inside, 0)) if inside else piece


def _past_punctuation(text: str, end: int) -> int:
    while end < len(text) and text[end] in ".!?。！？؟" and not text[end - 1 : end].isspace():
        end += 1
    return end


def _unknown_warning(numbers: Iterable[int], source_count: int) -> tuple[str, ...]:
    unknown = sorted({number for number in numbers if not 1 <= number <= source_count})
    if not unknown:
        return ()
    return (f"cited source(s) that do not exist: {', '.join(map(str, unknown))}",)


# ---- the answer of a check-only job ----------------------------------------------------------------------------


def parse_supplied(text: str, titles: Sequence[str]) -> ParsedAnswer:
    """Parses a supplied answer without changing it: its own markers are the rendered ones.

    Args:
        text: the answer, with markers of any style.
        titles: the title of each source, by number - 1; empty for a source without a title.
    """
    source_count = len(titles)
    body = references_start(text)
    markers = find_markers(text[:body], titles)
    segments = cut_segments(text[:body], markers, source_count)
    ranks: dict[int, int] = {}
    marks = []
    cited = [(i, citation.source) for i, segment in enumerate(segments) for citation in segment.citations]
    position = 0
    for marker in markers:
        for number in marker.numbers:
            if not 1 <= number <= source_count:
                continue
            rank = ranks.setdefault(number, len(ranks) + 1)
            # A number that occurs twice in one group is one citation of its segment, at its first marker.
            if position < len(cited) and cited[position][1] == number:
                marks.append(Mark(cited[position][0], number, rank, marker.start, marker.end))
                position += 1
    pieces = (Piece(0, body, body),) if body else ()
    unknown = tuple(marker for marker in markers if any(not 1 <= number <= source_count for number in marker.numbers))
    return ParsedAnswer(
        CanonicalAnswer(segments=segments, sufficient=not _only_hedges(segments)),
        warnings=_unknown_warning([number for marker in markers for number in marker.numbers], source_count),
        rendered=Rendered(text, tuple(marks), pieces),
        unknown=unknown,
    )


# ---- the JSON form ----------------------------------------------------------------------------------------------------

_DECODER = json.JSONDecoder(strict=False)
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])')
_SEGMENTS_KEY = re.compile(r'"segments"\s*:\s*\[')
_SUFFICIENT_KEY = re.compile(r'"sufficient"\s*:\s*(true|false)')
_DIGITS = re.compile(r"\d{1,4}")
_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
_OPENS_LINE = re.compile(r"(?:[-*+•][ \t]|\d{1,3}[.)][ \t]|#{1,6}[ \t]|\||```)")
_NO_SPACE_BEFORE = frozenset(".,;:!?)]}”’»…%|")
_NO_SPACE_AFTER = frozenset("([{„“‘«")


@dataclass(frozen=True, slots=True)
class ParsedSegments:
    """A parsed answer: ``complete`` is False if a part was lost, ``repairs`` names each repair."""

    answer: CanonicalAnswer
    data: dict[str, Any] | None
    complete: bool
    repairs: tuple[str, ...]


def parse_segments(text: str) -> ParsedSegments | None:
    """Parses a SEGMENTS answer; None if the text contains no such object."""
    repairs: list[str] = []
    raw = _load(text, repairs)
    complete = raw is not None
    if raw is None:
        raw = _salvage(text)
        repairs = ["the answer's JSON breaks off or is damaged; its readable segments were kept"]
    if raw is None or not isinstance(raw.get("segments"), list):
        return None
    segments, lost = _segments(raw["segments"])
    if lost:
        repairs.append(f"{lost} segment(s) without text were removed")
    data = raw.get("data")
    answer = CanonicalAnswer(segments=_join(segments), sufficient=raw.get("sufficient") is not False)
    return ParsedSegments(answer, data if isinstance(data, dict) else None, complete and not lost, tuple(repairs))


def _load(text: str, repairs: list[str]) -> dict[str, Any] | None:
    """The first JSON object of the text: parsed strictly, then inside a fence or prose, then without trailing commas."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    else:
        return value if isinstance(value, dict) else None
    candidates = [match.group(1) for match in [_FENCE.search(text)] if match] + [text]
    for candidate in candidates:
        start = candidate.find("{")
        if start < 0:
            continue
        body = candidate[start:]
        for attempt, repair in (
            (body, "text around the answer's JSON was removed"),
            (_TRAILING_COMMA.sub(lambda match: match.group(1) or "", body), "trailing commas were removed"),
        ):
            value = _decode(attempt)
            if isinstance(value, dict) and "segments" in value:
                repairs.append(repair)
                return value
    return None


def _decode(text: str) -> Any:
    try:
        return _DECODER.raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _salvage(text: str) -> dict[str, Any] | None:
    """The complete segments of a truncated answer."""
    key = _SEGMENTS_KEY.search(text)
    if not key:
        return None
    position = key.end()
    segments = []
    while (start := text.find("{", position)) >= 0:
        try:
            value, position = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        segments.append(value)
    if not segments:
        return None
    sufficient = _SUFFICIENT_KEY.search(text)
    return {"segments": segments, "sufficient": not (sufficient and sufficient.group(1) == "false")}


def _segments(raw: list[Any]) -> tuple[list[Segment], int]:
    """The segments with text and the number without; citations without text move to the previous segment."""
    segments: list[Segment] = []
    lost = 0
    for item in raw:
        value = {"text": item} if isinstance(item, str) else item
        text = value.get("text") if isinstance(value, dict) else None
        if not isinstance(text, str):
            lost += 1
            continue
        citations = _citations(value.get("citations"))
        if text.strip():
            segments.append(Segment(text=text, citations=citations))
        elif citations and segments:
            previous = segments.pop()
            segments.append(Segment(text=previous.text, citations=previous.citations + citations))
    return segments, lost


def _citations(raw: Any) -> tuple[SegmentCitation, ...]:
    if raw is None:
        return ()
    citations = []
    for item in raw if isinstance(raw, list) else [raw]:
        source = item.get("source") if isinstance(item, dict) else item
        quote = item.get("quote") if isinstance(item, dict) else ""
        number = _source_number(source)
        if number is not None:
            citations.append(SegmentCitation(source=number, quote=quote if isinstance(quote, str) else ""))
    return tuple(citations)


def _source_number(value: Any) -> int | None:
    """A source number; models also write ``"2"``, ``"[2]"`` and ``"Source 2"``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    digits = _DIGITS.search(value) if isinstance(value, str) else None
    return int(digits.group()) if digits else None


def _join(segments: list[Segment]) -> tuple[Segment, ...]:
    """The segments with the white space between them added to their texts."""
    joined: list[Segment] = []
    before = ""
    for segment in segments:
        separator = _separator(before, segment.text) if before else ""
        joined.append(Segment(text=separator + segment.text, citations=segment.citations) if separator else segment)
        before = segment.text
    return tuple(joined)


def _separator(before: str, text: str) -> str:
    last, first = before[-1], text[0]
    if last.isspace() or first.isspace():
        return ""
    if _OPENS_LINE.match(text) or before.lstrip().startswith("#"):
        return "\n"
    if first in _NO_SPACE_BEFORE or last in _NO_SPACE_AFTER or (_WIDE.match(last) and _WIDE.match(first)):
        return ""
    return " "
