"""Parses a completion or a supplied answer into the canonical form: segments with their citations, each written once."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from schemas.answer import CanonicalAnswer, Segment, SegmentCitation
from schemas.generation import AnswerProtocol
from schemas.model_call import Completion, NativeCitation
from tasks.answers.json_reply import is_json_reply, parse_segments, plain_string
from tasks.answers.markers import OPENING, Marker, cut_segments, find_markers, own_brackets, references_start
from tasks.answers.rendered import Mark, Piece, Rendered, fenced_blocks, with_separators
from tasks.answers.stretches import Stretches
from tasks.answers.thoughts import may_hold_thoughts, without_thoughts
from tasks.text.clauses import only_refuses
from tasks.text.sentences import sentence_spans
from tasks.text.statements import without_place
from tasks.text.word_search import WordSearch

_NONE = re.compile(r"\s*\[none\][:.]?\s*", re.IGNORECASE)
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""Characters that PostgreSQL cannot store as text: NUL and unpaired surrogates."""


def storable(text: str) -> str:
    """A text with each character that PostgreSQL cannot store replaced by one other, so that offsets stay."""
    return text if is_storable(text) else UNSTORABLE.sub("\ufffd", text)


def is_storable(text: str) -> bool:
    """Tells whether PostgreSQL can store a text as it is."""
    if "\0" in text:
        return False
    try:
        # Far faster than a search for surrogates.
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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


def parse_completion(
    completion: Completion, source_count: int, sources: Sequence[str] = (), ids: Sequence[str] = ()
) -> ParsedAnswer:
    """Parses a model's answer by its protocol.

    Args:
        completion: the completion of the provider.
        source_count: number of sources in the prompt; other numbers are dropped with a warning.
        sources: their contents, by number - 1: a bracket copied from a source is no citation.
        ids: their chunk ids, likewise, by which JSON may cite them.
    """
    text = storable(completion.text)
    if completion.protocol is AnswerProtocol.NATIVE:
        return _parse_native(text, completion.native_citations, source_count)
    text = _without_thoughts(text)
    requested = completion.protocol is AnswerProtocol.SEGMENTS
    if requested and (exact := parse_exact(text)) is not None:
        answer, warnings = _clean_segments(exact, source_count, sources)
        return ParsedAnswer(answer, warnings=warnings)
    numbers = {chunk_id: number for number, chunk_id in enumerate(ids, 1)}
    reply = parse_segments(text, numbers) if requested or is_json_reply(text) else None
    # A block of JSON may be the answer to a question about JSON.
    if reply is not None and (requested or reply.usual or not text.lstrip().startswith("```")):
        answer, warnings = _clean_segments(reply.answer, source_count, sources)
        return ParsedAnswer(answer, reply.complete, reply.data, (*reply.repairs, *warnings))
    running = _parse_markers(_without_fence(plain_string(text) if requested else text), source_count, sources)
    if not requested:
        return running
    warning = "the answer is not the requested JSON object; it was parsed as running text"
    return replace(running, parsed=False, warnings=(warning, *running.warnings))


def parse_exact(text: str) -> CanonicalAnswer | None:
    """The answer of a reply in exactly the requested form; None for any other, which ``json_reply`` reads."""
    try:
        answer = CanonicalAnswer.model_validate_json(text, strict=True)
    except ValidationError:
        return None
    # A segment may hold a whole answer.
    if "segments" not in answer.model_fields_set or any(
        not (text := segment.text.lstrip()) or text[0] in "{[" for segment in answer.segments
    ):
        return None
    return answer.model_copy(update={"segments": with_separators(answer.segments)})


def _without_thoughts(text: str) -> str:
    return without_thoughts(text) if may_hold_thoughts(text) else text


_WHOLE_FENCE = re.compile(r"\s*```(?:markdown|md|text|txt|plaintext)?[ \t]*\n(?P<inside>.*?)\n?```\s*\Z", re.DOTALL)
_INLINE_ITEM = re.compile(r"(?<=[.;:!?\])*])(?P<space>[ \t])[ \t]*(?P<number>\d{1,2})[.)][ \t]+(?=\S)")
_FIRST_ITEM = re.compile(r"(?m)^[ \t]*(?P<number>1)[.)][ \t]+(?=\S)")
_INLINE_BULLET = re.compile(r"(?<=\S)(?P<space>[ \t])[ \t]*[•‣◦][ \t]+(?=\S)")


_MAY_HOLD_ITEMS = WordSearch(patterns=(r"[•‣◦]|[.;:!?\])*][ \t]+\d{1,2}[.)][ \t]",))
"""Finds what may be a list on one line."""


_EMPTY_FENCE = re.compile(r"\s*```\w*\s*(?:```\s*)?\Z")


