"""Reads the facts of a text in order: its quantities, dates, names, negations and words with an opposite."""

from functools import lru_cache

from tasks.text.fact_text import FactText, split_numerals, split_tokens
from tasks.text.lexicon import Lexicon, lexicon
from tasks.text.quantities import Quantity
from tasks.text.quantity_reader import read_quantities
from tasks.text.sentences import plain_arabic
from tasks.text.wording import NEGATION

_REACH = 4
"""Words of content over which a negation reaches."""
_HALVES = frozenset({"ne", "n"})
"""First half of one negation: ne ... pas."""
_BACK = 3
"""Tokens before a negation that it reaches, too, where it follows the verb."""


# Read again for the other claims of an answer, seldom for another answer: 13 KB each.
@lru_cache(maxsize=256)
def read_facts(text: str, code: str | None) -> FactText:
    """Reads a text with the lexicon of a language."""
    words = lexicon(code)
    if words.code == "ar":
        plain = plain_arabic(text)
        text = plain if len(plain) == len(text) else text
    facts = split_tokens(text, words)
    _read_phrases(facts, words)
    read_quantities(facts, words)
    facts.names.extend(_names(facts, words))
    _mark_negated(facts, words)
    return facts


# ---- numbers alone ----------------------------------------------------------------------------------------------


# 26 KB each.
@lru_cache(maxsize=128)
def read_numbers(text: str, code: str | None) -> tuple[Quantity, ...]:
    """Reads the quantities of a long text and nothing else, a third of the time of all facts."""
    words = lexicon(code)
    if words.code == "ar" or not words.spaced:
        return tuple(read_facts(text, code).quantities)
    facts = split_numerals(text, words)
    read_quantities(facts, words)
    return tuple(facts.quantities)


# ---- phrases, opposites, negations ------------------------------------------------------------------------------


def _read_phrases(facts: FactText, words: Lexicon) -> None:
    lows = facts.lows
    turning = words.turning
    end = -1
    for position in [at for at, low in enumerate(lows) if low in turning]:
        if position <= end:
            continue
        low = lows[position]
        matched = False
        for phrase in words.phrases.get(low, ()):
            last = position + len(phrase.words)
            if tuple(lows[position + 1 : last + 1]) == phrase.words:
                end, matched = last, True
                if phrase.negation:
                    facts.cues.append((position, last))
                elif phrase.poles:
                    facts.poles.append((position, last, phrase.poles))
                break
        if not matched:
            if low in words.negations:
                facts.cues.append((position, position))
            sides = words.poles.get(low)
            if sides and not _is_month_may(facts, position) and not _is_of_name(facts, position, words):
                facts.poles.append((position, position, sides))


def _is_month_may(facts: FactText, position: int) -> bool:
    start = facts.spans[position][0]
    return facts.lows[position] in {"may", "march"} and facts.text[start].isupper() and position > 0


def _is_of_name(facts: FactText, position: int, words: Lexicon) -> bool:
    """Tells whether a word is part of a name, such as "Little" of The Little Mermaid; capitals tell it, but not in German."""
    if words.nouns_in_capitals or not 0 < position < len(facts.lows) - 1:
        return False
    here, following = facts.spans[position][0], facts.spans[position + 1][0]
    return (
        facts.text[here].isupper()
        and facts.text[following].isupper()
        and position - 1 not in facts.breaks
        and facts.lows[position - 1][0].isalnum()
    )


def _mark_negated(facts: FactText, words: Lexicon) -> None:
    """Marks the words that a negation reaches: those after it up to the end of the clause, and the word before it."""
    negated: set[int] = set()
    subjects: set[int] = set()
    previous_end = -9
    double = False
    for first, last in facts.cues:
        # "not without", "never fails to": two negations side by side cancel.
        double = first - previous_end <= 1 and not double and facts.lows[max(0, previous_end)] not in _HALVES
        reach = _reach(facts, last, words)
        before = _before(facts, first)
        subjects |= before
        reach |= before if words.nouns_in_capitals else set()
        negated = negated - reach if double else negated | reach
        previous_end = last
    facts.negated = frozenset(negated)
    facts.subjects = frozenset(subjects)
    facts.sums = not words.total.isdisjoint(facts.lows)
    if not words.implied.isdisjoint(facts.lows):
        facts.implied = tuple(at for at, low in enumerate(facts.lows) if low in words.implied)
    facts.comparisons = frozenset(
        (first, last) for first, last in facts.cues if " ".join(facts.lows[first : last + 1]) in words.comparisons
    )
    facts.doubts = frozenset(
        (first, last)
        for first, last in facts.cues
        if not words.doubts.isdisjoint([*facts.lows[max(0, first - 1) : first], *facts.lows[last + 1 : last + 3]])
    )


def _reach(facts: FactText, last: int, words: Lexicon) -> set[int]:
    reach = set()
    content = 0
    for position in range(last + 1, len(facts.lows)):
        if position in facts.breaks or content >= _REACH or facts.lows[position] in words.turns:
            break
        reach.add(position)
        content += bool(facts.stems[position])
    return reach


def _before(facts: FactText, first: int) -> set[int]:
    before = set()
    for position in range(first - 1, max(-1, first - _BACK), -1):
        if position in facts.breaks:
            break
        before.add(position)
        if facts.stems[position]:
            break
    return before


# ---- names ------------------------------------------------------------------------------------------------------


def _names(facts: FactText, words: Lexicon) -> list[int]:
    """Positions of words of names: capitalised inside a sentence; in German only after a word that leads a name."""
    if not words.spaced or words.code == "ar":
        return []
    names = []
    for position, (start, _) in enumerate(facts.spans):
        if not facts.text[start].isupper() or not facts.stems[position] or facts.lows[position] in words.months:
            continue
        low = facts.lows[position]
        if low in words.weekdays or facts.stems[position] == NEGATION:
            continue
        opens = (
            position == 0
            or facts.lows[position - 1][0] in '.!?\n:“"'
            or (position - 1 in facts.breaks and facts.lows[position - 1] in {"(", ":"})
        )
        if words.nouns_in_capitals:
            if position and (facts.lows[position - 1] in words.name_leads or position - 1 in names):
                names.append(position)
        elif not opens or (
            position + 1 < len(facts.spans)
            and facts.text[facts.spans[position + 1][0]].isupper()
            and facts.stems[position + 1]
        ):
            names.append(position)
    return names
