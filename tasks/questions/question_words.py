"""Reads the words and patterns of questions in all languages, once per process: the kinds of things that they ask for."""
# ruff: noqa: RUF001 - typographic and full-width characters are meant

import re
from enum import Enum
from functools import cache

from tasks.text.language import language_tables, word_set
from tasks.text.sentences import plain_arabic
from tasks.text.word_search import AsciiSearch
from tasks.text.wording import content_words


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


@cache
def may_ask_for(expected: Expected) -> AsciiSearch:
    """A quick search for questions that may ask for a kind of thing."""
    return AsciiSearch(lambda: asks_for(expected).pattern)


@cache
def moments() -> frozenset[str]:
    """Words of a time, a period or a condition."""
    return listed_words("times") | listed_words("periods") | listed_words("conditions")


@cache
def form_words() -> frozenset[str]:
    """Words that only form a question."""
    return listed_words("shape") | word_set("function_words")


@cache
def generic_stems() -> frozenset[str]:
    """The stems of words that occur in texts of any subject."""
    return content_words(listed_words("generic"))


@cache
def function_words(code: str) -> frozenset[str]:
    """The function words of one language."""
    return frozenset(language_tables()[code]["function_words"].split())


@cache
def joint_pattern() -> re.Pattern[str]:
    """The joints of the parts of a question: a comma, with or without "and", or an "and" before a question word."""
    joints = [joint for table in language_tables().values() for joint in table.get("questions", {}).get("joints", ())]
    plain = "|".join(rf"{joint}\s+" if joint.isascii() else joint for joint in joints if "(?=" not in joint)
    asking = "|".join(joint for joint in joints if "(?=" in joint)
    return re.compile(rf"[,;，；،]\s*(?:{plain})?|\s(?:{asking})", re.IGNORECASE)
