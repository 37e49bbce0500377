"""Reads the limit that words beside a number set: the least ("at least two"), or the most ("not older than two years")."""

from typing import NamedTuple

from tasks.text.fact_text import SIGNS, FactText
from tasks.text.lexicon import LEAST, MOST, Lexicon, LimitPhrase
from tasks.text.quantities import Quantity

_NEGATION_REACH = 3
"""Tokens before a limit among which a negation turns it: "may not exceed", "no fewer than"."""
_NOUN = 3
"""Tokens between a number and a limit behind it: "15 people or more"."""
_RANGE = 6
"""Tokens from "between" to the second number."""
_AHEAD = 4
"""Tokens after a number among which "before" turns a limit in time: "no later than two weeks before"."""


class Limit(NamedTuple):
    """A limit of a number: its side (``LEAST`` or ``MOST``), and its first and last token with its negation."""

    side: int
    first: int
    last: int


def read_limit(facts: FactText, quantity: Quantity, words: Lexicon) -> Limit | None:
    """The limit beside a quantity; None without one."""
    return (
        _limit_before(facts, quantity, words)
        or _limit_behind(facts, quantity, words)
        or _limit_of_range(facts, quantity, words)
    )


def _limit_before(facts: FactText, quantity: Quantity, words: Lexicon) -> Limit | None:
    lows = facts.lows
    end = quantity.first - 1
    while end >= 0 and (
        lows[end] in SIGNS or lows[end] in words.articles or words.units.get(lows[end]) in SIGNS.values()
    ):
        end -= 1
    if (match := _phrase_to(facts, end, words)) is None and end > 0 and not facts.stems[end]:
        # "No puede superar el 3 %": a function word stands between.
        end -= 1
        match = _phrase_to(facts, end, words)
    if match is None:
        return None
    start, limit = match
    side, first = limit.side, start
    for at in range(start - 1, start - 1 if limit.fixed else max(-1, start - 1 - _NEGATION_REACH), -1):
        if at in facts.breaks:
            break
        if lows[at] in words.negations:
            first, side = at, 1 - side
            break
    if limit.timed and _is_ahead(facts, quantity, words):
        side = 1 - side
    return Limit(side, first, end)


def _phrase_to(facts: FactText, end: int, words: Lexicon) -> tuple[int, LimitPhrase] | None:
    """The longest words that set a limit and end at a token, with their first token."""
    if facts.lows[end] not in words.limit_words:
        return None
    for start in range(max(0, end - words.longest_limit + 1), end + 1):
        if (limit := words.limits_before.get(tuple(facts.lows[start : end + 1]))) is not None:
            return start, limit
    return None


def _limit_behind(facts: FactText, quantity: Quantity, words: Lexicon) -> Limit | None:
    lows = facts.lows
    for start in range(quantity.last + 1, min(quantity.last + 1 + _NOUN, len(lows))):
        if start in facts.breaks or lows[start][0].isdigit():
            break
        if lows[start] not in words.limit_words:
            continue
        for end in range(min(start + words.longest_limit, len(lows)), start, -1):
            if (limit := words.limits_behind.get(tuple(lows[start:end]))) is not None:
                side = 1 - limit.side if limit.timed and _is_ahead(facts, quantity, words) else limit.side
                return Limit(side, start, end - 1)
    return None


def _limit_of_range(facts: FactText, quantity: Quantity, words: Lexicon) -> Limit | None:
    """The limit of one end of a range: between two and four weeks."""
    if words.between.isdisjoint(facts.lows[max(0, quantity.first - _RANGE) : quantity.first]):
        return None
    for at in range(quantity.first - 1, max(-1, quantity.first - 1 - _RANGE), -1):
        if at in facts.breaks:
            return None
        if facts.lows[at] in words.between:
            inside = any(other.first > at and other.last < quantity.first for other in facts.quantities)
            return Limit(MOST if inside else LEAST, at, at)
    return None


def _is_ahead(facts: FactText, quantity: Quantity, words: Lexicon) -> bool:
    """Tells whether a period is counted back from its event, so that the latest moment is the shortest period."""
    after = range(quantity.last + 1, min(quantity.last + 1 + _AHEAD, len(facts.lows)))
    return any(facts.lows[at] in words.ahead for at in after)
