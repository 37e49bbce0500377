"""Waits for a condition that sends no signal, always with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["poll", "seconds_left"]

_Result = TypeVar("_Result")

_PAUSE_S = 0.02  # short compared with a server's start (0.1 s and up), long compared with one check (a millisecond)


def poll(look: Callable[[], _Result], seconds: float) -> _Result:
    """Calls ``look`` until it returns a true value or ``seconds`` have passed; returns the last value.

    ``look`` runs at least once; its exceptions propagate.
    """
    deadline = time.monotonic() + seconds
    while True:
        result = look()
        if result or time.monotonic() >= deadline:
            return result
        time.sleep(_PAUSE_S)


def seconds_left(deadline: float) -> float:
    """Returns the seconds until a deadline on the monotonic clock, never less than 0."""
    return max(0.0, deadline - time.monotonic())
