"""Runs a command at a pseudo-terminal and captures its screen, as a person sees it."""

import os
import pty
import struct
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from select import select

import pyte

from tests.deadlines import scale_to_load
from tests.forking import start_command

ROWS = 300
"""Of the screen, so that nothing scrolls away."""
_WITHIN_S = 60.0


@dataclass(frozen=True)
class Capture:
    """The last screen of a command, and each line that it showed meanwhile in its last row."""

    lines: list[str]
    progress: list[str]
    code: int

    @property
    def text(self) -> str:
        """The screen in one line, as it would be without a narrow terminal."""
        return " ".join(" ".join(self.lines).split())


def capture(arguments: Sequence[str | Path], environment: Mapping[str, str], columns: int) -> Capture:
    """Run a command to its end in a terminal of so many columns."""
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    # Not the widths of the one who runs the tests.
    variables = {name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES", "NO_COLOR"}}
    process = start_command(arguments, {**variables, "TERM": "xterm"}, stdout=follower, stderr=follower, stdin=follower)
    os.close(follower)
    screen = pyte.Screen(columns, ROWS)
    stream, progress = pyte.ByteStream(screen), list[str]()
    try:
        while data := _read(leader):
            stream.feed(data)
            progress += _lines(screen)[-1:]
        return Capture(_lines(screen), progress, process.wait(scale_to_load(_WITHIN_S)))
    finally:
        os.close(leader)
        process.kill()


def _read(leader: int) -> bytes:
    assert select([leader], [], [], scale_to_load(_WITHIN_S))[0], "the command says nothing"
    try:
        return os.read(leader, 65_536)
    except OSError:
        # The last descriptor of the other side is closed.
        return b""


def _lines(screen: pyte.Screen) -> list[str]:
    lines = [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return lines
