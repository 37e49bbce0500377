"""Splits an answer into the items of a list: by the model's own list or table, else by its sentences."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import pairwise

from tasks.answers.formats import table_lines
from tasks.answers.rendered import Edit, Flow, fenced_blocks
from tasks.text.statements import opens_statement


class Kind(Enum):
    """The role of an item in a list."""

    POINT = auto()
    LEAD = auto()
    """A line that introduces the next items: it ends with a colon."""
    HEADING = auto()
    CODE = auto()
    """A fenced block of code, with its fences."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item at ``[start, end)`` of the joined segments, without its list marker; ``depth`` counts from 0.

    Attributes:
        lead: words before the item that its text lacks: the head of a row's first column.
        cells: for a row of a table, the heads between its cells, as edits.
        unclosed: for code, the missing closing fence.
    """

    start: int
    end: int
    kind: Kind = Kind.POINT
    depth: int = 0
    lead: str = ""
    cells: tuple[Edit, ...] = ()
    unclosed: str = ""


_LINE = re.compile(r"[^\n]+")
_MARKER = re.compile(r"(?P<indent>[ \t]*)(?:[-*+•‣◦]|\(?(?P<number>\d{1,3})[.)])[ \t]+(?=\S)")
_HEADING = re.compile(r"[ \t]*#{1,6}[ \t]+(?=\S)")
_QUOTE = re.compile(r"[ \t]*>[ \t]+")
_RULE = re.compile(r"[\s|:\-=_*~]*\Z")
_SENTENCE_END = re.compile(r"[.!?:。！？：][\"'”’»)*_]*\s*\Z")
_LEAD_END = re.compile(r"[:：]\s*\Z")


def cut_items(flow: Flow) -> list[Item]:
    """The items of an answer in order, without lines that hold no words (rules, the second row of a table).

    An item is a line with a list marker and its continuation lines, a heading, a row of a table, a block of code, or else
    a sentence. An answer that has citations but no words is one empty item.
    """
    items = list(_Cutter(flow, _numbers_are_markers(flow.text), _rows(flow.text)).items())
    if not items and flow.inserts:
        return [Item(0, 0)]
    return items


def _numbers_are_markers(text: str) -> bool:
    """Tells whether lines that begin with a number form a list; a single ``3. May`` is a date and keeps its number."""
    matches = (_MARKER.match(line.group()) for line in _LINE.finditer(text))
    numbers = [int(marker["number"]) for marker in matches if marker and marker["number"]]
    return len(numbers) > 1 or numbers == [1]


@dataclass(slots=True)
class _Cutter:
    flow: Flow
    numbered: bool
    rows: dict[int, Item | None]
    """The rows of tables by the position of their line; None for a head and the rule below it."""
    _items: list[Item] = field(default_factory=list)
    _indents: list[int] = field(default_factory=list)
    _paragraph: int | None = None
    _last: int = 0

    def items(self) -> Iterator[Item]:
        text = self.flow.text
        before = 0
        blocks = list(fenced_blocks(text))
        for line in _LINE.finditer(text):
            if block := next((block for block in blocks if block.start <= line.start() < block.end), None):
                if line.start() == block.start:
                    self._close()
                    if text[block.start : block.end].strip("`~ \n").strip():
                        self._items.append(Item(block.start, block.end, Kind.CODE, unclosed=block.unclosed))
                before = block.end
                continue
            if text.count("\n", before, line.start()) > 1:
                self._close()
            before = line.end()
            self._take(line.start(), line.end())
        self._close()
        yield from self._items

    def _take(self, start: int, end: int) -> None:
        text = self.flow.text
        line = text[start:end]
        if start in self.rows:
            self._close()
            if (row := self.rows[start]) is not None:
                self._items.append(row)
        elif _RULE.match(line):
            self._close()
        elif marker := self._marker(line):
            self._close()
            self._indent(len(marker["indent"].expandtabs(4)))
            self._add(start + marker.end(), end, Kind.POINT, len(self._indents) - 1)
        elif _HEADING.match(line):
            self._close()
            self._indents = []
            self._add(start, end, Kind.HEADING)
        elif line.lstrip().startswith("|"):
            self._close()
            cell_start = start + line.index("|") + 1
            self._add(cell_start, cell_start + len(text[cell_start:end].rstrip().removesuffix("|")), Kind.POINT)
        elif self._continues(start, line):
            last = self._items.pop()
            self._add(last.start, end, last.kind, last.depth)
        else:
            if self._paragraph is None:
                quote = _QUOTE.match(line)
                self._paragraph = start + (quote.end() if quote else 0)
            self._last = end

    def _indent(self, indent: int) -> None:
        while self._indents and self._indents[-1] > indent:
            self._indents.pop()
        if not self._indents or self._indents[-1] < indent:
            self._indents.append(indent)

    def _marker(self, line: str) -> re.Match[str] | None:
        match = _MARKER.match(line)
        return match if match and (self.numbered or match["number"] is None) else None

    def _continues(self, start: int, line: str) -> bool:
        """Tells whether a line without a marker continues the previous item: it follows directly or is indented."""
        if not self._indents or not self._items or self._paragraph is not None or self._items[-1].kind is Kind.CODE:
            return False
        return self.flow.text.count("\n", self._items[-1].end, start) <= 1 or line.startswith(("  ", "\t"))

    def _close(self) -> None:
        """Ends a paragraph and adds its sentences as items."""
        if self._paragraph is None:
            return
        self._indents = []
        start, end, self._paragraph = self._paragraph, self._last, None
        text = self.flow.text
        for bound in self.flow.bounds:
            boundary = bound.start
            if start < boundary < end and (
                _SENTENCE_END.search(text, start, boundary)
                or _opens_line(text, boundary)
                or opens_statement(text[start:boundary], text[boundary:end])
            ):
                self._add(start, boundary, None)
                start = boundary
        self._add(start, end, None)

    def _add(self, start: int, end: int, kind: Kind | None, depth: int = 0) -> None:
        words = self.flow.text[start:end]
        if not words.strip():
            return
        start += len(words) - len(words.lstrip())
        end -= len(words) - len(words.rstrip())
        if kind is None:
            kind = Kind.LEAD if _LEAD_END.search(self.flow.text, start, end) else Kind.POINT
        self._items.append(Item(start, end, kind, depth))


def _rows(text: str) -> dict[int, Item | None]:
    """The rows of the text's tables, each as one item "head: cell; head: cell"."""
    rows: dict[int, Item | None] = {}
    tables = table_lines(text) if "|" in text else []
    if not tables:
        return rows
    starts = [0, *(match.end() for match in re.finditer("\n", text)), len(text) + 1]
    for first, last in tables:
        spans = _cells(text, starts[first], starts[first + 1] - 1)
        heads = [text[start:end] for start, end in spans]
        rows[starts[first]] = rows[starts[first + 1]] = None
        named: set[int] = set()
        for line in range(first + 2, last):
            cells = _cells(text, starts[line], starts[line + 1] - 1)
            rows[starts[line]] = _row(heads, cells)
            named.update(place for place, (start, end) in enumerate(cells) if start < end)
        # A head that no row names is all that the table says of its column.
        rows[starts[first]] = _row([], [span for place, span in enumerate(spans) if place not in named])
    return rows


