"""Counts the jobs and calls of this process, apart from their path, and adds the sums to the ledger every few seconds."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from tasks.errors import NightdeskError
from tasks.ports import Observation
from worker.cancellation import cancel
from worker.ledger.metric_totals import MetricTotals
from worker.scheduling.dispatch import Dispatch
from worker.telemetry import metrics
from worker.telemetry.tally import Series, Tally

if TYPE_CHECKING:
    from worker.telemetry.spans import Spans

log = logging.getLogger(__name__)

COUNT_EVERY_S = 1.0
"""Finished jobs are kept for so long."""
STORE_EVERY_S = 10.0
CLOSING_S = 2.0

COUNT_A_TURN = 50
"""Observations counted in one turn of the event loop: a millisecond."""

MOST_KEPT = 50_000
"""Observations that wait to be counted; a loop that is busier than that counts no more for a second."""


class Metering:
    """``observe`` is all that a job pays for: it appends to a queue, and runs no code of ours."""

    def __init__(self, spans: "Spans | None" = None) -> None:
        self._spans = spans
        self._queue: deque[Observation] = deque()
        self.observe: Callable[[Observation], None] = self._queue.append
        self._tally = Tally()
        self._totals: MetricTotals | None = None
        self._duties: Dispatch | None = None
        self._counted = {metrics.RESCUES: 0, metrics.EXPIRED: 0}
        self._task: asyncio.Task[None] | None = None
        self._warned = self._untraced = False

    def start(self, totals: MetricTotals, duties: Dispatch) -> None:
        """Begins to count."""
        self._totals, self._duties = totals, duties
        self._task = asyncio.get_running_loop().create_task(self._run(totals), name="metering")

    async def stop(self) -> None:
        """Stores what was counted; with the ledger away, the last seconds are lost."""
        if self._task is None or self._totals is None:
            return
        await cancel(self._task)
        await self._store_last(self._totals)
        if self._spans is not None:
            await asyncio.to_thread(self._spans.close)

    async def _store_last(self, totals: MetricTotals) -> None:
        try:
            async with asyncio.timeout(CLOSING_S):
                self.count()
                await self._store(totals)
        except TimeoutError:
            log.warning("the last figures for /metrics could not be stored")
        except Exception:
            log.exception("the last figures for /metrics could not be counted")

    async def _run(self, totals: MetricTotals) -> None:
        stored_at = float("-inf")
        while True:
            await asyncio.sleep(COUNT_EVERY_S)
            try:
                while len(self._queue) > COUNT_A_TURN:
                    self._count_some()
                    await asyncio.sleep(0)
                self.count()
                if monotonic() - stored_at >= STORE_EVERY_S:
                    if stored_at < 0:
                        await totals.prune()
                        self._tally.know(await totals.read())
                    stored_at = monotonic()
                    await self._store(totals)
            except NightdeskError as error:
                log.warning("figures for /metrics can't be stored now: %s", error)
            except Exception:
                log.exception("counting for /metrics broke")

    def count(self) -> None:
        """Counts what waits."""
        while self._queue:
            self._count_some()
        if self._duties is not None:
            self._count_duty(metrics.RESCUES, self._duties.rescue.rescued)
            self._count_duty(metrics.EXPIRED, self._duties.expired)

    def _count_some(self) -> None:
        """Counts the first of what waits."""
        queue, tally = self._queue, self._tally
        if (excess := len(queue) - MOST_KEPT) > 0:
            for _ in range(excess):
                queue.popleft()
            tally.count(metrics.DROPPED, by=excess)
        for _ in range(min(COUNT_A_TURN, len(queue))):
            observation = queue.popleft()
            self._trace(observation)
            try:
                tally.add(observation)
            except Exception:
                tally.count(metrics.DROPPED)
                if not self._warned:
                    self._warned = True
                    log.exception("a job could not be counted for /metrics; later ones like it are not logged")

    def _trace(self, observation: Observation) -> None:
        if self._spans is None:
            return
        try:
            self._spans.add(observation)
        except Exception:
            if not self._untraced:
                self._untraced = True
                log.exception("a job could not be traced; later ones like it are not logged")

    def sums(self) -> dict[Series, float]:
        """The sums since they were last stored; they begin again."""
        return self._tally.take()

    def _count_duty(self, metric: metrics.Metric, jobs: int) -> None:
        if new := jobs - self._counted[metric]:
            self._counted[metric] = jobs
            self._tally.count(metric, by=new)

    async def _store(self, totals: MetricTotals) -> None:
        if not (sums := self.sums()):
            return
        try:
            await totals.add(sums)
        except BaseException:
            self._tally.restore(sums)
            raise
