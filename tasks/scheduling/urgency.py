"""Counts the urgent work of a process: while there is some, its event loop does the other work in smaller parts."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Urgency:
    """The urgent jobs and messages that a process has in hand, over all its steps."""

    count: int = 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Counts one meanwhile."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
