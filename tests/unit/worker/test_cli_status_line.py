"""The status line of a running batch: it fits its terminal, and says first what matters."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from schemas.batch import BatchStatus
from tests.unit.worker.test_cli_waiting import status
from worker.cli.progress import Rate, all_wait, status_line
from worker.cli.summary import ending_lines

HOUR = timedelta(hours=1)


def busy(**fields: Any) -> BatchStatus:
    states = {"completed": 331, "running": 486, "available": 183_000, "scheduled": 50}
    return status(
        states,
        {"budget": 50},
        **{"outcomes": {"answered": 308, "partial": 23}, "max_cost_usd": Decimal(400), **fields},
        spent_usd=Decimal("312.5"),
        reserved_usd=Decimal("1.25"),
    )


def pace(per_s: float) -> Rate:
    rate = Rate()
    rate.per_s = per_s
    return rate


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_line_fits_and_begins_with_progress_pace_and_money(columns: int) -> None:
    line = status_line(busy(), pace(42.6), columns)
    assert len(line) <= columns
    assert line.startswith("331 of 183,867 final, " + ("486 running, " if columns == 120 else "") + "42.6/s, 2.2 s")
    assert ("2.2 s until the ceiling, 312.50 of 400 USD" in line) == (columns >= 80)
    small = status(
        {"completed": 4143, "running": 480, "available": 3377}, spent_usd=Decimal("0.24"), max_cost_usd=Decimal(5)
    )
    assert ("4,143 of 8,000 final, 480 running, 71.4/s, 54 s left" in status_line(small, pace(71.4), columns)) == (
        columns > 40
    )
    assert ("1.25 USD reserved, 308 answered" in line) == (columns == 120)


def test_the_time_ends_at_the_ceiling_when_the_money_does_not_reach_the_end() -> None:
    half = {"completed": 400, "running": 40, "available": 560}
    spent = {"spent_usd": Decimal(2), "max_cost_usd": Decimal(4)}
    assert pace(10.0).describe(status(half, **spent)) == "10.0/s, 40 s until the ceiling"
    assert pace(10.0).describe(status(half, **{**spent, "max_cost_usd": Decimal(5)})) == "10.0/s, 60 s left"
    short = status({"completed": 400, "running": 40, "scheduled": 560}, {"budget": 560}, **spent)
    assert pace(10.0).describe(short) == "10.0/s, 4.0 s until the ceiling"


def test_a_deadline_that_will_be_missed_is_told() -> None:
    soon = datetime.now(UTC) + timedelta(minutes=10)
    assert " late" in pace(1.0).describe(status({"running": 3600}, deadline=soon))
    assert " late" not in pace(100.0).describe(status({"running": 3600}, deadline=soon))


def test_an_outage_is_told_with_the_next_try_and_leaves_the_pace_as_it_was() -> None:
    times = iter([0.0, 10.0, 15.0, 300.0, 310.0])
    rate = Rate(lambda: next(times))
    for final in (0, 20):
        rate.update(final)
    assert rate.per_s == 2.0
    away = status({"completed": 20, "scheduled": 80})
    for _ in range(2):
        rate.update(20, idle=all_wait(away))
    assert rate.describe(away) == "", "nothing moves"
    later = datetime.now(UTC) + 2 * HOUR
    assert re.search(
        rf"next job at (\d{{4}}-\d\d-\d\d )?{later.astimezone():%H:%M:%S}", status_line(away, rate, 80, later)
    )

    past = datetime.now(UTC) - timedelta(minutes=1)
    assert status_line(away, Rate(), 80, past) == "20 of 100 final: 80 scheduled", "due, and no worker takes it up"

    rate.update(40)
    assert rate.per_s == 2.0, "five minutes without the provider do not count"
    assert rate.describe(status({"completed": 40, "running": 60})) == "2.0/s, 30 s left"

    tonight = status({"scheduled": 80}, not_before=datetime.now(UTC) + 2 * HOUR)
    assert "0 of 80 final, begins at " in status_line(tonight, Rate(), 80, later)


def test_a_run_ends_with_a_bar_for_each_outcome_and_with_a_line_in_a_log() -> None:
    states = {"completed": 990, "failed": 1, "scheduled": 9}
    spent = {"spent_usd": Decimal("0.145326"), "max_cost_usd": Decimal(1)}
    ended = status(states, {"budget": 9}, outcomes={"answered": 940, "partial": 50}, **spent)
    assert ending_lines(ended, 37.0, None) == [
        "1,000 jobs in 37 s: 940 answered, 50 partial, 1 failed, 9 held (budget); cost 0.145 USD of 1"
    ]
    assert ending_lines(ended, 37.0, 80) == [
        "1,000 jobs in 37 s; cost 0.145 USD of 1",
        "  answered      940  94% " + "█" * 47,
        "  partial        50   5% ██",
        "  failed          1  <1% █",
        "  held (budget)   9   1% █",
    ]
    assert max(map(len, ending_lines(ended, 37.0, 40))) < 40