def _without_fence(text: str) -> str:
    """The inside of a block of code that is the whole answer, if it is prose (sentences, or text with markers) or empty."""
    if _EMPTY_FENCE.match(text):
        return ""
    match = _WHOLE_FENCE.match(text)
    if match is None or "```" in match["inside"]:
        return text
    inside = match["inside"]
    is_prose = inside.rstrip().endswith((".", "]", "。", "؟", "!")) and len(inside.split()) > 2 * len(
        inside.splitlines()
    )
    return inside if is_prose or text.lstrip().startswith(("```m", "```t", "```p")) else text


def _with_lines_of_lists(text: str) -> str:
    """The text with a line break before each item of a list that the model wrote on one line; no offset changes."""
    has_bullet = "•" in text or "‣" in text or "◦" in text
    if not has_bullet and "1" not in text:
        # Most texts: no bullet, and no first item.
        return text
    bullets = [match.start("space") for match in _INLINE_BULLET.finditer(text)] if has_bullet else []
    if len(bullets) < 2:  # noqa: PLR2004 - one is a dash
        bullets = []
    for place in bullets + _numbered_items(text):
        text = f"{text[:place]}\n{text[place + 1 :]}"
    return text


def _numbered_items(text: str) -> list[int]:
    """The places of the items 1, 2, 3 of a list on one line; those from 2 on where the first has a line of its own."""
    first = _FIRST_ITEM.search(text)
    places: list[int] = []
    expected = 2 if first else 1
    for item in _INLINE_ITEM.finditer(text, first.start() + 1 if first else 0):
        if int(item["number"]) == expected:
            places.append(item.start("space"))
            expected += 1
    return places if first or len(places) > 1 else []


_COPIED = "{} bracket(s) in the answer were copied from a source and cite nothing; they were removed"


def _parse_markers(text: str, source_count: int, sources: Sequence[str] = ()) -> ParsedAnswer:
    text, sufficient = _without_none(text)
    text = _with_lines_of_lists(text[: references_start(text)].rstrip())
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
    return only_refuses("".join(segment.text for segment in segments))


def _clean_segments(
    answer: CanonicalAnswer, source_count: int, sources: Sequence[str]
) -> tuple[CanonicalAnswer, tuple[str, ...]]:
    """Drops citations of sources that do not exist, and turns markers in the text into citations."""
    segments: list[Segment] = []
    named: list[int] = []
    all_copied = 0
    whole = "\n".join([segment.text for segment in answer.segments])
    is_plain = is_storable(whole) and not (may_hold_thoughts(whole) or _MAY_HOLD_ITEMS(whole))
    may_cite = OPENING.search(whole) is not None
    for segment in answer.segments:
        text = segment.text if is_plain else _with_lines_of_lists(_without_thoughts(storable(segment.text)))
        citations = [citation for citation in segment.citations if 1 <= citation.source <= source_count]
        named.extend(citation.source for citation in segment.citations)
        markers, copied = _find_citing_markers(text, sources) if may_cite else ([], 0)
        if markers:
            all_copied += copied
            pieces = cut_segments(text, markers, source_count)
            text = "".join(part.text for part in pieces)
            cited = {citation.source for citation in citations}
            sources_in_text = dict.fromkeys(citation.source for part in pieces for citation in part.citations)
            citations.extend(SegmentCitation(source=source) for source in sources_in_text if source not in cited)
            named.extend(number for marker in markers for number in marker.numbers)
        if text.strip() or citations:
            unchanged = text == segment.text and len(citations) == len(segment.citations)
            segments.append(segment if unchanged else Segment(text=text, citations=tuple(citations)))
    warnings = (_COPIED.format(all_copied),) if all_copied else ()
    cleaned = CanonicalAnswer(segments=tuple(segments), sufficient=answer.sufficient and not _only_hedges(segments))
    return cleaned, (*_unknown_warning(named, source_count), *warnings)


def _parse_native(text: str, native: Sequence[NativeCitation], source_count: int) -> ParsedAnswer:
    whole = len(text)
    text = _with_lines_of_lists(text)
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
    cited = deque((i, citation.source) for i, segment in enumerate(segments) for citation in segment.citations)
    for marker, number in ((each, number) for each in markers for number in each.numbers):
        if not 1 <= number <= source_count:
            continue
        rank = ranks.setdefault(number, len(ranks) + 1)
        # A number that occurs twice in one group is one citation of its segment, at its first marker.
        if cited and cited[0][1] == number:
            marks.append(Mark(cited.popleft()[0], number, rank, marker.start, marker.end))
    pieces = (Piece(0, body, body),) if body else ()
    unknown = tuple(marker for marker in markers if any(not 1 <= number <= source_count for number in marker.numbers))
    return ParsedAnswer(
        CanonicalAnswer(segments=segments, sufficient=not _only_hedges(segments)),
        warnings=_unknown_warning([number for marker in markers for number in marker.numbers], source_count),
        rendered=Rendered(text, tuple(marks), pieces),
        unknown=unknown,
    )


