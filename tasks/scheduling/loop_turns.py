"""Lets tasks begin a few a turn of the event loop, so that its other work has its turns between them."""

import asyncio
from collections import deque

from tasks.scheduling.urgency import Urgency


class LoopTurns:
    """A line of tasks of one event loop, of which at most ``most`` go on in one turn of it, and ``few`` while something urgent waits."""

    def __init__(self, most: int, few: int, urgency: Urgency) -> None:
        self._most = most
        self._few = few
        self._urgency = urgency
        self._count = 0
        """Tasks that went on in this turn."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_turn_due = False

    async def wait(self) -> None:
        """Return in a turn in which few enough others went on; at once in this one, if it has room."""
        if self._has_room() and not self._waiting:
            self._count += 1
            self._ask()
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._ask()
        await place

    def _has_room(self) -> bool:
        return self._count < (self._few if self._urgency.count else self._most)

    def _ask(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_due = False
        self._count = 0
        while self._waiting and self._has_room():
            place = self._waiting.popleft()
            # Else its task was cancelled.
            if not place.done():
                place.set_result(None)
                self._count += 1
        if self._count:
            self._ask()
