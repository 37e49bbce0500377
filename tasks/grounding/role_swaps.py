"""Finds two words of a claim that have each other's role in its sources: "adults ride free with a child", and "children ride free with an adult".

A word's role is its side of the verb, and the preposition before it. The words between the two are the same, in one
voice; so "the fee is paid by the tenant" has no role of "the tenant pays the fee" exchanged.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple

from schemas.claim_error import ErrorKind
from tasks.grounding.alignment import Alignment, Difference, Fit, Place, Window
from tasks.text.fact_text import FactText
from tasks.text.lexicon import Lexicon

_REACH = 10
"""Most tokens from one of the two words to the other."""
_MODIFIERS = 1
"""Words of content that may stand between a preposition and its noun."""
_COVERAGE = 0.75
"""Least share of the claim's words, by weight, in the sentence that exchanges two of them."""


class _Pair(NamedTuple):
    """Two words of a text in order, the words of content between them, and the preposition before each."""

    first: int
    second: int
    between: frozenset[str]
    prepositions: tuple[str, str]
    passive: bool


def role_swaps(pair: Alignment, words: Lexicon) -> Iterator[Difference]:
    """The first two words of a claim that a window has in each other's place, where no window has them in the claim's order."""
    if not words.prepositions:
        return
    claim = pair.claim
    for window in pair.windows:
        for first, second, places in _inversions(claim, window.facts):
            if (stated := _pair(claim, first, second, words)) is None:
                continue
            for start, end in places:
                there = _pair(window.facts, start, end, words)
                if there is None or not _is_exchanged(stated, there) or _coverage(pair, window, start) < _COVERAGE:
                    continue
                if not any(_holds(other.facts, claim, stated, words) for other in pair.windows):
                    yield pair.difference(ErrorKind.ROLE, first, second, Fit(1.0, Place(window, start, end)))
                    return


def _inversions(claim: FactText, facts: FactText) -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Two words of a claim in order, and the places where a window has them the other way round."""
    arguments = [
        (positions[0], there)
        for stem, positions in claim.positions.items()
        if len(positions) == 1 and stem[0].isalpha() and (there := facts.positions.get(stem)) is not None
    ]
    arguments.sort(key=itemgetter(0))
    for number, (first, firsts) in enumerate(arguments):
        for second, seconds in arguments[number + 1 :]:
            if second - first > _REACH:
                break
            if seconds[0] < firsts[-1] and (
                places := [(start, end) for start in seconds for end in firsts if 0 < end - start <= _REACH]
            ):
                yield first, second, places


def _holds(facts: FactText, claim: FactText, stated: _Pair, words: Lexicon) -> bool:
    """Tells whether a window has two words of a claim in the claim's order, around a word that the claim has there, too."""
    for start in facts.positions.get(claim.stems[stated.first], ()):
        for end in facts.positions.get(claim.stems[stated.second], ()):
            there = _pair(facts, start, end, words) if 0 < end - start <= _REACH else None
            if there is not None and not (stated.between and stated.between.isdisjoint(there.between)):
                return True
    return False


def _pair(facts: FactText, first: int, second: int, words: Lexicon) -> _Pair | None:
    """Two words of one clause, if something between them tells their roles apart."""
    inside = range(first + 1, second)
    if any(at in facts.breaks or facts.lows[at] in words.coordinators for at in inside):
        return None
    between = frozenset(facts.stems[at] for at in _verbs(facts, first, second) if facts.stems[at])
    prepositions = _preposition(facts, first, words), _preposition(facts, second, words)
    if not between and not (all(prepositions) and prepositions[0] != prepositions[1]):
        return None
    passive = any(facts.lows[at] in words.passives for at in inside)
    return _Pair(first, second, between, prepositions, passive)


def _verbs(facts: FactText, first: int, second: int) -> range:
    """The tokens between two words, without the rest of their names."""
    names = facts.names
    while first in names and first + 1 in names:
        first += 1
    while second in names and second - 1 in names:
        second -= 1
    return range(first + 1, second)


def _preposition(facts: FactText, position: int, words: Lexicon) -> str:
    """The preposition of a noun; empty where it has none."""
    content = 0
    for at in range(position - 1, -1, -1):
        low = facts.lows[at]
        if low in words.prepositions:
            return low
        if at in facts.breaks:
            break
        if facts.stems[at]:
            content += 1
            if content > _MODIFIERS:
                break
        elif low not in words.determiners or (at and facts.lows[at - 1] not in words.prepositions):
            break
    return ""


def _is_exchanged(stated: _Pair, there: _Pair) -> bool:
    """Tells whether two words stand in each other's role: around the same words, after the same prepositions, in one voice."""
    if stated.passive != there.passive or stated.prepositions != there.prepositions:
        return False
    return stated.between <= there.between or there.between <= stated.between


def _coverage(pair: Alignment, window: Window, position: int) -> float:
    """The share of the claim's words, by weight, in the sentence of a token of a window."""
    start, end = window.facts.sentence(position)
    return pair.share(pair.claim.positions, frozenset(window.facts.stems[start:end]))
