"""Recurring windows of time, such as "22:00-06:00 Europe/Berlin" or "mon-fri 22:00-06:00 Europe/Berlin"."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EVERY_DAY = frozenset(range(len(_DAYS)))
_SHAPE = re.compile(r"(?:([a-z][a-z,\-]*) +)?(\d{1,2}:\d\d)-(\d{1,2}:\d\d) +(\S+)", re.IGNORECASE)
_DAY = re.compile(r"day +(\S+)", re.IGNORECASE)
_MIDNIGHT = time(0)
_END_OF_DAY = "24:00"
_LONGEST_BREAK = 16
"""Days within which a window of one weekday opens again, with a week to spare for a day on which the clocks leave it out."""

_MOST_INTERVALS = 100

_HELP = "give hours and a time zone, such as '22:00-06:00 Europe/Berlin' or 'mon-fri 22:00-06:00 Europe/Berlin'"


@dataclass(frozen=True, slots=True)
class Interval:
    """One opening of a window, from its beginning up to its end, which is outside."""

    begins_at: datetime
    ends_at: datetime

    def holds(self, at: datetime) -> bool:
        """True if a moment is inside."""
        return self.begins_at <= at < self.ends_at


@dataclass(frozen=True, slots=True)
class Window:
    """Hours of some weekdays by the clocks of a place; one that ends past midnight belongs to the day of its beginning."""

    days: frozenset[int]
    begin: time
    end: time
    """``begin`` of the next day or earlier; midnight is the end of the day."""
    zone: ZoneInfo
    text: str
    """In one spelling."""

    def interval(self, at: datetime) -> Interval:
        """The interval that holds a moment, else the next one.

        It begins and ends when the clocks of the place first show or pass these times: so an hour that the clocks leave out
        or show twice neither closes the window for a day nor opens it twice.
        """
        return next(each for each in self._intervals(at) if each.ends_at > at)

    def after(self, interval: Interval) -> Interval:
        """The interval that follows another one."""
        return self.interval(interval.ends_at)

    def opening(self, at: datetime) -> datetime:
        """The moment itself if it is inside, else the beginning of the next interval."""
        return max(at, self.interval(at).begins_at)

    def finish(self, at: datetime, work: timedelta) -> datetime:
        """The moment at which work that goes on only inside is done, at most a hundred intervals ahead."""
        interval, begin = self.interval(at), self.opening(at)
        for _ in range(_MOST_INTERVALS):
            if work <= interval.ends_at - begin:
                break
            work -= interval.ends_at - begin
            interval = self.after(interval)
            begin = interval.begins_at
        return begin + work

    def last_moment(self, before: datetime) -> datetime:
        """The end of the last interval that begins before a moment; the moment itself if that is inside."""
        return next((min(before, each.ends_at) for each in self._earlier(before)), before)

    def _intervals(self, at: datetime) -> Iterator[Interval]:
        """The intervals from that of yesterday on."""
        for day in self._days(at, range(-1, _LONGEST_BREAK)):
            begins_at, ends_at = _first_moment(day, self.begin, self.zone), self._end_of(day)
            if begins_at < ends_at:
                yield Interval(begins_at, ends_at)

    def _earlier(self, before: datetime) -> Iterator[Interval]:
        """The intervals that begin before a moment, the last one first."""
        # From tomorrow: clocks that were put back past midnight may have shown its beginning already.
        for day in self._days(before, range(1, -_LONGEST_BREAK, -1)):
            begins_at = _first_moment(day, self.begin, self.zone)
            if begins_at < before and begins_at < (ends_at := self._end_of(day)):
                yield Interval(begins_at, ends_at)

    def _days(self, at: datetime, offsets: range) -> Iterator[date]:
        """Days of the window, by their distance from that of a moment."""
        today = at.astimezone(self.zone).date()
        days = (today + timedelta(days=offset) for offset in offsets)
        return (day for day in days if day.weekday() in self.days)

    def _end_of(self, day: date) -> datetime:
        return _first_moment(day + timedelta(days=1) if self.end <= self.begin else day, self.end, self.zone)


def _first_moment(day: date, at: time, zone: ZoneInfo) -> datetime:
    """The first moment, in UTC, at which the clocks of a place show or have passed a time of a day."""
    local = datetime.combine(day, at)
    late, early = local.replace(tzinfo=zone).astimezone(UTC), local.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if early >= late:
        # Shown once, or twice: then this is the first.
        return late
    # Left out: the moment in between at which the clocks were put forward.
    while late - early > timedelta(seconds=1):
        middle = early + (late - early) / 2
        if middle.astimezone(zone).replace(tzinfo=None) < local:
            early = middle
        else:
            late = middle
    return late.replace(microsecond=0)


@lru_cache(maxsize=256)
def parse_window(text: str) -> Window:
    """Reads a window; raises ``ValueError`` with what to give instead.

    >>> parse_window("Mon-Fri 22:00-6:00  Europe/Berlin").text
    'mon-fri 22:00-06:00 Europe/Berlin'
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no window: {_HELP}")
    days, begin, end, zone = match.groups()
    first, last = _time_of(begin, text), _MIDNIGHT if end == _END_OF_DAY else _time_of(end, text)
    if first == last and not (end == _END_OF_DAY and first == _MIDNIGHT):
        raise ValueError(f"{text!r} begins and ends at the same time; all day is 00:00-24:00")
    shown = f"{first:%H:%M}-{_END_OF_DAY if end == _END_OF_DAY else f'{last:%H:%M}'}"
    spelled = " ".join(part for part in (days and days.lower(), shown, zone) if part)
    return Window(_days_of(days, text), first, last, _zone_of(zone), spelled)


@lru_cache(maxsize=1_024)
def gap_before(text: str, deadline: datetime) -> timedelta:
    """The time before a deadline in which a window does not open any more.

    >>> gap_before("22:00-06:00 UTC", datetime(2026, 11, 24, 7, tzinfo=UTC))
    datetime.timedelta(seconds=3600)
    """
    return deadline - parse_window(text).last_moment(deadline)


@lru_cache(maxsize=256)
def parse_period(text: str) -> Window:
    """Reads the period of a budget, a window or a calendar day; raises ``ValueError`` with what to give instead.

    >>> parse_period("day Europe/Berlin").begin
    datetime.time(0, 0)
    """
    if match := _DAY.fullmatch(text.strip()):
        zone = _zone_of(match[1])
        return Window(_EVERY_DAY, _MIDNIGHT, _MIDNIGHT, zone, f"day {match[1]}")
    try:
        return parse_window(text)
    except ValueError as error:
        raise ValueError(str(error).replace("no window: give", "no period: give 'day Europe/Berlin', or")) from None


def _time_of(text: str, window: str) -> time:
    try:
        return time.fromisoformat(text.zfill(5))
    except ValueError:
        raise ValueError(f"{text} in {window!r} is no time of day: {_HELP}") from None


def _zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone; give one such as Europe/Berlin or UTC") from None


def _days_of(text: str | None, window: str) -> frozenset[int]:
    if text is None:
        return _EVERY_DAY
    days: set[int] = set()
    for part in text.lower().split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            raise ValueError(
                f"{part!r} in {window!r} are no weekdays: give mon, tue, wed, thu, fri, sat or sun, or mon-fri"
            )
        number, end = _DAYS.index(first), _DAYS.index(last or first)
        days.add(number)
        while number != end:
            number = (number + 1) % len(_DAYS)
            days.add(number)
    return frozenset(days)


def _spelled(text: str) -> str:
    return parse_window(text).text


WindowText = Annotated[str, AfterValidator(_spelled)]
"""A window in one spelling."""
