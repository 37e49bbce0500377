"""Messages for people, on standard error."""

import sys
from typing import Any

_CONTROL = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Text of the same length without control characters: what comes from outside must not steer a terminal."""
    return text.translate(_CONTROL)


def tell(message: str) -> None:
    """Write one message."""
    sys.stderr.write(f"{printable(message)}\n")
    sys.stderr.flush()


def warn(message: str) -> None:
    """Write a warning: the command goes on."""
    tell(f"warning: {message}")


def complain(error: Exception) -> None:
    """Say what went wrong in the error's own words; usage errors show the usage too."""
    show: Any = getattr(error, "show", None)
    if show is not None:
        show(file=sys.stderr)
    else:
        tell(f"error: {error}")
