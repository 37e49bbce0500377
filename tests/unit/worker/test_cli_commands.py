import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from schemas.job import JobRequest
from schemas.record import JobResult
from tasks.errors import (
    BrokerUnavailable,
    ConfigurationError,
    IdempotencyConflict,
    InputError,
    LedgerUnavailable,
    NightdeskError,
    NotFound,
    SchemaMismatch,
)
from worker import cli
from worker.cli.commands import NAMES
from worker.cli.exits import exit_code_of
from worker.cli.help import ANSWER, ARGUMENTS, CHECK, FILES, MONEY, NIGHT, OPTIONS, TERMINAL
from worker.cli.job_view import show_answer
from worker.cli.terminal import tell
from worker.local import StartError
from worker.supervise.state_directory import InUse
from worker.supervise.workers import WorkerFailed

EXAMPLES = Path(__file__).parents[3] / "examples"


pytestmark = pytest.mark.usefixtures("as_before")


FAULTS = [
    ("--temperature", "9", "must be at most 2"),
    ("--max-tokens", "0", "must be at least 1"),
    ("--citation-style", "foo", "must be one of"),
    ("--lane", "fast", "must be one of"),
    ("--max-cost-usd", "five", "must be a number, such as 0.50"),
    ("--callback-url", "ftp://x", "must be an address"),
    ("--escalate", "nobody", "no provider 'nobody'"),
    ("--judge", "nobody:m", "no provider 'nobody'"),
    ("--prompt-name", "poem", "no prompt 'poem'"),
    ("--provider", "nobody", "no provider 'nobody'"),
]


