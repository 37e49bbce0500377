"""Keeps the ids of messages until there is room to lease them, in the order of the messages."""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID


@dataclass(slots=True, eq=False)
class Hint:
    """The ids of one message that were not yet taken; ``done`` is set when all are, or no one will take them."""

    ids: deque[UUID]
    done: asyncio.Event = field(default_factory=asyncio.Event)


class HintLine:
    """A line of hints."""

    def __init__(self) -> None:
        self._hints: deque[Hint] = deque()

    def __len__(self) -> int:
        return sum(len(hint.ids) for hint in self._hints)

    def add(self, ids: Iterable[UUID]) -> Hint:
        """Adds the hint of a message."""
        hint = Hint(deque(ids))
        self._hints.append(hint)
        return hint

    def take(self, room: int) -> list[UUID]:
        """Takes up to ``room`` ids, of several messages if need be."""
        ids: list[UUID] = []
        while self._hints and len(ids) < room:
            hint = self._hints[0]
            while hint.ids and len(ids) < room:
                ids.append(hint.ids.popleft())
            if not hint.ids:
                self._hints.popleft()
                hint.done.set()
        return ids

    def drop(self, hint: Hint) -> bool:
        """Takes a hint out of the line; False if it is not there: all its ids were taken."""
        if hint not in self._hints:
            return False
        self._hints.remove(hint)
        return True

    def release(self) -> None:
        """Lets all messages go, with the ids that nobody took."""
        while self._hints:
            self._hints.popleft().done.set()
