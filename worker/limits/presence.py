"""Keeps count of the workers and of the steps they serve, and looks after paused lanes, every few seconds."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from time import monotonic
from typing import Any, Protocol

from schemas.states import Step
from tasks.errors import NightdeskError
from worker.ledger.fleet import Present
from worker.limits.health import Unreachable
from worker.limits.lanes import Lanes
from worker.process.cancellation import cancelled

log = logging.getLogger(__name__)

EVERY_S = 5.0
LEAVE_S = 1.0
"""Seconds to say goodbye: with the ledger away a stopping worker has better things to do with its time."""


class PresenceLedger(Protocol):
    """Where workers are counted."""

    async def beat(self, worker: str, steps: Iterable[Step], unreachable: Sequence[dict[str, Any]] = ...) -> Present:
        """Note that a worker is alive, which steps it serves and which providers it can't reach; returns who is."""
        ...

    async def leave(self, worker: str) -> None:
        """Note that a worker makes no calls any more."""
        ...


class WorkersPresent:
    """How many workers there are, and the steps they serve; what was last known stays while the ledger is away.

    Args:
        ledger: counts them.
        name: of this one.
        steps: that it serves.
        lanes: looked after on the way.
        lane_retry: after so long a paused lane is tried again; zero: never.
        unreachable: gives the providers to which no connection comes about.
    """

    def __init__(
        self,
        ledger: PresenceLedger,
        name: str,
        steps: frozenset[Step],
        lanes: Lanes,
        lane_retry: timedelta,
        *,
        unreachable: Callable[[], Sequence[Unreachable]] = tuple,
    ) -> None:
        self.workers = 1
        self.steps = self._own = steps
        self._ledger = ledger
        self._name = name
        self._lanes = lanes
        self._lane_retry = lane_retry
        self._unreachable = unreachable
        self._beating: asyncio.Task[None] | None = None

    async def start(self, try_lane: Callable[[str], None]) -> None:
        """Count once, and go on in the background; ``try_lane`` is told of providers whose lane goes on."""
        await self._once(try_lane)
        self._beating = asyncio.get_running_loop().create_task(self._beat(try_lane), name="presence")

    async def stop(self) -> None:
        """Leave, so that the others may use our share at once."""
        if self._beating is not None:
            await cancelled(self._beating)
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._ledger.leave(self._name)
        except (NightdeskError, TimeoutError) as error:
            log.warning("the others learn only later that this worker stopped: %s", error)

    async def _beat(self, try_lane: Callable[[str], None]) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._once(try_lane)
            except NightdeskError as error:
                log.warning("workers can't be counted: %s", error)
            except Exception:
                log.exception("counting workers broke")

    async def _once(self, try_lane: Callable[[str], None]) -> None:
        away = [asdict(one) for one in self._unreachable()]
        began = monotonic()
        present = await self._ledger.beat(self._name, self._own, away)
        self.workers, self.steps = present.workers, present.steps
        self._lanes.note(present.paused, since=began)
        if self._lane_retry and present.longest_pause > self._lane_retry:
            for lane in await self._lanes.retry(self._lane_retry):
                try_lane(lane.provider)
            await self._lanes.look()
