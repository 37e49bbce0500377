"""Deadlines that a busy machine meets: time counts only as far as the machine has a core to give."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")

POLL_S = 0.05


def crowding() -> float:
    """How many processes want a core for each that there is; 1 on a machine with a free one."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def stretched(seconds: float) -> float:
    """A limit for a wait that takes a number of seconds once: as long as the machine is busy now."""
    return seconds * crowding()


class Patience:
    """A deadline that comes later the busier the machine is meanwhile."""

    def __init__(self, seconds: float) -> None:
        self._left_s = seconds
        self._at = time.monotonic()

    def is_over(self) -> bool:
        """Tell whether the time is used up; ask it often."""
        now = time.monotonic()
        self._left_s -= (now - self._at) / crowding()
        self._at = now
        return self._left_s <= 0


def until(look: Callable[[], Seen], within_s: float) -> Seen | None:
    """Look until something is there; returns the last look when the time is used up."""
    patience = Patience(within_s)
    while not (seen := look()):
        if patience.is_over():
            return None
        time.sleep(POLL_S)
    return seen
