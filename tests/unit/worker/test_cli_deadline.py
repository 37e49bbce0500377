"""The option ``--deadline``: a time of day to come, or a moment with its time zone."""

import os
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from tasks.errors import InputError
from worker.cli.options import batch_fields, moment_of


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
    ],
)
def test_another_text_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"--deadline '{text}' {reason}"):
        batch_fields(None, None, None, deadline=text)
