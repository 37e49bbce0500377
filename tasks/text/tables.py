"""Reads a row of a table as sentences: what the row is about, the head of a column, and the cell."""

import re
from collections.abc import Iterator
from itertools import starmap, zip_longest

_SEPARATOR = frozenset("|:- \t")
"""The characters of the line below the heads of a table in Markdown."""
_UNIT = re.compile(r" ?[(\[]([^()\[\]]{1,8})[)\]]\Z| in (\S{1,8})\Z")
"""The unit of a column, at the end of its head: Price (€), weight in kg."""
_BARE = re.compile(r"\d[\d.,'\s]*\Z")
_MOST_COLUMNS = 30
"""Columns of a row that are read: each makes three sentences."""
_MOST_ROWS = 500
"""Rows above a row among which the heads are looked for."""


def row_sentences(content: str, place: int) -> Iterator[str]:
    """The row of a table at a place of a content as sentences, as a whole and for each column in each order; none for other text.

    What a row and a column are about own a cell alike.
    """
    line = _line(content, place)
    if line.count("|") < 2:  # noqa: PLR2004 - one bar is no row
        return
    cells = _cells(line)[:_MOST_COLUMNS]
    columns = list(zip_longest(_heads(content, place)[: len(cells)], cells, fillvalue=""))
    yield "; ".join(f"{head} {cell}" for head, cell in columns)
    row = f"{cells[0]}; {columns[0][0]}"
    for head, cell in starmap(_with_unit, columns[1:]):
        yield f"{row}; {head}; {cell}"
        if head:
            yield f"{head}; {row}; {cell}"
            yield f"{row}; {cell}; {head}"


def row_name(content: str, place: int) -> str:
    """The first cell of the row of a table at a place, which the others belong to; empty for other text."""
    cells = _cells(_line(content, place))
    return cells[0] if len(cells) > 1 else ""


def _with_unit(head: str, cell: str) -> tuple[str, str]:
    """The head of a column and a cell, with the unit that the head has."""
    unit = _UNIT.search(head)
    if unit is None or not _BARE.match(cell):
        return head, cell
    return head[: unit.start()], f"{cell} {unit[1] or unit[2]}"


def _heads(content: str, place: int) -> list[str]:
    """The heads of the columns of the table at a place; none for a table without them."""
    below = ""
    for _ in range(_MOST_ROWS):
        line = _line(content, place)
        if "|" not in line:
            break
        if "-" in below and _SEPARATOR.issuperset(below):
            return _cells(line)
        below = line
        place = content.rfind("\n", 0, place)
        if place < 0:
            break
    return []


def _line(content: str, place: int) -> str:
    end = content.find("\n", place)
    return content[content.rfind("\n", 0, place) + 1 : len(content) if end < 0 else end].strip()


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
