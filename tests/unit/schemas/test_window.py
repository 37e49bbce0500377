"""Windows open and close by the clocks of their zone, on days of 23 and 25 hours too."""

import re
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import schemas.window
from schemas.window import Window, parse_period, parse_window

MINUTE = timedelta(minutes=1)
NEAR = timedelta(hours=3)
ZONES = ("Europe/Berlin", "America/New_York", "America/Havana", "Australia/Lord_Howe", "Asia/Kolkata", "UTC")
CHANGES = (
    date(2026, 3, 29),
    date(2026, 10, 25),
    date(2026, 3, 8),
    date(2026, 11, 1),
    date(2026, 4, 5),
    date(2026, 10, 4),
)
"""Days on which the clocks of these zones are put forward or back."""
NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

clock_times = st.builds(time, st.integers(0, 23), st.sampled_from((0, 1, 15, 30, 59)))
moments = st.builds(
    lambda day, minutes: datetime.combine(day, time(0), UTC) + minutes * MINUTE,
    st.sampled_from(CHANGES),
    st.integers(-3_000, 3_000),
)


def first_minute(day: date, at: time, zone: ZoneInfo) -> datetime:
    """The first minute at which a clock on the wall shows a time of a day or a later one, found by looking at it."""
    local = datetime.combine(day, at)
    minute = local.replace(tzinfo=zone).astimezone(UTC) - NEAR
    while minute.astimezone(zone).replace(tzinfo=None) < local:
        minute += MINUTE
    return minute


@settings(max_examples=25)
@given(
    at=moments,
    begin=clock_times,
    end=clock_times,
    zone=st.sampled_from(ZONES),
    days=st.sets(st.sampled_from(NAMES), min_size=1),
)
@example(datetime(2026, 3, 29, 1, tzinfo=UTC), time(2, 30), time(5), "Europe/Berlin", {"sun"})
@example(datetime(2026, 10, 25, 0, 45, tzinfo=UTC), time(1), time(2, 30), "Europe/Berlin", {"sun"})
@example(datetime(2026, 3, 29, 0, 30, tzinfo=UTC), time(2), time(3), "Europe/Berlin", {"sun"})
def test_a_window_is_open_as_a_clock_on_the_wall_says(
    at: datetime, begin: time, end: time, zone: str, days: set[str]
) -> None:
    if begin == end:
        end = (datetime.combine(date.min, end) + timedelta(minutes=90)).time()
    window = parse_window(f"{','.join(days)} {begin:%H:%M}-{end:%H:%M} {zone}")
    interval, place = window.interval(at), ZoneInfo(zone)

    today = at.astimezone(place).date()
    openings = [
        (first_minute(day, begin, place), first_minute(day + timedelta(days=end <= begin), end, place))
        for day in (today + timedelta(days=offset) for offset in range(-1, 9))
        if NAMES[day.weekday()] in days
    ]
    expected = next((first, last) for first, last in openings if first < last and last > at)
    assert (interval.begins_at, interval.ends_at) == expected
    assert window.opening(at) == max(at, interval.begins_at)
    assert window.after(interval).begins_at >= interval.ends_at
    last = window.last_moment(at)
    if interval.begins_at < at:
        assert last == at
    else:
        assert window.interval(last - timedelta(microseconds=1)).ends_at == last
        assert window.interval(last) == interval
    assert last == last_moment_by_search(window, at)


def last_moment_by_search(window: Window, before: datetime) -> datetime:
    """The end of the last interval that begins before a moment, found forwards from two weeks earlier."""
    each = window.interval(before - timedelta(days=14))
    while (following := window.after(each)).begins_at < before:
        each = following
    return min(before, each.ends_at)


def test_the_last_moment_is_found_without_a_walk_through_weeks(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each job that is leased asks for that before its deadline.
    nights, find, looks = parse_window("22:00-06:00 Europe/Berlin"), schemas.window._first_moment, 0

    def count(day: date, at: time, zone: ZoneInfo) -> datetime:
        nonlocal looks
        looks += 1
        return find(day, at, zone)

    monkeypatch.setattr(schemas.window, "_first_moment", count)
    assert nights.last_moment(datetime(2026, 11, 24, 7, tzinfo=UTC)) == datetime(2026, 11, 24, 5, tzinfo=UTC)
    assert looks <= 4


@settings(max_examples=15)
@given(at=moments, zone=st.sampled_from(ZONES))
@example(datetime(2026, 3, 8, 5, tzinfo=UTC), "America/Havana")
def test_days_follow_each_other_without_a_gap(at: datetime, zone: str) -> None:
    days = parse_period(f"day {zone}")
    today = days.interval(at)
    tomorrow = days.after(today)

    assert today.holds(at)
    assert today.ends_at == tomorrow.begins_at
    assert today.ends_at.astimezone(ZoneInfo(zone)).date() == at.astimezone(ZoneInfo(zone)).date() + timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        (" 22:00-6:00   Europe/Berlin ", "22:00-06:00 Europe/Berlin"),
        ("Fri-Mon 00:00-24:00 UTC", "fri-mon 00:00-24:00 UTC"),
        ("Day UTC", "day UTC"),
    ],
)
def test_a_period_has_one_spelling(text: str, spelled: str) -> None:
    assert parse_period(text).text == spelled


def test_days_may_go_over_the_end_of_the_week() -> None:
    assert parse_window("fri-mon 22:00-06:00 UTC").days == {4, 5, 6, 0}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("at night", "'at night' is no window: give hours and a time zone"),
        ("22:00-06:00", "is no window"),
        ("22:00-22:00 UTC", "begins and ends at the same time; all day is 00:00-24:00"),
        ("25:00-26:00 UTC", "25:00 in '25:00-26:00 UTC' is no time of day"),
        ("22:00-06:00 Europe/Bern", "'Europe/Bern' is no time zone; give one such as Europe/Berlin"),
        ("weekend 22:00-06:00 UTC", "'weekend' in 'weekend 22:00-06:00 UTC' are no weekdays"),
    ],
)
def test_a_window_that_is_none_is_refused_with_what_to_give(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_window(text)
