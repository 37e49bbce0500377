"""Finds bounds of a number that one side alone has, and periods that count from another event than in the sources."""

from collections.abc import Collection, Iterator, Sequence

from schemas.claim_error import ErrorKind
from tasks.grounding.alignment import Alignment, Difference, Place, Window
from tasks.text.fact_text import SIGNS, FactText
from tasks.text.lexicon import Lexicon
from tasks.text.quantities import NUMBER, Quantity, equal, is_measured, is_period

_LEAST = 0.35
"""Fit of the number in the source from which its bound or its event must be the claim's."""
_LEAST_EVENT = 0.3
"""Fit of a period whose event must be the claim's: one that lies as near as few words can tell."""
_ALONE = 2.0
"""No fit is so high: a bound that one side lacks takes the support away, and contradicts nothing."""
_BESIDE = 6
"""Tokens around a number among which another word may bound it: "must not exceed 500", "a limit of 500"."""
_LONGEST_EVENT = 6
"""Tokens from the word that leads an event to the event itself: "from the date of the purchase"."""
_PREFIX = 4


def bounds(pair: Alignment, words: Lexicon, agreed: Collection[int]) -> Iterator[Difference]:
    """Bounds put in before a number of the source ("at least two" for "two"); those at ``agreed`` tokens are right."""
    claim = pair.claim
    for quantity in claim.quantities:
        if quantity.kind != NUMBER or quantity.article:
            continue
        bound = _bound(claim, quantity, words)
        if bound is None or bound[0] in agreed or _says_little(claim, quantity, bound, words):
            continue
        places = [Place(window, other.first, other.last) for window, other in _same(pair, quantity)]
        if any(_is_bounded(place, words) for place in places):
            continue
        fit = pair.fit(pair.context(quantity.first, quantity.last), places)
        if fit.place is not None and fit.score >= _LEAST:
            first, last = min(bound[0], quantity.first), max(bound[1], quantity.last)
            yield pair.difference(ErrorKind.DIRECTION, first, last, fit, sure=_ALONE)


def _says_little(claim: FactText, quantity: Quantity, bound: tuple[int, int], words: Lexicon) -> bool:
    """Tells whether a bound follows from the number itself (not more than 200), or may be none (under 35 U.S.C.)."""
    first, last = bound
    is_preposition = first == last and claim.lows[first] in words.about and not is_measured(quantity)
    return claim.lows[first] in words.negations or is_preposition


def _same(pair: Alignment, quantity: Quantity) -> list[tuple[Window, Quantity]]:
    return [
        (window, other)
        for window in pair.windows
        for other in window.facts.quantities
        if other.kind == NUMBER and not other.article and equal(quantity, other)
    ]


def _bound(facts: FactText, quantity: Quantity, words: Lexicon) -> tuple[int, int] | None:
    """The tokens of the word beside a number that bounds it: at least two, two or more."""
    first = quantity.first - (quantity.first > 0 and facts.lows[quantity.first - 1] in SIGNS)
    for start, end, sides in facts.poles:
        if (end == first - 1 or start == quantity.last + 1) and any(group in words.bounds for group, _ in sides):
            return start, end
    return None


def _is_bounded(place: Place, words: Lexicon) -> bool:
    """Tells whether any word near to a number of a source may bound it."""
    window, first, last = place
    facts = window.facts
    start = max([at + 1 for at in facts.breaks if at < first], default=0)
    end = min([at for at in facts.breaks if at > last], default=len(facts.lows))
    around = range(max(start, first - _BESIDE), min(end, last + _BESIDE + 1))
    if any(facts.lows[at] in words.limits for at in around):
        return True
    return any(start in around and any(group in words.bounds for group, _ in sides) for start, _, sides in facts.poles)


# ---- periods --------------------------------------------------------------------------------------------------------


def events(pair: Alignment, words: Lexicon) -> Iterator[Difference]:
    """Periods that count from another event: five years from delivery, and from purchase in the source."""
    claim = pair.claim
    for quantity in claim.quantities:
        if not is_period(quantity) or (event := _event(claim, quantity, words)) is None:
            continue
        there = [
            (Place(window, other.first, other.last), match)
            for window in pair.windows
            for other in window.facts.quantities
            if is_period(other) and equal(quantity, other)
            if (match := _event(window.facts, other, words)) is not None
        ]
        if not there or any(_is_same(claim, event, place.window.facts, match, words) for place, match in there):
            continue
        fit = pair.fit(pair.context(quantity.first, event[1]), [place for place, _ in there])
        if fit.place is not None and fit.score >= _LEAST_EVENT:
            lead, noun = next(match for place, match in there if place == fit.place)
            place = fit._replace(place=Place(fit.place.window, lead, noun))
            yield pair.difference(ErrorKind.DATE, event[0], event[1], place)


def _event(facts: FactText, quantity: Quantity, words: Lexicon) -> tuple[int, int] | None:
    """The word that leads the event after a period, and the event."""
    lead = quantity.last + 1
    if lead >= len(facts.lows) or facts.lows[lead] not in words.leads:
        return None
    for at in range(lead + 1, min(lead + _LONGEST_EVENT, len(facts.lows))):
        stem = facts.stems[at]
        if at in facts.breaks or facts.lows[at][0].isdigit() or facts.lows[at] in words.dated:
            return None
        if stem and facts.lows[at] not in words.moments:
            return lead, at
    return None


def _is_same(claim: FactText, event: tuple[int, int], facts: FactText, match: tuple[int, int], words: Lexicon) -> bool:
    """Tells whether two events may be one: in the same words, in words of one group, or told further on."""
    here, there = claim.lows[event[1]], facts.lows[match[1]]
    if here[:_PREFIX] == there[:_PREFIX]:
        return True
    after: Sequence[str] = facts.stems[match[1] : match[1] + _LONGEST_EVENT]
    if claim.stems[event[1]] in after:
        return True
    return any(here in group and there in group for group in words.events)
