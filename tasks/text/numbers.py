"""Spells numbers alike: 1,200.50 and 1.200,50."""
# ruff: noqa: RUF001 - typographic characters are meant

import re
from functools import lru_cache

_GROUPED = re.compile(
    r"\d{1,3}(?:(?:,\d{3})+(?:\.\d+)?|(?:\.\d{3}){2,}(?:,\d+)?|(?:\.\d{3})+,\d+|(?:'\d{3})+(?:\.\d+)?|(?:’\d{3})+(?:\.\d+)?)"
)
_DECIMAL_COMMA = re.compile(r"\d+,\d+")


@lru_cache(maxsize=4096)
def number(word: str) -> str:
    """The normal spelling of a number; a date or a section number stays unchanged."""
    plain = word
    if _GROUPED.fullmatch(word):
        mark = word.lstrip("0123456789")[0]
        plain = word.replace(mark, "").replace(",", ".")
    elif _DECIMAL_COMMA.fullmatch(word):
        plain = word.replace(",", ".")
    if plain.count(".") == 1:
        plain = plain.rstrip("0").rstrip(".")
    return plain.lstrip("0") or "0" if "." not in plain else plain
