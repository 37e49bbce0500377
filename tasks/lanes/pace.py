"""Times of the lanes with a wait: when calls are sent, and when their provider is asked for them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from tasks.errors import LedgerUnavailable
from tasks.ports.remote_batches import Gathering

log = logging.getLogger(__name__)


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

    def next_look(self, looks: int) -> timedelta:
        """The pause after so many looks at a batch."""
        return self.first_look * min(10.0, 1.5**looks)


async def take_turns(what: str, turn: Callable[[], Awaitable[bool]], pause: timedelta) -> None:
    """Takes turns until cancelled, with a pause after each one that left nothing to do at once."""
    while True:
        try:
            busy = await turn()
        except LedgerUnavailable as error:
            log.warning("%s wait for the ledger: %s", what, error)
            busy = False
        except Exception:
            log.exception("looking after %s broke", what)
            busy = False
        if not busy:
            await asyncio.sleep(pause.total_seconds())
