"""Renders the canonical answer in the requested citation style and output format, with the exact span of each marker.

One pass writes the text and records positions, so no marker is searched for. The number of a marker is the rank:
sources count from 1 in the order of their first citation. A list, a table or a block of code in the model's text
stays where the format allows it.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.answer import CanonicalAnswer
from schemas.generation import CitationStyle, OutputFormat
from tasks.answers.active_content import neutral_plain
from tasks.answers.formats import format_problem, table_lines, without_markdown
from tasks.answers.items import Item, Kind, as_cell, as_item, as_string, cut_items, indented
from tasks.answers.rendered import (
    Edit,
    Flow,
    Insert,
    Label,
    Mark,
    Piece,
    Rendered,
    Run,
    fenced_blocks,
    flow_of,
    marker,
    reference,
)
from tasks.text.sentences import Span


class Writer:
    """Text under construction, with the positions of its parts.

    Args:
        flow: the text to write, in order; parts may be omitted, markers never are.
        style: the style of the markers.
        labels: the label of each source, by number - 1.
        show_markers: if False, every mark is empty.
        markdown: if True, the text is Markdown.
    """

    def __init__(
        self, flow: Flow, style: CitationStyle, labels: Sequence[Label], *, show_markers: bool, markdown: bool
    ) -> None:
        self.flow = flow
        self.style = style
        self.labels = labels
        self.show_markers = show_markers
        self.markdown = markdown
        self.position = 0
        self.ranks: dict[int, int] = {}
        self._parts: list[str] = []
        self._marks: list[Mark] = []
        self._pieces: list[Piece] = []
        self._runs: list[Run] = []
        self._pending = list(reversed(flow.inserts))

    def write(self, text: str) -> None:
        """Writes text that is not part of the segments."""
        if text:
            self._parts.append(text)
            self.position += len(text)

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
            self._runs.append(Run(start, end, at, self.position))

    def _would_link(self, text: str) -> bool:
        """Tells whether Markdown would parse the last marker and this text as a link or a link definition."""
        if text[0] not in "(:" or not self._parts or not self._parts[-1].endswith("]") or not self.after_mark:
            return False
        return text[0] == "(" or self._at_line_start(self._marks[-1].start)

    def _at_line_start(self, position: int) -> bool:
        return "".join(self._parts)[:position].rpartition("\n")[2].strip() == ""

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
        for start, end in blocks:
            self._pending = [
                Insert(end, insert.segment, insert.source) if start < insert.position <= end else insert
                for insert in self._pending
            ]

    def _mark(self, insert: Insert, shape: str | None = None, separator: str | None = None) -> None:
        rank = self.ranks.setdefault(insert.source, len(self.ranks) + 1)
        if self.show_markers:
            self.write(self._separator() if separator is None else (separator if self.after_mark else ""))
        start = self.position
        if self.show_markers:
            name = self.labels[insert.source - 1]
            self.write(shape.format(rank=rank) if shape else marker(self.style, rank, name, markdown=self.markdown))
        self._marks.append(Mark(insert.segment, insert.source, rank, start, self.position))

    def _separator(self) -> str:
        if self.style is CitationStyle.FOOTNOTE:
            return "," if self.after_mark else ""
        if not self._parts or self._parts[-1][-1].isspace():
            return ""
        return "" if self.after_mark and self.style is not CitationStyle.INLINE else " "

    def piece(self, start: int, end: int | None = None, *, reach: int | None = None) -> None:
        """Records the text since ``start`` as a statement; its markers go up to ``reach``, by default up to here."""
        if end is None:
            end = self.position
        if start < end:
            self._pieces.append(Piece(start, end, self.position if reach is None else reach))

    def sources(self) -> None:
        """Writes the list of the cited sources."""
        if not self.ranks:
            return
        lines = [
            reference(self.style, rank, self.labels[source - 1], markdown=self.markdown)
            for source, rank in self.ranks.items()
        ]
        if self.style is CitationStyle.FOOTNOTE:
            self.write("\n\n" + ("  \n" if self.markdown else "\n").join(lines))
        elif self.markdown:
            self.write("\n\n**Sources:**\n\n" + "\n".join(f"- {line}" for line in lines))
        else:
            self.write("\n\nSources:\n" + "\n".join(lines))

    def finish(self, body: int) -> Rendered:
        """The rendered answer; ``body`` is the end of the answer itself."""
        rendered = Rendered("".join(self._parts), tuple(self._marks), tuple(self._pieces), runs=tuple(self._runs))
        places = tuple(self._place(rendered, start, end) for start, end in self.flow.bounds)
        return Rendered(rendered.text, rendered.marks, rendered.pieces, places, rendered.runs, body)

    def _place(self, rendered: Rendered, start: int, end: int) -> Span:
        text = self.flow.text[start:end]
        return rendered.place_of(start + len(text) - len(text.lstrip()), end - (len(text) - len(text.rstrip())))


_LISTED = {CitationStyle.FOOTNOTE, CitationStyle.ENDNOTE}
"""Styles that include a list of sources."""


@dataclass(frozen=True, slots=True)
class Extras:
    """The parts after an answer: the list of its sources, and a line such as ``Confidence: 87.0%``."""

    sources: bool = False
    score: tuple[str, float] | None = None
    """Name and value of the score; the value is in [0, 1]."""


def render(
    answer: CanonicalAnswer,
    style: CitationStyle,
    output_format: OutputFormat,
    labels: Sequence[Label],
    *,
    show_markers: bool = True,
    extras: Extras | None = None,
    allow_html: bool = False,
) -> Rendered:
    """Renders an answer.

    Segments are joined unchanged, with their own white space. Without ``show_markers`` every mark is empty
    (``start == end``) at the position of the marker.

    Args:
        answer: its citations name sources from 1 to ``len(labels)``.
        style: the style of the markers.
        output_format: not ``auto`` (see ``formats.resolve_format``).
        labels: the label of each source, by number - 1.
        show_markers: if False, no marker is written.
        allow_html: HTML in code stays as it is in plain text, too.
        extras: the parts after the answer; JSON always has the sources, and the score is a field.
    """
    extras = extras or Extras()
    flow = flow_of(answer, style)
    markdown = output_format not in {OutputFormat.PLAIN, OutputFormat.JSON}
    writer = Writer(flow, style, labels, show_markers=show_markers, markdown=markdown)
    if output_format is OutputFormat.JSON:
        _write_json(writer, extras)
        return writer.finish(writer.position)
    if output_format is OutputFormat.TABLE:
        _write_table(writer)
    elif output_format in {OutputFormat.BULLETS, OutputFormat.STEPS}:
        _write_items(writer, numbered=output_format is OutputFormat.STEPS)
    elif output_format is OutputFormat.PLAIN:
        _write_plain(writer, neutral=not allow_html)
    else:
        _write_markdown(writer)
    body = writer.position
    if extras.sources or (show_markers and style in _LISTED):
        writer.sources()
    if extras.score:
        name, score = extras.score
        line = f"{name}: {score:.1%}"
        writer.write(f"\n\n*{line}*" if markdown else f"\n\n{line}")
    return writer.finish(body)


# ---- running text ----------------------------------------------------------------------------------------------


def _text_bounds(text: str) -> tuple[int, int]:
    return len(text) - len(text.lstrip()), len(text.rstrip())


def _write_markdown(writer: Writer) -> None:
    """Writes the text unchanged; the header and the rule of a table and the fences of code are no statements."""
    text = writer.flow.text
    heads = sorted([*_heads(text), *_fences(text)])
    positions = _copy_markdown(writer, *(edge for head in heads for edge in head))
    start = 0
    for begin, end in heads:
        above = positions.get(begin, 0)
        writer.piece(start, above, reach=above)
        start = positions.get(end, writer.position)
    writer.piece(start)


def _heads(text: str) -> list[tuple[int, int]]:
    """The heads of the text's tables, each with the rule below it."""
    tables = table_lines(text) if "|" in text else []
    lines = [0, *(match.end() for match in re.finditer("\n", text)), len(text)] if tables else []
    return [(lines[first], lines[first + 2]) for first, _ in tables]


