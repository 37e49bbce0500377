"""Aligns the facts of a claim with the places of a source: a fact fits where the words around it stand around it there, too."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from schemas.claim_error import ErrorKind
from tasks.text.fact_text import FactText

_CONTEXT = 8
"""Words around a fact that count, the weightiest and nearest."""
_CLAIM_REACH = 3.0
_SOURCE_REACH = 4.0
"""Tokens over which the weight of a word of the claim halves, and that of a word which stands further off in the source."""
_UNKNOWN_WEIGHT = 3.0
_NAME_WEIGHT = 3.0
"""A name tells more than another word what a sentence is about: plan A, plan B."""
SURE = 0.45
"""Fit from which a difference contradicts; below it only fails to support."""


class Window(NamedTuple):
    """A stretch of a source near to a claim: it begins at ``start``; ``score`` is the share of the claim's words there.

    ``content`` is the whole source, for the heads of a table.
    """

    source_index: int
    start: int
    facts: FactText
    score: float
    content: str = ""


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


class Place(NamedTuple):
    """Tokens of a window."""

    window: Window
    first: int
    last: int


class Fit(NamedTuple):
    """The share of the words around a fact that stand around a place, too; without one, 0."""

    score: float
    place: Place | None


NO_FIT = Fit(0.0, None)
_WEIGHT_OF = itemgetter(1)
Context = tuple[list[tuple[str, float, float]], float]
"""(stem, weight, distance) of the words around a fact, and the sum of the weights."""


def _distance(places: Sequence[float], positions: Sequence[int], first: int, last: int) -> float | None:
    """The distance of the tokens from ``first`` to ``last`` from the nearest of some positions outside; None without any."""
    here = (places[first] + places[last]) / 2
    before, after = bisect_left(positions, first), bisect_right(positions, last)
    if after < len(positions):
        behind = places[positions[after]] - here
        return min(behind, here - places[positions[before - 1]]) if before else behind
    return here - places[positions[before - 1]] if before else None


class Alignment:
    """A claim beside the windows near to it."""

    def __init__(self, claim: FactText, windows: Sequence[Window], weights: Mapping[str, float]) -> None:
        self.claim = claim
        self.windows = windows
        self._weights = weights
        self._names = frozenset(claim.stems[at] for at in claim.names)

    def weight(self, stem: str) -> float:
        """The weight of a word of the claim."""
        return self._weights.get(stem, _UNKNOWN_WEIGHT)

    def share(self, stems: Collection[str], there: Collection[str]) -> float:
        """The share of some words of the claim, by weight, among others; 0 of none."""
        total = sum(map(self.weight, stems))
        return sum(self.weight(stem) for stem in stems if stem in there) / total if total else 0.0

    # ---- the fit of a place ----

    def context(self, first: int, last: int) -> Context:
        """The words of the claim around its tokens from ``first`` to ``last``."""
        places = self.claim.places
        words = []
        for stem, positions, weight, named in self._words:
            if (nearest := _distance(places, positions, first, last)) is None:
                continue
            near = weight / (1 + nearest / _CLAIM_REACH)
            words.append((stem, near * _NAME_WEIGHT if named else near, nearest))
        words.sort(key=_WEIGHT_OF, reverse=True)
        del words[_CONTEXT:]
        return words, sum(map(_WEIGHT_OF, words))

    @cached_property
    def _words(self) -> list[tuple[str, list[int], float, bool]]:
        """The words of the claim: their positions, their weights, and whether they are of a name."""
        return [
            (stem, positions, self._weights.get(stem, _UNKNOWN_WEIGHT), stem in self._names)
            for stem, positions in self.claim.positions.items()
        ]

    def fit(self, context: Context, places: Sequence[Place]) -> Fit:
        """The place around which most of the words stand, as near as in the claim."""
        best = NO_FIT
        words, total = context
        if not total:
            return best
        for place in places:
            window, first, last = place
            facts = window.facts
            stems = facts.positions
            score = 0.0
            for stem, weight, distance in words:
                if (positions := stems.get(stem)) is None:
                    continue
                if (further := _distance(facts.places, positions, first, last)) is None:
                    continue
                score += weight / (1 + (further - distance) / _SOURCE_REACH) if further > distance else weight
            if score / total > best.score:
                best = Fit(score / total, place)
        return best

    def difference(self, kind: ErrorKind, first: int, last: int, fit: Fit, *, sure: float = SURE) -> Difference:
        """The difference of the claim's tokens from a place; with a fit of ``sure`` it contradicts."""
        assert fit.place is not None
        window, start, end = fit.place
        spans = window.facts.spans
        return Difference(
            kind=kind,
            claim_words=self.claim.words(first, last),
            source_words=window.facts.words(start, end),
            source_index=window.source_index,
            start=window.start + spans[start][0],
            end=window.start + spans[end][1],
            contradicts=fit.score >= sure,
        )
