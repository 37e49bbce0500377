"""Waits for something that gives no signal of its own, always with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["poll", "seconds_left"]

_Found = TypeVar("_Found")

_PAUSE_S = 0.02  # short beside a server's start (0.1 s and up), long beside one look (a millisecond)


def poll(look: Callable[[], _Found], seconds: float) -> _Found:
    """Call ``look`` until it returns something true or ``seconds`` have passed; return its last answer.

    It looks at least once. What ``look`` raises passes through.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found or time.monotonic() >= deadline:
            return found
        time.sleep(_PAUSE_S)


def seconds_left(deadline: float) -> float:
    """Return the seconds until a deadline on the monotonic clock, never less than 0."""
    return max(0.0, deadline - time.monotonic())
