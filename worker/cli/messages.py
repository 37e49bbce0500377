"""Messages for people, on standard error."""

import sys
from typing import Any


def tell(message: str) -> None:
    """Write one message."""
    sys.stderr.write(f"{message}\n")
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