def _fences(text: str) -> Iterable[tuple[int, int]]:
    """The lines of the fences of code."""
    for block in fenced_blocks(text):
        yield block.start, text.find("\n", block.start, block.end) + 1 or block.end
        if not block.unclosed:
            yield text.rfind("\n", block.start, block.end) + 1, block.end


def _copy_markdown(writer: Writer, *stops: int) -> dict[int, int]:
    """Writes the text unchanged, with markers inside a block of code moved behind it; returns the stops' positions."""
    text = writer.flow.text
    position, end = _text_bounds(text)
    blocks = list(fenced_blocks(text))
    writer.postpone((block.start, block.end) for block in blocks)
    edges = {edge for block in blocks for edge in (block.start, block.end)}
    positions: dict[int, int] = {}
    for stop in sorted({end, *(edge for edge in {*stops, *edges} if position < edge < end)}):
        block = next((block for block in blocks if block.start < stop <= block.end), None)
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


def _write_plain(writer: Writer, *, neutral: bool) -> None:
    text = writer.flow.text
    start, end = _text_bounds(text)
    edits = without_markdown(text)
    if neutral:
        edits = sorted([*edits, *_harmless(neutral_plain(text), edits)], key=lambda edit: edit.start)
    edits = [edit for edit in edits if start <= edit.start and edit.end <= end]
    # The line break before a deleted last line is trailing white space now.
    while edits and edits[-1].end == end and not edits[-1].text:
        end = len(text[: edits.pop().start].rstrip())
    edits = [edit for edit in edits if edit.end <= end]
    position, piece = start, 0

    def copy_until(stop: int) -> int:
        stop = max(position, min(stop, end))
        writer.copy(position, stop, [edit for edit in edits if position <= edit.start and edit.end <= stop])
        return stop

    for head, below in _heads(text):
        # The head of a table is no statement.
        position = copy_until(head)
        writer.piece(piece)
        position = copy_until(below)
        piece = writer.position
    position = copy_until(end)
    writer.marks_until(len(text))
    writer.piece(piece)


