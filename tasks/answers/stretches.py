"""Looks up places among stretches of a text, in a time that hardly grows with their number."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable


class Stretches:
    """Stretches ``[start, end)`` of a text; those that overlap count as one."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(spans):
            if self._ends and start < self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            elif start < end:
                self._starts.append(start)
                self._ends.append(end)

    def hold(self, position: int) -> bool:
        """Tells whether a character stands in one of them."""
        at = bisect_right(self._ends, position)
        return at < len(self._ends) and self._starts[at] <= position

    def touch(self, start: int, end: int) -> bool:
        """Tells whether another stretch has a character of one of them."""
        at = bisect_right(self._ends, start)
        return at < len(self._ends) and self._starts[at] < end

    def end_after(self, position: int) -> int | None:
        """The end of the one that begins before a position and does not end before it; None without one."""
        at = bisect_left(self._ends, position)
        return self._ends[at] if at < len(self._ends) and self._starts[at] < position else None
