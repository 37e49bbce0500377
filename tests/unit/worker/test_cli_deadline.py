"""The options ``--not-before`` and ``--deadline``: a time of day to come, or a moment with its time zone."""

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from tasks.errors import InputError
from worker.cli.options import Handover, describe_window, moment_of


@pytest.fixture(autouse=True)
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = os.environ.get("TZ")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    assert os.environ.get("TZ") == before
    time.tzset()


@pytest.mark.parametrize(
    ("now", "text", "moment"),
    [
        ("2026-11-23T22:00+01:00", "07:00", "2026-11-24T07:00+01:00"),
        ("2026-11-23T22:00+01:00", "7:00", "2026-11-24T07:00+01:00"),
        ("2026-11-23T06:59+01:00", "07:00", "2026-11-23T07:00+01:00"),
        ("2026-11-23T07:00+01:00", "07:00", "2026-11-24T07:00+01:00"),
        # The night in which summer time ends has an hour more.
        ("2026-10-24T22:00+02:00", "07:00", "2026-10-25T07:00+01:00"),
        ("2026-11-23T22:00+01:00", "2026-11-24T06:00Z", "2026-11-24T07:00+01:00"),
        ("2026-11-23T22:30+01:00", "07:00 America/New_York", "2026-11-24T13:00+01:00"),
        # It is the next day there already, and its 7 o'clock is to come.
        ("2026-11-23T22:30+01:00", "7:00 Asia/Tokyo", "2026-11-23T23:00+01:00"),
    ],
)
def test_a_deadline_is_to_come(now: str, text: str, moment: str) -> None:
    assert moment_of(text, datetime.fromisoformat(now)) == datetime.fromisoformat(moment)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tomorrow", "is no time"),
        ("25:00", "is no time"),
        ("2026-11-24T07:00", "has no time zone"),
        ("2020-01-01T07:00Z", "is past"),
        ("7am", "is no time"),
    ],
)
def test_another_text_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"--deadline '{text}' {reason}"):
        _ = Handover(deadline=text).batch


def test_an_unknown_time_zone_is_named() -> None:
    with pytest.raises(InputError, match="--deadline: 'Zurich' is no time zone; give one such as Europe/Zurich"):
        _ = Handover(deadline="07:00 Zurich").batch


def test_a_time_of_day_for_the_end_is_the_next_one_after_the_beginning() -> None:
    batch = Handover(not_before="22:00 Europe/Berlin", deadline="07:00 Europe/Berlin").batch

    begins, ends = (datetime.fromisoformat(batch[name]) for name in ("not_before", "deadline"))
    assert (begins.hour, ends.hour, ends.date() - begins.date()) == (22, 7, timedelta(days=1))


def test_a_batch_does_not_end_before_it_may_begin() -> None:
    with pytest.raises(InputError, match="--deadline '2031-01-01T07:00Z' is not after 2031-01-02"):
        _ = Handover(not_before="2031-01-02T07:00Z", deadline="2031-01-01T07:00Z").batch


def test_a_time_of_day_for_the_end_is_the_next_one_after_the_window_opens() -> None:
    batch = Handover(
        not_before="2031-01-01T12:00Z", deadline="07:00 Europe/Berlin", window="22:00-6:00 Europe/Berlin"
    ).batch

    assert batch["deadline"] == "2031-01-02T07:00:00+01:00"
    assert describe_window(batch).endswith(
        "; calls begin only in 22:00-06:00 Europe/Berlin, first on 2031-01-01 22:00 CET"
    )
    with pytest.raises(InputError, match="--window: 'at night' is no window: give hours and a time zone"):
        _ = Handover(window="at night").batch
