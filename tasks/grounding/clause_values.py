"""Binds each number of a source to the words of its clause: a claim may join one clause's subject with another's number.

"25 %; on Sundays 50 %" gives each number the words between it and the boundary to the other. Words before the first
number belong to all where the later ones follow their boundary at once: "a bag costs 60 online and 90 at the airport".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from operator import attrgetter

from tasks.grounding.alignment import Place, Window
from tasks.text.fact_text import SIGNS, FactText
from tasks.text.lexicon import Lexicon
from tasks.text.limit_reader import read_limit
from tasks.text.quantities import DATES, Quantity, comparable

_STRONG = frozenset(";；")  # noqa: RUF001
_OPENING = 3
"""Tokens at the beginning of a sentence among which a word may refer to the one before."""
_DATE_GAP = 2
"""Tokens from one part of a date to the next: 4 May, 4th of May."""
_STEP = 3
"""Tokens from "from" or "to" to its number: to about EUR 70."""
_LIST_LINE = 12
"""Most tokens of a line that may be an entry of a list."""
_FEW = 0.5
"""Share of the distinct words of a clause that a claim about another one may have."""
_LATER = 1.5
"""Lead of a later clause in that share: the words of an earlier one may be the topic of both."""
_SEVERAL = 2
"""Words of another clause that tell it apart from one without words of its own."""


_FIRST_OF = attrgetter("first")


class Owner(Enum):
    """The clause that the words of a claim belong to: that of its own number, that of a rival, or both or none."""

    OWN = "own"
    RIVAL = "rival"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class _Clause:
    """The words of the clause of a number: its own, those that it shares with its sentence, and what it refers back to."""

    sentence: tuple[int, int]
    group: int
    own: frozenset[str]
    shared: frozenset[str]
    refers: bool

    @property
    def all(self) -> frozenset[str]:
        """Its own words and the shared ones."""
        return self.own | self.shared


class ClauseValues:
    """The clauses around a number of a claim, and those of its places and rivals in the windows.

    Args:
        claim: the claim.
        quantity: its number.
        places: of the same number, and of its rivals.
        words: of the claim's language.
    """

    def __init__(self, claim: FactText, quantity: Quantity, places: Iterable[Place], words: Lexicon) -> None:
        self._lexicon = words
        self._limits: dict[str, int | None] = {}
        for other in claim.quantities:
            limit = read_limit(claim, other, words)
            self._limits[claim.stems[other.first]] = limit.side if limit else None
        self._is_date = quantity.kind in DATES
        self._step = _step(claim, quantity.first, words)
        own = _date(claim, quantity.first, quantity.last)
        self._claim = frozenset(
            stem for at, stem in self._words(claim, self._clause_of(claim, quantity)) if at not in own
        )
        by_window: dict[int, list[Place]] = {}
        for place in places:
            by_window.setdefault(id(place.window), []).append(place)
        self._clauses: dict[tuple[int, int], _Clause] = {}
        for listed in by_window.values():
            self._read(listed[0].window, sorted({place.first: place for place in listed}.values(), key=_FIRST_OF))

    def owner(self, own: Place, rival: Place) -> Owner:
        """The clause that the claim's words belong to."""
        clause, rival_clause = self._clauses[id(own.window), own.first], self._clauses[id(rival.window), rival.first]
        same = own.window is rival.window and clause.sentence == rival_clause.sentence
        if same and clause.group == rival_clause.group:
            return self._by_step(own, rival)
        if not same and not self._are_parallel((own, clause), (rival, rival_clause)):
            return Owner.OPEN
        return self._compared(clause, rival_clause, same=same, later=rival.first > own.first)

    def _compared(self, clause: _Clause, rival_clause: _Clause, *, same: bool, later: bool) -> Owner:
        """The clause whose words, apart from those of the other one, stand in the claim."""
        words, rival_words = (clause.own, rival_clause.own) if same else (clause.all, rival_clause.all)
        words, rival_words = words - rival_words, rival_words - words
        refers = same and rival_clause.refers
        if refers:
            words -= clause.shared
        stated, rival_stated = words & self._claim, rival_words & self._claim
        if not stated and rival_stated:
            return Owner.RIVAL if words or refers or len(rival_stated) >= _SEVERAL else Owner.OPEN
        if not rival_stated:
            return Owner.OWN if stated else Owner.OPEN
        share, rival_share = len(stated) / len(words), len(rival_stated) / len(rival_words)
        if rival_share == 1 and share <= _FEW and (same or len(rival_stated) >= len(stated)):
            return Owner.RIVAL
        if share == 1 and rival_share <= _FEW:
            return Owner.OWN
        return _by_order(share, rival_share, later=later) if same else Owner.OPEN

    def _clause_of(self, claim: FactText, quantity: Quantity) -> range:
        """The tokens of the claim's clause around its number: "it aired on 4 March, and was launched on 6 March" has two."""
        start, end = 0, len(claim.lows)
        for other in claim.quantities:
            if other.article or not comparable(quantity, other):
                continue
            if other.last < quantity.first and (gap := self._boundary(claim, other.last + 1, quantity.first)):
                start = max(start, gap[1] + 1)
            elif other.first > quantity.last and (gap := self._boundary(claim, quantity.last + 1, other.first)):
                end = min(end, gap[0])
        return range(start, end)

    def _by_step(self, own: Place, rival: Place) -> Owner:
        """The end of a change that a claim speaks of: from 95, to 70."""
        here, there = (_step(place.window.facts, place.first, self._lexicon) for place in (own, rival))
        if here and there and here != there and self._step in {here, there}:
            return Owner.OWN if self._step == here else Owner.RIVAL
        return Owner.OPEN

    def _are_parallel(self, own: tuple[Place, _Clause], rival: tuple[Place, _Clause]) -> bool:
        """Tells whether two sentences say the same of two things: they share words of the claim, or are lines of a list."""
        (place, clause), (rival_place, rival_clause) = own, rival
        if clause.refers or self._is_date:
            return False
        if clause.all & rival_clause.all & self._claim:
            return True
        return _is_line(place.window.facts, clause.sentence) and _is_line(
            rival_place.window.facts, rival_clause.sentence
        )

    # ---- the words of a clause ----

    def _words(self, facts: FactText, tokens: range) -> list[tuple[int, str]]:
        """The words of content among some tokens, with their places, without units.

        A number with another limit than the claim's is another word.
        """
        stems, lows, words = facts.stems, facts.lows, self._lexicon
        limited = {
            quantity.first
            for quantity in facts.quantities
            if quantity.first in tokens
            and (side := self._limits.get(stems[quantity.first])) is not None
            and (limit := read_limit(facts, quantity, words)) is not None
            and limit.side != side
        }
        return [
            (at, f"{stems[at]}≠" if at in limited else stems[at])
            for at in tokens
            if stems[at]
            and lows[at] not in words.limit_words
            and not (lows[at] in words.units and is_unit(facts, at, words))
        ]

    def _read(self, window: Window, places: Sequence[Place]) -> None:
        """Reads the clauses of the places of one window, in their order."""
        facts = window.facts
        by_sentence: dict[tuple[int, int], list[Place]] = {}
        for place in places:
            by_sentence.setdefault(facts.sentence(place.first), []).append(place)
        for sentence, listed in by_sentence.items():
            self._read_sentence(window, sentence, listed)

    def _read_sentence(self, window: Window, sentence: tuple[int, int], places: Sequence[Place]) -> None:
        facts = window.facts
        groups, gaps = self._grouped(facts, places)
        shares_head = self._shares_head(facts, groups, gaps)
        head = frozenset(stem for _, stem in self._words(facts, range(sentence[0], groups[0][0].first)))
        for number, group in enumerate(groups):
            start = gaps[number - 1][1] + 1 if number else sentence[0]
            end = gaps[number][0] if number < len(gaps) else sentence[1]
            if number == 0 and shares_head:
                start = group[0].first
            opening = range(start, group[0].first if number else min(end, start + _OPENING))
            refers = any(facts.lows[at] in self._lexicon.references for at in opening)
            listed = self._words(facts, range(start, end))
            for place in group:
                date = _date(facts, place.first, place.last)
                own = frozenset(stem for at, stem in listed if at not in date)
                self._clauses[id(window), place.first] = _Clause(sentence, number, own, head, refers)

    def _grouped(self, facts: FactText, places: Sequence[Place]) -> tuple[list[list[Place]], list[tuple[int, int]]]:
        """The places of a sentence by clause, and the first and last token of each boundary between two clauses."""
        groups = [[places[0]]]
        gaps = []
        for place, following in pairwise(places):
            # "5, 6 and 7 days" is one clause; "six months where it lasted five years, and nine months" are two.
            apart = any(facts.stems[at] for at in range(groups[-1][0].last + 1, following.first) if not _in(at, place))
            boundary = self._boundary(facts, place.last + 1, following.first) if apart else None
            if boundary is None:
                groups[-1].append(following)
            else:
                gaps.append(boundary)
                groups.append([following])
        return groups, gaps

    def _boundary(self, facts: FactText, start: int, end: int) -> tuple[int, int] | None:
        """The strongest separators among some tokens, from the first to the last one; None where no word stands between."""
        between = range(start, end)
        breaks = [at for at in between if at in facts.breaks]
        joins = [at for at in between if facts.lows[at] in self._lexicon.joins]
        separators = [at for at in breaks if facts.lows[at] in _STRONG] or breaks or joins
        if not separators:
            return None
        first, last = separators[0], separators[-1]
        # ", and": one boundary.
        if last + 1 in joins:
            last += 1
        return first, last

    def _shares_head(self, facts: FactText, groups: Sequence[Sequence[Place]], gaps: Sequence[tuple[int, int]]) -> bool:
        """Tells whether the words before the first number are those of all: the next number follows its boundary at once."""
        if not gaps:
            return False
        behind = range(groups[0][0].last + 1, gaps[0][0])
        before = range(gaps[0][1] + 1, groups[1][0].first)
        return bool(self._words(facts, behind)) and not self._words(facts, before)


