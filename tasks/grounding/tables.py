"""Compares a claim that names a row of a table with the cells of this row, by the heads of their columns."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from schemas.claim_error import ErrorKind
from tasks.grounding.alignment import Difference, Window
from tasks.text.fact_reader import read_facts
from tasks.text.fact_text import SIGNS, FactText, split_tokens
from tasks.text.lexicon import Lexicon, lexicon
from tasks.text.quantities import NUMBER, Quantity, comparable, equal, is_money, is_period_unit
from tasks.text.rate_reader import head_rate, read_rate

_ROW = re.compile(r"^.*\|.*$", re.MULTILINE)
_CELL = re.compile(r"[^|]+")
_DIGIT = re.compile(r"\d")
_RULE = re.compile(r"[\s|:-]+\Z")
_WORD = re.compile(r"[^\W\d_]+|[%€$£¥]")
_TEXTS = 512
"""Cells and heads whose words are remembered for the next claim."""
_LEAST_CELLS = 2
_LEAST_ROWS = 2
"""Rows below the heads of a table that has no rule under them."""
_CAPTION = 200
"""Characters before a table among which its unit may stand: "in EUR million"."""
_SCALE = 1000
_SHORT_SCALES = {"k": 1e3, "tsd": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "bn": 1e9, "mrd": 1e9}
_TABLES = 32
"""Sources whose tables are remembered for the next claim."""


class Cell(NamedTuple):
    """A cell of a table: its text, and where that begins and ends in the source."""

    text: str
    start: int
    end: int


class Table(NamedTuple):
    """The heads of the columns, the rows below, and the text before them."""

    heads: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str


@dataclass(slots=True)
class TableFindings:
    """The quantities of a claim that a table has in the row and column which the claim names, and those that differ."""

    agreed: list[Quantity] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def compare_with_tables(claim: FactText, windows: Sequence[Window], words: Lexicon) -> TableFindings:
    """Compares the numbers of a claim with the tables of the sources of some windows."""
    findings = TableFindings()
    if not any(quantity.kind == NUMBER and not quantity.article for quantity in claim.quantities):
        return findings
    listed = {window.source_index: window for window in windows if "|" in window.facts.text}
    for window in listed.values():
        for table in read_tables(window.content):
            _Reading(claim, window, table, words).compare(findings)
    return findings


@lru_cache(maxsize=_TABLES)
def read_tables(content: str) -> tuple[Table, ...]:
    """The tables of a text that have heads: in Markdown, or rows of one length whose first alone has no number."""
    blocks: list[list[re.Match[str]]] = []
    for line in _ROW.finditer(content):
        if blocks and line.start() - blocks[-1][-1].end() <= 1:
            blocks[-1].append(line)
        else:
            blocks.append([line])
    tables = []
    for block in blocks:
        rules = [number for number, line in enumerate(block) if _RULE.match(line[0]) and "-" in line[0]]
        bordered = all(line[0].lstrip().startswith("|") for line in block)
        rows = [tuple(_cells(line, bordered=bordered)) for number, line in enumerate(block) if number not in rules]
        if rules == [1] or (not rules and _has_heads(rows)):
            start = block[0].start()
            tables.append(Table(rows[0], tuple(rows[1:]), content[max(0, start - _CAPTION) : start]))
    return tuple(tables)


def _has_heads(rows: Sequence[Sequence[Cell]]) -> bool:
    """Tells whether the first row names the columns of the others, by its lack of numbers."""
    heads, *below = rows
    return (
        len(below) >= _LEAST_ROWS
        and len(heads) >= _LEAST_CELLS
        and all(len(row) == len(heads) for row in below)
        and not any(_DIGIT.search(cell.text) for cell in heads)
        and all(any(_DIGIT.search(cell.text) for cell in row) for row in below)
    )


def _cells(line: re.Match[str], *, bordered: bool) -> Iterator[Cell]:
    start = line.start()
    text = line[0].rstrip()
    # Without borders the first cell begins with the line.
    first = text.index("|") + 1 if bordered else 0
    for part in _CELL.finditer(text.removesuffix("|") if bordered else text, first):
        words = part[0].strip()
        begin = start + part.start() + (len(part[0]) - len(part[0].lstrip()))
        yield Cell(words, begin, begin + len(words))


class _Reading:
    """A claim beside one table."""

    def __init__(self, claim: FactText, window: Window, table: Table, words: Lexicon) -> None:
        self._claim, self._window, self._table, self._words = claim, window, table, words
        self._stated = frozenset(claim.stems) - {""}
        self._heads = [self._stems(head.text) for head in table.heads]

    def compare(self, findings: TableFindings) -> None:
        """Adds what the row of the table that the claim names says of its numbers."""
        row = self._row()
        if row is None:
            return
        key = self._stems(row[0].text)
        heads = frozenset[str]().union(*self._heads)
        columns = self._columns(key)
        for quantity in self._claim.quantities:
            stem = self._claim.stems[quantity.first]
            if quantity.article or quantity.kind != NUMBER or (stem in key | heads and not quantity.unit):
                continue
            self._compare(quantity, row, columns, findings)

    def _compare(
        self, quantity: Quantity, row: Sequence[Cell], columns: Sequence[int], findings: TableFindings
    ) -> None:
        holding = [at for at in range(1, len(row)) if self._has(row, at, quantity)]
        if any(at in columns for at in holding) or (holding and not columns):
            cells = [at for at in holding if at in columns] or holding
            if (rival := self._other_rate(quantity, cells)) is None:
                findings.agreed.append(quantity)
            else:
                findings.differences.append(self._difference(quantity, rival))
            return
        if self._stands_outside(quantity):
            return
        rivals = columns if len(columns) == 1 else self._columns_with(quantity, row, columns)
        for at in rivals:
            if any(comparable(quantity, each) or not each.unit for each in self._quantities(row, at)):
                findings.differences.append(self._difference(quantity, row[at]))
                return

    def _columns_with(self, quantity: Quantity, row: Sequence[Cell], columns: Sequence[int]) -> list[int]:
        """The columns, of those that the claim names if any, in which another row has a number of the claim."""
        return [
            at
            for at in range(1, len(row))
            if (not columns or at in columns)
            and any(
                self._has(other, at, quantity) for other in self._table.rows if other is not row and at < len(other)
            )
        ]

    def _other_rate(self, quantity: Quantity, columns: Sequence[int]) -> Cell | None:
        """The head of the only column of a number, if it gives the number for another time than the claim."""
        rate = read_rate(self._claim, quantity, self._words)
        if rate is None or len(columns) != 1 or columns[0] >= len(self._table.heads):
            return None
        head = self._table.heads[columns[0]]
        there = head_rate(read_facts(head.text, self._words.code), self._words)
        return head if there and is_period_unit(rate.key) and there != rate.key else None

    def _difference(self, quantity: Quantity, cell: Cell) -> Difference:
        return Difference(
            kind=ErrorKind.NUMBER,
            claim_words=self._claim.words(quantity.first, quantity.last),
            source_words=cell.text,
            source_index=self._window.source_index,
            start=cell.start,
            end=cell.end,
            contradicts=True,
        )

    def _stands_outside(self, quantity: Quantity) -> bool:
        """Tells whether a text beside the table has the number, too."""
        return any(
            equal(quantity, other) and "|" not in _line(self._window.facts, other.first)
            for other in self._window.facts.quantities
        )

    # ---- the row and the columns that a claim names ----

    def _row(self) -> tuple[Cell, ...] | None:
        """The only row whose key the claim names whole; the longest of several keys."""
        rows = [row for row in self._table.rows if len(row) >= _LEAST_CELLS]
        keys = [self._stems(row[0].text) for row in rows]
        stated = [number for number, key in enumerate(keys) if key and key <= self._stated]
        if not stated:
            return self._row_by_own_words(rows, keys)
        longest = [number for number in stated if not any(keys[number] < keys[other] for other in stated)]
        return rows[longest[0]] if len(longest) == 1 else None

    def _row_by_own_words(
        self, rows: Sequence[tuple[Cell, ...]], keys: Sequence[frozenset[str]]
    ) -> tuple[Cell, ...] | None:
        """The only row of whose key the claim has a word that no other key has."""
        matches = [
            row
            for number, row in enumerate(rows)
            if any(
                not stem[0].isdigit() and not any(stem in key for other, key in enumerate(keys) if other != number)
                for stem in keys[number] & self._stated
            )
        ]
        return matches[0] if len(matches) == 1 else None

    def _columns(self, key: frozenset[str]) -> list[int]:
        """The columns of whose head the claim has a word that no other head has."""
        columns = []
        for at in range(1, len(self._heads)):
            other_heads = frozenset[str]().union(*(head for other, head in enumerate(self._heads) if other != at))
            if (self._heads[at] - other_heads - key) & self._stated:
                columns.append(at)
        return columns

    def _stems(self, text: str) -> frozenset[str]:
        return _content(text, self._words.code)

    # ---- cells ----

    def _has(self, row: Sequence[Cell], at: int, quantity: Quantity) -> bool:
        return any(equal(quantity, each) for each in self._quantities(row, at))

    def _quantities(self, row: Sequence[Cell], at: int) -> list[Quantity]:
        """The quantities of a cell, with the unit and the scale that the head of its column or the caption names."""
        quantities = read_facts(row[at].text, self._words.code).quantities
        if not quantities or at >= len(self._table.heads):
            return quantities
        head = _lows(self._table.heads[at].text)
        units = [unit for low in head if (unit := self._unit(low))]
        texts = (head, _lows(self._table.heads[0].text), _lows(self._table.caption))
        scale = next((scale for lows in texts if (scale := self._scale(lows)) > 1), 1.0)
        return [
            replace(
                each,
                unit=units[0] if not each.unit and len(units) == 1 else each.unit,
                values=each.values | {value * scale for value in each.values},
            )
            for each in quantities
        ]

    def _scale(self, lows: Sequence[str]) -> float:
        """The scale that a head names: in EUR million, EUR m."""
        scale = max((self._words.numbers.get(low, 0.0) for low in lows), default=0.0)
        if scale >= _SCALE:
            return scale
        if not any(is_money(Quantity(frozenset(), self._unit(low), NUMBER, 0, 0)) for low in lows):
            return 1.0
        return next((_SHORT_SCALES[low] for low in lows if low in _SHORT_SCALES), 1.0)

    def _unit(self, low: str) -> str:
        return SIGNS.get(low, "") or self._words.units.get(low, "")


@lru_cache(maxsize=_TEXTS)
def _content(text: str, code: str | None) -> frozenset[str]:
    """The words of content of a cell, as stems."""
    return frozenset(split_tokens(text, lexicon(code)).stems) - {""}


@lru_cache(maxsize=_TEXTS)
def _lows(text: str) -> tuple[str, ...]:
    """The words and signs of the text before a table, or of a head."""
    return tuple(low.lower() for low in _WORD.findall(text))


def _line(facts: FactText, position: int) -> str:
    start = facts.text.rfind("\n", 0, facts.spans[position][0]) + 1
    return facts.text[start : facts.text.find("\n", start) if "\n" in facts.text[start:] else None]
