"""Every command of docs/overnight.md in one shell, in order; the stub stands in for OpenAI, with batches that end in seconds."""

import json
from pathlib import Path

import pytest

from tests.acceptance.cli_home import read_lines
from tests.forking import REPOSITORY
from tests.stub.billing import billing
from tests.stub.server import running_stub
from tests.tutorial.page import commands, run_page

PAGE = REPOSITORY / "docs" / "overnight.md"
TRIAL, QUESTIONS = 100, 130
"""Lines of the trial, and all: the examples again and again, each with a number."""

BATCH_S = 4.0
"""Time until a batch of the provider ends."""

SETTINGS = {"NIGHTDESK_PROVIDER_BATCH_GATHER_S": "1", "NIGHTDESK_PROVIDER_BATCH_LOOK_S": "1"}


def write_questions(path: Path, count: int) -> None:
    """Writes the examples so often that there are so many lines, none like another one."""
    lines = [
        line for each in sorted((REPOSITORY / "examples").glob("*.jsonl")) for line in each.read_text().splitlines()
    ]
    jobs = [json.loads(lines[number % len(lines)]) for number in range(count)]
    rows = [{"query": f"{job['query']} (case {number})", "context": job["context"]} for number, job in enumerate(jobs)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.mark.tutorial
def test_every_command_of_the_night_works(folder: Path) -> None:
    write_questions(folder / "questions.jsonl", QUESTIONS)
    # Open all day: the night is not waited for.
    typed = [command.replace("22:00-06:00", "00:00-24:00") for command in commands(PAGE)]
    with running_stub() as stub, billing():
        stub.remote.ends_after_s = BATCH_S
        done = run_page(folder, typed, {"OPENAI_BASE_URL": f"{stub.url}/v1", **SETTINGS})
        assert len(stub.remote.batches) >= 2, "the trial and the night rode in batches"

    assert [command for command, code in done.codes if code] == [], done.stderr
    results = read_lines(folder / "answers.jsonl")
    assert len(results) == QUESTIONS - TRIAL
    assert {result["state"] for result in results} == {"completed"}
    html = (folder / "report.html").read_text()
    assert "<title>Report of night</title>" in html
