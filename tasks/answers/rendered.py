"""The rendered answer: the labels and markers of its sources, and one text with the positions of its parts."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from schemas.answer import CanonicalAnswer, Segment
from schemas.generation import CitationStyle
from schemas.job import SourceContext
from tasks.text.sentences import Span
from tasks.text.statements import separator

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


def with_separators(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """The segments of a model with the white space between them added to their texts."""
    result: list[Segment] = []
    before = ""
    for segment in segments:
        space = separator(before, segment.text) if before else ""
        result.append(Segment(text=space + segment.text, citations=segment.citations) if space else segment)
        before = segment.text
    return tuple(result)


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


@dataclass(frozen=True, slots=True)
class Mark:
    """One marker in the text: its segment, its source number (1-based, as in the prompt), its rank and its span."""

    segment: int
    source: int
    rank: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A part ``[start, end)`` of the text that states something; markers up to ``reach`` belong to it."""

    start: int
    end: int
    reach: int


@dataclass(frozen=True, slots=True)
class Run:
    """Maps ``[start, end)`` of the joined segments to ``[at, until)`` of the rendered text.

    Either both texts are equal, or the run is one replacement (an escape, white space).
    """

    start: int
    end: int
    at: int
    until: int


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered answer with its positions.

    ``pieces`` omits text that states nothing: JSON syntax, table rules, lists of notes. ``segments`` holds the span of
    each segment (empty for an omitted one). ``body`` is the end of the answer and the start of the list of sources.
    """

    text: str
    marks: tuple[Mark, ...]
    pieces: tuple[Piece, ...]
    segments: tuple[Span, ...] = ()
    runs: tuple[Run, ...] = ()
    body: int = 0

    def place_of(self, start: int, end: int) -> Span:
        """Span in the rendered text for ``[start, end)`` of the joined segments."""
        first = bisect_left(self.runs, start + 1, key=lambda run: run.end)
        beyond = bisect_left(self.runs, end, lo=first, key=lambda run: run.start)
        runs = self.runs[first:beyond]
        if not runs or start >= end:
            return Span(0, 0)
        return Span(runs[0].at + _offset(runs[0], start, 0), runs[-1].at + _offset(runs[-1], end, runs[-1].until))

    def origin_of(self, start: int, end: int) -> Span:
        """Span in the joined segments for ``[start, end)`` of the rendered text."""
        first = bisect_left(self.runs, start + 1, key=lambda run: run.until)
        beyond = bisect_left(self.runs, end, lo=first, key=lambda run: run.at)
        runs = self.runs[first:beyond]
        if not runs:
            return Span(0, 0)
        first_run, last_run = runs[0], runs[-1]
        shift = max(0, start - first_run.at) if first_run.until - first_run.at == first_run.end - first_run.start else 0
        length = last_run.end - last_run.start
        return Span(
            first_run.start + shift,
            last_run.start + (min(length, end - last_run.at) if last_run.until - last_run.at == length else length),
        )


def _offset(run: Run, position: int, beyond: int) -> int:
    """Offset of a position within a run's place; a replacement has only its start and its end (``beyond``)."""
    length = run.until - run.at
    if length == run.end - run.start:
        return min(max(0, position - run.start), length)
    return length if beyond else 0


def strip_markers(text: str, markers: Sequence[Span]) -> str:
    """The text with spaces in place of its markers (in order), so that all offsets stay."""
    parts = []
    position = 0
    for start, end in markers:
        parts.append(text[position:start])
        parts.append(" " * (end - max(start, position)))
        position = max(position, end)
    return "".join([*parts, text[position:]])


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement: ``text`` takes the place of ``[start, end)`` of the joined segments."""

    start: int
    end: int
    text: str


# ---- labels and markers of sources -----------------------------------------------------------------------------------

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
"""Characters that Markdown can parse as mark-up in a title: all but an underscore inside a word."""


@dataclass(frozen=True, slots=True)
class Label:
    """The name of a source in the answer, and its place in the document as far as the metadata has it."""

    name: str
    section: str | None = None
    article: str | int | None = None
    page: str | int | None = None

    def __str__(self) -> str:
        parts = [self.name if self.section is None else f"{self.name} - {self.section}"]
        if self.article is not None:
            numbered = isinstance(self.article, int) or self.article[:1].isdigit()
            parts.append(f"art. {self.article}" if numbered else str(self.article))
        if self.page is not None:
            parts.append(f"p. {self.page}")
        return ", ".join(parts)

    def json_entry(self) -> dict[str, str | int]:
        """Entry of the list of sources in JSON."""
        facts = {"title": self.name, "section": self.section, "article": self.article, "page": self.page}
        return {key: value for key, value in facts.items() if value is not None}


def name_of(source: SourceContext) -> str:
    """Name of a source: its title, else product and kind of document, else its path; empty without any."""
    about = source.metadata
    names = (about.get("title"), _product(about), about.get("source_path"))
    return next((name for value in names if (name := one_line(value))), "")


def label(source: SourceContext, number: int) -> Label:
    """The label of a source; its number replaces a missing name."""
    about = source.metadata
    if not about:
        return Label(f"source {number}")
    article = scalar(about.get("article"))
    page = scalar(about.get("page"))
    return Label(
        name=name_of(source) or f"source {number}",
        section=one_line(section_path(about)) or None,
        article=article if isinstance(article, int) else one_line(article) or None,
        page=page if isinstance(page, int) else one_line(page) or None,
    )


def _product(about: Mapping[str, Any]) -> str:
    return " ".join(str(about[key]) for key in ("product_name", "document_type") if about.get(key))


def one_line(value: Any) -> str:
    """A value as text without line breaks, runs of white space and control characters; empty for None."""
    if value is None:
        return ""
    text = str(value)
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(text.split())


def scalar(value: Any) -> str | int | None:
    """A page or article as a number or text; the entries of a list are joined."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def section_path(about: Mapping[str, Any]) -> str | None:
    """The section of a source from its metadata, as a path from the widest to the narrowest; None without one."""
    for key in ("section", "section_hierarchy"):
        value = about.get(key)
        if isinstance(value, list | tuple):
            value = " > ".join(str(part) for part in value if part not in (None, ""))
        if value not in (None, ""):
            return str(value)
    return None


def marker(style: CitationStyle, rank: int, source: Label, *, markdown: bool) -> str:
    """The marker of a source in running text; for Markdown the title is escaped."""
    match style:
        case CitationStyle.SOURCE:
            return f"[Source {rank}]"
        case CitationStyle.INLINE:
            return f"(Source: {escape_markdown(str(source)) if markdown else neutral_title(str(source))})"
        case CitationStyle.FOOTNOTE:
            return str(rank).translate(SUPERSCRIPTS)
        case _:
            return f"[{rank}]"


def reference(style: CitationStyle, rank: int, source: Label, *, markdown: bool) -> str:
    """The line of a source in the list of sources; it begins with the marker."""
    named = escape_markdown(str(source)) if markdown else neutral_title(str(source))
    lead = f"[{rank}]" if style is CitationStyle.INLINE else marker(style, rank, source, markdown=markdown)
    return f"{lead} {named}"


_OPENS_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def neutral_title(title: str) -> str:
    """A source's title that is no HTML where a page takes plain text for HTML."""
    return _OPENS_TAG.sub("< ", title)


def escape_markdown(text: str) -> str:
    """Markdown that displays exactly this text."""
    return _MARKUP.sub(lambda match: f"\\{match.group()}", text)
