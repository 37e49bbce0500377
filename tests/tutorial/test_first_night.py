"""Every command of docs/first-night.md in one shell, in order; the stub stands in for OpenAI."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_home import read_lines
from tests.forking import REPOSITORY
from tests.stub.server import running_stub
from worker import local

PAGE = REPOSITORY / "docs" / "first-night.md"
QUESTIONS = 48
"""Of the examples, which stand in for the 1,000 of the page."""
PATIENCE_S = 900


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not tmp_path: as root that one lies below a 0700 directory, and the servers' data would be put elsewhere.
    with tempfile.TemporaryDirectory(prefix="nightdesk-tutorial-") as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "examples").symlink_to(REPOSITORY / "examples")
        try:
            yield path
        finally:
            local.remove(path / ".nightdesk")


def commands() -> list[str]:
    """The lines that a reader types: those of blocks of bash, and after the prompt in those of a console."""
    typed = []
    for language, block in re.findall(r"```(bash|console)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        lines = block.splitlines()
        typed += lines if language == "bash" else [line[2:] for line in lines if line.startswith("$ ")]
    return typed


@pytest.mark.tutorial
def test_every_command_of_the_first_night_works(folder: Path) -> None:
    script = "".join(f'{command}\necho "@ $? {number}" >&2\n' for number, command in enumerate(commands()))
    with running_stub() as stub:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("NIGHTDESK_", "OPENAI_"))
        }
        environment |= {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OPENAI_BASE_URL": f"{stub.url}/v1",
        }
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    codes = [int(code) for code in re.findall(r"^@ (\d+) \d+$", done.stderr, re.MULTILINE)]
    failed = [command for command, code in zip(commands(), codes, strict=True) if code]
    # Nothing failed, so there is nothing to retry.
    assert [command for command in failed if not command.startswith("nightdesk retry")] == [], done.stderr
    assert len(read_lines(folder / "sample.jsonl")) == 20
    results = read_lines(folder / "answers.jsonl")
    assert len(results) == QUESTIONS
    assert {result["state"] for result in results} == {"completed"}
    assert f"batch {results[0]['batch_id']} was submitted before" in done.stderr
