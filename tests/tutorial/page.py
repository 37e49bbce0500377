"""Runs the commands of a page of the docs in one shell, in order."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 900


@dataclass(frozen=True)
class PageRun:
    """The exit codes of the commands, and the messages of all."""

    codes: list[tuple[str, int]]
    stdout: str
    stderr: str


def commands(page: Path) -> list[str]:
    """The lines that a reader types: those of blocks of bash, and after the prompt in those of a console."""
    typed = []
    for language, block in re.findall(r"```(bash|console)\n(.*?)```", page.read_text(), re.DOTALL):
        lines = block.splitlines()
        typed += lines if language == "bash" else [line[2:] for line in lines if line.startswith("$ ")]
    return typed


def run_page(folder: Path, typed: Sequence[str], settings: Mapping[str, str]) -> PageRun:
    """Runs commands in a folder, each after the one before, whatever its exit code."""
    script = "".join(f'{command}\necho "@ $? {number}" >&2\n' for number, command in enumerate(typed))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NIGHTDESK_", "OPENAI_"))}
    environment |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **settings}
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
    return PageRun(list(zip(typed, codes, strict=True)), done.stdout, done.stderr)
