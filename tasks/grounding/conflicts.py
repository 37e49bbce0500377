"""Finds the fact in which a claim differs from the places in the sources that it nearly copies.

Each number, date, name, negation and word with an opposite of a claim is looked for in the windows near to it. It fits
where the words around it stand around it there, too. If another number (name, opposite) fits such a place better than
its own does, the claim differs there. All near windows count together, so one without a difference wins.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from schemas.claim_error import ErrorKind
from tasks.text.evidence import SourceSearch
from tasks.text.fact_reader import read_facts
from tasks.text.fact_text import FactText
from tasks.text.quantities import DATES, NUMBER, Quantity, comparable, equal, equal_fraction, follows, is_measured
from tasks.text.wording import NEGATION

_MOST_WINDOWS = 3
_NEAR = 0.25
"""Largest difference of a near window's score from the best one's."""
_CONTEXT = 8
"""Words around a fact that count, the weightiest and nearest."""
_CLAIM_REACH = 3.0
_SOURCE_REACH = 4.0
"""Tokens over which the weight of a word of the claim halves, and that of a word which stands further off in the source."""
_UNKNOWN_WEIGHT = 3.0
_NAME_WEIGHT = 3.0
"""A name tells more than another word what a sentence is about: plan A, plan B."""

# The least fit of a rival, and its least lead over the claim's own fact where that stands in a window, too. Chosen on
# labelled sets and their contrast pairs (docs/checks.md): the price is the share of right claims that are flagged.
_NUMBER = (0.35, 0.25)
_DATE = (0.35, 0.35)
_OPPOSITE = (0.4, 0.25)
_NAME = (0.5, 0.5)
_DENIAL = (0.25, 0.1)
_DENIED_SUBJECT = 0.35
_LOST_DENIAL = (0.5, 0.1)
_NEAR_COPY = 0.6
"""Score of the best window from which a denial by the source, which the claim lacks, counts."""
_BESIDE = 2
"""Tokens between a negation and the word that it denies."""
_SURE = 0.45
"""Fit from which a difference contradicts; below it only fails to support."""
_OTHER_KIND = 0.7
"""Worth of a place that holds the number as something else: with another unit, or as a day."""


class Window(NamedTuple):
    """A stretch of a source near to a claim: it begins at ``start``; ``score`` is the share of the claim's words there."""

    source_index: int
    start: int
    facts: FactText
    score: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact of a claim that differs from a source, with its span ``[start, end)`` there.

    ``contradicts`` is false where the claim's words are too far from the source's for more than a lack of support.
    """

    kind: ErrorKind
    claim_words: str
    source_words: str
    source_index: int
    start: int
    end: int
    contradicts: bool


class _Place(NamedTuple):
    window: Window
    first: int
    last: int


class _Fit(NamedTuple):
    score: float
    place: _Place | None


_NO_FIT = _Fit(0.0, None)
_Context = tuple[list[tuple[str, float, float]], float]
"""(stem, weight, distance) of the words around a fact, and the sum of the weights."""


def near_windows(
    search: SourceSearch, content: frozenset[str], sources: Iterable[int], code: str | None
) -> list[Window]:
    """The windows of some sources with nearly as many of a claim's words as the best one, best first.

    Args:
        search: over the sources.
        content: the claim's words of content, as stems.
        sources: positions of the sources.
        code: language of the claim.
    """
    matches = [match for source in sources for match in search.several(content, source, _MOST_WINDOWS)]
    matches.sort(key=lambda match: -match.score)
    windows = []
    for match in matches[:_MOST_WINDOWS]:
        if match.score < matches[0].score - _NEAR:
            break
        start, end = search.window_span(match)
        text = search.content(match.source_index)[start:end]
        windows.append(Window(match.source_index, start, read_facts(text, code), match.score))
    return windows


def differences(claim: FactText, windows: Sequence[Window], weights: Mapping[str, float]) -> Iterator[Difference]:
    """All differences of a claim from the windows near to it, the surest kinds first."""
    comparison = _Comparison(claim, windows, weights)
    yield from comparison.quantities()
    yield from comparison.negations()
    yield from comparison.opposites()
    yield from comparison.names()
    yield from comparison.roles()


class _Comparison:
    """A claim beside the windows near to it."""

    def __init__(self, claim: FactText, windows: Sequence[Window], weights: Mapping[str, float]) -> None:
        self._claim = claim
        self._windows = windows
        self._weights = weights
        self._names = frozenset(claim.stems[at] for at in claim.names)

    # ---- the fit of a place ----

    def _context(self, first: int, last: int) -> _Context:
        """The words of the claim around its tokens from ``first`` to ``last``."""
        places = self._claim.places
        here = (places[first] + places[last]) / 2
        words = []
        for stem, positions in self._claim.positions.items():
            distances = [abs(places[at] - here) for at in positions if not first <= at <= last]
            if distances:
                nearest = min(distances)
                weight = self._weights.get(stem, _UNKNOWN_WEIGHT) / (1 + nearest / _CLAIM_REACH)
                if stem in self._names:
                    weight *= _NAME_WEIGHT
                words.append((stem, weight, nearest))
        words.sort(key=lambda word: -word[1])
        words = words[:_CONTEXT]
        return words, sum(weight for _, weight, _ in words)

    def _fit(self, context: _Context, places: Sequence[_Place]) -> _Fit:
        """The place around which most of the words stand, as near as in the claim."""
        best = _NO_FIT
        words, total = context
        if not total:
            return best
        for place in places:
            facts = place.window.facts
            here = (facts.places[place.first] + facts.places[place.last]) / 2
            score = 0.0
            for stem, weight, distance in words:
                positions = facts.positions.get(stem)
                if positions is None:
                    continue
                distances = [abs(facts.places[at] - here) for at in positions if not place.first <= at <= place.last]
                if distances:
                    score += weight / (1 + max(0.0, min(distances) - distance) / _SOURCE_REACH)
            if score / total > best.score:
                best = _Fit(score / total, place)
        return best

    def _difference(self, kind: ErrorKind, first: int, last: int, fit: _Fit, *, sure: float = _SURE) -> Difference:
        assert fit.place is not None
        window, start, end = fit.place
        spans = window.facts.spans
        return Difference(
            kind=kind,
            claim_words=self._claim.words(first, last),
            source_words=window.facts.words(start, end),
            source_index=window.source_index,
            start=window.start + spans[start][0],
            end=window.start + spans[end][1],
            contradicts=fit.score >= sure,
        )

    # ---- numbers and dates ----

    def quantities(self) -> Iterator[Difference]:
        """Numbers and dates in whose place the source has another one."""
        for quantity in self._claim.quantities:
            if quantity.article:
                continue
            same: list[_Place] = []
            elsewhere: list[_Place] = []
            rivals: list[_Place] = []
            for window in self._windows:
                for other in window.facts.quantities:
                    place = _Place(window, other.first, other.last)
                    if equal(quantity, other) or equal_fraction(quantity, other):
                        (same if _same_kind(quantity, other) else elsewhere).append(place)
                    elif comparable(quantity, other) and not other.article:
                        rivals.append(place)
            yield from self._quantity(quantity, same, elsewhere, rivals)

    def _quantity(
        self, quantity: Quantity, same: list[_Place], elsewhere: list[_Place], rivals: list[_Place]
    ) -> Iterator[Difference]:
        if not rivals and (same or not elsewhere):
            return
        if not same and follows(quantity, self._windows[0].facts.quantities):
            return
        if same:
            # A claim that states both numbers compares two things, whose words stand around both.
            rivals = [place for place in rivals if not self._states(place)]
        kind = ErrorKind.DATE if quantity.kind in DATES else ErrorKind.NUMBER
        least, lead = _DATE if kind is ErrorKind.DATE else _NUMBER
        context = self._context(quantity.first, quantity.last)
        own = self._fit(context, same).score if same else 0.0
        foreign = self._fit(context, elsewhere)
        rival = self._fit(context, rivals)
        floor = max(own, _OTHER_KIND * foreign.score)
        if rival.place and rival.score >= max(least, floor + lead if same or elsewhere else 0.0):
            yield self._difference(kind, quantity.first, quantity.last, rival)
        elif not same and foreign.place:
            yield self._difference(kind, quantity.first, quantity.last, foreign, sure=2.0)

    def _states(self, place: _Place) -> bool:
        """Tells whether the claim states the quantity at a place, too."""
        there = [
            other for other in place.window.facts.quantities if (other.first, other.last) == (place.first, place.last)
        ]
        return any(equal(quantity, other) for quantity in self._claim.quantities for other in there)

    # ---- opposites ----

    def opposites(self) -> Iterator[Difference]:
        """Words in whose place the source has an opposite, both denied or neither."""
        claim = self._claim
        for first, last, sides in claim.poles:
            words = claim.lows[first : last + 1]
            groups = {group for group, _ in sides}
            same: list[_Place] = []
            rivals: list[_Place] = []
            for window in self._windows:
                facts = window.facts
                for start, end, sides_there in facts.poles:
                    if facts.lows[start : end + 1] == words or not set(sides).isdisjoint(sides_there):
                        same.append(_Place(window, start, end))
                    elif not groups.isdisjoint(group for group, _ in sides_there):
                        rivals.append(_Place(window, start, end))
            if not rivals:
                continue
            least, lead = _OPPOSITE
            context = self._context(first, last)
            rival = self._fit(context, rivals)
            if rival.place is None or rival.score < least:
                continue
            if (first in claim.negated) != (rival.place.first in rival.place.window.facts.negated):
                continue
            if same and rival.score < self._fit(context, same).score + lead:
                continue
            yield self._difference(ErrorKind.DIRECTION, first, last, rival)

    # ---- negations ----

    def negations(self) -> Iterator[Difference]:
        """Words that are denied on one side only."""
        claim = self._claim
        near_copy = self._windows[0].score >= _NEAR_COPY
        if not claim.cues and not (near_copy and any(window.facts.cues for window in self._windows)):
            return
        for stem, positions in claim.positions.items():
            if stem == NEGATION or stem[0].isdigit():
                continue
            for position in positions:
                denied = position in claim.negated or position in claim.subjects
                if denied and _distance(claim, position) > _BESIDE:
                    continue
                if denied or near_copy:
                    yield from self._negation(stem, position, denied=denied)

    def _negation(self, stem: str, position: int, *, denied: bool) -> Iterator[Difference]:
        agree, differ = self._denied_places(stem, denied=denied)
        if not differ:
            return
        least, lead = _DENIAL if denied else _LOST_DENIAL
        if denied and position not in self._claim.negated:
            # "The line does not operate" may say what "the line is closed" does.
            if not self._holds_denied_word(position):
                return
            least = _DENIED_SUBJECT
        context = self._context(position, position)
        rival = self._fit(context, differ)
        if rival.place is None or rival.score < least:
            return
        if agree and rival.score < self._fit(context, agree).score + lead:
            return
        yield self._denial(position, rival.score, rival.place, denied=denied)

    def _denied_places(self, stem: str, *, denied: bool) -> tuple[list[_Place], list[_Place]]:
        """The places of a word that are denied as in the claim, and those that are not."""
        agree: list[_Place] = []
        differ: list[_Place] = []
        for window in self._windows:
            facts = window.facts
            for at in facts.positions.get(stem, ()):
                if (at in facts.negated or (denied and at in facts.subjects)) == denied:
                    agree.append(_Place(window, at, at))
                elif denied or _distance(facts, at) <= _BESIDE:
                    differ.append(_Place(window, at, at))
        return agree, differ

    def _denial(self, position: int, score: float, place: _Place, *, denied: bool) -> Difference:
        """A difference that shows the negation on the side that has it."""
        first, last = _with_cue(self._claim, position) if denied else (position, position)
        start, end = (place.first, place.last) if denied else _with_cue(place.window.facts, place.first)
        return self._difference(ErrorKind.NEGATION, first, last, _Fit(score, _Place(place.window, start, end)))

    def _holds_denied_word(self, position: int) -> bool:
        """Tells whether a window has the word of content after the negation that follows a position."""
        claim = self._claim
        after = (claim.stems[at] for at in range(position + 1, len(claim.lows)) if at in claim.negated)
        denied = next(filter(None, after), None)
        return denied is not None and any(denied in window.facts.positions for window in self._windows)

    # ---- names ----

    def names(self) -> Iterator[Difference]:
        """Names in whose place the source has another one."""
        claim = self._claim
        least, lead = _NAME
        for position in claim.names:
            rivals = [
                _Place(window, at, at)
                for window in self._windows
                for at in window.facts.names
                if window.facts.stems[at] not in claim.positions
            ]
            if not rivals:
                return
            stem = claim.stems[position]
            same = [_Place(window, at, at) for window in self._windows for at in window.facts.positions.get(stem, ())]
            context = self._context(position, position)
            rival = self._fit(context, rivals)
            if rival.place is None or rival.score < least:
                continue
            if same and rival.score < self._fit(context, same).score + lead:
                continue
            if _neighbours(claim, position) & _neighbours(rival.place.window.facts, rival.place.first):
                yield self._difference(ErrorKind.NAME, position, position, rival)

    # ---- roles ----

    def roles(self) -> Iterator[Difference]:
        """Two names that stand around the same words in exchanged order."""
        claim = self._claim
        facts = self._windows[0].facts
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
            for start in facts.positions.get(second, ()):
                end = start + 1 + len(between)
                if facts.lows[start + 1 : end] == between and end < len(facts.lows) and facts.stems[end] == first:
                    place = _Place(self._windows[0], start, end)
                    yield self._difference(ErrorKind.ROLE, subject, object_, _Fit(1.0, place))
                    return


_ROLE_REACH = 8
"""Tokens between two names that exchange their roles."""


def _same_kind(claim: Quantity, source: Quantity) -> bool:
    """Tells whether two equal quantities are of one kind: the same part of a date, or both counts, or of one unit."""
    if claim.kind != source.kind:
        return False
    return claim.kind != NUMBER or not (is_measured(source) and not is_measured(claim))


def _distance(facts: FactText, position: int) -> int:
    """Tokens from a position to the nearest negation."""
    return min(
        (min(abs(position - first), abs(position - last)) for first, last in facts.cues), default=len(facts.lows)
    )


def _with_cue(facts: FactText, position: int) -> tuple[int, int]:
    """The tokens from a word to the negation that denies it."""
    first, last = min(facts.cues, key=lambda cue: min(abs(position - cue[0]), abs(position - cue[1])))
    return min(first, position), max(last, position)


def _neighbours(facts: FactText, position: int) -> set[tuple[int, str]]:
    """The words directly before and after a position."""
    return {
        (side, facts.stems[at] or facts.lows[at])
        for side, at in ((-1, position - 1), (1, position + 1))
        if 0 <= at < len(facts.lows) and at not in facts.breaks
    }
