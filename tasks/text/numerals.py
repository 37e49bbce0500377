"""Parses the numbers of a text: in digits, in words, with a scale, in dates, and rounded."""
# ruff: noqa: RUF001 - typographic characters are meant

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache

from tasks.text.language import language_tables, word_values
from tasks.text.sentences import number

_POINTED_DATE = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{2}|\d{4})\Z")
_LEAST_ROUNDED = 10_000
"""Least whole number that can be rounded; lower ones are years, counts and articles and must match exactly."""


_NUMERAL = re.compile(r"([0-9][0-9]*(?:[.,'’][0-9]+)*)[ \u00a0\u202f-]?([^\W\d_]*)")


def numbers_in(text: str) -> frozenset[str]:
    """All readings of the numbers in digits in a text: as written, scaled, and the parts of dates."""
    values: set[str] = set()
    for numeral, following in set(_NUMERAL.findall(text)):
        values |= readings(number(numeral), following.lower())
    return frozenset(values)


def contains_number(values: Collection[str], numbers: frozenset[str], text: str) -> bool:
    """Tells whether a text has a number, by any of its readings: among its numbers, rounded, or in words."""
    if not numbers.isdisjoint(values) or any(rounds_to(value, numbers) for value in values):
        return True
    return any(word.search(text) is not None for value in values if (word := _small_numbers().get(value)))


@cache
def _small_numbers() -> Mapping[str, re.Pattern[str]]:
    """Small numbers in words that are not among ``number_word``'s: one, first, second.

    ``ordinals`` of a table are the patterns of the numbers from 1 on.
    """
    words: dict[str, list[str]] = {}
    for table in language_tables().values():
        for value, pattern in enumerate(table.get("ordinals", ()), start=1):
            words.setdefault(str(value), []).append(pattern)
    return {value: re.compile(rf"\b(?:{'|'.join(listed)})\b", re.IGNORECASE) for value, listed in words.items()}


def number_word(word: str) -> str | None:
    """The digits of a number word; None for other words, and for ``one``, which is rarely a count."""
    digits: str | None = word_values("words").get(word)
    return digits


def readings(word: str, following: str = "") -> set[str]:
    """The readings of a number with the word after it: itself, its scaled value, or the parts of a date."""
    date = _POINTED_DATE.match(word)
    if date:
        return {word, *(part.lstrip("0") for part in date.groups())}
    power = word_values("powers_of_ten").get(following)
    if power and word.replace(".", "", 1).isdecimal():
        return {word, f"{float(word) * 10**power:.0f}"}
    return {word}


def rounds_to(value: str, numbers: Iterable[str]) -> bool:
    """Tells whether one of the numbers, rounded to the precision of ``value``, equals ``value``.

    Only large numbers and decimals are rounded: 8,537,673 to 8500000 and 4.24 to 4.2, but not 1998 to 2000.
    """
    if not value.replace(".", "", 1).isdecimal():
        return False
    decimals = len(value.partition(".")[2])
    if not decimals:
        digits = value.rstrip("0")
        if float(value) < _LEAST_ROUNDED or len(digits) == len(value):
            return False
        decimals = len(digits) - len(value)
    target = float(value)
    return any(
        other.replace(".", "", 1).isdecimal() and other != value and round(float(other), decimals) == target
        for other in numbers
    )
