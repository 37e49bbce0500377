"""Spells the dates and the large numbers of a claim as its sources do: 2000-02-18 as 18 February 2000, 59 000 as 59,000."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
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
    readings: frozenset[Day] | frozenset[float]


def respell_numbers(text: str, contents: Sequence[str], originals: dict[str, str]) -> str:
    """A claim with each date and each large number in the spelling of its sources.

    What a source has as the claim does, or that none has in any spelling, stays.

    Args:
        text: the claim.
        contents: of its sources.
        originals: takes up what was replaced, by the new words.
    """
    for pattern, read, listed in ((_dates_pattern(), _date, _dates), (_LARGE, _large, _large_numbers)):
        text = pattern.sub(_respelled(read, listed, contents, originals), text)
    return text


def _respelled(
    read: Callable[[re.Match[str]], _Spelling | None],
    listed: Callable[[str], tuple[_Spelling, ...]],
    contents: Sequence[str],
    originals: dict[str, str],
) -> Callable[[re.Match[str]], str]:
    """The function that gives a match in the spelling of the sources."""

    def spelled(match: re.Match[str]) -> str:
        here = read(match)
        if here is None or any(here.words in content for content in contents):
            return match[0]
        for content in contents:
            for there in listed(content):
                if not here.readings.isdisjoint(there.readings):
                    originals[there.words] = match[0]
                    return there.words
        return match[0]

    return spelled


def _all(pattern: re.Pattern[str], read: Callable[[re.Match[str]], _Spelling | None], text: str) -> Iterator[_Spelling]:
    return (spelling for match in pattern.finditer(text) if (spelling := read(match)) is not None)


# ---- dates ------------------------------------------------------------------------------------------------------


@cache
def _months() -> dict[str, int]:
    """The names of months in all languages; a word of two is left to the first."""
    months: dict[str, int] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for name, value in lexicon(path.stem).months.items():
            months.setdefault(name, value)
    return months


@cache
def _dates_pattern() -> re.Pattern[str]:
    names = "|".join(map(re.escape, sorted(_months(), key=len, reverse=True)))
    return re.compile(
        r"(?<![\w./-])(?:"
        r"(?P<iso>\d{4}-\d{2}-\d{2})(?![\w-])"
        r"|(?P<pointed>\d{1,2}(?P<mark>[./])\d{1,2}(?P=mark)\d{4})(?!\w)"
        rf"|(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|\.|º)?\s(?:of\s|de\s)?(?P<month>{names})\.?,?\s(?:de\s|del\s)?(?P<year>\d{{4}})(?!\w)"
        rf"|(?P<first_month>{names})\.?\s(?P<second_day>\d{{1,2}})(?:st|nd|rd|th)?,?\s(?P<last_year>\d{{4}})(?!\w)"
        r")",
        re.IGNORECASE,
    )


@lru_cache(maxsize=_TEXTS)
def _dates(content: str) -> tuple[_Spelling, ...]:
    """The dates of a text, in order."""
    return tuple(_all(_dates_pattern(), _date, content))


def _date(match: re.Match[str]) -> _Spelling | None:
    days: set[Day]
    if match["iso"]:
        year, month, day = map(int, match["iso"].split("-"))
        days = {(year, month, day)}
    elif match["pointed"]:
        first, second, year = map(int, match["pointed"].split(match["mark"]))
        # 3/4/2020 is in March or in April, 3.4.2020 in April.
        days = {(year, second, first)} | ({(year, first, second)} if match["mark"] == "/" else set())
    elif match["month"]:
        days = {(int(match["year"]), _months()[match["month"].lower()], int(match["day"]))}
    else:
        days = {(int(match["last_year"]), _months()[match["first_month"].lower()], int(match["second_day"]))}
    possible = frozenset(date for date in days if 1 <= date[1] <= _LAST_MONTH and 1 <= date[2] <= _LAST_DAY)
    return _Spelling(match[0], possible) if possible else None


# ---- large numbers ----------------------------------------------------------------------------------------------

_LARGE = re.compile(
    r"(?<![\w.,'’])(?:"  # noqa: RUF001 - a typographic apostrophe
    r"(?P<parted>\d{1,3}(?P<space>[ ,.'’\u00a0\u202f\u2009])\d{3}(?:(?P=space)\d{3})*)(?P<fraction>[.,]\d{1,2})?"  # noqa: RUF001
    r"|(?P<plain>\d{4,})(?P<plain_fraction>[.,]\d{1,2})?"
    r")(?![\w'’]|[.,]\d)"  # noqa: RUF001
)
"""A number with its thousands set apart, or of four digits and more."""


@lru_cache(maxsize=_TEXTS)
def _large_numbers(content: str) -> tuple[_Spelling, ...]:
    """The large numbers of a text, in order."""
    return tuple(_all(_LARGE, _large, content))


def _large(match: re.Match[str]) -> _Spelling | None:
    whole = match["parted"].replace(match["space"], "") if match["parted"] else match["plain"]
    fraction = (match["fraction"] or match["plain_fraction"] or "").replace(",", ".")
    return _Spelling(match[0], frozenset({float(whole + fraction)}))
