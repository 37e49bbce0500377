"""Spells the times, dates, amounts and fractions of a claim as its sources do: 21:00 as 9 p.m., USD 40 as $40."""

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple

from tasks.text.language import language_tables
from tasks.text.number_spelling import respell_numbers
from tasks.text.word_search import AsciiSearch

_HALF_DAY = 720
"""Minutes."""
_LAST_HOUR = 24
_NOON_HOUR = 12
_CLOCK = re.compile(
    r"(?<![\d:.,])(?P<hour>\d{1,2})(?:"
    r"[:.](?P<minute>[0-5]\d)(?:\s?(?P<half>[ap])\.?\s?m\b\.?|\s?(?P<clock>Uhr|h)\b)"
    r"|:(?P<minutes>[0-5]\d)(?![\d:])"
    r"|\s?(?P<short_half>[ap])\.?\s?m\b\.?|\s?(?P<short_clock>Uhr)\b"
    r"|\s?h\s?(?P<minutes_of_h>[0-5]\d)\b(?!\s?min)"
    r")",
    re.IGNORECASE,
)
_TEXTS = 256
"""Sources whose times are remembered for the next claim."""


class Respelling(NamedTuple):
    """A claim with some words as its sources spell them, and what these stand for, by the new words."""

    text: str
    originals: dict[str, str]


class _Time(NamedTuple):
    """A time of day: its minutes, whether they may be those of the other half of the day, and its spelling."""

    minutes: int
    open: bool
    words: str


def respell(text: str, contents: Sequence[str]) -> Respelling:
    """A claim with each time, date, large number and phrase of the languages' groups ``same`` in the spelling of its sources.

    A word that a source has as the claim does, or that none has in any spelling, stays.

    Args:
        text: the claim.
        contents: of its sources.
    """
    originals: dict[str, str] = {}
    if not _MAY_BE_RESPELLED.may_match(text) or any(text.rstrip(".") in content for content in contents):
        return Respelling(text, originals)
    groups = _groups()
    text = _CLOCK.sub(lambda match: _respelled_time(match, contents, originals), text)
    text = respell_numbers(text, contents, originals)
    if " & " in text:
        text = _AMPERSAND.sub(lambda match: _respelled_and(match, contents, originals), text)
    if (pattern := groups.pattern(text)) is not None:
        respelled = cache(lambda words: groups.respelled(words, contents, originals))
        text = pattern.sub(lambda match: respelled(match[0]), text)
    return Respelling(text, originals)


# ---- times of day -----------------------------------------------------------------------------------------------


def _respelled_time(match: re.Match[str], contents: Sequence[str], originals: dict[str, str]) -> str:
    time = _time(match)
    if time is None or any(match[0] in content for content in contents):
        return match[0]
    listed = [other for content in contents for other in _times(content)]
    same = next((other for other in listed if other.minutes == time.minutes), None) or next(
        (
            other
            for other in listed
            if (time.open or other.open) and other.minutes % _HALF_DAY == time.minutes % _HALF_DAY
        ),
        None,
    )
    if same is None:
        return match[0]
    originals[same.words] = match[0]
    return same.words


@lru_cache(maxsize=_TEXTS)
def _times(content: str) -> tuple[_Time, ...]:
    """The times of day of a text in order, each once."""
    times = (time for match in _CLOCK.finditer(content) if (time := _time(match)) is not None)
    first: dict[tuple[int, bool], _Time] = {}
    for time in times:
        first.setdefault((time.minutes, time.open), time)
    return tuple(first.values())


def _time(match: re.Match[str]) -> _Time | None:
    hour = int(match["hour"])
    minute = int(match["minute"] or match["minutes"] or match["minutes_of_h"] or 0)
    half = (match["half"] or match["short_half"] or "").lower()
    if hour > (_NOON_HOUR if half else _LAST_HOUR):
        return None
    if half:
        hour = hour % _NOON_HOUR + (_NOON_HOUR if half == "p" else 0)
    return _Time((hour * 60 + minute) % (2 * _HALF_DAY), not half and 1 <= hour <= _NOON_HOUR, match[0])


