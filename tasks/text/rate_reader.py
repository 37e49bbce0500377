"""Reads what a number counts for: a month, a person, or all in all ("EUR 20 a month", "EUR 20 in total")."""

from typing import NamedTuple

from tasks.text.fact_text import FactText
from tasks.text.lexicon import Lexicon
from tasks.text.quantities import Quantity, is_period_unit

TOTAL = "total"
_BEFORE = 5
"""Tokens before a number among which an adjective gives its rate: the monthly fee of 20 euros."""
_BETWEEN = 2
"""Tokens from a number to its rate: 20 hours each week."""


class Rate(NamedTuple):
    """A unit of time, the stem of a noun, or ``TOTAL``; and the first and last token of the words that say it."""

    key: str
    first: int
    last: int


def read_rate(facts: FactText, quantity: Quantity, words: Lexicon) -> Rate | None:
    """The rate of a quantity; None without one."""
    if words.per.isdisjoint(facts.lows) and words.rates.keys().isdisjoint(facts.lows) and "/" not in facts.text:
        return None
    lows = facts.lows
    for at in range(quantity.last + 1, min(quantity.last + 1 + _BETWEEN, len(lows))):
        if at in facts.breaks or lows[at][0].isdigit() or lows[at] in words.joins:
            break
        if (rate := _rate_at(facts, at, quantity, words)) is not None:
            return rate
    for at in range(quantity.first - 1, max(-1, quantity.first - 1 - _BEFORE), -1):
        if at in facts.breaks or lows[at][0].isdigit():
            break
        if (key := words.rates.get(lows[at])) is not None and key != TOTAL:
            return Rate(key, at, at)
    return None


def head_rate(facts: FactText, words: Lexicon) -> str:
    """The rate that the head of a column names: Price (EUR/month); empty without one."""
    for at in range(1, len(facts.lows)):
        if (unit := _unit_of(facts.lows[at], words)) and (
            _is_after_slash(facts, at) or facts.lows[at - 1] in words.per
        ):
            return unit
    return ""


def _rate_at(facts: FactText, at: int, quantity: Quantity, words: Lexicon) -> Rate | None:
    """The rate that begins at a token."""
    lows = facts.lows
    if (key := words.rates.get(lows[at])) is not None:
        return Rate(key, at, at)
    if at == quantity.last + 1 and facts.stems[at] and _is_after_slash(facts, at):
        return Rate(_unit_of(lows[at], words) or facts.stems[at], at, at)
    return _rate_of_noun(facts, at, words) if lows[at] in words.per else None


def _rate_of_noun(facts: FactText, at: int, words: Lexicon) -> Rate | None:
    """The rate of the unit or the noun after a word like "per"."""
    lows = facts.lows
    noun = at + 1
    while noun < len(lows) and noun not in facts.breaks and not facts.stems[noun] and lows[noun] not in words.units:
        noun += 1
    if noun >= len(lows) or noun in facts.breaks or lows[noun][0].isdigit():
        return None
    # "per calendar year", "pro volles Jahr"
    for end in (noun, noun + 1):
        if end < len(lows) and end not in facts.breaks and (unit := _unit_of(lows[end], words)):
            return Rate(unit, at, end)
    if lows[at] in words.articles or lows[at] in words.vague_per:
        return None
    return Rate("person" if lows[noun] in words.persons else facts.stems[noun], at, noun)


def _unit_of(low: str, words: Lexicon) -> str:
    """The unit of time that a word is, or ends with: Schuljahr."""
    unit = words.units.get(low, "")
    if not unit and words.nouns_in_capitals:
        unit = next((words.units[end] for end in words.units if len(end) > _LEAST_END and low.endswith(end)), "")
    return unit if is_period_unit(unit) else ""


_LEAST_END = 2


def _is_after_slash(facts: FactText, at: int) -> bool:
    return at > 0 and facts.text[facts.spans[at - 1][1] : facts.spans[at][0]].strip() == "/"
