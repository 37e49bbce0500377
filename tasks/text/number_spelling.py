"""Spells the dates and the large numbers of a claim as its sources do: 2000-02-18 as 18 February 2000, 59 000 as 59,000."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple

from tasks.text.lexicon import FOLDER, lexicon

_TEXTS = 256
"""Sources whose dates and numbers are remembered for the next claim."""
_LAST_MONTH = 12
_LAST_DAY = 31

Day = tuple[int, int, int]
"""Year, month and day."""


class _Spelling(NamedTuple):
    """A date or a number as a text has it, with all that it may mean."""

    words: str
    readings: frozenset[Day] | frozenset[str]


_Listed = dict[Day | str, tuple[int, str]]
"""The first spelling of each reading, with its place among all."""


def respell_numbers(text: str, contents: Sequence[str], originals: dict[str, str]) -> str:
    """A claim with each date and each large number in the spelling of its sources.

    What a source has as the claim does, or that none has in any spelling, stays.

    Args:
        text: the claim.
        contents: of its sources.
        originals: takes up what was replaced, by the new words.
    """
    for pattern, read, listed in _FORMS:
        text = pattern.sub(_respelled(read, listed, contents, originals), text)
    return text


def _respelled(
    read: Callable[[re.Match[str]], _Spelling | None],
    listed: Callable[[str], _Listed],
    contents: Sequence[str],
    originals: dict[str, str],
) -> Callable[[re.Match[str]], str]:
    """The function that gives a match in the spelling of the sources."""

    def spelled(match: re.Match[str]) -> str:
        here = read(match)
        if here is None or any(here.words in content for content in contents):
            return match[0]
        for content in contents:
            first = listed(content)
            if places := [first[reading] for reading in here.readings if reading in first]:
                words = min(places)[1]
                originals[words] = match[0]
                return words
        return match[0]

    return spelled


def _all(pattern: re.Pattern[str], read: Callable[[re.Match[str]], _Spelling | None], text: str) -> Iterator[_Spelling]:
    return (spelling for match in pattern.finditer(text) if (spelling := read(match)) is not None)


def _first(spellings: Iterable[_Spelling]) -> _Listed:
    first: _Listed = {}
    for place, spelling in enumerate(spellings):
        for reading in spelling.readings:
            first.setdefault(reading, (place, spelling.words))
    return first


# ---- dates ------------------------------------------------------------------------------------------------------


@cache
def _months() -> dict[str, int]:
    """The months by their names in all languages; a name in two of them is left to the first."""
    months: dict[str, int] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for name, value in lexicon(path.stem).months.items():
            months.setdefault(name, value)
    return months


# Each pattern begins with a set of characters, which Python's engine looks for fast, and only then tells what may stand before it.
_DATE = re.compile(
    r"(?P<first>[0-9](?<![\w./-][0-9])[0-9]{0,3})(?:"
    r"-(?P<iso>[0-9]{2}-[0-9]{2})(?![\w-])"
    r"|(?P<mark>[./])(?P<pointed>[0-9]{1,2}(?P=mark)[0-9]{4})(?!\w)"
    r"|(?:st|nd|rd|th|er|\.|º)?\s(?:of\s|de\s)?(?P<month>[^\W\d_]{3,10})\.?,?\s(?:de\s|del\s)?(?P<year>[0-9]{4})(?!\w)"
    r")"
)
"""A date with its year that begins with digits."""
_MONTH_FIRST = re.compile(
    r"(?P<month>[A-Z](?<!\w[A-Z])[a-z]{2,8})\.?\s(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?,?\s(?P<year>[0-9]{4})(?!\w)"
)
"""The same as English has it, with the month before the day."""


@lru_cache(maxsize=_TEXTS)
def _dates(content: str) -> _Listed:
    """The dates of a text."""
    return _first(chain(_all(_DATE, _date, content), _all(_MONTH_FIRST, _month_first, content)))


def _date(match: re.Match[str]) -> _Spelling | None:
    first = int(match["first"])
    if match["iso"]:
        month, day = map(int, match["iso"].split("-"))
        days = {(first, month, day)}
    elif match["mark"]:
        second, year = map(int, match["pointed"].split(match["mark"]))
        # 3/4/2020 is in March or in April, 3.4.2020 in April.
        days = {(year, second, first)} | ({(year, first, second)} if match["mark"] == "/" else set())
    else:
        days = {(int(match["year"]), _months().get(match["month"].lower(), 0), first)}
    return _spelling(match[0], days)


def _month_first(match: re.Match[str]) -> _Spelling | None:
    return _spelling(match[0], {(int(match["year"]), _months().get(match["month"].lower(), 0), int(match["day"]))})


def _spelling(words: str, days: set[Day]) -> _Spelling | None:
    possible = frozenset(day for day in days if 1 <= day[1] <= _LAST_MONTH and 1 <= day[2] <= _LAST_DAY)
    return _Spelling(words, possible) if possible else None


# ---- large numbers ----------------------------------------------------------------------------------------------

_LARGE = re.compile(
    r"(?P<whole>[0-9](?<![\w.,'’][0-9])"  # noqa: RUF001 - a typographic apostrophe
    r"(?:[0-9]{0,2}(?P<space>[ ,.'’\u00a0\u202f\u2009])[0-9]{3}(?:(?P=space)[0-9]{3})*|[0-9]{4,}|(?<=[03-9])[0-9]{3}))"  # noqa: RUF001
    r"(?P<fraction>[.,][0-9]{1,2})?(?![\w'’]|[.,][0-9])"  # noqa: RUF001
)
"""A number with its thousands set apart, or of four digits and more that is no year."""


@lru_cache(maxsize=_TEXTS)
def _large_numbers(content: str) -> _Listed:
    """The large numbers of a text."""
    return _first(_all(_LARGE, _large, content))


def _large(match: re.Match[str]) -> _Spelling:
    whole = match["whole"].replace(match["space"], "") if match["space"] else match["whole"]
    fraction = (match["fraction"] or "")[1:].rstrip("0")
    # As text: an account number has more digits than a float.
    return _Spelling(match[0], frozenset({f"{whole.lstrip('0')}.{fraction}"}))


_FORMS = ((_DATE, _date, _dates), (_MONTH_FIRST, _month_first, _dates), (_LARGE, _large, _large_numbers))
"""What is respelled: its pattern, how it is read, and what a text has of it."""