# ---- ampersands -------------------------------------------------------------------------------------------------

_AMPERSAND = re.compile(r"(\w+) & (?=(\w+))")
_AND = ("and", "und", "et", "y", "e")


def _respelled_and(match: re.Match[str], contents: Sequence[str], originals: dict[str, str]) -> str:
    """An ampersand between two words as a source has it."""
    before, after = match.groups()
    for word in _AND:
        spelled = f"{before} {word} "
        if any(f"{spelled}{after}" in content for content in contents):
            originals[spelled] = match[0]
            return spelled
    return match[0]


# ---- phrases ----------------------------------------------------------------------------------------------------


_WORD = re.compile(r"\w+")


class _Groups:
    """The phrases of a language that mean the same."""

    def __init__(self, groups: Iterable[Sequence[str]]) -> None:
        self._same = {
            phrase.lower(): [other for other in group if other != phrase] for group in groups for phrase in group
        }
        self.phrases = sorted(self._same, key=len, reverse=True)
        self._by_word: dict[str, list[str]] = {}
        self._signs: list[str] = []
        for phrase in self.phrases:
            if phrase[0].isalnum():
                self._by_word.setdefault(_WORD.findall(phrase)[0], []).append(phrase)
            else:
                self._signs.append(phrase)

    def pattern(self, text: str) -> re.Pattern[str] | None:
        """The pattern of the phrases that a text has, the longest first; None without one."""
        lower = text.lower()
        first_words = self._by_word.keys() & _WORD.findall(lower)
        candidates = [*self._signs, *chain.from_iterable(self._by_word[word] for word in first_words)]
        phrases = sorted((phrase for phrase in candidates if phrase in lower), key=len, reverse=True)
        return re.compile("|".join(map(_as_words, phrases)), re.IGNORECASE) if phrases else None

    def respelled(self, words: str, contents: Sequence[str], originals: dict[str, str]) -> str:
        """A phrase of a group as a source has it; unchanged where a source has the phrase itself, or none of its group."""
        if any(_holds(content, words) for content in contents):
            return words
        # A long s is an s to the pattern, and none in lower case.
        for other in self._same.get(words.lower(), ()):
            if any(_holds(content, other) for content in contents):
                originals[other] = words
                return other
        return words


@cache
def _groups() -> _Groups:
    return _Groups(group.split(" | ") for table in language_tables().values() for group in table.get("same", ()))


_MAY_BE_RESPELLED = AsciiSearch(
    lambda: "|".join(
        (
            r"[0-9](?:[:.][0-9][0-9]| ?[ap]\.? ?m\b| ?uhr| ?h ?[0-9]|[-./][0-9]+[-./][0-9]|[ ,.'][0-9][0-9][0-9])",
            r"[0-9][0-9][0-9][0-9]| & ",
            *map(re.escape, _groups().phrases),
        )
    )
)
"""Finds what may be a time, a date, a large number or a phrase of a group."""


def _holds(content: str, words: str) -> bool:
    """Tells whether a source has a phrase as whole words."""
    lower, phrase = _in_lower_case(content), words.lower()
    at = lower.find(phrase)
    while at >= 0:
        end = at + len(phrase)
        if not (_joins(lower[at - 1 : at], phrase[0]) or _joins(lower[end : end + 1], phrase[-1])):
            return True
        at = lower.find(phrase, at + 1)
    return False


@lru_cache(maxsize=16)
def _in_lower_case(content: str) -> str:
    return content.lower()


def _joins(beside: str, edge: str) -> bool:
    """Tells whether the character beside a phrase belongs to its word; a sign may touch a number: 20°C, 50%."""
    return edge.isalnum() and (beside.isalnum() or beside in {"_", "-"})


def _as_words(phrase: str) -> str:
    """The pattern of a phrase as whole words, as ``_holds`` finds them."""
    before = r"(?<![\w-])" if phrase[0].isalnum() else ""
    return before + re.escape(phrase) + (r"(?![\w-])" if phrase[-1].isalnum() else "")
