"""Caches the paused lanes of the ledger, and pauses lanes there."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic
from typing import NamedTuple

from schemas.failure import FailureKind
from tasks.errors import NightdeskError
from worker.ledger.fleet import Fleet

log = logging.getLogger(__name__)


class Lane(NamedTuple):
    """A way to call a provider; an empty model stands for all of them."""

    provider: str
    lane: str
    model: str = ""

    def __str__(self) -> str:
        return f"the lane {self.lane} of {self.provider}" + (f" for the model {self.model}" if self.model else "")


class Lanes:
    """The paused lanes as this process knows them; belongs to one event loop."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._paused: frozenset[Lane] = frozenset()
        self._refreshed_at = float("-inf")
        self._refreshing = asyncio.Lock()
        self._writing: dict[Lane, asyncio.Task[None]] = {}

    def maybe_paused(self, provider: str, lane: str, model: str) -> bool:
        """Tells whether a lane is paused as far as this process knows, including pauses that it is just writing."""
        return any(name in self._paused or name in self._writing for name in _covering(provider, lane, model))

    async def paused(self, provider: str, lane: str, model: str = "") -> bool:
        """Tells whether a lane is paused. The ledger confirms a pause, so that jobs just released are not held again."""
        if not self.maybe_paused(provider, lane, model):
            return False
        covering = _covering(provider, lane, model)
        if writing := [self._writing[name] for name in covering if name in self._writing]:
            await asyncio.wait(writing)
        await self.refresh(since=monotonic())
        return any(name in self._paused for name in covering)

    async def refresh(self, *, since: float | None = None) -> None:
        """Asks the ledger, unless it was asked after ``since``; callers that wait meanwhile share the next answer."""
        async with self._refreshing:
            if since is None or self._refreshed_at < since:
                began = monotonic()
                self._paused = frozenset(Lane(*row) for row in await self._fleet.paused_lanes())
                self._refreshed_at = began

    def note(self, paused: Sequence[tuple[str, str, str]], *, since: float) -> None:
        """Takes over the paused lanes of a reply to a question of ``since``, unless there was a later one."""
        if self._refreshed_at < since and not self._refreshing.locked():
            self._paused = frozenset(Lane(*row) for row in paused)
            self._refreshed_at = since

    def pause(self, lane: Lane, kind: FailureKind, why: str) -> None:
        """Pauses a lane for all workers; returns at once."""
        if lane not in self._paused and lane not in self._writing:
            self._writing[lane] = asyncio.get_running_loop().create_task(
                self._write(lane, kind, why), name="pause a lane"
            )

    async def _write(self, lane: Lane, kind: FailureKind, why: str) -> None:
        try:
            await self._fleet.pause_lane(lane.provider, lane.lane, why, model=lane.model, kind=kind)
        except NightdeskError as error:
            # The job itself is held all the same, and the next refused call tries again.
            log.warning("the pause of %s could not be noted: %s", lane, error)
        else:
            self._paused |= {lane}
            log.warning("%s is paused: %s", lane, why)
        finally:
            self._writing.pop(lane, None)

    async def retry(self, older_than: timedelta) -> Sequence[Lane]:
        """Resumes lanes with a pause older than this; returns them."""
        resumed = [Lane(*row) for row in await self._fleet.retry_lanes(older_than)]
        for lane in resumed:
            log.warning("%s is tried again", lane)
        return resumed

    async def close(self) -> None:
        """Waits for pauses that are being written."""
        if self._writing:
            await asyncio.wait(self._writing.values())


def _covering(provider: str, lane: str, model: str) -> tuple[Lane, ...]:
    """The lanes that a call belongs to: of its model, and of all models."""
    return (Lane(provider, lane), Lane(provider, lane, model)) if model else (Lane(provider, lane),)
