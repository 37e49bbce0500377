"""Finds the fact in which a claim differs from the places in the sources that it nearly copies.

Each number, date, name, negation and word with an opposite of a claim is looked for in the windows near to it. It fits
where the words around it stand around it there, too. If another number (name, opposite) fits such a place better than
its own does, the claim differs there. All near windows count together, so one without a difference wins.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from schemas.claim_error import ErrorKind
from tasks.grounding.alignment import SURE, Alignment, Difference, Fit, Place, Window
from tasks.grounding.bounds import bounds, events
from tasks.grounding.clause_values import ClauseValues, Owner
from tasks.grounding.comparisons import comparisons
from tasks.grounding.denied_clauses import denied_clauses
from tasks.grounding.limit_differences import Limits
from tasks.grounding.negations import negations
from tasks.grounding.number_places import NumberPlaces, counted_noun, same_kind
from tasks.grounding.rate_differences import rates
from tasks.grounding.role_swaps import role_swaps
from tasks.grounding.tables import compare_with_tables
from tasks.grounding.turned_conditions import Conditions
from tasks.text.evidence import SourceSearch
from tasks.text.fact_reader import read_facts
from tasks.text.fact_text import FactText
from tasks.text.lexicon import Lexicon, Pole, lexicon
from tasks.text.quantities import (
    DATES,
    NUMBER,
    PERCENT,
    YEAR,
    Quantity,
    equal,
    equal_fraction,
    follows,
    is_unlike,
)

_MOST_WINDOWS = 3
_NEAR = 0.25
"""Largest difference of a near window's score from the best one's."""
# The least fit of a rival, and its least lead over the claim's own fact where that stands in a window, too. Chosen on
# labelled sets and their contrast pairs (docs/checks.md): the price is the share of right claims that are flagged.
_NUMBER = (0.3, 0.15)
_DATE = (0.25, 0.1)
_CLAUSE = 0.2
"""Least fit of a number whose clause has the words of the claim, where the clause of the claim's own number has none."""
_COUNT = (0.2, 0.0)
"""Of a number before the same noun, where the claim's own number has another one."""
_YEAR_OF = (0.3, 0.15)
"""Of a year in the place of a number that counts nothing."""
_OPPOSITE = (0.4, 0.25)
_NAME_WORD = (0.5, 0.5)
_NAME = (0.3, 0.2)
_SURE_NAME = 0.7
"""Fit from which a whole name contradicts: with less the claim may speak of another thing of that kind."""
_OTHER_KIND = 0.7
"""Worth of a place that holds the number as something else: with another unit, or as a day."""


def near_windows(search: SourceSearch, content: frozenset[str], code: str | None) -> list[Window]:
    """The windows of the sources of a search with nearly as many of a claim's words as the best one, best first.

    Args:
        search: over the sources to look at.
        content: the claim's words of content, as stems.
        code: language of the claim.
    """
    windows = []
    for match in search.nearly_best(content, _MOST_WINDOWS, _NEAR)[:_MOST_WINDOWS]:
        start, end = search.window_span(match)
        source = search.content(match.source_index)
        windows.append(Window(match.source_index, start, read_facts(source[start:end], code), match.score, source))
    return windows


def differences(
    claim: FactText, windows: Sequence[Window], weights: Mapping[str, float], code: str | None
) -> Iterator[Difference]:
    """All differences of a claim in a language from the windows near to it, the surest kinds first."""
    words = lexicon(code)
    comparison = _Comparison(claim, windows, weights)
    yield from comparison.quantities(words)
    conditions = Conditions(comparison, words)
    if not conditions.agreed:
        yield from negations(comparison)
        yield from denied_clauses(comparison, words)
    limits = Limits(comparison, words)
    yield from limits.differences()
    yield from comparison.opposites(limits.agreed, words)
    yield from comparison.names()
    yield from comparison.roles()
    yield from role_swaps(comparison, words)
    yield from conditions.differences()
    yield from comparisons(comparison, words)
    yield from events(comparison, words)
    yield from bounds(comparison, words, limits.agreed)
    yield from rates(comparison, words)


class _PolePlace(NamedTuple):
    """A word of a window that has an opposite: its place, its tokens, the sides that it is on, and its number."""

    place: Place
    lows: list[str]
    sides: frozenset[Pole]
    order: int


_ORDER_OF = itemgetter(3)


