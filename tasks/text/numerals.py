"""Parses the numbers of a text: in digits, in words, with a scale, in dates, and rounded."""
# ruff: noqa: RUF001 - typographic characters are meant

import re
from collections.abc import Collection, Iterable

from tasks.text.sentences import number

NUMBER_WORDS = {
    word: str(value)
    for value, group in (
        *enumerate(
            "two zwei|three drei tres trois|four vier cuatro quatre|five fünf cinco cinq|six sechs seis|seven sieben siete"
            "|eight acht ocho huit|nine neun nueve neuf|ten zehn diez dix|eleven elf|twelve zwölf|thirteen|fourteen|fifteen"
            "|sixteen|seventeen|eighteen|nineteen|twenty zwanzig".split("|"),
            start=2,
        ),
        *(
            (10 * ten, word)
            for ten, word in enumerate("thirty forty fifty sixty seventy eighty ninety".split(), start=3)
        ),
        (30, "dreißig dreissig"),
        (1000, "thousand tausend"),
    )
    for word in group.split()
}
"""Number words with their digits, without ``one``, which is rarely a count."""

_SCALES = {
    "hundred": 2,
    "thousand": 3,
    "tausend": 3,
    "k": 3,
    "million": 6,
    "millions": 6,
    "millionen": 6,
    "mio": 6,
    "m": 6,
    "mn": 6,
    "billion": 9,
    "billions": 9,
    "milliarden": 9,
    "milliarde": 9,
    "mrd": 9,
    "bn": 9,
    "trillion": 12,
    "billionen": 12,
}
_WRITTEN_OUT = {
    str(value): re.compile(rf"\b(?:{alternatives})\b", re.IGNORECASE)
    for value, alternatives in enumerate(
        "one|first|once|eine?s?|erste[nrs]?|uno|une? second|twice third fourth fifth sixth seventh eighth ninth tenth".split(),
        start=1,
    )
}
"""Small numbers in words, besides ``NUMBER_WORDS``."""
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
    return any(wording.search(text) is not None for value in values if (wording := _WRITTEN_OUT.get(value)))


def readings(word: str, following: str = "") -> set[str]:
    """The readings of a number with the word after it: itself, its scaled value, or the parts of a date."""
    date = _POINTED_DATE.match(word)
    if date:
        return {word, *(part.lstrip("0") for part in date.groups())}
    scale = _SCALES.get(following)
    if scale and word.replace(".", "", 1).isdecimal():
        return {word, f"{float(word) * 10**scale:.0f}"}
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
