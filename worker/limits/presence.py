"""Exchanges messages with the other workers through the ledger: presence, their steps, and the paused lanes."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from time import monotonic
from typing import Any

from schemas.states import Step
from tasks.errors import NightdeskError
from worker.cancellation import cancel
from worker.lanes.unserved import UnservedLane
from worker.ledger.fleet import Fleet
from worker.limits.lanes import Lanes, Unreachable
from worker.scheduling.urgent_workers import UrgentWorkers

log = logging.getLogger(__name__)

EVERY_S = 5.0
LEAVE_S = 1.0
"""Seconds for a stopping worker to leave, because the ledger may be away."""


class Heartbeat:
    """The number of workers and the steps they serve; the last values stay while the ledger is away.

    Args:
        fleet: counts the workers, in the ledger.
        name: of this worker.
        steps: of this worker.
        lanes: get the paused lanes of each reply.
        lane_retry: age of a pause after which its lane is tried again; zero: never.
        urgent_workers: get to know if there are any.
        report: of who answers here.
    """

    def __init__(
        self,
        fleet: Fleet,
        name: str,
        steps: frozenset[Step],
        lanes: Lanes,
        lane_retry: timedelta,
        *,
        urgent_workers: UrgentWorkers | None = None,
        report: Mapping[str, Any] | None = None,
    ) -> None:
        self.workers = 1
        self._urgent_workers = urgent_workers or UrgentWorkers()
        self._own = steps
        self.steps = frozenset[Step]() if self._urgent_workers.only else steps
        self._fleet = fleet
        self._name = name
        self._lanes = lanes
        self._report = report
        self._lane_retry = lane_retry
        self.unreachable: Callable[[], Sequence[Unreachable]] = tuple
        """Gives the unreachable providers; the limiter's, once that is made."""
        self.unserved: Sequence[UnservedLane] = ()
        """The lanes whose waiting calls this worker may be unable to look after."""
        self._beating: asyncio.Task[None] | None = None
        self._try_lane: Callable[[str], None] = lambda _: None
        self._retired = False

    async def start(self, try_lane: Callable[[str], None]) -> None:
        """Beats once, and goes on in the background; ``try_lane`` gets each provider whose lane is resumed."""
        self._try_lane = try_lane
        await self._beat()
        self._beating = asyncio.get_running_loop().create_task(self._run(), name="heartbeat")

    async def retire(self) -> None:
        """Lets the other workers take urgent jobs, while a worker of these alone ends its calls."""
        self._retired = True
        if self._urgent_workers.only:
            try:
                async with asyncio.timeout(LEAVE_S):
                    await self._beat()
            except (NightdeskError, TimeoutError) as error:
                log.warning("the other workers learn only later that this one takes no more urgent jobs: %s", error)

    async def stop(self) -> None:
        """Leaves, so that the other workers may use our share at once."""
        if self._beating is not None:
            await cancel(self._beating)
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._fleet.leave(self._name)
        except (NightdeskError, TimeoutError) as error:
            log.warning("the other workers learn only later that this worker stopped: %s", error)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._beat()
            except NightdeskError as error:
                log.warning("workers can't be counted: %s", error)
            except Exception:
                log.exception("counting workers broke")

    async def _beat(self) -> None:
        away = [asdict(provider) for provider in self.unreachable()]
        away += [asdict(calls) for lane in self.unserved for calls in lane.all()]
        began = monotonic()
        only, retired = self._urgent_workers.only, self._retired
        steps: frozenset[Step] = frozenset() if only else self._own
        present = await self._fleet.beat(self._name, steps, away, urgent_only=only and not retired, report=self._report)
        self.workers, self.steps = present.workers, present.steps
        self._urgent_workers.present = present.urgent
        self._lanes.note(present.paused, since=began)
        if self._lane_retry and present.longest_pause > self._lane_retry:
            for lane in await self._lanes.retry(self._lane_retry):
                self._try_lane(lane.provider)
            await self._lanes.refresh()