class _Comparison(Alignment):
    """A claim beside the windows near to it."""

    # ---- numbers and dates ----

    def quantities(self, words: Lexicon) -> Iterator[Difference]:
        """Numbers and dates in whose place the source has another one."""
        tables = compare_with_tables(self.claim, self.windows, words)
        yield from tables.differences
        for quantity in self.claim.quantities:
            if not quantity.article and quantity not in tables.agreed:
                yield from self._quantity(quantity, self._places_of(quantity), words)

    def _places_of(self, quantity: Quantity) -> NumberPlaces:
        """The places of numbers in the windows, by what they say of the claim's."""
        counted = counted_noun(self.claim, quantity)
        numbers = NumberPlaces()
        measured = quantity.unit == PERCENT
        for other, place, counted_there in self._quantities:
            alike = counted != "" and counted_there == counted
            if equal(quantity, other) or (measured != (other.unit == PERCENT) and equal_fraction(quantity, other)):
                (numbers.same if same_kind(quantity, other) else numbers.elsewhere).append(place)
                numbers.counts_same |= alike
            # A claim that states both numbers compares two things, whose words stand around both.
            elif not other.article and not self._states(other):
                if is_unlike(quantity, other):
                    numbers.unlike.append(place)
                numbers.add_rival(quantity, other, place, counts=counted != "", alike=alike)
        return numbers

    @cached_property
    def _quantities(self) -> list[tuple[Quantity, Place, str]]:
        """The quantities of the windows, with their places and the nouns that they count."""
        return [
            (other, Place(window, other.first, other.last), counted_noun(window.facts, other))
            for window in self.windows
            for other in window.facts.quantities
        ]

    def _states(self, other: Quantity) -> bool:
        """Tells whether the claim has a number of a window anywhere."""
        if (stated := self._stated.get(id(other))) is None:
            stated = any(equal(quantity, other) for quantity in self.claim.quantities)
            self._stated[id(other)] = stated
        return stated

    @cached_property
    def _stated(self) -> dict[int, bool]:
        return {}

    def _quantity(self, quantity: Quantity, numbers: NumberPlaces, words: Lexicon) -> Iterator[Difference]:
        if not numbers.same and numbers.unlike:
            yield from self._in_other_unit(quantity, numbers.unlike)
        if not (numbers.rivals or numbers.counted or numbers.years) and (numbers.same or not numbers.elsewhere):
            return
        if not numbers.same and self.claim.sums and follows(quantity, self.windows[0].facts.quantities):
            return
        kind = ErrorKind.DATE if quantity.kind in DATES else ErrorKind.NUMBER
        context = self.context(quantity.first, quantity.last)
        foreign = self.fit(context, numbers.elsewhere)
        floor = max(self.fit(context, numbers.same).score, _OTHER_KIND * foreign.score)
        contested = bool(numbers.same or numbers.elsewhere)
        rivals, rival = numbers.rivals, self.fit(context, numbers.rivals)
        # A year tells when, whatever else its clause says; a number without unit and noun may be part of a name: ICD-9.
        bound = quantity.kind != YEAR and (
            quantity.kind != NUMBER or quantity.unit or counted_noun(self.claim, quantity)
        )
        if numbers.same and rival.score >= (_CLAUSE if bound else floor):
            rivals, owners = self._by_clause(quantity, numbers, words)
            if bound and (owner := self.fit(context, owners)).score >= _CLAUSE:
                yield self.difference(kind, quantity.first, quantity.last, owner)
                return
            if len(rivals) < len(numbers.rivals):
                rival = self.fit(context, rivals)
        for match, (least, lead) in (
            (rival, _DATE if kind is ErrorKind.DATE else _NUMBER),
            (self.fit(context, [] if numbers.counts_same else numbers.counted), _COUNT),
            (self.fit(context, numbers.years), _YEAR_OF),
        ):
            if match.place and match.score >= max(least, floor + lead if contested else 0.0):
                yield self.difference(kind, quantity.first, quantity.last, match)
                return
        if not numbers.same and foreign.place:
            yield self.difference(kind, quantity.first, quantity.last, foreign, sure=2.0)

    def _in_other_unit(self, quantity: Quantity, places: list[Place]) -> Iterator[Difference]:
        """The same number with another unit, where no window has it with the claim's."""
        fit = self.fit(self.context(quantity.first, quantity.last), places)
        if fit.score >= _NUMBER[0]:
            yield self.difference(ErrorKind.NUMBER, quantity.first, quantity.last, fit)

    def _by_clause(self, quantity: Quantity, numbers: NumberPlaces, words: Lexicon) -> tuple[list[Place], list[Place]]:
        """The rivals that may stand for a number of the claim, and those whose clauses have the claim's words instead of its own.

        A rival is none where the claim's words stand in the clause of its own number.
        """
        if any(self._is_copied(quantity, place) for place in numbers.same):
            return numbers.rivals, []
        clauses = ClauseValues(self.claim, quantity, (*numbers.same, *numbers.rivals), words)
        by_place = [[clauses.owner(place, rival) for rival in numbers.rivals] for place in numbers.same]
        columns = list(zip(numbers.rivals, zip(*by_place, strict=True), strict=True))
        owners = [rival for rival, column in columns if Owner.RIVAL in column]
        if owners and all(Owner.RIVAL in row for row in by_place):
            return numbers.rivals, owners
        return [rival for rival, column in columns if Owner.OWN not in column], []

    def _is_copied(self, quantity: Quantity, place: Place) -> bool:
        """Tells whether all words of content of the claim stand around a place in the claim's own order."""
        facts, stems = place.window.facts, place.window.facts.stems
        shift = place.first - quantity.first
        if shift < 0 or shift + len(self.claim.stems) > len(stems):
            return False
        if facts.lows[max(0, place.first - 1)] != self.claim.lows[max(0, quantity.first - 1)]:
            return False
        # A number that is nowhere in the window is wrong by itself.
        return all(
            not stem or stems[at + shift] == stem or (stem[0].isdigit() and stem not in facts.positions)
            for at, stem in enumerate(self.claim.stems)
        )

    # ---- opposites ----

    def opposites(self, agreed: Collection[int], words: Lexicon) -> Iterator[Difference]:
        """Words in whose place the source has an opposite, both denied or neither; those at ``agreed`` tokens are right."""
        claim = self.claim
        for first, last, sides in claim.poles:
            if first in agreed or _forbids(claim, first, last, sides, words):
                continue
            there = self._poles_of(sides)
            low_words = claim.lows[first : last + 1]
            rivals = [
                place
                for place, low, sides_there, _ in there
                # "Between violet and green": a word that the claim has, too, is no rival of another one.
                if low != low_words and sides_there.isdisjoint(sides) and low not in self._stated_poles
            ]
            if not rivals:
                continue
            least, lead = _OPPOSITE
            context = self.context(first, last)
            rival = self.fit(context, rivals)
            if rival.place is None or rival.score < least:
                continue
            if (first in claim.negated) != (rival.place.first in rival.place.window.facts.negated):
                continue
            same = [
                place for place, low, sides_there, _ in there if low == low_words or not sides_there.isdisjoint(sides)
            ]
            if same and rival.score < self.fit(context, same).score + lead:
                continue
            yield self.difference(ErrorKind.DIRECTION, first, last, rival)

    def _poles_of(self, sides: Sequence[Pole]) -> "Sequence[_PolePlace]":
        """The words of the windows in a group of a word with an opposite, in order."""
        if len(sides) == 1:
            return self._poles.get(sides[0][0], ())
        # A word may be in several groups together.
        listed = {id(pole.place): pole for group, _ in sides for pole in self._poles.get(group, ())}
        return sorted(listed.values(), key=_ORDER_OF) if len(listed) > 1 else tuple(listed.values())

    @cached_property
    def _poles(self) -> "dict[int, list[_PolePlace]]":
        """The words of the windows that have an opposite, by their groups; only groups of a word of the claim."""
        relevant = {group for _, _, sides in self.claim.poles for group, _ in sides}
        by_group: dict[int, list[_PolePlace]] = {}
        order = 0
        for window in self.windows:
            for first, last, sides in window.facts.poles:
                groups = [group for group, _ in sides if group in relevant]
                if groups:
                    order += 1
                    pole = _PolePlace(
                        Place(window, first, last), window.facts.lows[first : last + 1], frozenset(sides), order
                    )
                    for group in groups:
                        by_group.setdefault(group, []).append(pole)
        return by_group

    @cached_property
    def _stated_poles(self) -> list[list[str]]:
        """The words of the claim that have an opposite."""
        return [self.claim.lows[first : last + 1] for first, last, _ in self.claim.poles]

    # ---- names ----

    def names(self) -> Iterator[Difference]:
        """Names in whose place the source has another one, word by word and whole."""
        claim = self.claim
        if not claim.names:
            return
        for runs, (least, lead), sure in ((_words_of_names, _NAME_WORD, SURE), (_whole_names, _NAME, _SURE_NAME)):
            rivals = [Place(window, first, last) for window in self.windows for first, last in runs(window.facts)]
            for first, last in runs(claim):
                rival_names = [place for place in rivals if self._is_other_name(first, last, place)]
                if not rival_names:
                    continue
                stems = dict.fromkeys(claim.stems[first : last + 1])
                same = [
                    Place(window, at, at)
                    for window in self.windows
                    for stem in stems
                    for at in window.facts.positions.get(stem, ())
                ]
                context = self.context(first, last)
                rival = self.fit(context, rival_names)
                if rival.place is None or rival.score < least:
                    continue
                if same and rival.score < self.fit(context, same).score + lead:
                    continue
                place = rival.place
                if _neighbours(claim, first, last) & _neighbours(place.window.facts, place.first, place.last):
                    yield self.difference(ErrorKind.NAME, first, last, rival, sure=sure)

    def _is_other_name(self, first: int, last: int, place: Place) -> bool:
        """Tells whether a name of a window is neither stated in the claim nor a form of the claim's name there."""
        facts = place.window.facts
        there = range(place.first, place.last + 1)
        return all(facts.stems[at] not in self.claim.positions for at in there) and not any(
            _may_be_same_name(self.claim, position, facts, at) for position in range(first, last + 1) for at in there
        )

    # ---- roles ----

    def roles(self) -> Iterator[Difference]:
        """Two names that stand around the same words in exchanged order."""
        claim = self.claim
        facts = self.windows[0].facts
        pairs = [
            (subject, object_)
            for subject, object_ in pairwise(claim.names)
            if 1 < object_ - subject <= _ROLE_REACH and not claim.breaks & set(range(subject, object_))
        ]
        for subject, object_ in pairs:
            between = [claim.lows[at] for at in range(subject + 1, object_)]
            if not any(claim.stems[at] for at in range(subject + 1, object_)):
                continue
            first, second = claim.stems[subject], claim.stems[object_]
            if first == second:
                # "A Christmas tree is a tree for Christmas": one name can't exchange its roles.
                continue
            for start in facts.positions.get(second, ()):
                end = start + 1 + len(between)
                if facts.lows[start + 1 : end] == between and end < len(facts.lows) and facts.stems[end] == first:
                    place = Place(self.windows[0], start, end)
                    yield self.difference(ErrorKind.ROLE, subject, object_, Fit(1.0, place))
                    return


