"""Read a completion, or an answer that was given, into the canonical form: segments with what they cite."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.answer import CanonicalAnswer, Segment, SegmentCitation
from schemas.completion import Completion, NativeCitation
from schemas.generation import AnswerProtocol
from tasks.answers.markers import Marker, cut_segments, find_markers, own_brackets, references_start
from tasks.answers.rendered import Mark, Piece, Rendered
from tasks.answers.segments import read_segments
from tasks.text.sentences import sentence_spans
from tasks.text.statements import why_not_checkable
from tasks.text.wording import is_denial, is_next_step

_NONE = re.compile(r"\s*\[none\][:.]?\s*", re.IGNORECASE)
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""What Postgres cannot keep as text: NUL, and surrogates without their pair."""


@dataclass(frozen=True, slots=True)
class Read:
    """An answer in canonical form, and how well it could be read.

    Attributes:
        answer: cites known sources only.
        parsed: False when the answer was not of its protocol or a part of it was lost.
        data: the object asked for by ``output_schema``.
        warnings: what was put right or left out.
        rendered: for a given answer, its own text and markers.
        unknown: for a given answer, its markers that name a source that does not exist.
    """

    answer: CanonicalAnswer
    parsed: bool = True
    data: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()
    rendered: Rendered | None = None
    unknown: tuple[Marker, ...] = ()


def read_completion(completion: Completion, known: int, sources: Sequence[str] = ()) -> Read:
    """Read what a model answered, by its protocol.

    Args:
        completion: as the provider gave it.
        known: how many sources were shown; other numbers are left out, with a warning.
        sources: their contents, by number - 1: a bracket that was copied from one of them is no citation.
    """
    text = UNSTORABLE.sub("\ufffd", completion.text)
    if completion.protocol is AnswerProtocol.SEGMENTS:
        if (read := read_segments(text)) is not None:
            answer, warnings = _clean_segments(read.answer, known, sources)
            return Read(answer, read.complete, read.data, (*read.repairs, *warnings))
        running = _read_markers(text, known, sources)
        warning = "the answer is not the JSON object asked for; it was read as running text"
        return replace(running, parsed=False, warnings=(warning, *running.warnings))
    if completion.protocol is AnswerProtocol.NATIVE:
        return _read_native(text, completion.native_citations, known)
    return _read_markers(text, known, sources)


_COPIED = "{} bracket(s) in the answer were copied from a source and cite nothing; they were taken out"


def _read_markers(text: str, known: int, sources: Sequence[str] = ()) -> Read:
    text, sufficient = _without_none(text)
    text = text[: references_start(text)].rstrip()
    markers, copied = _citing(text, sources)
    segments = cut_segments(text, markers, known)
    answer = CanonicalAnswer(segments=segments, sufficient=sufficient and not _only_hedges(segments))
    warnings = (_COPIED.format(copied),) if copied else ()
    return Read(answer, warnings=(*_unknown_warning((n for m in markers for n in m.numbers), known), *warnings))


def _citing(text: str, sources: Sequence[str]) -> tuple[list[Marker], int]:
    """The markers of a text; those copied from a source name no number any more, and how many those are."""
    markers = find_markers(text)
    own = own_brackets(text, markers, sources) if markers and sources else set()
    return [replace(marker, numbers=()) if marker in own else marker for marker in markers], len(own)


def _without_none(text: str) -> tuple[str, bool]:
    found = _NONE.match(text)
    return (text[found.end() :], False) if found else (text, True)


def _only_hedges(segments: Sequence[Segment]) -> bool:
    """Whether an answer without a citation says nothing but that there is no answer."""
    if not segments or any(segment.citations for segment in segments):
        return False
    text = "".join(segment.text for segment in segments)
    sentences = [text[start:end] for start, end in sentence_spans(text)]
    return any(map(is_denial, sentences)) and all(
        why_not_checkable(sentence) or is_next_step(sentence) for sentence in sentences
    )


