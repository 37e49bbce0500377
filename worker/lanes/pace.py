"""Times of the lanes with a wait: when calls are sent, and when their provider is asked for them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto

from tasks.errors import LedgerUnavailable
from tasks.ports.remote_batches import Gathering

log = logging.getLogger(__name__)

MOST_IDLE = 5
"""Pauses of a lane without work in the place of one: few seconds beside the minutes that its calls take."""


@dataclass(frozen=True, slots=True)
class LanePace:
    """Times of the lane; one set for all processes."""

    gathering: Gathering = field(default_factory=Gathering)
    first_look: timedelta = timedelta(seconds=30)
    """From its creation until a batch is first asked for; the pause doubles up to ten times as much."""
    create_within: timedelta = timedelta(minutes=10)
    """Longest time to create a batch. After twice this time a batch that the provider does not list does not exist."""
    tick: timedelta = timedelta(seconds=2)
    keep_for: timedelta = timedelta(seconds=30)
    """A worker that looks after a batch says so again within this time, or another one does."""

    @property
    def unserved_after(self) -> timedelta:
        """Age of parked calls at which no worker can send them: one that can is busy with a creation at most, and then sends them."""
        return self.gathering.longest + self.create_within

    def next_look(self, looks: int, leave_in: timedelta | None = None) -> timedelta:
        """The pause after so many looks at a batch: the moment to leave it is not slept through."""
        pause = self.first_look * min(10.0, 1.5**looks)
        if leave_in is None:
            return pause
        return min(pause, leave_in if leave_in > timedelta(0) else self.first_look)


class Work(Enum):
    """The work that a turn came upon."""

    NOTHING = auto()
    WAITING = auto()
    """Nothing that can be done at once."""
    MORE = auto()
    """There may be more to do at once."""


async def take_turns(what: str, turn: Callable[[], Awaitable[Work]], pause: timedelta) -> None:
    """Takes turns until cancelled, with a pause after each one that left nothing to do at once.

    Most workers never see such a lane: the pause grows to ``MOST_IDLE`` times as much while turns find nothing at all.
    """
    idle_turns = 0
    while True:
        work = Work.WAITING
        try:
            work = await turn()
        except LedgerUnavailable as error:
            log.warning("%s wait for the ledger: %s", what, error)
        except Exception:
            log.exception("looking after %s broke", what)
        idle_turns = idle_turns + 1 if work is Work.NOTHING else 0
        if work is not Work.MORE:
            await asyncio.sleep(pause.total_seconds() * min(max(1, idle_turns), MOST_IDLE))
