"""Finds the numbers and names of a claim that stand in none of the sources and follow from nothing there."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tasks.text.evidence import SourceSearch
from tasks.text.fact_reader import read_numbers
from tasks.text.fact_text import FactText
from tasks.text.lexicon import Lexicon, lexicon
from tasks.text.quantities import (
    DAY,
    MONTH,
    NUMBER,
    WEEKDAY,
    YEAR,
    Quantity,
    equal,
    equal_fraction,
    follows,
    is_measured,
)

_PREFIX = 4
"""Letters that a name shares with its other forms: Greece and Greek, Ukraine and Ukrainian."""
_MOST_READ = 60_000
"""Characters of sources that are read in full for a number which their words do not hold; it bounds the time."""
_SMALL = 4
"""Greatest count that a sentence may make of the things a source lists: "both", "three reasons"."""
_LEAST_LETTERS = 2


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources among which a claim's facts are looked for.

    Args:
        search: over them; its vocabulary has the words of the claim.
        near: the windows near to the claim: a number may follow from theirs.
    """

    search: SourceSearch
    near: Sequence[FactText] = ()

    @property
    def texts(self) -> list[str]:
        """Their contents."""
        return self.search.contents


def absent_facts(claim: FactText, code: str | None, sources: Sources) -> tuple[str, ...]:
    """The numbers and names of a claim that no source holds, as the claim has them.

    Args:
        claim: its facts.
        code: its language.
        sources: those that may hold them.
    """
    words = lexicon(code)
    numbers = [
        claim.words(quantity.first, quantity.last)
        for quantity in claim.quantities
        if not quantity.article and _is_absent(quantity, claim, words, sources)
    ]
    return (*dict.fromkeys(numbers), *_absent_names(claim, words, sources))


# ---- numbers ----------------------------------------------------------------------------------------------------


def _is_absent(quantity: Quantity, claim: FactText, words: Lexicon, sources: Sources) -> bool:
    texts, near = sources.texts, sources.near
    if _stands_in(quantity, near) or sources.search.holds_number(_spellings(quantity, claim)):
        return False
    if quantity.kind in {MONTH, WEEKDAY}:
        return not _named(quantity, words, texts)
    if claim.lows[quantity.first] in words.numbers and not is_measured(quantity) and max(quantity.values) <= _SMALL:
        return False
    # Any small number is a sum or a difference in a text full of numbers: the claim must say that it is one.
    if not words.total.isdisjoint(claim.lows) and any(follows(quantity, facts.quantities) for facts in near):
        return False
    if sum(map(len, texts)) > _MOST_READ:
        return True
    return not any(_equals_any(quantity, read_numbers(text, words.code)) for text in texts)


def _stands_in(quantity: Quantity, texts: Iterable[FactText]) -> bool:
    return any(_equals_any(quantity, facts.quantities) for facts in texts)


def _equals_any(quantity: Quantity, quantities: Iterable[Quantity]) -> bool:
    return any(equal(quantity, other) or equal_fraction(quantity, other) for other in quantities)


def _spellings(quantity: Quantity, claim: FactText) -> set[str]:
    spellings = {claim.lows[quantity.first]} if claim.lows[quantity.first][0].isdigit() else set()
    if quantity.kind in {NUMBER, YEAR, DAY}:
        spellings |= {f"{value:.10g}" for value in quantity.values}
    return spellings


def _named(quantity: Quantity, words: Lexicon, texts: Sequence[str]) -> bool:
    """Tells whether a month or a day of the week stands in a text, in any of its spellings or as a number."""
    table = words.months if quantity.kind == MONTH else words.weekdays
    names = "|".join(re.escape(name) for name, value in table.items() if value in quantity.values)
    pattern = re.compile(rf"\b(?:{names})\b", re.IGNORECASE)
    if any(pattern.search(text) for text in texts):
        return True
    return quantity.kind == MONTH and any(_equals_any(quantity, read_numbers(text, words.code)) for text in texts)


# ---- names ------------------------------------------------------------------------------------------------------


def _absent_names(claim: FactText, words: Lexicon, sources: Sources) -> list[str]:
    """Names that the sources lack: no word of theirs, no abbreviation and no other form stands there."""
    absent = []
    for first, last in _runs(claim):
        missing = [
            at for at in range(first, last + 1) if not _holds(claim, at, sources) and claim.lows[at] not in words.titles
        ]
        surfaces = [claim.words(at, at) for at in range(first, last + 1)]
        if not missing or max(map(len, surfaces)) < _LEAST_LETTERS:
            continue
        if len(missing) <= last - first and not any(
            _is_replaced(claim, at, (first, last), words, sources.texts) for at in missing
        ):
            continue
        if not _has_other_form(surfaces, [claim.words(at, at) for at in missing], sources.texts):
            absent.append(claim.words(first, last))
    return absent


def _holds(claim: FactText, position: int, sources: Sources) -> bool:
    if sources.search.holds(claim.stems[position]):
        return True
    # A function word in capitals (WHO, plan A) is no word of the search, and one with signs in it (CO₂e) is several.
    surface = claim.words(position, position)
    if not (claim.stems[position].isupper() or not surface.isascii()):
        return False
    return any(re.search(rf"\b{re.escape(surface)}\b", text) for text in sources.texts)


def _is_replaced(claim: FactText, position: int, run: tuple[int, int], words: Lexicon, texts: Sequence[str]) -> bool:
    """Tells whether the sources always have another name in the place of a name's word.

    "Barack Smith" where they say "Barack Obama" only; but not "Barack Obama" where they say "Obama".
    """
    for beside, pattern in (
        (position - 1, rf"\b{{word}}\b(?: ({_CAPITAL}))?"),
        (position + 1, rf"(?:({_CAPITAL}) )?\b{{word}}\b"),
    ):
        if not run[0] <= beside <= run[1] or claim.lows[beside] in words.titles:
            continue
        word = re.escape(claim.words(beside, beside))
        occurrences = [match.group(1) for text in texts for match in re.finditer(pattern.format(word=word), text)]
        if occurrences and all(other and other.lower() not in words.titles for other in occurrences):
            return True
    return False


_CAPITAL = r"[A-ZÀ-ÖØ-Þ][\w'’-]+"  # noqa: RUF001 - a typographic apostrophe


def _runs(claim: FactText) -> list[tuple[int, int]]:
    """Names as runs of tokens."""
    runs: list[tuple[int, int]] = []
    for position in claim.names:
        if runs and position - runs[-1][1] == 1:
            runs[-1] = (runs[-1][0], position)
        else:
            runs.append((position, position))
    return runs


def _has_other_form(surfaces: Sequence[str], missing: Sequence[str], texts: Sequence[str]) -> bool:
    """Tells whether the texts have a name's initials, the name of its initials, or a word of the same stem."""
    initials = "".join(surface[0] for surface in surfaces)
    patterns = [re.escape(surface[:_PREFIX]) for surface in missing if len(surface) > _PREFIX]
    if len(surfaces) > 1:
        patterns.append(rf"\b{_DOT.join(initials)}\b")
    if len(surfaces) == 1 and surfaces[0].isupper() and len(surfaces[0]) <= _LONGEST_INITIALS:
        # "NIH" for National Institutes of Health; small words between do not count.
        patterns.append(r"\b" + r"\w+ (?:(?:of|the|and|for|de|la|du|des|der|di) )*".join(surfaces[0]) + r"\w+")
        patterns.append(rf"\b{_DOT.join(surfaces[0])}\b")
    return any(re.search("|".join(patterns), text) for text in texts) if patterns else False


_LONGEST_INITIALS = 6
_DOT = r"\.?"
