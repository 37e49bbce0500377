"""Reads the words of each language from its file in ``languages``, and detects the language of a short text."""

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

SUPPORTED = ("en", "de", "es", "fr", "zh", "ar")
"""Languages with a whole table, English first; the tables of others only have the most frequent words."""

_LATIN = re.compile(r"[a-zß-öø-ÿœ]+")
_ONLY_LETTERS = bytes(code if chr(code).islower() else ord(" ") for code in range(128)) + bytes(128)
_SCRIPTS = (
    # The order matters: Japanese and Korean texts contain Han characters too, Persian and Urdu ones Arabic letters.
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("ko", re.compile("[\uac00-\ud7af]")),
    ("zh", re.compile("[\u3400-\u4dbf\u4e00-\u9fff]")),
    ("fa", re.compile("[\u067e\u0686\u0698\u06af\u06cc\u0679\u06d2]")),
    ("ar", re.compile("[\u0620-\u064a]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("he", re.compile("[\u05d0-\u05ea]")),
    ("hi", re.compile("[\u0900-\u097f]")),
    ("th", re.compile("[\u0e00-\u0e7f]")),
)
_LETTER_WEIGHT = 0.9
"""Weight of a language's own letter; less than a function word's, because a name keeps its letters in any language."""


# ---- tables ----------------------------------------------------------------------------------------------------


@cache
def language_tables() -> Mapping[str, Mapping[str, Any]]:
    """The table of each language by its ISO 639-1 code, read when first needed (5 ms for all).

    Words of one kind are one string, with spaces between them; phrases and patterns are lists. ``names`` are its names
    in several languages, ``function_words`` and ``letters`` tell it from the others, ``spaced`` is false if no spaces
    separate its words. The modules that use the other keys explain them.
    """
    folder = Path(__file__).parent / "languages"
    return {file.stem: tomllib.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.toml"))}


@cache
def word_set(kind: str) -> frozenset[str]:
    """The words of one kind in all languages together."""
    return frozenset(word for table in language_tables().values() for word in table.get(kind, "").split())


@cache
def number_words() -> Mapping[str, str]:
    """The words for numbers in all languages together, each with its digits."""
    return {word: digits for table in language_tables().values() for word, digits in table.get("numbers", {}).items()}


# ---- detection -------------------------------------------------------------------------------------------------


@cache
def _function_words() -> Mapping[str, frozenset[str]]:
    return {
        code: frozenset(table["function_words"].split())
        for code, table in language_tables().items()
        if "function_words" in table
    }


@cache
def _votes() -> Mapping[str, tuple[tuple[str, float], ...]]:
    """The languages of each function word, with the share of the word that counts for each."""
    listed = _function_words()
    frequencies = Counter(word for words in listed.values() for word in words)
    return {
        word: tuple((code, 1 / frequency) for code, words in listed.items() if word in words)
        for word, frequency in frequencies.items()
    }


def language_of(text: str) -> str | None:
    """The ISO 639-1 code of a text's language; None without a clear sign.

    It is exact for English, German, Spanish, French, Chinese and Arabic. Other languages are recognised by their script, or
    only as none of these. A word of several languages counts for each by its share.
    """
    text = text[:1_000].lower()
    latin = _LATIN.findall(text) if not text.isascii() else text.encode().translate(_ONLY_LETTERS).decode().split()
    if not text.isascii():
        latin_letters = sum(map(len, latin))
        for code, script in _SCRIPTS:
            # A Latin name or abbreviation does not make the text Latin: half as many letters of the script are enough.
            if (count := len(script.findall(text))) and (count * 2 >= latin_letters or code in {"ja", "ko"}):
                return code
    scores = dict.fromkeys(_function_words(), 0.0)
    votes = _votes()
    for word in filter(votes.__contains__, latin):
        for code, share in votes[word]:
            scores[code] += share
    for code in scores if not text.isascii() else ():
        scores[code] += _LETTER_WEIGHT * sum(map(text.count, language_tables()[code].get("letters", "")))
    best, next_best = sorted(scores, key=lambda code: -scores[code])[:2]
    return best if scores[best] > scores[next_best] else None
