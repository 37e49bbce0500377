"""Every command of docs/first-night.md in one shell, in order; the stub stands in for OpenAI."""

from pathlib import Path

import pytest

from tests.acceptance.cli_home import read_lines
from tests.forking import REPOSITORY
from tests.stub.server import running_stub
from tests.tutorial.page import commands, run_page

PAGE = REPOSITORY / "docs" / "first-night.md"
QUESTIONS = 48
"""Of the examples, which stand in for the 1,000 of the page."""


@pytest.mark.tutorial
def test_every_command_of_the_first_night_works(folder: Path) -> None:
    with running_stub() as stub:
        done = run_page(folder, commands(PAGE), {"OPENAI_BASE_URL": f"{stub.url}/v1"})

    # Nothing failed, so there is nothing to retry.
    failed = [command for command, code in done.codes if code and not command.startswith("nightdesk retry")]
    assert failed == [], done.stderr
    assert len(read_lines(folder / "sample.jsonl")) == 20
    results = read_lines(folder / "answers.jsonl")
    assert len(results) == QUESTIONS
    assert {result["state"] for result in results} == {"completed"}
    assert f"batch {results[0]['batch_id']} was submitted before" in done.stderr
