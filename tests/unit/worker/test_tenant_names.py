"""Names of tenants and amounts of budgets, where they enter: a wrong one is refused with its field, and none steers a terminal."""

from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from worker import cli
from worker.cli import options
from worker.cli.terminal import write_line
from worker.operations.api_keys import MOST_USD, amount
from worker.settings import Settings

pytestmark = pytest.mark.usefixtures("as_before")

WRONG = {
    "": "must not be empty",
    " ": "must not be empty",
    "a\nb": "steer a terminal",
    "a\x1b[2J": "steer a terminal",
    "a\u202eb": "steer a terminal",
    "a\udcff": "no text in UTF-8",
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("command", [["budget", "set", "day UTC", "1"], ["keys", "add", "ada"]], ids=["budget", "keys"])
def test_no_command_takes_a_name_that_is_none(
    command: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NIGHTDESK_HOME", str(tmp_path / "home"))

    assert cli.run([*command, "--tenant", name]) == 2

    error = capsys.readouterr().err
    assert "tenant: " in error
    assert WRONG[name] in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["a\nb", "a\x1b", " "])
def test_the_setting_is_refused_too(name: str) -> None:
    with pytest.raises(ValidationError, match="tenant"):
        Settings(tenant=name)


def test_a_name_of_old_can_be_looked_for_and_makes_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert options.tenant_of("a\nb\x1b") == "a\nb\x1b"

    write_line("a\nb\x1b[2J")

    assert capsys.readouterr().out == "a\ufffdb\ufffd[2J\n"


@pytest.mark.parametrize("text", ["1000000", "NaN", "ten", "0.000000001", "1e-30"])
def test_an_amount_that_can_not_be_kept_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["budget", "set", "day UTC", text]) == 2
    assert "USD: " in capsys.readouterr().err


def test_amounts_are_kept_as_they_are() -> None:
    assert [amount("0.00000001"), amount("7.50"), amount("999999")] == [Decimal("1e-8"), Decimal("7.5"), MOST_USD]


def test_an_option_that_is_none_is_no_period_and_no_amount(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["budget", "set", "day UTC", "1", "--tennant", "a"]) == 2
    assert cli.run(["budget", "set", "day UTC", "-1"]) == 2
    assert "No such option: --tennant" in capsys.readouterr().err