def _forbids(claim: FactText, first: int, last: int, sides: Sequence[Pole], words: Lexicon) -> bool:
    """Tells whether a word for a right or a duty is denied: "may not" forbids as "must not" does."""
    denied = any(
        cue[0] == last + 1 or (cue[1] < first and first in claim.negated and cue not in claim.comparisons)
        for cue in claim.cues
    )
    return denied and any(group in words.duty for group, _ in sides)


_PREFIX = 4
"""Letters that forms of a name share."""
_LONGEST_INITIALS = 6
_ROLE_REACH = 8
"""Tokens between two names that exchange their roles."""


def _may_be_same_name(claim: FactText, position: int, facts: FactText, at: int) -> bool:
    """Tells whether two words may be forms of one name: Greece and Greek, US and United States."""
    name, other = claim.words(position, position), facts.words(at, at)
    if name[:_PREFIX] == other[:_PREFIX] and min(len(name), len(other)) > _PREFIX:
        return True
    if len(name) == 1 or len(other) == 1:
        return name[0] == other[0]
    short, long, where = (name, facts, at) if name.isupper() else (other, claim, position)
    if not short.isupper() or len(short) > _LONGEST_INITIALS:
        return False
    initials = "".join(long.words(token, token)[0] for token in long.names if abs(token - where) <= _LONGEST_INITIALS)
    return short in initials


def _words_of_names(facts: FactText) -> list[tuple[int, int]]:
    return [(at, at) for at in facts.names]


def _whole_names(facts: FactText) -> list[tuple[int, int]]:
    """The names of a text as first and last token."""
    names: list[tuple[int, int]] = []
    for at in facts.names:
        if names and at - names[-1][1] == 1:
            names[-1] = (names[-1][0], at)
        else:
            names.append((at, at))
    return names


def _neighbours(facts: FactText, first: int, last: int) -> set[tuple[int, str]]:
    """The words directly before and after some tokens."""
    return {
        (side, facts.stems[at] or facts.lows[at])
        for side, at in ((-1, first - 1), (1, last + 1))
        if 0 <= at < len(facts.lows) and at not in facts.breaks
    }
