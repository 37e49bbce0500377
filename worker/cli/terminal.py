"""Talks to the person and the shell: messages on standard error, documents on standard output."""

import getpass
import io
import os
import re
import sys
import textwrap
from typing import Any, TextIO

import orjson
from pydantic_core import ValidationError

_CONTROL = {
    code: "\N{REPLACEMENT CHARACTER}"
    # The last two turn the direction of all that follows in the line.
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t"
}

LOG_COLUMNS = 80
"""Columns where there is no terminal."""

INTERRUPTED = 130
"""Exit code of a command that SIGINT or SIGTERM ended, as shells count it."""


def printable(text: str) -> str:
    """Text of the same length without control characters: text from outside must not steer a terminal."""
    return text.translate(_CONTROL)


_COMMAND = re.compile(r"'nightdesk [^']*'|(?<=: )nightdesk [^;]*$|--map \S+(?: --map \S+)*", re.MULTILINE)
"""A command in a message: quoted, or after a colon to the end of its line; and options to be copied."""
_JOINT = "\N{NO-BREAK SPACE}"


def wrap(message: str, columns: int) -> str:
    """A message in lines of at most so many columns; ids and commands are whole, so that they can be copied.

    >>> print(wrap("it is paused; let it go on with: nightdesk release 01a2", 40))
    it is paused; let it go on with:
    nightdesk release 01a2
    """
    whole = _COMMAND.sub(lambda command: command[0].replace(" ", _JOINT), message)
    lines = (
        textwrap.wrap(line, columns, break_long_words=False, break_on_hyphens=False) or [""]
        for line in whole.split("\n")
    )
    return "\n".join("\n".join(each) for each in lines).replace(_JOINT, " ")


def columns(stream: TextIO | None = None) -> int | None:
    """The columns of the terminal that messages, or a stream, are written to; None where they go elsewhere."""
    try:
        return os.get_terminal_size((stream or sys.stderr).fileno()).columns or None
    except (OSError, ValueError, io.UnsupportedOperation):
        return None


def text_columns(width: int) -> int:
    """The columns for text in a terminal of some width.

    One less, for a full row leaves the cursor at its end, where some terminals begin another one; but at least one.
    """
    return max(1, width - 1)


def tell(message: str) -> None:
    """Writes one message for people, at word ends where a terminal is narrower."""
    _write(sys.stderr, printable(message))


def _write(stream: TextIO, text: str) -> None:
    width = columns(stream)
    stream.write(f"{text if width is None else wrap(text, text_columns(width))}\n")
    stream.flush()


def warn(message: str) -> None:
    """Writes a warning: the command goes on."""
    tell(f"warning: {message}")


def complain(error: Exception) -> None:
    """Writes an error in its own words; usage errors show the usage too."""
    show: Any = getattr(error, "show", None)
    if show is not None:
        usage = io.StringIO()
        if isinstance(cause := error.__cause__, ValidationError):
            # Only a wrong option pays for the loading of the words.
            from tasks.raw_jobs.refusals import problem_words  # noqa: PLC0415

            error.message = "; ".join(map(problem_words, cause.errors()))  # type: ignore[attr-defined]
        show(file=usage)
        tell(usage.getvalue().rstrip("\n"))
    else:
        tell(f"error: {error}")


def write_json(value: Any) -> None:
    """Writes one indented JSON document; decimals become strings, as in the wire contract."""
    sys.stdout.buffer.write(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def write_line(text: str) -> None:
    """Writes one line, for shells; a line break in a name makes no second one. A terminal gets it at word ends."""
    _write(sys.stdout, printable(text).replace(chr(10), _CONTROL[0]))


def actor() -> str:
    """The user of this process, for the events that the ledger keeps."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        # A user id without a name, as containers have it.
        return "cli"
