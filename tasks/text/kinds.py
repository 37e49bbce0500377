"""Tells whether a text has a thing of the kind that a question asks for: a number, a time or a name."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from enum import Enum
from functools import cache

from tasks.text.language import language_tables
from tasks.text.sentences import plain_arabic
from tasks.text.wording import number_word


class Expected(Enum):
    """The kind of thing that a question asks for."""

    NUMBER = "quantity"
    TIME = "time"
    NAME = "name"


@cache
def listed_words(kind: str) -> frozenset[str]:
    """The words of a kind in all languages.

    Words of ``shape`` form a question and rarely occur in its answer; words of ``generic`` occur in texts of any
    subject. ``counts``, ``times``, ``periods`` and ``conditions`` are words of an answer.
    """
    tables = (table.get("questions", {}) for table in language_tables().values())
    return frozenset(plain_arabic(word) for table in tables for word in table.get(kind, "").split())


@cache
def asks_for(expected: Expected) -> re.Pattern[str]:
    """The pattern of questions for a kind of thing, in lower case."""
    spaced: set[str] = set()
    unspaced: set[str] = set()
    for table in language_tables().values():
        patterns = table.get("questions", {}).get(expected.value, ())
        (spaced if table.get("spaced", True) else unspaced).update(map(plain_arabic, patterns))
    return re.compile("|".join([rf"(?<!\w)(?:{'|'.join(sorted(spaced))})(?!\w)", *sorted(unspaced)]))


_NAME = re.compile(r"(?<=[\w,;:)(\"“„] )[A-ZÀ-ÖØ-Þ][\w'’-]+|(?<!\w)[A-ZÀ-ÖØ-Þ][\w'’-]+ [A-ZÀ-ÖØ-Þ][\w'’-]+")
"""A word in upper case that does not open a sentence, or two in a row."""
_LOWER_CASE = re.compile(r"[a-zà-öø-ÿ]")


def has_kind(kind: Expected, text: str, question: str) -> bool:
    """Tells whether a text has a thing of a kind that the question, in lower case, lacks."""
    if kind is Expected.NAME:
        if _LOWER_CASE.search(text) is None:
            return True
        return any(match.group().lower() not in question for match in _NAME.finditer(text))
    if any(match.group() not in question for match in _NUMERAL.finditer(text)):
        return True
    listed = listed_words("counts" if kind is Expected.NUMBER else "times")
    lowered = text.lower() if text.isascii() else plain_arabic(text.lower())
    if any(word in listed and word not in question for word in _WORD.findall(lowered)):
        return True
    return _HAN.search(text) is not None and any(
        word in text and word not in question for word in listed if _HAN.match(word)
    )


@cache
def _moments() -> frozenset[str]:
    return listed_words("times") | listed_words("periods") | listed_words("conditions")


def has_time(text: str, question: str) -> bool:
    """Tells whether a text has a date, a time of day, a period or a condition that the question lacks."""
    if any(match.group() not in question for match in _DATE.finditer(text)):
        return True
    listed = _moments()
    lowered = plain_arabic(text.lower())
    if any(hour.isdecimal() or number_word(hour) is not None for hour in _HOUR.findall(lowered)):
        return True
    for word in _WORD.findall(lowered):
        # Mondays, montags; with the Arabic article.
        if word in listed or word.removesuffix("s") in listed or word.removeprefix("ال") in listed:
            return True
    return _HAN.search(text) is not None and any(word in text for word in listed if _HAN.match(word))


_DATE = re.compile(
    r"(?<![\d.,])(?:1\d{3}|20\d{2})(?!\d|[.,]\d)|\d{1,2}[:./-]\d{1,2}|\d{1,2}(?:st|nd|rd|th)\b|(?<=\w )May\b"
)
"""A year, a date, a time of day or an ordinal; May in capitals, because the word in lower case is a verb."""
_HOUR = re.compile(r"\b(?:at|from|by|around|um|gegen|ab|à|vers|dès|las|la|alle|dalle|الساعه|الساعة) (\w+)")
"""A number after a word that leads a time of day: at nine, um 9, a las nueve."""
_NUMERAL = re.compile(r"\d[\d.,:]*")
_WORD = re.compile(r"[^\W\d_]+")
_HAN = re.compile("[\u3400-\u9fff]")
