"""The rendered answer: one text with the positions of its parts, and its writer."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from schemas.answer import CanonicalAnswer, Segment
from schemas.generation import Style
from tasks.answers.stretches import Stretches
from tasks.answers.styles import manner_of
from tasks.text.sentences import Span
from tasks.text.statements import separator

_CLOSING_MARKS = ".!?:;,…。！？，；"
_LONGEST_TAIL = 40
"""Most characters of closing punctuation."""
_INLINE_CODE = re.compile(r"(?<![`\\])(`+)(?!`)[^\n]{1,1000}?(?<!`)\1(?!`)")
_FENCE = re.compile(r"(?m)^ {0,3}(`{3,}|~{3,})([^\n]*)$")


class Insert(NamedTuple):
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


def flow_of(answer: CanonicalAnswer, style: Style) -> Flow:
    """Joins the segments of an answer.

    A marker goes before the punctuation that closes its segment; a superscript goes after it.
    """
    texts = [segment.text.replace("\r\n", "\n").replace("\r", "\n") for segment in answer.segments]
    ends = list(accumulate(map(len, texts)))
    bounds = tuple(Span(end - len(text), end) for text, end in zip(texts, ends, strict=True))
    inserts = [
        Insert(bound.start + _end_of_words(text, raised=manner_of(style).raised), index, source)
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
    cited = [citation.source for citation in segment.citations]
    return cited if len(cited) < 2 else list(dict.fromkeys(cited))  # noqa: PLR2004 - one is no repetition


def _end_of_words(text: str, *, raised: bool) -> int:
    body = text.rstrip()
    if body.endswith("|"):
        return len(body[:-1].rstrip())
    if raised:
        return len(body)
    words = len(body.rstrip(_CLOSING_MARKS))
    return len(body[: max(words, len(body) - _LONGEST_TAIL)].rstrip())


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


def code_spans(text: str) -> list[tuple[int, int]]:
    """Blocks and spans of code in a Markdown text, in order."""
    if "`" not in text and "~~~" not in text:
        return []
    blocks = [(block.start, block.end) for block in fenced_blocks(text)]
    fenced = Stretches(blocks)
    spans = (match.span() for match in _INLINE_CODE.finditer(text))
    return sorted([*blocks, *(span for span in spans if not fenced.hold(span[0]))])


class Mark(NamedTuple):
    """One marker in the text: its segment, its source number (1-based, as in the prompt), its rank and its span."""

    segment: int
    source: int
    rank: int
    start: int
    end: int


class Piece(NamedTuple):
    """A part ``[start, end)`` of the text that states something; markers up to ``reach`` belong to it."""

    start: int
    end: int
    reach: int


class Run(NamedTuple):
    """Maps ``words`` of the joined segments to their ``place`` in the rendered text.

    Either both texts are equal, or the run is one replacement (an escape, white space).
    """

    words: Span
    place: Span


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
        return self._mapped(start, end, 0) if start < end else Span(0, 0)

    def origin_of(self, start: int, end: int) -> Span:
        """Span in the joined segments for ``[start, end)`` of the rendered text."""
        return self._mapped(start, end, 1)

    def _mapped(self, start: int, end: int, own: int) -> Span:
        """Span in the other text for ``[start, end)`` of the text whose span is at ``own`` of a run."""
        first = bisect_left(self.runs, start + 1, key=lambda run: run[own].end)
        beyond = bisect_left(self.runs, end, lo=first, key=lambda run: run[own].start)
        if first == beyond:
            return Span(0, 0)
        return Span(_across(self.runs[first], start, own, 0), _across(self.runs[beyond - 1], end, own, 1))


def _across(run: Run, position: int, own: int, edge: int) -> int:
    """The position in the other text of a run; a replacement has only its start and its end (``edge`` 0 and 1)."""
    here, there = run[own], run[1 - own]
    length = here.end - here.start
    return (
        there[edge] if length != there.end - there.start else there.start + min(max(0, position - here.start), length)
    )


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


# ---- writing ---------------------------------------------------------------------------------------------------------


class Writer:
    """Text under construction, with the positions of its parts.

    Args:
        flow: the text to write, in order; parts may be omitted, markers never are.
        style: the style of the markers.
        marker: gives the marker of a rank and a source number.
        show_markers: if False, every mark is empty.
        markdown: if True, the text is Markdown.
    """

    def __init__(
        self,
        flow: Flow,
        style: Style,
        marker: Callable[[int, int], str],
        *,
        show_markers: bool,
        markdown: bool,
    ) -> None:
        self.flow = flow
        self.style = style
        self.show_markers = show_markers
        self.markdown = markdown
        self.position = 0
        self.ranks: dict[int, int] = {}
        self._marker = marker
        self._parts: list[str] = []
        self._marks: list[Mark] = []
        self._pieces: list[Piece] = []
        self._runs: list[Run] = []
        self._pending = list(reversed(flow.inserts))
        self._line_is_blank = True
        self._marked_at_start = True

    def write(self, text: str) -> None:
        """Writes text that is not part of the segments."""
        if text:
            self._parts.append(text)
            self.position += len(text)
            _, line_break, line = text.rpartition("\n")
            self._line_is_blank = (self._line_is_blank or line_break != "") and not line.strip()

    def copy(self, start: int, end: int, edits: Iterable[Edit] = (), *, marks: bool = True) -> None:
        """Writes ``[start, end)`` of the joined segments with the edits applied and the markers up to its end."""
        position = start
        for edit in edits:
            self._words(position, edit.start, marks=marks)
            if marks:
                self.marks_until(edit.start)
            self._run(edit.start, edit.end, edit.text)
            position = edit.end
        self._words(position, end, marks=marks)
        if marks:
            self.marks_until(end)

    def _words(self, start: int, end: int, *, marks: bool) -> None:
        while marks and self._pending and self._pending[-1].position < end:
            stop = max(start, self._pending[-1].position)
            self._run(start, stop, self.flow.text[start:stop])
            self._mark(self._pending.pop())
            start = stop
        self._run(start, end, self.flow.text[start:end])

    def _run(self, start: int, end: int, text: str) -> None:
        if self.markdown and text and self._would_link(text):
            self.write(" ")
        at = self.position
        self.write(text)
        if start < end:
            self._runs.append(Run(Span(start, end), Span(at, self.position)))

    def _would_link(self, text: str) -> bool:
        """Tells whether Markdown would parse the last marker and this text as a link or a link definition."""
        if text[0] not in "(:" or not self._parts or not self._parts[-1].endswith("]") or not self.after_mark:
            return False
        return text[0] == "(" or self._marked_at_start

    @property
    def after_mark(self) -> bool:
        """True if the text ends with a marker."""
        return bool(self._marks) and self._marks[-1].end == self.position and self._marks[-1].start < self.position

    def marks_until(self, position: int, shape: str | None = None, separator: str | None = None) -> None:
        """Writes the pending markers up to a position of the joined segments."""
        while self._pending and self._pending[-1].position <= position:
            self._mark(self._pending.pop(), shape, separator)

    def has_pending(self, position: int) -> bool:
        """Tells whether a marker up to this position is pending."""
        return bool(self._pending) and self._pending[-1].position <= position

    def postpone(self, blocks: Iterable[tuple[int, int]]) -> None:
        """Moves the markers inside these blocks to the end of their block."""
        stretches = Stretches(blocks)
        self._pending = [
            insert
            if (end := stretches.end_after(insert.position)) is None
            else Insert(end, insert.segment, insert.source)
            for insert in self._pending
        ]

    def _mark(self, insert: Insert, shape: str | None = None, separator: str | None = None) -> None:
        rank = self.ranks.setdefault(insert.source, len(self.ranks) + 1)
        if self.show_markers:
            self.write(self._separator() if separator is None else (separator if self.after_mark else ""))
        start = self.position
        self._marked_at_start = self._line_is_blank
        if self.show_markers:
            self.write(shape.format(rank=rank) if shape else self._marker(rank, insert.source))
        self._marks.append(Mark(insert.segment, insert.source, rank, start, self.position))

    def _separator(self) -> str:
        if manner_of(self.style).raised:
            return "," if self.after_mark else ""
        if not self._parts or self._parts[-1][-1].isspace():
            return ""
        return "" if self.after_mark and not manner_of(self.style).names else " "

    def piece(self, start: int, end: int | None = None, *, reach: int | None = None) -> None:
        """Records the text since ``start`` as a statement; its markers go up to ``reach``, by default up to here."""
        if end is None:
            end = self.position
        if start < end:
            self._pieces.append(Piece(start, end, self.position if reach is None else reach))

    def finish(self, body: int) -> Rendered:
        """The rendered answer; ``body`` is the end of the answer itself."""
        rendered = Rendered("".join(self._parts), tuple(self._marks), tuple(self._pieces), runs=tuple(self._runs))
        places = tuple(self._place(rendered, start, end) for start, end in self.flow.bounds)
        return Rendered(rendered.text, rendered.marks, rendered.pieces, places, rendered.runs, body)

    def _place(self, rendered: Rendered, start: int, end: int) -> Span:
        text = self.flow.text[start:end]
        return rendered.place_of(start + len(text) - len(text.lstrip()), end - (len(text) - len(text.rstrip())))


# ---- running text ----------------------------------------------------------------------------------------------


def text_bounds(text: str) -> tuple[int, int]:
    """Start and end of a text without the white space around it."""
    return len(text) - len(text.lstrip()), len(text.rstrip())


def write_markdown(writer: Writer, heads: Iterable[tuple[int, int]]) -> None:
    """Writes the text unchanged; the heads of its tables and the fences of code are no statements."""
    lines = sorted([*heads, *_fences(writer.flow.text)])
    positions = _copy_markdown(writer, *(edge for line in lines for edge in line))
    start = 0
    for begin, end in lines:
        above = positions.get(begin, 0)
        writer.piece(start, above, reach=above)
        start = positions.get(end, writer.position)
    writer.piece(start)


def _fences(text: str) -> Iterable[tuple[int, int]]:
    """The lines of the fences of code."""
    for block in fenced_blocks(text):
        yield block.start, text.find("\n", block.start, block.end) + 1 or block.end
        if not block.unclosed:
            yield text.rfind("\n", block.start, block.end) + 1, block.end


def _copy_markdown(writer: Writer, *stops: int) -> dict[int, int]:
    """Writes the text unchanged, with markers inside a block of code moved behind it; returns the stops' positions."""
    text = writer.flow.text
    position, end = text_bounds(text)
    blocks = {block.end: block for block in fenced_blocks(text)}
    code = Stretches((block.start, block.end) for block in blocks.values())
    writer.postpone((block.start, block.end) for block in blocks.values())
    edges = {edge for block in blocks.values() for edge in (block.start, block.end)}
    positions: dict[int, int] = {}
    for stop in sorted({end, *(edge for edge in {*stops, *edges} if position < edge < end)}):
        block = None if (until := code.end_after(stop)) is None else blocks[until]
        writer.copy(position, stop, marks=block is None)
        if block is not None and stop in {block.end, end}:
            if block.unclosed:
                writer.write(f"\n{block.unclosed}")
            if writer.has_pending(block.end):
                writer.write("\n")
                writer.marks_until(block.end)
        positions[stop] = writer.position
        position = stop
    writer.marks_until(len(text))
    return positions
