"""Exposes the metrics: the requests of this process, and the figures of the whole ledger, read when they are asked for."""

import asyncio
import logging
import time
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from starlette.types import Scope

from schemas.failure import FailureKind
from tasks.errors import LedgerError, ServiceUnavailable
from worker.http.documents import Readiness
from worker.ledger.gauges import GaugeReading
from worker.ledger.inspection import LedgerHealth
from worker.ledger.metric_totals import Total
from worker.ledger.postgres import PostgresLedger
from worker.telemetry import metrics as names
from worker.telemetry.metrics import Kind, Metric

log = logging.getLogger(__name__)

# Each series would have a second one with the time it was made.
disable_created_metrics()  # type: ignore[no-untyped-call]

VALID_S = 10.0
"""Seconds that the figures of the ledger are good for: several scrapers cost no more than one."""

METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"})

_FAMILIES: dict[Kind, Any] = {
    Kind.GAUGE: GaugeMetricFamily,
    Kind.COUNTER: CounterMetricFamily,
    Kind.HISTOGRAM: HistogramMetricFamily,
}


class LedgerFigures(Collector):
    """The last figures of the ledger; those of all workers together as they added them up."""

    def __init__(self) -> None:
        self._samples: dict[Metric, list[tuple[tuple[str, ...], float]]] = {}
        self._totals: dict[str, list[Total]] = {}

    def collect(self) -> Iterable[Family]:
        """All families, also those without a sample yet."""
        for metric in (*names.LEDGER, *names.TOTALS):
            family = _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
            for values, number in self._samples.get(metric, ()):
                family.add_metric(values, number)
            if metric.kind is Kind.HISTOGRAM:
                self._add_histogram(family, metric)
            elif metric in names.TOTALS:
                self._add_totals(family, metric)
            yield family

    def forget(self) -> None:
        """Drops what stands in the ledger now; sums stay as they were last read."""
        self._samples = {}

    def take(
        self,
        health: LedgerHealth,
        totals: Iterable[tuple[str, str, str, int]],
        reading: GaugeReading,
        sums: Iterable[Total],
    ) -> None:
        """Takes over new figures."""
        findings = {
            "stuck": health.stuck,
            "overdue": health.overdue,
            "unpublished": health.unpublished,
            "billed_twice": health.billed_twice,
            "left_open": health.left_open,
            "quarantined": len(health.quarantined),
            "provider_batch_late": sum(notice.late for notice in health.remote),
        }
        paused = [lane for lane in health.lanes if lane.paused]
        waiting = [lane for lane in health.lanes if not lane.paused]
        unserved = [lane for lane in waiting if lane.kind is FailureKind.CONFIGURATION]
        unreachable = [lane for lane in waiting if lane.kind is not FailureKind.CONFIGURATION]
        self._samples = {
            names.JOBS: [(row[:3], row[3]) for row in totals],
            names.AVAILABLE: [((step.value,), jobs) for step, jobs in health.available.items()],
            names.QUEUE_AGE: [((step.value,), age_s) for step, age_s in reading.ages_s.items()],
            names.FINDINGS: [((kind,), number) for kind, number in findings.items()],
            names.WORKERS: [((step,), workers) for step, workers in reading.workers.items()],
            names.WORKING: [((), health.working)],
            names.LANES_PAUSED: _counted((lane.provider, lane.lane, lane.kind.value) for lane in paused),
            names.LANES_UNSERVED: _counted((lane.provider, lane.lane) for lane in unserved),
            names.UNREACHABLE: _counted((lane.provider,) for lane in unreachable),
            names.LED: [((), reading.led)],
            names.LEADER_BROKER: [((), reading.leader_has_broker)],
            names.CHECK_BEHIND: [((), reading.check_behind)],
            names.BATCH_JOBS: [((str(batch.batch_id), batch.name), batch.jobs) for batch in reading.batches],
            names.BATCH_FINAL: [((str(batch.batch_id), batch.name), batch.final) for batch in reading.batches],
        }
        self._totals = {}
        for total in sums:
            self._totals.setdefault(total.name, []).append(total)

    def _add_totals(self, family: Any, metric: Metric) -> None:
        totals = self._totals.get(f"{metric.name}_total", ())
        if not metric.labels and not totals:
            # Prometheus sees the growth of what it has seen before.
            family.add_metric((), 0.0)
        for total in totals:
            if len(total.labels) == len(metric.labels):
                family.add_metric(total.labels, total.value)

    def _add_histogram(self, family: Any, metric: Metric) -> None:
        """Adds buckets with those below, as Prometheus wants them; bounds of another version count where they belong."""
        counts: dict[tuple[str, ...], dict[float, float]] = {}
        for total in self._totals.get(f"{metric.name}_bucket", ()):
            if len(total.labels) == len(metric.labels) + 1:
                counts.setdefault(total.labels[:-1], {})[float(total.labels[-1])] = total.value
        sums = {total.labels: total.value for total in self._totals.get(f"{metric.name}_sum", ())}
        for values, by_bound in counts.items():
            buckets = [
                (floatToGoString(bound), sum(count for at, count in by_bound.items() if at <= bound))  # type: ignore[no-untyped-call]
                for bound in (*metric.buckets, float("inf"))
            ]
            family.add_metric(values, buckets, sums.get(values, 0.0))