def _harmless(added: Iterable[Edit], edits: Sequence[Edit]) -> Iterable[Edit]:
    """The edits that lie in no deletion."""
    return (edit for edit in added if not any(other.start <= edit.start < other.end for other in edits))


# ---- forms made of items ---------------------------------------------------------------------------------------


def _write_items(writer: Writer, *, numbered: bool) -> None:
    count = 0
    before: Kind | None = None
    width = 2
    for item, until in _with_marker_ends(cut_items(writer.flow), writer.flow):
        if before is not None:
            apart = item.kind is not Kind.POINT or before in {Kind.LEAD, Kind.CODE}
            writer.write("\n\n" if apart else "\n")
        if item.kind is Kind.CODE:
            # Indented, it belongs to the item above, and the list goes on below.
            _write_code(writer, item, width if count else 0)
            writer.marks_until(until)
            before = item.kind
            continue
        if item.kind is Kind.POINT:
            if item.depth == 0:
                count += 1
            sign = f"{count}. " if numbered and item.depth == 0 else "- "
            width = len(sign) if item.depth == 0 else width
            writer.write(" " * (width + 2 * (item.depth - 1) if item.depth else 0) + sign)
        writer.write(item.lead)
        start = writer.position
        writer.copy(item.start, item.end, as_item(writer.flow.text, item))
        writer.marks_until(until)
        writer.piece(start)
        before = item.kind


def _write_code(writer: Writer, item: Item, width: int) -> None:
    """Writes a block of code with its markers below it; its fences are no statements."""
    text = writer.flow.text
    writer.postpone([(item.start, item.end)])
    first = text.find("\n", item.start, item.end) + 1 or item.end
    last = item.end if item.unclosed else max(first, text.rfind("\n", item.start, item.end) + 1)
    edits = indented(text, item, width)
    writer.write(" " * width)
    writer.copy(item.start, first, [edit for edit in edits if edit.end <= first], marks=False)
    start = writer.position
    writer.copy(first, last, [edit for edit in edits if first < edit.end <= last], marks=False)
    end = writer.position
    writer.copy(last, item.end, [edit for edit in edits if edit.end > last], marks=False)
    if item.unclosed:
        writer.write(f"\n{' ' * width}{item.unclosed}")
    if writer.has_pending(item.end):
        writer.write(f"\n{' ' * width}")
        writer.marks_until(item.end)
    writer.piece(start, end, reach=writer.position)


