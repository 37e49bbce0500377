"""Exchanges messages with the other workers through the ledger: presence, their steps, and the paused lanes."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from time import monotonic
from typing import NamedTuple

from schemas.failure import FailureKind
from schemas.states import Step
from tasks.errors import NightdeskError
from worker.cancellation import cancel
from worker.ledger.fleet import Fleet
from worker.limits.provider_health import Unreachable

log = logging.getLogger(__name__)

EVERY_S = 5.0
LEAVE_S = 1.0
"""Seconds for a stopping worker to leave, because the ledger may be away."""


class Lane(NamedTuple):
    """A way to call a provider; an empty model means all of them."""

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


class Heartbeat:
    """The number of workers and the steps they serve; the last values stay while the ledger is away.

    Args:
        fleet: counts the workers, in the ledger.
        name: of this worker.
        steps: of this worker.
        lanes: get the paused lanes of each reply.
        lane_retry: age of a pause after which its lane is tried again; zero: never.
        unreachable: gives the unreachable providers.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        steps: frozenset[Step],
        lanes: Lanes,
        lane_retry: timedelta,
        *,
        unreachable: Callable[[], Sequence[Unreachable]] = tuple,
    ) -> None:
        self.workers = 1
        self.steps = self._own = steps
        self._fleet = fleet
        self._name = name
        self._lanes = lanes
        self._lane_retry = lane_retry
        self._unreachable = unreachable
        self._beating: asyncio.Task[None] | None = None

    async def start(self, try_lane: Callable[[str], None]) -> None:
        """Beats once, and goes on in the background; ``try_lane`` gets each provider whose lane is resumed."""
        await self._beat(try_lane)
        self._beating = asyncio.get_running_loop().create_task(self._run(try_lane), name="heartbeat")

    async def stop(self) -> None:
        """Leaves, so that the other workers may use our share at once."""
        if self._beating is not None:
            await cancel(self._beating)
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._fleet.leave(self._name)
        except (NightdeskError, TimeoutError) as error:
            log.warning("the other workers learn only later that this worker stopped: %s", error)

    async def _run(self, try_lane: Callable[[str], None]) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._beat(try_lane)
            except NightdeskError as error:
                log.warning("workers can't be counted: %s", error)
            except Exception:
                log.exception("counting workers broke")

    async def _beat(self, try_lane: Callable[[str], None]) -> None:
        away = [asdict(provider) for provider in self._unreachable()]
        began = monotonic()
        present = await self._fleet.beat(self._name, self._own, away)
        self.workers, self.steps = present.workers, present.steps
        self._lanes.note(present.paused, since=began)
        if self._lane_retry and present.longest_pause > self._lane_retry:
            for lane in await self._lanes.retry(self._lane_retry):
                try_lane(lane.provider)
            await self._lanes.refresh()