def _by_order(share: float, rival_share: float, *, later: bool) -> Owner:
    """The clause of one sentence with more of its own words in the claim; ``later`` if the rival's comes second."""
    if later:
        return Owner.RIVAL if rival_share >= _LATER * share else Owner.OPEN
    return Owner.OWN if share >= rival_share else Owner.OPEN


def _step(facts: FactText, position: int, words: Lexicon) -> str:
    """The word before a number that makes it one end of a change; empty without one."""
    for at in range(position - 1, max(-1, position - 1 - _STEP), -1):
        low = facts.lows[at]
        if low in words.steps:
            return low
        if low not in SIGNS and low not in words.about and low not in words.units:
            break
    return ""


def is_unit(facts: FactText, position: int, words: Lexicon) -> bool:
    """Tells whether a word is the unit of a number or of a rate (20 days, a day), and not one of the matter (the day ferry)."""
    if facts.lows[position] not in words.units or not position:
        return False
    before = facts.lows[position - 1]
    return before in words.per or before in words.numbers or before in words.articles or not before[0].isalpha()


def _date(facts: FactText, first: int, last: int) -> range:
    """The tokens of a quantity, and those of the parts of a date beside it."""
    for quantity in facts.quantities:
        if quantity.kind in DATES and last < quantity.first <= last + _DATE_GAP:
            last = quantity.last
    for quantity in reversed(facts.quantities):
        if quantity.kind in DATES and first - _DATE_GAP <= quantity.last < first:
            first = quantity.first
    return range(first, last + 1)


def _in(position: int, place: Place) -> bool:
    return place.first <= position <= place.last


def _is_line(facts: FactText, sentence: tuple[int, int]) -> bool:
    """Tells whether a sentence is a short line of its own, as in a list."""
    start, end = sentence
    ends_line = end >= len(facts.lows) or facts.lows[end][0] == "\n"
    return ends_line and (start == 0 or facts.lows[start - 1][0] == "\n") and end - start <= _LIST_LINE
