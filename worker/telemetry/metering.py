"""Counts the jobs and calls of this process, and adds the sums to the ledger every few seconds."""

import asyncio
import logging
from collections import Counter
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

STORE_EVERY_S = 10.0
CLOSING_S = 2.0

COUNTED = "counted for /metrics"


class Metering:
    """Counts what the journal wrote, and hands it to the spans; some ten microseconds a job."""

    def __init__(self, spans: "Spans | None" = None) -> None:
        self._spans = spans
        self._tally = Tally()
        self._takers = {COUNTED: self._tally.add} | ({} if spans is None else {"traced": spans.add})
        self._faults: Counter[str] = Counter()
        self._totals: MetricTotals | None = None
        self._duties: Dispatch | None = None
        self._counted = {metrics.RESCUES: 0, metrics.EXPIRED: 0, metrics.DROPPED: 0}
        self._task: asyncio.Task[None] | None = None

    def observe(self, observation: Observation) -> None:
        """Counts and traces a job or call; what breaks here is no fault of theirs, and is told once."""
        for what, take in self._takers.items():
            try:
                take(observation)
            except Exception:
                self._faults[what] += 1
                if self._faults[what] == 1:
                    log.exception("a job could not be %s; later ones like it are not logged", what)

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
                await self._store(totals)
        except TimeoutError:
            log.warning("the last figures for /metrics could not be stored")
        except Exception:
            log.exception("the last figures for /metrics could not be counted")

    async def _run(self, totals: MetricTotals) -> None:
        knows_models = False
        while True:
            try:
                if not knows_models:
                    await totals.prune()
                    self._tally.know(await totals.read())
                    knows_models = True
                await self._store(totals)
            except NightdeskError as error:
                log.warning("figures for /metrics can't be stored now: %s", error)
            except Exception:
                log.exception("counting for /metrics broke")
            await asyncio.sleep(STORE_EVERY_S)

    def sums(self) -> dict[Series, float]:
        """The sums since they were last stored, with those of the duties; they begin again."""
        if self._duties is not None:
            self._count_duty(metrics.RESCUES, self._duties.rescue.rescued)
            self._count_duty(metrics.EXPIRED, self._duties.expired)
        self._count_duty(metrics.DROPPED, self._faults[COUNTED])
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
