"""Cuts an answer into the items of a list: by the list or table that the model wrote, else by its sentences."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from tasks.answers.flow import Flow
from tasks.answers.writing import Edit


class Kind(Enum):
    """What an item is in a list."""

    POINT = auto()
    LEAD = auto()
    """A line that leads in to what follows: it ends with a colon."""
    HEADING = auto()


@dataclass(frozen=True, slots=True)
class Item:
    """``[start, end)`` of the segments' texts without list markers; ``depth`` counts from 0."""

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
    """The items of an answer in order; lines without words (rules, the second row of a table) are left out.

    An item is a line with a list marker and the lines that continue it, a heading, a row of a table, or else a
    sentence with the segments it is made of. An answer without words that cites something is one empty item.
    """
    items = list(_Cutter(flow, _numbers_are_markers(flow.text)).items())
    if not items and flow.inserts:
        return [Item(0, 0)]
    return items


def _numbers_are_markers(text: str) -> bool:
    """Whether lines that begin with a number are a list: a lone ``3. May`` is a date and keeps its number."""
    found = (_MARKER.match(line.group()) for line in _LINE.finditer(text))
    numbers = [int(marker["number"]) for marker in found if marker and marker["number"]]
    return len(numbers) > 1 or numbers == [1]


@dataclass(slots=True)
class _Cutter:
    flow: Flow
    numbered: bool
    _found: list[Item] = field(default_factory=list)
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
        yield from self._found

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
            left = start + line.index("|") + 1
            self._add(left, left + len(text[left:end].rstrip().removesuffix("|")), Kind.POINT)
        elif self._indents and self._found and (self._paragraph is None and self._continues(start, line)):
            last = self._found.pop()
            self._add(last.start, end, last.kind, last.depth)
        else:
            if self._paragraph is None:
                quote = _QUOTE.match(line)
                self._paragraph = start + (quote.end() if quote else 0)
            self._last = end

    def _marker(self, line: str) -> re.Match[str] | None:
        found = _MARKER.match(line)
        return found if found and (self.numbered or found["number"] is None) else None

    def _continues(self, start: int, line: str) -> bool:
        """Whether a line without a marker goes on with the item before it: it follows directly, or is indented."""
        return self.flow.text.count("\n", self._found[-1].end, start) <= 1 or line.startswith(("  ", "\t"))

    def _close(self) -> None:
        """End a paragraph: its sentences become items."""
        if self._paragraph is None:
            return
        self._indents = []
        start, end, self._paragraph = self._paragraph, self._last, None
        text = self.flow.text
        for bound in self.flow.bounds:
            cut = bound.start
            if start < cut < end and (_SENTENCE_END.search(text, start, cut) or _opens_line(text, cut)):
                self._add(start, cut, None)
                start = cut
        self._add(start, end, None)

    def _add(self, start: int, end: int, kind: Kind | None, depth: int = 0) -> None:
        words = self.flow.text[start:end]
        if not words.strip():
            return
        start += len(words) - len(words.lstrip())
        end -= len(words) - len(words.rstrip())
        if kind is None:
            kind = Kind.LEAD if _LEAD_END.search(self.flow.text, start, end) else Kind.POINT
        self._found.append(Item(start, end, kind, depth))


def _opens_line(text: str, position: int) -> bool:
    """Whether nothing but white space with a line break stands between a position and the words that follow."""
    rest = re.compile(r"\s*").match(text, position)
    return rest is not None and "\n" in rest.group()


# ---- writing an item on one line -------------------------------------------------------------------------------

_BREAKS = re.compile(r"\s+")
_OPENS_BLOCK = re.compile(
    r"(?:(?P<number>\d{1,9})(?=[.)](?:\s|\Z)))|(?=[-+*=#>](?:\s|[-+*=#>]|\Z)|>|```|~~~|<[A-Za-z/!?]|\[[^\]]*\]:)"
)


def on_one_line(text: str, start: int, end: int) -> list[Edit]:
    """Line breaks and runs of white space become one space."""
    found = _BREAKS.finditer(text, start, end)
    return [Edit(one.start(), one.end(), " ") for one in found if one.group() != " "]


def as_item(text: str, item: Item) -> list[Edit]:
    """On one line, and not read as a list, heading or code of its own because of how it begins."""
    edits = on_one_line(text, item.start, item.end)
    opening = _OPENS_BLOCK.match(text, item.start, item.end)
    if opening and item.kind is not Kind.HEADING and item.start < item.end:
        place = opening.end()
        edits.insert(0, Edit(place, place + 1, f"\\{text[place]}"))
    return edits


_CELL = re.compile(r"\s+|(?<!\\)\|")


def as_cell(text: str, start: int, end: int) -> list[Edit]:
    """On one line, with what would end a table's cell escaped."""
    found = ((one, " " if one.group() != "|" else "\\|") for one in _CELL.finditer(text, start, end))
    return [Edit(one.start(), one.end(), instead) for one, instead in found if one.group() != instead]
