"""Splits an answer into the items of a list: by the model's own list or table, else by its sentences."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from tasks.answers.rendered import Edit, Flow


class Kind(Enum):
    """The role of an item in a list."""

    POINT = auto()
    LEAD = auto()
    """A line that introduces the next items: it ends with a colon."""
    HEADING = auto()


@dataclass(frozen=True, slots=True)
class Item:
    """An item at ``[start, end)`` of the joined segments, without its list marker; ``depth`` counts from 0."""

    start: int
    end: int
    kind: Kind = Kind.POINT
    depth: int = 0


_LINE = re.compile(r"[^\n]+")
_MARKER = re.compile(r"(?P<indent>[ \t]*)(?:[-*+•‣◦]|\(?(?P<number>\d{1,3})[.)])[ \t]+(?=\S)")
_HEADING = re.compile(r"[ \t]*#{1,6}[ \t]+(?=\S)")
_QUOTE = re.compile(r"[ \t]*>[ \t]+")
_RULE = re.compile(r"[\s|:\-=_*~]*\Z")
_SENTENCE_END = re.compile(r"[.!?:。！？：][\"'”’»)*_]*\s*\Z")
_LEAD_END = re.compile(r"[:：]\s*\Z")


def cut_items(flow: Flow) -> list[Item]:
    """The items of an answer in order, without lines that hold no words (rules, the second row of a table).

    An item is a line with a list marker and its continuation lines, a heading, a row of a table, or else a sentence.
    An answer that has citations but no words is one empty item.
    """
    items = list(_Cutter(flow, _numbers_are_markers(flow.text)).items())
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
    _items: list[Item] = field(default_factory=list)
    _indents: list[int] = field(default_factory=list)
    _paragraph: int | None = None
    _last: int = 0

    def items(self) -> Iterator[Item]:
        text = self.flow.text
        before = 0
        for line in _LINE.finditer(text):
            if text.count("\n", before, line.start()) > 1:
                self._close()
            before = line.end()
            self._take(line.start(), line.end())
        self._close()
        yield from self._items

    def _take(self, start: int, end: int) -> None:
        text = self.flow.text
        line = text[start:end]
        if _RULE.match(line):
            self._close()
        elif marker := self._marker(line):
            self._close()
            indent = len(marker["indent"].expandtabs(4))
            while self._indents and self._indents[-1] > indent:
                self._indents.pop()
            if not self._indents or self._indents[-1] < indent:
                self._indents.append(indent)
            self._add(start + marker.end(), end, Kind.POINT, len(self._indents) - 1)
        elif _HEADING.match(line):
            self._close()
            self._indents = []
            self._add(start, end, Kind.HEADING)
        elif line.lstrip().startswith("|"):
            self._close()
            cell_start = start + line.index("|") + 1
            self._add(cell_start, cell_start + len(text[cell_start:end].rstrip().removesuffix("|")), Kind.POINT)
        elif self._indents and self._items and (self._paragraph is None and self._continues(start, line)):
            last = self._items.pop()
            self._add(last.start, end, last.kind, last.depth)
        else:
            if self._paragraph is None:
                quote = _QUOTE.match(line)
                self._paragraph = start + (quote.end() if quote else 0)
            self._last = end

    def _marker(self, line: str) -> re.Match[str] | None:
        match = _MARKER.match(line)
        return match if match and (self.numbered or match["number"] is None) else None

    def _continues(self, start: int, line: str) -> bool:
        """Tells whether a line without a marker continues the previous item: it follows directly or is indented."""
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
            if start < boundary < end and (_SENTENCE_END.search(text, start, boundary) or _opens_line(text, boundary)):
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


def as_item(text: str, item: Item) -> list[Edit]:
    """Edits that put an item on one line and escape a beginning that Markdown would parse as a block."""
    edits = on_one_line(text, item.start, item.end)
    opening = _OPENS_BLOCK.match(text, item.start, item.end)
    if opening and item.kind is not Kind.HEADING and item.start < item.end:
        place = opening.end()
        edits.insert(0, Edit(place, place + 1, f"\\{text[place]}"))
    return edits


_CELL = re.compile(r"\s+|(?<!\\)\|")


def as_cell(text: str, start: int, end: int) -> list[Edit]:
    """Edits that put a table cell on one line and escape its pipes."""
    replacements = ((match, " " if match.group() != "|" else "\\|") for match in _CELL.finditer(text, start, end))
    return [
        Edit(match.start(), match.end(), replacement)
        for match, replacement in replacements
        if match.group() != replacement
    ]
