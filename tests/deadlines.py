"""Deadlines that a busy machine meets: time counts only as far as the machine has a core to give."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

POLL_S = 0.05


def load_per_core() -> float:
    """Runnable processes per core; 1 on a machine with a free core."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def scale_to_load(seconds: float) -> float:
    """A limit for a wait that takes a number of seconds once: as long as the machine is busy now."""
    return seconds * load_per_core()


class Deadline:
    """A deadline that comes later the busier the machine is meanwhile."""

    def __init__(self, seconds: float) -> None:
        self._left_s = seconds
        self._at = time.monotonic()

    def is_over(self) -> bool:
        """Tell whether the time is used up; ask it often."""
        now = time.monotonic()
        self._left_s -= (now - self._at) / load_per_core()
        self._at = now
        return self._left_s <= 0


def until(condition: Callable[[], Value], within_s: float) -> Value | None:
    """Look until something is there; returns the last look when the time is used up."""
    deadline = Deadline(within_s)
    while not (value := condition()):
        if deadline.is_over():
            return None
        time.sleep(POLL_S)
    return value
