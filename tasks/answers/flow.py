"""Joins the canonical answer into one text with the span of each segment and the position of each marker."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

from schemas.answer import CanonicalAnswer, Segment
from schemas.generation import CitationStyle
from tasks.text.sentences import Span

_TAIL = re.compile(r"[ \t]*(?:[.!?:;,…。！？，；]+|\|)[ \t]*\Z")
_LONGEST_TAIL = 40
"""Most characters of closing punctuation."""
_FENCE = re.compile(r"(?m)^ {0,3}(`{3,}|~{3,})([^\n]*)$")


@dataclass(frozen=True, slots=True)
class Insert:
    """A marker to write at ``position`` of the text."""

    position: int
    segment: int
    source: int


@dataclass(frozen=True, slots=True)
class Flow:
    """The joined texts of the segments, and the markers by position."""

    text: str
    bounds: tuple[Span, ...]
    inserts: tuple[Insert, ...]


def flow_of(answer: CanonicalAnswer, style: CitationStyle) -> Flow:
    """Joins the segments of an answer.

    A marker goes before the punctuation that closes its segment; a superscript goes after it.
    """
    texts = [segment.text.replace("\r\n", "\n").replace("\r", "\n") for segment in answer.segments]
    ends = list(accumulate(map(len, texts)))
    bounds = tuple(Span(end - len(text), end) for text, end in zip(texts, ends, strict=True))
    inserts = [
        Insert(bound.start + _end_of_words(text, raised=style is CitationStyle.FOOTNOTE), index, source)
        for index, (text, bound, segment) in enumerate(zip(texts, bounds, answer.segments, strict=True))
        for source in sources_of(segment)
    ]
    return Flow("".join(texts), bounds, tuple(inserts))


def sources_of(segment: Segment) -> list[int]:
    """The sources a segment cites, each once."""
    return list(dict.fromkeys(citation.source for citation in segment.citations))


def _end_of_words(text: str, *, raised: bool) -> int:
    body = text.rstrip()
    if (not raised or body.endswith("|")) and (tail := _TAIL.search(body, max(0, len(body) - _LONGEST_TAIL))):
        return len(body[: tail.start()].rstrip())
    return len(body)


@dataclass(frozen=True, slots=True)
class Fenced:
    """A block of code ``[start, end)`` with its fences; ``unclosed`` is the missing closing fence, if any."""

    start: int
    end: int
    unclosed: str = ""


def fenced_blocks(text: str) -> Iterator[Fenced]:
    """The fenced blocks of code in a Markdown text, in order. Source: CommonMark 0.31, section 4.5."""
    if "```" not in text and "~~~" not in text:
        return
    opening: re.Match[str] | None = None
    for match in _FENCE.finditer(text):
        fence, rest = match.groups()
        if opening is None:
            if fence[0] == "~" or "`" not in rest:
                opening = match
        elif fence.startswith(opening[1]) and not rest.strip():
            yield Fenced(opening.start(), match.end())
            opening = None
    if opening is not None:
        yield Fenced(opening.start(), len(text), opening[1])
