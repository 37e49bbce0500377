"""Names all metrics of the HTTP service: its requests, and the figures of the whole ledger, read when they are asked for."""

import asyncio
import logging
import time
from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tasks.errors import LedgerError, ServiceUnavailable
from worker.ledger.inspection import Inspection

log = logging.getLogger(__name__)

# Each series would have a second one with the time it was made.
disable_created_metrics()  # type: ignore[no-untyped-call]

VALID_S = 10.0
"""Seconds that the figures of the ledger are good for: several scrapers cost no more than one."""

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
METHODS = frozenset({"GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH"})


class Metrics:
    """The metrics of one service. Labels are bounded: routes by their pattern, states and reasons by their names."""

    def __init__(self, inspection: Inspection, lease_for: timedelta) -> None:
        self._inspection = inspection
        self._stuck_after = lease_for
        self._turn = asyncio.Lock()
        self._read_at = float("-inf")
        registry = self._registry = CollectorRegistry()
        self.requests = Counter(
            "nightdesk_http_requests", "Answers by route, method and status", ["route", "method", "status"],
            registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "nightdesk_http_request_seconds", "Time to the end of an answer, waits of polls included", ["route"],
            buckets=BUCKETS_S, registry=registry,
        )  # fmt: skip
        self.open_requests = Gauge("nightdesk_http_requests_open", "Requests under way", registry=registry)
        self._up = Gauge("nightdesk_ledger_up", "1 if the ledger could be read", registry=registry)
        self._jobs = Gauge(
            "nightdesk_jobs", "Jobs of all batches", ["state", "outcome", "held_reason"], registry=registry
        )
        self._available = Gauge(
            "nightdesk_jobs_available", "Jobs that a worker may take, up to 10,000", ["step"], registry=registry
        )
        self._findings = Gauge(
            "nightdesk_findings", "What is not as it should be, as nightdesk doctor counts it", ["kind"],
            registry=registry,
        )  # fmt: skip
        self._working = Gauge("nightdesk_workers_with_jobs", "Workers that hold a lease", registry=registry)
        self._lanes = Gauge("nightdesk_lanes_paused", "Lanes without calls", registry=registry)

    async def exposition(self) -> bytes:
        """All metrics as text."""
        async with self._turn:
            if time.monotonic() - self._read_at > VALID_S:
                await self._read()
                self._read_at = time.monotonic()
        return generate_latest(self._registry)

    async def _read(self) -> None:
        try:
            health = await self._inspection.health(stuck_after=self._stuck_after)
            totals = await self._inspection.totals()
        except (ServiceUnavailable, LedgerError) as error:
            log.warning("the figures of the ledger can't be read now: %s", error)
            self._up.set(0)
            return
        self._up.set(1)
        self._jobs.clear()
        for state, outcome, held_reason, jobs in totals:
            self._jobs.labels(state, outcome, held_reason).set(jobs)
        for step, jobs in health.available.items():
            self._available.labels(step.value).set(jobs)
        for kind in ("stuck", "overdue", "unpublished", "billed_twice", "left_open"):
            self._findings.labels(kind).set(getattr(health, kind))
        self._findings.labels("quarantined").set(len(health.quarantined))
        self._working.set(health.working)
        self._lanes.set(len(health.lanes))


class RequestMetrics:
    """Counts requests and their time, by the pattern of their route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        metrics: Metrics = scope["app"].state.service.metrics
        status, began = 500, time.perf_counter()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        metrics.open_requests.inc()
        try:
            await self._app(scope, receive, note)
        finally:
            metrics.open_requests.dec()
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in METHODS else "other"
            metrics.requests.labels(route, method, str(status)).inc()
            metrics.seconds.labels(route).observe(time.perf_counter() - began)
