"""The list of ``nightdesk status`` and the options of a job: the state of a batch in a word, and fields set by hand."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.unit.worker.test_cli_waiting import status
from worker.cli.commands.batch_list import show, state_of
from worker.cli.console import console

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("state", "states", "holds", "fields"),
    [
        ("active", {"running": 2, "completed": 1}, {}, {}),
        ("final", {"completed": 3}, {}, {}),
        ("held", {"scheduled": 3}, {"budget": 3}, {}),
        ("paused", {"scheduled": 3}, {"batch_paused": 3}, {"paused": True}),
        ("waiting", {"scheduled": 3}, {}, {"not_before": NOW + timedelta(hours=1)}),
        ("waiting", {"scheduled": 3}, {}, {"window": f"{NOW + HOUR:%H:%M}-{NOW + 2 * HOUR:%H:%M} UTC"}),
        ("active", {"scheduled": 3}, {}, {"window": f"{NOW - HOUR:%H:%M}-{NOW + HOUR:%H:%M} UTC"}),
        ("cancelled", {"cancelled": 2, "running": 1}, {}, {"cancelled_at": NOW, "cancelling": True}),
        ("erased", {"completed": 3}, {}, {"erased_at": NOW}),
    ],
)
def test_a_batch_has_its_state_in_a_word(
    state: str, states: dict[str, int], holds: dict[str, int], fields: dict[str, Any]
) -> None:
    assert state_of(status(states, holds, **fields), NOW) == state


@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_fits_its_terminal_and_cuts_no_id(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("worker.cli.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", str(columns))
    batch = status({"completed": 900, "failed": 12, "running": 88}, name="contracts of the north " * 4)
    show(console(), [batch])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    # A full row leaves the cursor at its end, where some terminals begin another one.
    assert max(map(len, lines)) < columns
    assert str(batch.batch_id) in lines[0]
    assert "912 of 1,000" in "".join(lines)
    assert "12 failed" in "".join(lines)
