"""Reads the piece of a source around a sentence as a quote that stands alone: a sentence, a table row or a list item.

Headings, header rows, questions and bare lead-ins are no statements and give no quote.
"""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tasks.text.sentences import FILLED_LINE, Passage, Span, cached_sentences

LEAST_WORDS = 4
"""Words; a shorter sentence is a heading or a fragment."""
LONGEST = 1_000
"""Characters; a longer sentence is cut there (a source without punctuation is one sentence)."""
_LEAST_CUT = 40
"""Characters of a sentence that the end of its source cuts off; a shorter one says too little."""
_LONGEST_ITEM = 300
"""Characters of a list item that is quoted whole; of a longer one only a sentence is."""
_MOST_STEPS = 12
"""Steps of a list that is quoted whole."""

_CELL = re.compile(r"(?<!\\)\|")
_MARKER = re.compile(r"(?:[-*+•‣◦·–—]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,4})[.)])[ \t]+(?=\S)")
_STEP = re.compile(r"[ \t]*(\d{1,3})[.)][ \t]+(?=\S)")
_CLOSERS = "\"'”’»)]*_` "
_TERMINAL = frozenset(".!?…。！？؟۔।;；")
_NO_STATEMENT = frozenset("?？؟:：")
_SENTENCE_END = re.compile(r"[.!?][\"'”’»)\]*_]*(?:\s|\Z)|[。！？؟۔।]")
_LABEL = re.compile(r"[^\s:：][^:：\n]{0,60}[:：]\s*\S")
"""A label with its value, which needs no full stop."""
_HAN = re.compile("[\u3400-\u9fff]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A quote from a source.

    Attributes:
        span: its place, without a list marker.
        text: the quote for a reader: a row with the names of its columns, a cut sentence with an ellipsis.
        step: the number of its step in a list; 0 elsewhere.
        is_row: True for a row of a table.
    """

    span: Span
    text: str
    step: int = 0
    is_row: bool = False


class Reader:
    """Reads the quotes of one source.

    Args:
        content: the source.
        spans: its passages.
    """

    def __init__(self, content: str, spans: Sequence[Passage]) -> None:
        self._content = content
        self._spans = spans
        self.headers = _header_rows(content, spans)
        """The header row of each table row, by positions of passages; a header and the rule below it have themselves."""

    def read(self, position: int) -> Piece | None:
        """The quote at a passage: its sentence, its list item or its row; None if it states nothing."""
        content, span = self._content, Span(*self._spans[position])
        if content[span.start] == "|":
            header = self.headers.get(position)
            return (
                None
                if header == position
                else _read_row(content, span, Span(*self._spans[header]) if header is not None else None)
            )
        item = _read_item(content, span)
        if item is not None:
            return item
        sentence = self._sentence(span)
        marker = _MARKER.match(content, sentence.start, sentence.end)
        start = marker.end() if marker else sentence.start
        if not _states(content, Span(start, sentence.end), is_listed=marker is not None):
            return None
        text = content[start : min(sentence.end, start + LONGEST)].rstrip()
        return Piece(Span(start, start + len(text)), _complete(content, start, text))

    def _sentence(self, span: Span) -> Span:
        """The exact sentence of a passage; the sentences, where a passage has several."""
        content = self._content
        before = content.rfind("\n\n", max(0, span.start - _FARTHEST), span.start)
        start = before + 2 if before >= 0 else max(0, span.start - _FARTHEST)
        after = content.find("\n\n", span.end, span.end + _FARTHEST)
        end = after if after >= 0 else min(len(content), span.end + _FARTHEST)
        overlap = [
            (first, last)
            for first, last in cached_sentences(content[start:end])
            if start + first < span.end and span.start < start + last
        ]
        return Span(start + overlap[0][0], start + overlap[-1][1]) if overlap else span


_FARTHEST = 2_000
"""Characters of a paragraph that are read before and after a passage."""


def _header_rows(content: str, spans: Sequence[Passage]) -> Mapping[int, int]:
    headers: dict[int, int] = {}
    if "|" not in content:
        return headers
    header = previous = None
    for position, (start, end) in enumerate(spans):
        if content[start] != "|":
            header = previous = None
        elif not content[start:end].strip("|:-+ \t"):
            header = previous if header is None else header
            headers[position] = position
            if header is not None:
                headers[header] = header
        else:
            if header is not None:
                headers[position] = header
            previous = position
    return headers


_SECTION = re.compile(
    r"(?:Art(?:\.|icle|ikel|ículo|icolo)?|§+|Sec(?:\.|tion)|Clause|Chapter|Part|Abschnitt|Kapitel|Teil|Ziffer|Sección"
    r"|Capítulo|Chapitre|Partie|第|المادة)\s*[\dIVX]{1,6}[a-z]?\b",
    re.IGNORECASE,
)
"""The number of an article at the start of its heading."""


def _states(content: str, span: Span, *, is_listed: bool) -> bool:
    """Tells whether a sentence states something: no question, no heading, no fragment."""
    text = content[span.start : span.end].rstrip(_CLOSERS)
    if not text or text[0] == "#" or text[-1] in _NO_STATEMENT:
        return False
    is_first, is_last = not content[: span.start].strip(), not content[span.end :].strip()
    if is_first and is_last:
        return True
    if len(text.split()) < LEAST_WORDS and text.isascii():
        return False
    if is_first and (
        (len(text) < FILLED_LINE and _SECTION.match(text)) or (len(text) < _LEAST_CUT and text[0].islower())
    ):
        return False
    if text[-1] in _TERMINAL or is_listed or _LABEL.match(text) or len(text) >= FILLED_LINE:
        return True
    return len(text) >= _LEAST_CUT if is_last else _SENTENCE_END.search(content) is None


def _complete(content: str, start: int, text: str) -> str:
    """A quote on one line, with an ellipsis where the source itself cuts the sentence, and with a full stop."""
    line = " ".join(text.split())
    if line[0].islower() and line[0].isascii() and not content[:start].strip():
        line = f"… {line}"
    if line.rstrip(_CLOSERS)[-1:] in _TERMINAL:
        return line
    is_cut = not content[start + len(text) :].strip() and _SENTENCE_END.search(content) is not None
    return f"{line} …" if is_cut and not _LABEL.match(line) else _close(line)


def _close(line: str) -> str:
    if line.rstrip(_CLOSERS)[-1:] in _TERMINAL:
        return line
    return f"{line}。" if _HAN.search(line[-8:]) else f"{line}."


# ---- tables and lists ------------------------------------------------------------------------------------------


def _read_row(content: str, span: Span, header: Span | None) -> Piece | None:
    """A table row as ``column: value; column: value``."""
    names = _cells(content, header) if header is not None else []
    cells = _cells(content, span)
    parts = [
        f"{name}: {cell}" if name else cell
        for name, cell in zip_longest(names, cells, fillvalue="")
        if cell and cell not in {"-", "–", "—"}
    ]
    if not parts or (len(parts) == 1 and not names):
        return None
    if len(parts) > 1 and not (names and names[0]):
        # The first cell names the row.
        parts = [f"{parts[0]} – {parts[1]}" if names else f"{parts[0]}: {parts[1]}", *parts[2:]]
    return Piece(span, _close("; ".join(parts)), is_row=True)


def _cells(content: str, span: Span) -> list[str]:
    line = " ".join(content[span.start : span.end].split()).strip("|")
    return [cell.strip() for cell in _CELL.split(line)]


def _read_item(content: str, span: Span) -> Piece | None:
    """The whole list item that a sentence belongs to; None outside a list, or for a long item."""
    start = content.rfind("\n", 0, span.start) + 1
    end = content.find("\n", span.end)
    line = content[start : len(content) if end < 0 else end].rstrip()
    step = _STEP.match(line)
    marker = step or _BULLET.match(line)
    if marker is None or len(line) > _LONGEST_ITEM or line[-1] in _NO_STATEMENT:
        return None
    text = line[marker.end() :]
    if len(text.split()) < 2 and text.isascii():  # noqa: PLR2004 - one word states nothing
        return None
    first = start + marker.end()
    return Piece(Span(first, start + len(line)), _close(" ".join(text.split())), int(step[1]) if step else 0)


_BULLET = re.compile(r"[ \t]*[-*+•‣◦·][ \t]+(?=\S)")


def steps_around(content: str, piece: Piece) -> list[Piece]:
    """All steps of the list that a step belongs to, in order; the step alone for a long list."""
    lines = [Span(match.start(), match.end()) for match in _LINE.finditer(content)]
    at = next(index for index, line in enumerate(lines) if line.end >= piece.span.start)
    steps = [piece]
    for direction in (-1, 1):
        number, index = piece.step, at
        while 0 <= index + direction < len(lines):
            index += direction
            number += direction
            marker = _STEP.match(content, lines[index].start, lines[index].end)
            if marker is None or int(marker[1]) != number or (other := _read_item(content, lines[index])) is None:
                break
            steps.append(other)
    return sorted(steps, key=lambda step: step.span.start) if len(steps) <= _MOST_STEPS else [piece]


_LINE = re.compile(r"[^\n]*\S[^\n]*")
