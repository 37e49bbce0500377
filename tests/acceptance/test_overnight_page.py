"""The commands of docs/overnight.md, run in its order by a user in a new home."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.cli_home import Home, new_home

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "overnight.md"


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    with new_home() as home:
        yield home


def _here(command: str, batch: str, directory: Path) -> list[str]:
    """The words of a command with the batch's id, reading from the repository and writing into a directory."""
    # Open all day: the night is not waited for.
    command = command.replace("22:00-06:00", "00:00-24:00").replace("BATCH", batch)
    words = shlex.split(command.replace("examples/", f"{REPOSITORY}/examples/"))
    return [
        str(directory / word) if before == "-o" else word for before, word in zip(["", *words], words, strict=False)
    ]


def test_each_command_of_the_page_does_what_it_says(home: Home, tmp_path: Path) -> None:
    commands = re.findall(r"^\$ nightdesk (.+)$", PAGE.read_text(), re.MULTILINE)
    assert commands
    batch = ""
    for command in commands:
        ended = home.run(*_here(command, batch, tmp_path))
        assert ended.code == 0, f"{command}: {ended.err}"
        if command.startswith("submit"):
            batch = ended.out.strip()
        elif command.endswith("--json"):
            document = json.loads(ended.out)

    lines = len((REPOSITORY / "examples" / "insurance.jsonl").read_text().splitlines())
    assert len((tmp_path / "so-far.jsonl").read_text().splitlines()) == lines
    assert document["status"]["jobs"] == sum(row["jobs"] for row in document["throughput"]) == lines
    html = (tmp_path / "report.html").read_text()
    assert "<title>Report of night</title>" in html
    assert "<h2>Estimate and truth</h2>" in html
