"""Finds numbers that a claim gives for another time or thing than its sources: EUR 20 a year, and a month there."""

from collections.abc import Iterator

from schemas.claim_error import ErrorKind
from tasks.grounding.alignment import SURE, Alignment, Difference, Fit, Place
from tasks.text.lexicon import Lexicon
from tasks.text.quantities import NUMBER, equal, is_period_unit
from tasks.text.rate_reader import TOTAL, Rate, read_rate

_LEAST = 0.3
"""Fit of a number in the source from which its rate must be the claim's."""
_ALONE = 2.0
"""No fit is so high: two nouns may name one thing, so that another one takes the support away alone."""


def rates(pair: Alignment, words: Lexicon) -> Iterator[Difference]:
    """The numbers of a claim whose rate is another one wherever the windows have them."""
    claim = pair.claim
    for quantity in claim.quantities:
        if quantity.kind != NUMBER or quantity.article or (rate := read_rate(claim, quantity, words)) is None:
            continue
        places = [
            (Place(window, other.first, other.last), read_rate(window.facts, other, words))
            for window in pair.windows
            for other in window.facts.quantities
            if other.kind == NUMBER and not other.article and equal(quantity, other)
        ]
        if not places or any(there is not None and there.key == rate.key for _, there in places):
            continue
        stated = {id(place): there for place, there in places if there is not None}
        if len(stated) < len(places) and not (not stated and _is_nowhere(pair, rate, words)):
            continue
        span = min(quantity.first, rate.first), max(quantity.last, rate.last)
        fit = pair.fit(pair.context(*span), [place for place, _ in places])
        if fit.place is None or fit.score < _LEAST:
            continue
        there = next((there for place, there in places if place is fit.place), None)
        if there is None:
            yield pair.difference(ErrorKind.NUMBER, *span, fit, sure=_ALONE)
            continue
        window, first, last = fit.place
        place = Place(window, min(first, there.first), max(last, there.last))
        certain = all(is_period_unit(key) or key == TOTAL for key in (rate.key, there.key))
        yield pair.difference(ErrorKind.NUMBER, *span, Fit(fit.score, place), sure=SURE if certain else _ALONE)


def _is_nowhere(pair: Alignment, rate: Rate, words: Lexicon) -> bool:
    """Tells whether the sources of the windows have no word for the time that a claim's rate names."""
    if not is_period_unit(rate.key):
        return False
    forms = {low for table in (words.units, words.rates) for low, unit in table.items() if unit == rate.key}
    contents = {window.source_index: window.content for window in pair.windows}
    return not any(form in content.lower() for content in contents.values() for form in forms)
