"""Lets steps of bulk work begin a few a turn of the event loop, so that its other work has its turns between them."""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from functools import partial
from time import thread_time

from tasks.scheduling.urgency import Urgency

MOST = 50
"""Steps that begin in one turn of the loop. Each is up to some milliseconds of work; those of one turn come together to the
ledger, which writes their rows in one statement."""

URGENT_TURN_S = 0.001
"""CPU seconds that a turn is to take while something urgent is in hand: that has some forty turns from its submission to its result."""


class LoopTurns:
    """The line of all bulk steps of one event loop: at most ``MOST`` begin in one turn of it.

    While something urgent is in hand, it lets so many begin that a turn takes ``URGENT_TURN_S``, and one at least. The work
    of a step may come in the turn after it: it is the time from turn to turn that is measured.

    Args:
        urgency: of the process.
        clock: CPU seconds of the loop's thread.
    """

    def __init__(self, urgency: Urgency | None = None, clock: Callable[[], float] = thread_time) -> None:
        self.urgency = urgency or Urgency()
        self._clock = clock
        self._count = 0
        """Steps that began in this turn."""
        self._few = 1
        """Steps of a turn while something urgent is in hand."""
        self._began = -math.inf
        """When the turn began in which steps were last let begin."""
        self._line: deque[Callable[[], None]] = deque()
        self._is_turn_due = False

    def add(self, step: Callable[[], None]) -> None:
        """Begin a step in a turn in which few enough others began; at once in this one, if it has room."""
        if self._has_room():
            self._count += 1
            self._ask()
            step()
        else:
            self._line.append(step)
            self._ask()

    async def wait(self) -> None:
        """Return in a turn in which few enough others began."""
        if self._has_room():
            self._count += 1
            self._ask()
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(partial(_release, place))
        self._ask()
        await place

    def _has_room(self) -> bool:
        return not self._line and not self.urgency.count and self._count < MOST

    def _ask(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        self._count = 0
        room = self._room()
        try:
            while self._line and self._count < room:
                self._count += 1
                self._line.popleft()()
        finally:
            if self._count:
                self._ask()

    def _room(self) -> int:
        """Steps that may begin in this turn, by the time since the turn before."""
        if not self.urgency.count:
            return MOST
        now = self._clock()
        took_s, self._began = now - self._began, now
        if took_s > URGENT_TURN_S:
            self._few = max(1, self._few // 2)
        elif self._few < MOST:
            self._few += 1
        return self._few


def _release(place: "asyncio.Future[None]") -> None:
    # Else its task was cancelled.
    if not place.done():
        place.set_result(None)