def _clean_segments(
    answer: CanonicalAnswer, known: int, sources: Sequence[str]
) -> tuple[CanonicalAnswer, tuple[str, ...]]:
    """Leave out sources that do not exist, and take markers that the model wrote into the text all the same."""
    segments: list[Segment] = []
    named: list[int] = []
    all_copied = 0
    for segment in answer.segments:
        text = UNSTORABLE.sub("\ufffd", segment.text)
        citations = [citation for citation in segment.citations if 1 <= citation.source <= known]
        named.extend(citation.source for citation in segment.citations)
        markers, copied = _citing(text, sources)
        if markers:
            all_copied += copied
            cut = cut_segments(text, markers, known)
            text = "".join(part.text for part in cut)
            cited = {citation.source for citation in citations}
            written = dict.fromkeys(citation.source for part in cut for citation in part.citations)
            citations.extend(SegmentCitation(source=source) for source in written if source not in cited)
            named.extend(number for marker in markers for number in marker.numbers)
        segments.append(Segment(text=text, citations=tuple(citations)))
    warnings = (_COPIED.format(all_copied),) if all_copied else ()
    cleaned = CanonicalAnswer(segments=tuple(segments), sufficient=answer.sufficient and not _only_hedges(segments))
    return cleaned, (*_unknown_warning(named, known), *warnings)


def _read_native(text: str, native: Sequence[NativeCitation], known: int) -> Read:
    whole = len(text)
    text, sufficient = _without_none(text)
    moved = whole - len(text)
    by_end: dict[int, list[SegmentCitation]] = {}
    cuts = {len(text)} | {span.end for span in sentence_spans(text)}
    for one in native:
        if not 1 <= one.source_number <= known:
            continue
        start, end = (min(max(0, place - moved), len(text)) for place in (one.start, one.end))
        end = _past_punctuation(text, end)
        cuts.update((start, end))
        by_end.setdefault(end, []).append(SegmentCitation(source=one.source_number, quote=one.quote))
    segments = []
    markers = find_markers(text)
    left = 0
    for cut in sorted(cuts):
        citations = tuple(by_end.get(cut, ()))
        if cut > left or citations:
            segments.append(Segment(text=_without_brackets(text, left, cut, markers), citations=citations))
        left = max(left, cut)
    answer = CanonicalAnswer(segments=tuple(segments), sufficient=sufficient and not _only_hedges(segments))
    return Read(answer, warnings=_unknown_warning((one.source_number for one in native), known))


def _without_brackets(text: str, start: int, end: int, markers: Sequence[Marker]) -> str:
    """A piece of an answer whose citations are the provider's own, without numbers that only look like citations."""
    inside = [
        replace(one, start=one.start - start, end=one.end - start)
        for one in markers
        if start <= one.start and one.end <= end
    ]
    piece = text[start:end]
    return "".join(segment.text for segment in cut_segments(piece, inside, 0)) if inside else piece


def _past_punctuation(text: str, end: int) -> int:
    while end < len(text) and text[end] in ".!?。！？؟" and not text[end - 1 : end].isspace():
        end += 1
    return end


def _unknown_warning(numbers: Iterable[int], known: int) -> tuple[str, ...]:
    unknown = sorted({number for number in numbers if not 1 <= number <= known})
    if not unknown:
        return ()
    return (f"cited source(s) that were not given: {', '.join(map(str, unknown))}",)


# ---- the answer of a check-only job ----------------------------------------------------------------------------


def read_given(text: str, titles: Sequence[str]) -> Read:
    """Read an existing answer without changing it: its own markers are the rendered ones.

    Args:
        text: the answer, with markers of any style.
        titles: the title of each source, by number - 1; empty where there is none.
    """
    known = len(titles)
    body = references_start(text)
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
    return Read(
        CanonicalAnswer(segments=segments, sufficient=not _only_hedges(segments)),
        warnings=_unknown_warning([number for marker in markers for number in marker.numbers], known),
        rendered=Rendered(text, tuple(marks), pieces),
        unknown=unknown,
    )
