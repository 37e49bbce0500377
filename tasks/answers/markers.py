"""Find citation markers of any style in running text, and cut the text into segments by them."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.answer import Segment, SegmentCitation
from tasks.answers.flow import fenced_blocks
from tasks.text.sentences import Span, sentence_spans


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker ``[start, end)`` and the source numbers it names, as written; they may not exist."""

    start: int
    end: int
    numbers: tuple[int, ...]


_WORD = r"(?:sources?|src|quellen?|refs?|references?|citations?|documents?|docs?)"
_NUMBERS = rf"\d{{1,3}}(?:\s*(?:[,;&]|-|–|—|and|und)\s*(?:{_WORD}\s*:?\s*#?\s*)?\d{{1,3}})*"
_ANY = re.compile(
    rf"\[\^?\s*(?:{_WORD}\s*:?\s*#?\s*)?(?P<brackets>{_NUMBERS})\s*\](?!\((?:https?:|/|\#))"
    rf"|\(\s*{_WORD}\s*:?\s*\#?\s*(?P<round>{_NUMBERS})\s*\)"
    r"|【(?P<corner>\d{1,3})[^】\n]{0,30}】"
    r"|(?:(?<=[^\W\d_]{3})|(?<=[.,;:!?)\]\"'”’»。！？…*_]))(?P<raised>[¹²³⁰⁴-⁹]{1,3}(?:[,\s]?[¹²³⁰⁴-⁹]{1,3})*)(?![\w⁺⁻])"
    r"|\(\s*(?:sources?|quellen?)\s*:\s*(?P<title>[^()\n]{1,300}(?:\([^()\n]{0,100}\)[^()\n]{0,100})*)\)",
    re.IGNORECASE,
)
_OPENING = re.compile(r"[\[(【¹²³⁰⁴-⁹]")
_RANGE = re.compile(r"(\d+)\s*[-–—]\s*(\d+)")
_LONGEST_RANGE = 50


def find_markers(text: str, titles: Sequence[str] = ()) -> list[Marker]:
    """All citation markers of a text, in order: ``[1]``, ``[1, 3]``, ``[1-3]``, ``[Source 2]``, ``(Source: title)``, ``¹``.

    Args:
        text: running text.
        titles: the sources' titles by number - 1, for markers that name a title.
    """
    if not _OPENING.search(text):
        return []
    code = _code(text) if "`" in text or "~~~" in text else []
    markers = []
    for found in _ANY.finditer(text):
        if any(start < found.start() < end for start, end in code):
            continue
        numbers = _numbers_of(found, titles)
        if numbers:
            markers.append(Marker(found.start(), found.end(), numbers))
    return markers


_INLINE_CODE = re.compile(r"(?<!`)(`+)(?!`)[^\n]{1,1000}?(?<!`)\1(?!`)")


def _code(text: str) -> list[tuple[int, int]]:
    """Where code stands: what looks like a marker there is an index."""
    spans = [(block.start, block.end) for block in fenced_blocks(text)]
    return spans + [found.span() for found in _INLINE_CODE.finditer(text)]


_SPACES = re.compile(r"\s+")
_SURROUNDING = 24
"""Characters before a marker that must stand before it in a source, too, for it to be the source's own bracket."""
_LEAST_SURROUNDING = 8


def own_brackets(text: str, markers: Sequence[Marker], sources: Sequence[str]) -> set[Marker]:
    """The markers that were copied from a source together with the words around them, and so cite nothing.

    A marker that stands at the same place in a source is that source's own: a footnote, or one that was put there to
    be copied. Where it names the very source in which the words stand, it is true all the same, and stays.

    Args:
        text: the answer.
        markers: its markers.
        sources: the contents shown, by number - 1.
    """
    own: set[Marker] = set()
    plain: dict[int, str] = {}
    for marker in markers:
        written = text[marker.start : marker.end]
        before = _SPACES.sub(" ", text[max(0, marker.start - 2 * _SURROUNDING) : marker.start])
        after = _SPACES.sub(" ", text[marker.end : marker.end + 2 * _SURROUNDING])
        at_start = text[text.rfind("\n", 0, marker.start) + 1 : marker.start].strip() == ""
        copied = written + after[:_SURROUNDING] if at_start else before[-_SURROUNDING:] + written
        if len(copied) - len(written) < _LEAST_SURROUNDING:
            continue
        holders: list[int] = []
        for number, source in enumerate(sources, start=1):
            if written not in source:
                continue
            if number not in plain:
                plain[number] = _SPACES.sub(" ", source)
            if copied in plain[number]:
                holders.append(number)
        if holders and not set(marker.numbers) <= set(holders):
            own.add(marker)
    return own


