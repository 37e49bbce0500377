"""Knows the lanes that are paused because a quota or spend limit is used up; the ledger keeps them."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from time import monotonic
from typing import Protocol

from tasks.errors import NightdeskError

log = logging.getLogger(__name__)

Lane = tuple[str, str]
"""Provider and lane."""


class LaneLedger(Protocol):
    """Where paused lanes are kept."""

    async def pause_lane(self, provider: str, lane: str, why: str) -> None:
        """Note that a lane is paused; the first reason stays."""
        ...

    async def paused_lanes(self) -> Sequence[Lane]:
        """The lanes that are paused now."""
        ...

    async def retry_lanes(self, older_than: timedelta) -> Sequence[Lane]:
        """Let lanes go on that were paused for so long, with the jobs held for it; returns those lanes."""
        ...


class Lanes:
    """The paused lanes as this process knows them; belongs to one event loop."""

    def __init__(self, ledger: LaneLedger) -> None:
        self._ledger = ledger
        self._paused: frozenset[Lane] = frozenset()
        self._looked_at = float("-inf")
        self._looking = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    async def paused(self, provider: str, lane: str) -> bool:
        """Whether a lane is paused. A pause is confirmed, so that jobs just released are not held again."""
        if (provider, lane) not in self._paused:
            return False
        await self.look(since=monotonic())
        return (provider, lane) in self._paused

    async def look(self, *, since: float | None = None) -> None:
        """Ask the ledger, unless somebody asked after ``since``; those who wait meanwhile share the next answer."""
        async with self._looking:
            if since is None or self._looked_at < since:
                began = monotonic()
                self._paused = frozenset(await self._ledger.paused_lanes())
                self._looked_at = began

    def pause(self, provider: str, lane: str, why: str) -> None:
        """Pause a lane for all workers; returns at once."""
        if (provider, lane) not in self._paused:
            task = asyncio.get_running_loop().create_task(self._write(provider, lane, why), name="pause a lane")
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _write(self, provider: str, lane: str, why: str) -> None:
        try:
            await self._ledger.pause_lane(provider, lane, why)
        except NightdeskError as error:
            # The job itself is held all the same, and the next call that is refused tries again.
            log.warning("the pause of the lane %s of %s could not be noted: %s", lane, provider, error)
            return
        self._paused |= {(provider, lane)}
        log.warning("the lane %s of %s is paused: %s", lane, provider, why)

    async def retry(self, older_than: timedelta) -> Sequence[Lane]:
        """Let lanes go on that were paused for so long; returns them."""
        resumed = await self._ledger.retry_lanes(older_than)
        for provider, lane in resumed:
            log.warning("the lane %s of %s is tried again", lane, provider)
        return resumed

    async def close(self) -> None:
        """Wait for pauses that are being written."""
        if self._writing:
            await asyncio.wait(self._writing)