def _counted(rows: Iterable[tuple[str, ...]]) -> list[tuple[tuple[str, ...], float]]:
    """Rows with their numbers: lanes of several models are one series."""
    return [(row, float(count)) for row, count in Counts(rows).items()]


class Metrics:
    """The metrics of one service. Labels are bounded: routes by their pattern, states and reasons by their names."""

    def __init__(self, ledger: PostgresLedger, lease_for: timedelta, look: Callable[[], Awaitable[Readiness]]) -> None:
        self._ledger = ledger
        self._stuck_after = lease_for
        self._look = look
        self._turn = asyncio.Lock()
        self._read_at = float("-inf")
        registry = self._registry = CollectorRegistry()

        def metric_of(kind: Any, metric: Metric) -> Any:
            options = {"buckets": metric.buckets} if metric.buckets else {}
            return kind(metric.name, metric.help, metric.labels, registry=registry, **options)

        self.requests = metric_of(Counter, names.HTTP_REQUESTS)
        self.seconds = metric_of(Histogram, names.HTTP_SECONDS)
        self.open_requests = metric_of(Gauge, names.HTTP_OPEN)
        self._up = metric_of(Gauge, names.LEDGER_UP)
        self._read_seconds = metric_of(Gauge, names.LEDGER_READ_SECONDS)
        self._redis_up = metric_of(Gauge, names.REDIS_UP)
        self._figures = LedgerFigures()
        registry.register(self._figures)

    def note(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts a request and its time, by the pattern of its route."""
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    async def exposition(self) -> bytes:
        """All metrics as text."""
        async with self._turn:
            if time.monotonic() - self._read_at > VALID_S:
                self._redis_up.set((await self._look()).redis == "ok")
                await self._read()
                self._read_at = time.monotonic()
        return generate_latest(self._registry)

    async def _read(self) -> None:
        began = time.monotonic()
        try:
            health = await self._ledger.inspection.health(stuck_after=self._stuck_after)
            totals = await self._ledger.inspection.totals()
            reading = await self._ledger.gauges.read()
            sums = await self._ledger.metric_totals.read()
        except (ServiceUnavailable, LedgerError) as error:
            log.warning("the figures of the ledger can't be read now: %s", error)
            self._up.set(0)
            # A figure of a while ago would look like one of now.
            self._figures.forget()
            return
        self._up.set(1)
        self._read_seconds.set(time.monotonic() - began)
        self._figures.take(health, totals, reading, sums)