def _row(heads: list[str], cells: list[tuple[int, int]]) -> Item | None:
    """A row as an item; its empty cells are omitted."""
    named = [
        (cell, f"{heads[place]}: " if place < len(heads) and heads[place] else "")
        for place, cell in enumerate(cells)
        if cell[0] < cell[1]
    ]
    if not named:
        return None
    between = [Edit(before[1], cell[0], f"; {head}") for ((before, _), (cell, head)) in pairwise(named)]
    return Item(named[0][0][0], named[-1][0][1], lead=named[0][1], cells=tuple(between))


_PIPE = re.compile(r"(?<!\\)\|")


def _cells(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The spans of the cells of a row, without the white space around them."""
    edges = [start - 1, *(match.start() for match in _PIPE.finditer(text, start, end)), end]
    spans = []
    for before, after in pairwise(edges):
        words = text[before + 1 : after]
        begin = before + 1 + len(words) - len(words.lstrip())
        spans.append((begin, max(begin, after - (len(words) - len(words.rstrip())))))
    # A pipe at the edge of a row begins no cell.
    spans = spans[1:] if spans and spans[0][0] >= spans[0][1] else spans
    return spans[:-1] if spans and spans[-1][0] >= spans[-1][1] else spans


def _opens_line(text: str, position: int) -> bool:
    """Tells whether the next words after a position begin a new line."""
    rest = re.compile(r"\s*").match(text, position)
    return rest is not None and "\n" in rest.group()


# ---- writing an item on one line -------------------------------------------------------------------------------

_BREAKS = re.compile(r"\s+")
_OPENS_BLOCK = re.compile(
    r"(?:(?P<number>\d{1,9})(?=[.)](?:\s|\Z)))|(?=[-+*=#>](?:\s|[-+*=#>]|\Z)|>|```|~~~|<[A-Za-z/!?]|\[[^\]]*\]:)"
)


def on_one_line(text: str, start: int, end: int) -> list[Edit]:
    """Edits that replace each run of white space by one space."""
    matches = _BREAKS.finditer(text, start, end)
    return [Edit(match.start(), match.end(), " ") for match in matches if match.group() != " "]


def _between_cells(item: Item, edits: list[Edit]) -> list[Edit]:
    """The edits with those between the cells of a row in place of any that they overlap."""
    if not item.cells:
        return edits
    apart = [edit for edit in edits if not any(edit.start < cell.end and cell.start < edit.end for cell in item.cells)]
    return sorted([*apart, *item.cells], key=lambda edit: edit.start)


def as_item(text: str, item: Item) -> list[Edit]:
    """Edits that put an item on one line and escape a beginning that Markdown would parse as a block."""
    edits = _between_cells(item, on_one_line(text, item.start, item.end))
    opening = _OPENS_BLOCK.match(text, item.start, item.end)
    if opening and item.kind is not Kind.HEADING and item.start < item.end:
        place = opening.end()
        edits.insert(0, Edit(place, place + 1, f"\\{text[place]}"))
    return edits


_CELL = re.compile(r"\s+|(?<!\\)\|")


def as_cell(text: str, item: Item, start: int) -> list[Edit]:
    """Edits that put an item from ``start`` on into a cell of a table: on one line, with its pipes escaped."""
    replacements = ((match, " " if match.group() != "|" else "\\|") for match in _CELL.finditer(text, start, item.end))
    return _between_cells(
        item,
        [
            Edit(match.start(), match.end(), replacement)
            for match, replacement in replacements
            if match.group() != replacement
        ],
    )


def as_string(text: str, item: Item) -> list[Edit]:
    """Edits that put an item into a string of JSON: on one line, but for code, and escaped."""
    edits = []
    for match in _JSON_ESCAPED.finditer(text, item.start, item.end):
        words = match.group()
        replacement = (
            " " if words.isspace() and item.kind is not Kind.CODE else json.dumps(words, ensure_ascii=False)[1:-1]
        )
        if replacement != words:
            edits.append(Edit(match.start(), match.end(), replacement))
    cells = tuple(replace(cell, text=json.dumps(cell.text, ensure_ascii=False)[1:-1]) for cell in item.cells)
    return _between_cells(replace(item, cells=cells), edits)


_JSON_ESCAPED = re.compile(r'\s+|["\\\x00-\x1f\x7f-\x9f]')


def indented(text: str, item: Item, width: int) -> list[Edit]:
    """Edits that indent the lines of a block of code after its first."""
    return [
        Edit(item.start + match.start(), item.start + match.end(), "\n" + " " * width)
        for match in re.finditer(r"\n(?!\n|\Z)", text[item.start : item.end])
    ]
