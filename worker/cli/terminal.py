"""Talks to the person and the shell: messages on standard error, documents on standard output."""

import getpass
import sys
from typing import Any

import orjson

_CONTROL = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}

INTERRUPTED = 130
"""Exit code of a command that SIGINT or SIGTERM ended, as shells count it."""


def printable(text: str) -> str:
    """Text of the same length without control characters: text from outside must not steer a terminal."""
    return text.translate(_CONTROL)


def tell(message: str) -> None:
    """Writes one message for people."""
    sys.stderr.write(f"{printable(message)}\n")
    sys.stderr.flush()


def warn(message: str) -> None:
    """Writes a warning: the command goes on."""
    tell(f"warning: {message}")


def complain(error: Exception) -> None:
    """Writes an error in its own words; usage errors show the usage too."""
    show: Any = getattr(error, "show", None)
    if show is not None:
        show(file=sys.stderr)
    else:
        tell(f"error: {error}")


def write_json(value: Any) -> None:
    """Writes one indented JSON document; decimals become strings, as in the wire contract."""
    sys.stdout.buffer.write(orjson.dumps(value, default=str, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def write_line(text: str) -> None:
    """Writes one line, for shells."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def actor() -> str:
    """The user of this process, for the events that the ledger keeps."""
    try:
        return f"cli:{getpass.getuser()}"
    except (KeyError, OSError):
        # A user id without a name, as containers have it.
        return "cli"
