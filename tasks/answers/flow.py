"""The canonical answer as one text: where each segment stands in it, and where its markers go."""
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
"""Characters of closing punctuation looked at."""
_FENCE = re.compile(r"(?m)^ {0,3}(`{3,}|~{3,})([^\n]*)$")


@dataclass(frozen=True, slots=True)
class Insert:
    """A marker to be written at ``position`` of the text."""

    position: int
    segment: int
    source: int


@dataclass(frozen=True, slots=True)
class Flow:
    """The segments' texts put together, and the markers in order of their positions."""

    text: str
    bounds: tuple[Span, ...]
    inserts: tuple[Insert, ...]


def flow_of(answer: CanonicalAnswer, style: CitationStyle) -> Flow:
    """Put an answer together. A marker goes before the punctuation that closes its segment, a superscript behind it."""
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
    if (not raised or body.endswith("|")) and (found := _TAIL.search(body, max(0, len(body) - _LONGEST_TAIL))):
        return len(body[: found.start()].rstrip())
    return len(body)


@dataclass(frozen=True, slots=True)
class Fenced:
    """A block of code ``[start, end)``, its fences included; ``unclosed`` is the fence that its end lacks."""

    start: int
    end: int
    unclosed: str = ""


def fenced_blocks(text: str) -> Iterator[Fenced]:
    """The fenced blocks of code in a Markdown text, in order. Source: CommonMark 0.31, section 4.5."""
    if "```" not in text and "~~~" not in text:
        return
    opening: re.Match[str] | None = None
    for found in _FENCE.finditer(text):
        fence, rest = found.groups()
        if opening is None:
            if fence[0] == "~" or "`" not in rest:
                opening = found
        elif fence.startswith(opening[1]) and not rest.strip():
            yield Fenced(opening.start(), found.end())
            opening = None
    if opening is not None:
        yield Fenced(opening.start(), len(text), opening[1])