@pytest.mark.parametrize(
    ("command", "option", "value", "words"),
    [*(("run", *fault) for fault in FAULTS), ("submit", *FAULTS[0]), ("check", *FAULTS[7])],
)
def test_the_fault_of_an_option_is_told_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, option: str, value: str, words: str
) -> None:
    answer = ', "response": "A."' if command == "check" else ""
    (questions := tmp_path / "in.jsonl").write_text(f'{{"query": "A?", "context": ["A."]{answer}}}\n')
    output = [] if command == "submit" else ["-o", str(tmp_path / "out.jsonl")]
    assert cli.run([command, str(questions), *output, option, value]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert f"error: {option}: {words}" in message
    assert "config." not in message


@pytest.mark.parametrize("command", ["status", "estimate", "submit", "run", "up", "doctor"])
def test_a_home_that_is_a_file_is_named_with_its_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (home := tmp_path / "home").write_text("no directory")
    monkeypatch.setenv("NIGHTDESK_HOME", str(home))
    example = str(next(EXAMPLES.glob("*.jsonl")))
    files = {"estimate": [example], "submit": [example], "run": [example, "-o", str(tmp_path / "out.jsonl")]}
    assert cli.run([command, *files.get(command, [])]) != 0
    printed = " ".join("".join(capsys.readouterr()).split())
    assert "NIGHTDESK_HOME" in printed
    assert "is a file: set it to a directory of yours" in printed


def test_the_help_of_a_run_begins_with_what_everybody_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["run", "--help"]) == 0
    titles = re.split(r"^(\S.*):$", capsys.readouterr().out, flags=re.MULTILINE)
    groups = {
        title: re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)
        for title, text in zip(titles[1::2], titles[2::2], strict=True)
    }
    assert list(groups) == [ARGUMENTS, OPTIONS, FILES, MONEY, ANSWER, CHECK, NIGHT, TERMINAL]
    needed = "--output --resume --name --max-cost-usd --map --again --model --help"
    assert groups[OPTIONS] == needed.split()


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("SLOT", "SLOTS"),
        ("PROVIDRE", "PROVIDER"),
        ("DATABASEURL", "DATABASE_URL"),
        ("HTTP_PORT", ""),
        ("JUDGE_KEY", ""),
    ],
)
def test_a_setting_that_is_nearly_one_is_named_by_every_command(
    variable: str, near: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"NIGHTDESK_{variable}", "3")
    cli.run(["schema", "JobRequest"])
    warning = f"warning: NIGHTDESK_{variable} is no setting and has no effect; the nearest is NIGHTDESK_{near}\n"
    assert capsys.readouterr().err == (warning if near else "")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("PROVIDERS", "{bad", "NIGHTDESK_PROVIDERS is not the JSON it should be: Expecting property name"),
        ("CHECKERS", '{"a": ', "NIGHTDESK_CHECKERS is not the JSON it should be: Expecting value at character 7"),
        ("TENANT_LIMITS", "secret", "NIGHTDESK_TENANT_LIMITS is not the JSON it should be"),
    ],
)
def test_a_setting_that_is_no_json_is_named(
    variable: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"NIGHTDESK_{variable}", value)
    assert cli.run(["status"]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert "secret" not in message


def test_a_setting_of_a_file_that_is_nearly_one_is_refused_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text("slot = 3\n")
    monkeypatch.setenv("NIGHTDESK_CONFIG", str(tmp_path / "config.toml"))
    assert cli.run(["status"]) == 2
    assert "NIGHTDESK_SLOT: is no setting; the nearest is NIGHTDESK_SLOTS" in capsys.readouterr().err


@pytest.mark.parametrize(("former", "now"), [("list", "status"), ("labels", "label"), ("resume", "release")])
def test_a_former_name_of_a_command_has_its_help(former: str, now: str, capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    for name in (former, now):
        assert cli.run([name, "--help"]) == 0
        pages.append(capsys.readouterr().out)
    assert pages[0] == pages[1]


@pytest.mark.parametrize("name", NAMES)
def test_each_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([name, "--help"]) == 0
    assert f"Usage: nightdesk {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["bogus"],
        ["run"],
        ["run", "-o", "out"],
        ["run", "missing.jsonl", "-o", "out"],
        ["run", "in", "-o", "out", "--resume", "00000000-0000-0000-0000-000000000000"],
        ["run", "--resume", "no id", "-o", "out"],
        ["results", "no id"],
        ["show", "no id"],
        ["status"],
        ["status", "no id"],
        ["cancel", "no id"],
        ["retry", "no id"],
        ["release", "00000000-0000-0000-0000-000000000000", "--max-cost-usd", "much"],
        ["schema", "Nothing"],
        ["up", "--workers", "0"],
        ["demo", "--examples", "nowhere"],
    ],
)
def test_wrong_usage_gives_a_short_message(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 2
    assert 0 < len(capsys.readouterr().err.splitlines()) < 30 + len(NAMES)


def test_a_command_that_only_reads_makes_no_home(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["status"]) == 2
    assert "there is no ledger in" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("no"), 2),
        (IdempotencyConflict("no"), 2),
        (ConfigurationError("no"), 2),
        (NotFound("no"), 2),
        (LedgerUnavailable("no"), 3),
        (BrokerUnavailable("no"), 3),
        (SchemaMismatch("no"), 3),
        (StartError("no"), 3),
        (WorkerFailed("no"), 3),
        (InUse("no"), 1),
        (NightdeskError("no"), 1),
        (ValueError("a defect"), None),
    ],
)
def test_every_error_has_its_exit_code(error: Exception, code: int | None) -> None:
    assert exit_code_of(error) == code


def test_messages_can_not_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell("a \x1b[31mred\x1b[0m line\x07 and \x9bmore \u202eand \u2067turned\nnext")
    stderr = capsys.readouterr().err
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2067"} & set(stderr)
    assert stderr.count("\n") == 2


def test_an_answer_can_not_steer_a_terminal() -> None:
    request = JobRequest(query="\x1b]0;title\x07[bold]?", context=())
    result = JobResult(
        job_id="00000000-0000-0000-0000-000000000000",
        batch_id="00000000-0000-0000-0000-000000000000",
        position=0,
        state="completed",
        outcome="answered",
        response="[red]\x1b[2Jtext",
    )
    stream = io.StringIO()
    show_answer(Console(width=80, file=stream), request, result)
    output = stream.getvalue()
    assert "\x1b" not in output
    assert "[bold]?" in output
    assert "[red]" in output