def _numbers_of(found: re.Match[str], titles: Sequence[str]) -> tuple[int, ...]:
    if (title := found["title"]) is not None:
        wanted = _plain(title)
        return tuple(
            number for number, known in enumerate(titles, start=1) if known and wanted.startswith(_plain(known))
        )[:1]
    if (raised := found["raised"]) is not None:
        return tuple(int(unicodedata.normalize("NFKC", part)) for part in re.findall(r"[¹²³⁰⁴-⁹]+", raised))
    written = found["brackets"] or found["round"] or found["corner"]
    numbers: dict[int, None] = {}
    for first, last in _RANGE.findall(written):
        if int(first) < int(last) <= int(first) + _LONGEST_RANGE:
            numbers.update(dict.fromkeys(range(int(first), int(last) + 1)))
    numbers.update(dict.fromkeys(int(part) for part in re.findall(r"\d+", written)))
    return tuple(sorted(numbers)) if _RANGE.search(written) else tuple(numbers)


_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
"""A backslash by which Markdown shows the next character as it is."""


def _plain(title: str) -> str:
    return " ".join(_ESCAPE.sub("", title).split()).casefold()


_REFERENCES = re.compile(
    r"(?:^|\n)[ \t]*(?:#{1,6}[ \t]*|\*\*)?(?:sources|references|footnotes|endnotes|notes|quellen|fußnoten|literatur)\b"
    r"[ \t]*:?(?:\*\*)?[ \t]*:?[ \t]*\n"
    r"(?:[ \t]*\n|[ \t]*(?:[-*•][ \t]*)?(?:\[\^?(?:source )?\d{1,3}\]:?|\d{1,3}[.)]|[¹²³⁰⁴-⁹]+)[^\n]*(?:\n|\Z))+\s*\Z",
    re.IGNORECASE,
)


_FOOTNOTES = re.compile(r"\n[ \t]*\n(?:[¹²³⁰⁴-⁹]+[ \t]+\S[^\n]*(?:\n|\Z))+\s*\Z")


def references_start(text: str) -> int:
    """Where a closing list of references, or of footnotes, begins; the end of the text if there is none."""
    found = _REFERENCES.search(text) or _FOOTNOTES.search(text)
    return found.start() if found else len(text)


_PUNCTUATION = re.compile(r"[.!?:;,…。！？，；]*")
_BETWEEN = re.compile(r"[\s,;]*")


def cut_segments(text: str, markers: Sequence[Marker], known: int) -> tuple[Segment, ...]:
    """Cut running text into segments, one or more a sentence, each citing the markers that close it.

    Markers are taken out, with the white space before them; all other text is kept, so that the segments' texts put
    together are the text without its markers.

    Args:
        text: running text.
        markers: its markers, in order.
        known: how many sources there are; other numbers are left out.
    """
    groups = list(_groups(text, markers))
    ends = {_PUNCTUATION.match(text, group[-1].end).end() for group in groups}  # type: ignore[union-attr]
    cuts = sorted(ends | {span.end for span in sentence_spans(text)} - _inside(groups) | {len(text)})
    segments: list[Segment] = []
    pending = list(markers)
    left = 0
    for cut in cuts:
        inside: list[Marker] = []
        while pending and pending[0].start < cut:
            inside.append(pending.pop(0))
        piece = _without(text, Span(left, cut), inside)
        numbers = dict.fromkeys(n for marker in inside for n in marker.numbers if 1 <= n <= known)
        if piece or numbers:
            segments.append(Segment(text=piece, citations=tuple(SegmentCitation(source=n) for n in numbers)))
        left = cut
    return tuple(segments)


def _groups(text: str, markers: Iterable[Marker]) -> Iterable[list[Marker]]:
    """Markers that follow each other with nothing but white space or commas between them."""
    group: list[Marker] = []
    for marker in markers:
        if group and not _BETWEEN.fullmatch(text, group[-1].end, marker.start):
            yield group
            group = []
        group.append(marker)
    if group:
        yield group


def _inside(groups: Iterable[list[Marker]]) -> set[int]:
    """Positions at which no sentence may end, because a group of markers goes on."""
    return {position for group in groups for position in range(group[0].start, group[-1].end)}


def _without(text: str, span: Span, markers: Sequence[Marker]) -> str:
    kept = []
    left = span.start
    for marker in markers:
        before = text[left : marker.start]
        if left > span.start and _BETWEEN.fullmatch(before):
            before = ""
        kept.append(before.rstrip() if before.strip() or left > span.start else before)
        left = marker.end
    kept.append(text[left : span.end])
    return "".join(kept)
