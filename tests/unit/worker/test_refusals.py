"""Refusals of settings, options and files speak of what was written, too: no class, pattern or phrase of a validator or parser."""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import typer

from tasks.errors import ConfigurationError, InputError
from tasks.ports import NewBatch
from tests.unit.tasks.test_refusals import ALLOWED, BAD, PROGRAM
from worker.cli.commands import COMMANDS, load
from worker.cli.terminal import complain
from worker.operations.file_intake import InputOrder, Intake
from worker.settings import Settings, load_settings

SHELL = r"whsec_\$\(openssl rand -base64 32\)"
"""A command to type, in a message."""

TEXTS = ("x", "-5", "1e400", "[", "2026-13-45", "nan", "9" * 30, "")


def foreign(messages: set[str]) -> list[str]:
    """Those with words of the program."""
    return [each for each in messages if PROGRAM.search(ALLOWED.sub("", each.replace(SHELL.replace("\\", ""), "")))]


def refusals_of_settings(monkeypatch: pytest.MonkeyPatch, text: str) -> Iterator[str]:
    """The refusals of a text as each setting: of all at once, without those refused before, until the rest is taken."""
    rest = {f"NIGHTDESK_{name.upper()}" for name in Settings.model_fields}
    refused = rest
    while refused:
        with monkeypatch.context() as patch:
            for name in rest:
                patch.setenv(name, text)
            try:
                load_settings()
            except ConfigurationError as error:
                yield from re.split("; (?=NIGHTDESK_)", str(error))
                refused = rest.intersection(re.findall(r"NIGHTDESK_[A-Z_]+", str(error)))
            else:
                refused = set()
        rest -= refused


def test_no_refusal_of_a_setting_speaks_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {*map(json.dumps, BAD), *(each for each in BAD if isinstance(each, str))}
    messages = {message for text in texts for message in refusals_of_settings(monkeypatch, text)}
    assert len(messages) > 100
    assert foreign(messages) == []


def options() -> Iterator[tuple[Any, list[str]]]:
    """Each option of each command with values that are none, and the command."""
    for commands in COMMANDS.values():
        for name in commands:
            command: Any = typer.main.get_command(load([name]))
            for parameter in command.commands[name].params:
                if parameter.opts[-1].startswith("-") and not parameter.is_flag:
                    for text in TEXTS:
                        yield command.commands[name], [parameter.opts[-1], text]


def test_no_refusal_of_an_option_speaks_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    refused = 0
    for command, arguments in options():
        try:
            command.make_context(command.name, [*arguments])
        except Exception as error:  # noqa: BLE001 - the parser's own, of which there are several
            complain(error)
            refused += "Invalid value" in str(getattr(error, "format_message", str)())
    assert refused > 100
    lines = {line for line in capsys.readouterr().err.splitlines() if line.startswith("Error: ")}
    assert foreign({line.replace("Invalid value for", "") for line in lines}) == []


GZIP = gzip.compress(b'{"query": "Why?", "context": ["Because."]}\n' * 99, mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        b"{", b'{"query": "Why?', b'{"query": tru}', b'[{"query": "Why?"}, {"query": }]', b'[{"query": "Why?"', b'{"query": 01}',
        b'{"query": "\xff"}', b'{"query": "a\tb"}', b'{"query": [NaN]}', b'[{"query": Infinity}]', b'{"query": "\\ud800"}',
        b'{"data": [{"query": "Why?"', b'{"query": ["Why?"', b'query,context\n"a" b,c\n', b'query,context\n"a,c\n',
        b'query,metadata\na,"{x"\n', b"query,context\na,b,c\n", b"PAR1xxxxPAR1", GZIP[:60], GZIP[:30] + b"xxxx" + GZIP[34:],
        b"\x89PNG", b"query\x00", "query,context\nä,b\n".encode("cp1252"), b"a b c", b"a,b\n1,2\n",
    ],
)  # fmt: skip
def test_no_refusal_of_a_file_speaks_of_the_program(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "in"
    path.write_bytes(content)
    refused: list[str] = []
    intake = Intake(
        InputOrder([str(path)]),
        NewBatch(id=uuid4(), tenant="default"),
        on_refused=lambda line: refused.append(str(line)),
    )
    try:
        list(intake.jobs())
    except InputError as error:
        refused.append(str(error))
    assert len(refused) == 1
    assert foreign({each.replace(str(path), "").replace("not valid JSON", "") for each in refused}) == []
