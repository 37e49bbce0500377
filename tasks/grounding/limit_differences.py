"""Finds limits of a number that a claim turns round: "at least ten", and "no more than ten" in its sources."""

from collections.abc import Iterator

from schemas.claim_error import ErrorKind
from tasks.grounding.alignment import Alignment, Difference, Place
from tasks.text.fact_text import FactText
from tasks.text.lexicon import Lexicon
from tasks.text.limit_reader import Limit, read_limit
from tasks.text.quantities import Quantity, equal

_LEAST = 0.3
"""Fit of the number in the source from which its limit must be the claim's."""
_SENTENCE = 8.0
"""Distance within a sentence; the end of one is as far."""


class Limits:
    """The limits of the numbers of a claim beside those of the same numbers in the windows.

    ``agreed`` are the tokens of those that a window has, too, in any words.
    """

    def __init__(self, pair: Alignment, words: Lexicon) -> None:
        self._pair, self._words = pair, words
        self.agreed: set[int] = set()
        self._turned: list[tuple[Quantity, Limit, list[Place]]] = []
        for quantity in pair.claim.quantities:
            if not quantity.article and (limit := read_limit(pair.claim, quantity, words)) is not None:
                self._compare(quantity, limit)

    def differences(self) -> Iterator[Difference]:
        """The limits that are turned round wherever the windows have the number."""
        for quantity, limit, places in self._turned:
            first, last = min(limit.first, quantity.first), max(limit.last, quantity.last)
            fit = self._pair.fit(self._pair.context(first, last), places)
            if fit.place is not None and fit.score >= _LEAST:
                yield self._pair.difference(ErrorKind.DIRECTION, first, last, fit)

    def _compare(self, quantity: Quantity, limit: Limit) -> None:
        claim, words = self._pair.claim, self._words
        same = [
            (Place(window, other.first, other.last), read_limit(window.facts, other, words))
            for window in self._pair.windows
            for other in window.facts.quantities
            if other.kind == quantity.kind and not other.article and equal(quantity, other)
        ]
        denied = _denies(claim, quantity.first, limit)
        agreed = [place for place, there in same if there is not None and there.side == limit.side]
        turned = [
            Place(place.window, min(place.first, there.first), max(place.last, there.last))
            for place, there in same
            # Beyond a range begins the next one: "between 5 and 10", "over 10".
            if there is not None
            and there.side != limit.side
            and place.window.facts.lows[there.first] not in words.between
            and _denies(place.window.facts, place.first, there) == denied
        ]
        if not agreed and turned and len(turned) == len(same):
            self._turned.append((quantity, limit, turned))
        elif agreed and (not turned or self._fit(quantity, limit, agreed) > self._fit(quantity, limit, turned)):
            self.agreed.update(range(limit.first, limit.last + 1))

    def _fit(self, quantity: Quantity, limit: Limit, places: list[Place]) -> float:
        context = self._pair.context(min(limit.first, quantity.first), max(limit.last, quantity.last))
        return self._pair.fit(context, places).score


def _denies(facts: FactText, position: int, limit: Limit) -> bool:
    """Tells whether the sentence of a number denies or restricts something beside its limit: then the limit may be turned with it."""
    here = facts.places[position]
    cues = (first for first, _ in facts.cues if not limit.first <= first <= limit.last)
    return any(abs(facts.places[at] - here) < _SENTENCE for at in (*cues, *facts.implied))