# ---- repetitions -----------------------------------------------------------------------------------------------------


_WORD = re.compile(r"[^\W_]+")
_LEAST_LETTERS = 12
"""Letters and digits from which a part that is no neighbour of its twin says the same again; "Press OK." may be meant twice."""
_ENDS = re.compile(r"[.!?。！？؟…:|]\W*\Z")


_MOST_ROUNDS = 3
"""Times that instructions may say the same steps in the same order."""


def merge_repeated(answer: CanonicalAnswer, *, steps: bool) -> CanonicalAnswer:
    """The answer with each part once, at its first place, citing all that its repetitions cite.

    Parts are compared without case, white space, punctuation and list markers; code and tables stay whole. Instructions
    may repeat steps later on (fold, rest, fold, rest), so of ``steps`` only neighbours are merged, and what comes in the same
    order for the fourth time. A last part
    that breaks off as the beginning of an earlier one goes, too: the model went round in a circle.
    """
    answer = _without_loops(answer)
    if len(answer.segments) < 2:  # noqa: PLR2004 - one has no twin
        return answer
    protected = _protected(answer.segments)
    keys = [() if whole else _key(segment.text) for segment, whole in zip(answer.segments, protected, strict=True)]
    if len(set(keys)) == len(keys) and not _breaks_off(keys, answer.segments[-1].text):
        return answer
    result: list[Segment] = []
    places: dict[tuple[str, ...], int] = {}
    pairs: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    rounds = Counter[tuple[str, ...]]()
    before: tuple[str, ...] = ()
    for position, (segment, key) in enumerate(zip(answer.segments, keys, strict=True)):
        place = places.get(key) if key else None
        in_order = (before, key) in pairs and rounds[key] >= _MOST_ROUNDS
        again = key == before or (in_order if steps else len("".join(key)) >= _LEAST_LETTERS)
        pairs.add((before, key))
        rounds[key] += 1
        before = key or before
        if place is not None and again:
            first = result[place]
            cited = tuple(dict.fromkeys((*first.citations, *segment.citations)))
            result[place] = first.model_copy(update={"citations": cited})
        elif position != len(keys) - 1 or not _breaks_off(keys, segment.text):
            if key:
                places.setdefault(key, len(result))
            result.append(segment)
    return answer.model_copy(update={"segments": tuple(result)})


_LOOP = re.compile(r"(?P<phrase>\b\w[^\n]{11,200}?)(?:[ \t]*(?P=phrase)){2,}", re.IGNORECASE)
"""A phrase that is written three times and more without a break: a small model that found no end."""


_LEAST_WORDS = 12
_MOST_NEW = 0.4
"""Share of new words from which a text goes round in no circle; the search itself costs 6 us a word."""


def _without_loops(answer: CanonicalAnswer) -> CanonicalAnswer:
    if not any(_goes_round(segment.text) for segment in answer.segments):
        return answer
    segments = [
        segment.model_copy(update={"text": _LOOP.sub(lambda match: match["phrase"].rstrip(), segment.text)})
        if _goes_round(segment.text)
        else segment
        for segment in answer.segments
    ]
    return answer.model_copy(update={"segments": tuple(segments)})


def _goes_round(text: str) -> bool:
    listed = text.split()
    return len(listed) >= _LEAST_WORDS and len(set(listed)) < _MOST_NEW * len(listed)


def _key(text: str) -> tuple[str, ...]:
    text = without_place(text)
    if text.isascii():
        return tuple(text.encode("ascii").translate(_WORDS_ALONE).decode("ascii").split())
    return tuple(_WORD.findall(text.casefold()))


_WORDS_ALONE = bytes(code if chr(code).isalnum() else ord(" ") for code in bytes(range(128)).lower()) + bytes(128)
"""For ASCII, in an eighth of the time of a search for words."""


def _breaks_off(keys: Sequence[tuple[str, ...]], last: str) -> bool:
    """Tells whether the last part is the beginning of an earlier one."""
    *earlier, key = keys
    if not key or _ENDS.search(last):
        return False
    text = " ".join(key)
    return any(" ".join(other).startswith(text) and other != key for other in earlier)


def _protected(segments: Sequence[Segment]) -> list[bool]:
    """True for each segment that holds a line of code or of a table, where a line may be meant twice."""
    text = "".join([segment.text for segment in segments])
    if not ("|" in text or "```" in text or "~~~" in text):
        return [False] * len(segments)
    code = Stretches((block.start, block.end) for block in fenced_blocks(text))
    result = []
    start = 0
    for segment in segments:
        end = start + len(segment.text)
        result.append(code.touch(start, end) or segment.text.lstrip().startswith("|"))
        start = end
    return result
