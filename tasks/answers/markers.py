"""Finds citation markers of any style in running text and splits the text into segments by them."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.answer import Segment, SegmentCitation
from tasks.answers.rendered import code_spans
from tasks.answers.stretches import Stretches
from tasks.text.sentences import Span, cached_sentences


@dataclass(frozen=True, slots=True)
class Marker:
    """A marker ``[start, end)`` with its source numbers; a number may not exist."""

    start: int
    end: int
    numbers: tuple[int, ...]


_WORD = r"(?:sources?|src|quellen?|refs?|references?|citations?|documents?|docs?)"
_NUMBERS = rf"\d{{1,3}}(?:\s*(?:[,;&]|-|–|—|and|und)\s*(?:{_WORD}\s*:?\s*#?\s*)?\d{{1,3}})*"
_ANY = re.compile(
    rf"\[\^?\s*(?:{_WORD}\s*:?\s*#?\s*)?(?P<brackets>{_NUMBERS})\s*\](?!\((?:https?:|/|\#))"
    rf"|\(\s*{_WORD}\s*:?\s*\#?\s*(?P<round>{_NUMBERS})\s*\)"
    r"|【(?P<corner>\d{1,3})[^】\n]{0,30}】"
    r"|(?:(?<=[^\W\d_]{3})|(?<=\d{3})|(?<=[.,;:!?)\]\"'”’»。！？…*_%‰€£$¥]))(?P<raised>[¹²³⁰⁴-⁹]{1,3}(?:[,\s]?[¹²³⁰⁴-⁹]{1,3})*)(?![\w⁺⁻])"
    r"|\(\s*(?:sources?|quellen?)\s*:\s*(?P<title>[^()\n]{1,300}(?:\([^()\n]{0,100}\)[^()\n]{0,100})*)\)",
    re.IGNORECASE,
)
OPENING = re.compile(r"[\[(【¹²³⁰⁴-⁹]")
"""The first character of a marker; a text without any has no markers."""
_RANGE = re.compile(r"(\d+)\s*[-–—]\s*(\d+)")
_LONGEST_RANGE = 50


def find_markers(text: str, titles: Sequence[str] = ()) -> list[Marker]:
    """All citation markers of a text, in order: ``[1]``, ``[1, 3]``, ``[1-3]``, ``[Source 2]``, ``(Source: title)``, ``¹``.

    Args:
        text: running text.
        titles: the sources' titles by number - 1, for markers that name a title.
    """
    code: Stretches | None = None
    markers = []
    end = 0
    # The search for a set of characters is ten times as fast as that for the five forms of a marker.
    while opening := OPENING.search(text, end):
        match = _ANY.match(text, opening.start())
        end = (match or opening).end()
        if match is None:
            continue
        if code is None:
            # A bracketed number in code is an index.
            code = Stretches(code_spans(text))
        if code.hold(match.start()):
            continue
        numbers = _numbers_of(match, titles)
        if numbers:
            markers.append(Marker(match.start(), match.end(), numbers))
    return markers


_SPACES = re.compile(r"\s+")
_SURROUNDING = 24
"""Characters around a marker that must equal those in a source for the marker to be a copy."""
_LEAST_SURROUNDING = 8


def own_brackets(text: str, markers: Sequence[Marker], sources: Sequence[str]) -> set[Marker]:
    """Markers that the model copied from a source together with the words around them; they cite nothing.

    A marker with the same words around it in a source belongs to that source: a footnote, or bait for the model. A copy
    that names the source it comes from is a correct citation and stays.

    Args:
        text: the answer.
        markers: its markers.
        sources: the contents of the sources in the prompt, by number - 1.
    """
    own: set[Marker] = set()
    plain: dict[int, str] = {}
    holders_of: dict[tuple[str, str], list[int]] = {}
    for marker in markers:
        bracket = text[marker.start : marker.end]
        here = text[max(0, marker.start - 2 * _SURROUNDING) : marker.start]
        before = _SPACES.sub(" ", here)
        after = _SPACES.sub(" ", text[marker.end : marker.end + 2 * _SURROUNDING])
        # What is further off than these characters is no start of a line.
        at_start = not here.rpartition("\n")[2].strip() and (len(here) == marker.start or "\n" in here)
        copied = bracket + after[:_SURROUNDING] if at_start else before[-_SURROUNDING:] + bracket
        if len(copied) - len(bracket) < _LEAST_SURROUNDING:
            continue
        if (holders := holders_of.get((bracket, copied))) is None:
            holders = holders_of[bracket, copied] = []
            for number, source in enumerate(sources, start=1):
                if bracket not in source:
                    continue
                if number not in plain:
                    plain[number] = _SPACES.sub(" ", source)
                if copied in plain[number]:
                    holders.append(number)
        if holders and not set(marker.numbers) <= set(holders):
            own.add(marker)
    return own


def _numbers_of(match: re.Match[str], titles: Sequence[str]) -> tuple[int, ...]:
    if (title := match["title"]) is not None:
        name = _normal_title(title)
        return tuple(
            number
            for number, source_title in enumerate(titles, start=1)
            if source_title and name.startswith(_normal_title(source_title))
        )[:1]
    if (raised := match["raised"]) is not None:
        return tuple(int(unicodedata.normalize("NFKC", part)) for part in re.findall(r"[¹²³⁰⁴-⁹]+", raised))
    listing = match["brackets"] or match["round"] or match["corner"]
    if listing.isdecimal():
        return (int(listing),)
    numbers: dict[int, None] = {}
    for first, last in _RANGE.findall(listing):
        if int(first) < int(last) <= int(first) + _LONGEST_RANGE:
            numbers.update(dict.fromkeys(range(int(first), int(last) + 1)))
    numbers.update(dict.fromkeys(int(part) for part in re.findall(r"\d+", listing)))
    return tuple(sorted(numbers)) if _RANGE.search(listing) else tuple(numbers)


_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
"""A backslash escape of Markdown."""


def _normal_title(title: str) -> str:
    return " ".join(_ESCAPE.sub("", title).split()).casefold()


_REFERENCES = re.compile(
    r"(?:^|\n)[ \t]*(?:#{1,6}[ \t]*|\*\*)?(?:sources|references|footnotes|endnotes|notes|quellen|fußnoten|literatur)\b"
    r"[ \t]*:?(?:\*\*)?[ \t]*:?[ \t]*\n"
    r"(?:[ \t]*\n|[ \t]*(?:[-*•][ \t]*)?(?:\[\^?(?:source )?\d{1,3}\]:?|\d{1,3}[.)]|[¹²³⁰⁴-⁹]+)[^\n]*(?:\n|\Z))+\s*\Z",
    re.IGNORECASE,
)


_FOOTNOTES = re.compile(r"\n[ \t]*\n(?:[¹²³⁰⁴-⁹]+[ \t]+\S[^\n]*(?:\n|\Z))+\s*\Z")


def references_start(text: str) -> int:
    """Starts of a closing list of references or footnotes; the end of the text without one."""
    if "\n" not in text:
        return len(text)
    match = _REFERENCES.search(text) or _FOOTNOTES.search(text)
    return match.start() if match else len(text)


_PUNCTUATION = re.compile(r"[.!?:;,…。！？，；]*")
_BETWEEN = re.compile(r"[\s,;]*")


def cut_segments(text: str, markers: Sequence[Marker], source_count: int) -> tuple[Segment, ...]:
    """Splits running text into segments, one or more per sentence, each with the citations of its closing markers.

    The segments omit the markers and the white space before them. Joined, they are the text without its markers.

    Args:
        text: running text.
        markers: its markers, in order.
        source_count: number of sources; greater marker numbers are dropped.
    """
    groups = list(_groups(text, markers))
    ends = {_PUNCTUATION.match(text, group[-1].end).end() for group in groups}  # type: ignore[union-attr]
    cuts = sorted(ends | {span.end for span in cached_sentences(text)} - _inside(groups) | {len(text)})
    segments: list[Segment] = []
    pending = deque(markers)
    start = 0
    for end in cuts:
        inside: list[Marker] = []
        while pending and pending[0].start < end:
            inside.append(pending.popleft())
        piece = _without(text, Span(start, end), inside)
        numbers = dict.fromkeys(n for marker in inside for n in marker.numbers if 1 <= n <= source_count)
        if piece or numbers:
            segments.append(Segment(text=piece, citations=tuple(SegmentCitation(source=n) for n in numbers)))
        start = end
    return tuple(segments)


def _groups(text: str, markers: Iterable[Marker]) -> Iterable[list[Marker]]:
    """Groups of markers with only white space or commas between them."""
    group: list[Marker] = []
    for marker in markers:
        if group and not _BETWEEN.fullmatch(text, group[-1].end, marker.start):
            yield group
            group = []
        group.append(marker)
    if group:
        yield group


def _inside(groups: Iterable[list[Marker]]) -> set[int]:
    """Positions inside a group of markers, where no sentence ends."""
    return {position for group in groups for position in range(group[0].start, group[-1].end)}


def _without(text: str, span: Span, markers: Sequence[Marker]) -> str:
    parts = []
    position = span.start
    for marker in markers:
        before = text[position : marker.start]
        if position > span.start and _BETWEEN.fullmatch(before):
            before = ""
        parts.append(before.rstrip() if before.strip() or position > span.start else before)
        position = marker.end
    parts.append(text[position : span.end])
    return "".join(parts)