def _with_marker_ends(items: Sequence[Item], flow: Flow) -> list[tuple[Item, int]]:
    """Each item with the end of its markers: the last position before the next item's words."""
    ends = [*(item.start - 1 for item in items[1:]), len(flow.text)]
    return [(item, ends[position]) for position, item in enumerate(items)]


def _write_table(writer: Writer) -> None:
    """Writes the model's own table, or one row per statement with the introductory items above the table."""
    if _keeps_table(writer.flow):
        _write_markdown(writer)
        return
    text = writer.flow.text
    followed = _with_marker_ends(cut_items(writer.flow), writer.flow)
    if not followed:
        return
    above = next((count for count, (item, _) in enumerate(followed) if item.kind is Kind.POINT), 0)
    for item, until in followed[:above]:
        start = writer.position
        if item.kind is Kind.CODE:
            _write_code(writer, item, 0)
            writer.marks_until(until)
        else:
            writer.copy(item.start, item.end, as_item(text, item))
            writer.marks_until(until)
            writer.piece(start)
        writer.write("\n\n")
    in_table = False
    for item, until in followed[above:]:
        # No cell holds several lines: code stands between two tables.
        if not (in_table and item.kind is not Kind.CODE) and item is not followed[above][0]:
            writer.write("\n\n")
        if item.kind is Kind.CODE:
            _write_code(writer, item, 0)
            writer.marks_until(until)
        else:
            if not in_table:
                writer.write("| Statement | Sources |\n| --- | --- |")
            _write_row(writer, item, until)
        in_table = item.kind is not Kind.CODE


def _write_row(writer: Writer, item: Item, until: int) -> None:
    text = writer.flow.text
    writer.write(f"\n| {item.lead}")
    start = writer.position
    begin = item.start + _heading_marks(text, item)
    writer.copy(begin, item.end, as_cell(text, item, begin), marks=False)
    end = writer.position
    writer.write(" | ")
    writer.marks_until(max(until, item.end))
    writer.piece(start, end)
    writer.write(" |")


def _keeps_table(flow: Flow) -> bool:
    """Tells whether the text contains a table of the model and nothing that does not fit beside it."""
    return "|" in flow.text and format_problem(flow.text.strip(), OutputFormat.TABLE) is None


def _heading_marks(text: str, item: Item) -> int:
    if item.kind is not Kind.HEADING:
        return 0
    words = text[item.start : item.end].lstrip("# \t")
    return item.end - item.start - len(words)


# ---- JSON ------------------------------------------------------------------------------------------------------


def _write_json(writer: Writer, extras: Extras) -> None:
    """Writes ``{"answer": [{"text", "citations": [rank]}], "sources": [{"number", "title", ...}]}``; markers are ranks."""
    text = writer.flow.text
    writer.write('{"answer": [')
    for count, (item, until) in enumerate(_with_marker_ends(cut_items(writer.flow), writer.flow)):
        writer.write(f'{", " if count else ""}{{"text": "{json.dumps(item.lead, ensure_ascii=False)[1:-1]}')
        start = writer.position
        writer.copy(item.start, item.end, as_string(text, item), marks=False)
        if item.unclosed:
            writer.write(f"\\n{item.unclosed}")
        end = writer.position
        writer.write('", "citations": [')
        writer.marks_until(max(until, item.end), "{rank}", ", ")
        writer.piece(start, end)
        writer.write("]}")
    ranks = writer.ranks.items() if writer.show_markers or extras.sources else ()
    sources = [{"number": rank, **writer.labels[source - 1].json_entry()} for source, rank in ranks]
    writer.write(f'], "sources": {json.dumps(sources, ensure_ascii=False)}')
    if extras.score:
        name, score = extras.score
        writer.write(f", {json.dumps(name.lower().replace(' ', '_'))}: {round(score, 4)}")
    writer.write("}")
