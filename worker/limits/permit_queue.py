"""The jobs of one process that wait for permits of one provider and model, urgent ones first."""

import asyncio
import math
import random
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain, islice
from time import monotonic
from uuid import UUID

from tasks.ports.limits import Denied, DenyReason
from worker.limits.bucket import Acquire, Bucket, Exchange, ExchangeReply, Feedback, Release
from worker.limits.estimates import Estimate
from worker.limits.rates import DIMENSIONS, Rates

BLOCK = 50
"""Permits asked for in one exchange."""

AHEAD_S = 3.0
"""Seconds' worth of calls that may wait with their lease held: enough to use every permit, few enough to be fair."""
LEAST_AHEAD = 2

PATIENCE_S = 10.0
"""How long a job waits with its lease held where only one limit is in use."""
MIXED_PATIENCE_S = 2.0
"""The same where jobs of other providers or models wait behind it."""
LONGEST_PATIENCE_S = 60.0

LONGEST_DELAY_S = 300.0
"""A job that is sent away comes back by then, however long the line."""
URGENT_DELAY_S = 1.0

NAME_S = 5.0
"""Between two times that the calls under way are named to the account, so that they keep their slots."""

TRIP_AFTER = 10
"""Calls in a row that must fail for the breaker to open."""


@dataclass(slots=True)
class QueueEntry:
    """One job at the limiter."""

    ask: Acquire
    lasts_s: float
    """How long its slot is kept at most."""
    granted: asyncio.Future["GrantedPermit | Denied"]
    since: float = field(default_factory=monotonic)


@dataclass(frozen=True, slots=True)
class GrantedPermit:
    """A permit as it was granted."""

    at_s: float
    shared: bool


class PermitQueue:
    """See the module; belongs to one event loop."""

    def __init__(self, provider: str, model: str, terms: Rates, bucket: Bucket) -> None:
        self.provider = provider
        self.model = model
        self.terms = terms
        self.bucket = bucket
        self.estimate = Estimate()
        self.urgent: deque[QueueEntry] = deque()
        self.bulk: deque[QueueEntry] = deque()
        self.limits: tuple[float, ...] = terms.most
        self.limited = terms.any
        self.blocked_until = 0.0
        self.blocked_by = DenyReason.LIMIT
        self.asked_at = monotonic()
        self.pump: asyncio.Task[None] | None = None
        self.held: dict[UUID, float] = {}
        """Calls under way that have a slot, and until when it is kept for them, by the monotonic clock."""
        self._named_at = monotonic()
        self._settlements: list[tuple[Release, bool]] = []
        self._notice = Feedback()
        self._failures = 0
        self._weights: tuple[float, ...] = (0.0,) * len(DIMENSIONS)
        self._sent_away_until = 0.0
        self._wake = asyncio.Event()

    # ---- joining and leaving ----

    def join(self, ask: Acquire, lasts_s: float) -> QueueEntry:
        """Wait in line."""
        self.asked_at = monotonic()
        self._weights = tuple(
            new if not old else old + 0.1 * (new - old) for old, new in zip(self._weights, ask.weights, strict=True)
        )
        waiter = QueueEntry(ask, lasts_s, asyncio.get_running_loop().create_future())
        (self.urgent if ask.urgent else self.bulk).append(waiter)
        if ask.urgent or len(self.bulk) == 1:
            self._wake.set()
        return waiter

    def leave(self, waiter: QueueEntry) -> None:
        """Stop waiting."""
        with suppress(ValueError):
            (self.urgent if waiter.ask.urgent else self.bulk).remove(waiter)

    @property
    def waiting(self) -> bool:
        """Whether anybody waits."""
        return bool(self.urgent or self.bulk)

    # ---- how long it takes ----

    def calls_per_s(self, workers: int) -> float:
        """Calls that this process's share allows a second; infinite without a limit."""
        shares = [most / weight for most, weight in zip(self.limits, self._weights, strict=True) if most and weight]
        return min(shares, default=math.inf) / self.terms.period_s / workers

    def ahead(self, workers: int) -> int:
        """How many jobs may wait here so that no permit is missed."""
        if monotonic() < self.blocked_until:
            return 0
        rate = self.calls_per_s(workers)
        slots = self.terms.concurrency
        most = AHEAD_S * rate if math.isfinite(rate) else max(LEAST_AHEAD, slots / workers / 2)
        return max(LEAST_AHEAD, math.ceil(most))

    def patience_s(self, workers: int, *, mixed: bool) -> float:
        """How long a job may wait; where calls are rare long enough for two of them."""
        if mixed:
            return MIXED_PATIENCE_S
        return min(LONGEST_PATIENCE_S, max(PATIENCE_S, 2 / self.calls_per_s(workers)))

    def refusal(self, workers: int, *, urgent: bool, mixed: bool) -> Denied | None:
        """Why a job that comes now need not even wait."""
        if (blocked_s := self.blocked_until - monotonic()) > MIXED_PATIENCE_S:
            return self.later(workers, blocked_s, self.blocked_by, urgent=urgent)
        rate = self.calls_per_s(workers)
        if urgent or len(self.bulk) < LEAST_AHEAD:
            return None
        wait_s = (len(self.bulk) + 1) / rate
        if wait_s <= self.patience_s(workers, mixed=mixed):
            return None
        return self.later(workers, wait_s, DenyReason.LIMIT, urgent=False)

    def later(self, workers: int, least_s: float, why: DenyReason, *, urgent: bool) -> Denied:
        """Send a job away until its turn has probably come: one after the other, at the pace of the limit."""
        now = monotonic()
        if urgent:
            delay = min(max(least_s, URGENT_DELAY_S), LONGEST_DELAY_S)
            return Denied(why, timedelta(seconds=delay))
        due = max(now + least_s, self._sent_away_until)
        if due - now > LONGEST_DELAY_S:
            # Beyond the horizon turns mean nothing: come back at any time in the second half of it.
            delay = LONGEST_DELAY_S * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        else:
            rate = self.calls_per_s(workers)
            self._sent_away_until = due + (1 / rate if math.isfinite(rate) else 0.01)
            delay = due - now
        return Denied(why, timedelta(seconds=delay))

    # ---- what became of calls ----

    def settle(self, settlement: Release, *, shared: bool) -> None:
        """Tell the account at the next exchange."""
        self.held.pop(settlement.id, None)
        self._settlements.append((settlement, shared))

    def went_well(self) -> None:
        """The provider is alive."""
        self._failures = 0
        self._notice.well = True

    def went_ill(self) -> None:
        """The provider did not serve a call; many in a row open the breaker."""
        self._failures += 1
        if self._failures >= TRIP_AFTER:
            self.trip()

    def trip(self) -> None:
        """Open the breaker."""
        self._failures = 0
        self._notice.trip, self._notice.well = True, False
        self._wake.set()

    def cut(self, pause_s: float, *, too_many: bool) -> None:
        """The provider refused a call; with ``too_many`` because of its rate."""
        self._notice.cut |= too_many
        self._notice.pause_s = max(self._notice.pause_s, pause_s)
        self._wake.set()

    def learn(self, limits: tuple[float, ...]) -> None:
        """The provider named its limits."""
        self._notice.learned = tuple(new or old for old, new in zip(self._notice.learned, limits, strict=True))

    def probe(self) -> None:
        """Try with one call."""
        self._notice.probe = True
        self._wake.set()

    # ---- exchanging ----

    @property
    def unsent(self) -> bool:
        """Whether the account does not yet know everything."""
        return bool(self._settlements) or self._notice != Feedback() or self._naming_due

    @property
    def _naming_due(self) -> bool:
        return bool(self.held) and monotonic() - self._named_at >= NAME_S

    def order(self) -> tuple[list[QueueEntry], Exchange, tuple[Release, ...]]:
        """What is to be told and asked: the waiters, the order for the shared account, all settlements."""
        self._wake.clear()
        asking = list(islice(chain(self.urgent, self.bulk), BLOCK))
        settlements, notice = self._settlements, self._notice
        self._settlements, self._notice = [], Feedback()
        own = tuple(settlement for settlement, shared in settlements if shared)
        if self.terms.concurrency:
            # Named there it has a slot, whoever granted it; what it used was never counted.
            own += tuple(
                replace(settlement, more=(0.0,) * len(DIMENSIONS)) for settlement, shared in settlements if not shared
            )
        order = Exchange(self.terms, tuple(waiter.ask for waiter in asking), own, notice, self._named())
        return asking, order, tuple(settlement for settlement, _ in settlements)

    def _named(self) -> tuple[UUID, ...]:
        """The calls under way, when it is time to name them."""
        if not self._naming_due:
            return ()
        self._named_at = now = monotonic()
        self.held = {name: until for name, until in self.held.items() if until > now}
        return tuple(self.held)

    def serve(self, asking: list[QueueEntry], reply: ExchangeReply, *, shared: bool) -> list[QueueEntry]:
        """Hand out what was granted; returns those whose job was given up meanwhile."""
        gone = []
        for waiter in asking[: reply.granted]:
            self.leave(waiter)
            if waiter.granted.done():
                gone.append(waiter)
                continue
            if self.terms.concurrency:
                self._named_at = monotonic() if not self.held else self._named_at
                self.held[waiter.ask.id] = monotonic() + waiter.lasts_s
            waiter.granted.set_result(GrantedPermit(reply.at_s, shared))
        self.limits, self.limited = reply.limits, reply.limited
        now = monotonic()
        self.blocked_until = now + reply.blocked_s
        self.blocked_by = DenyReason.BREAKER if reply.broken else DenyReason.LIMIT
        return gone

    def send_away(self, workers: int, *, mixed: bool) -> None:
        """Turn away who has waited, or would have to wait, for too long."""
        now = monotonic()
        blocked_s = self.blocked_until - now
        patience_s = self.patience_s(workers, mixed=mixed)
        for waiter in [*self.urgent, *self.bulk]:
            urgent = waiter.ask.urgent
            if blocked_s <= MIXED_PATIENCE_S and (urgent or now - waiter.since < patience_s):
                continue
            self.leave(waiter)
            if not waiter.granted.done():
                why = self.blocked_by if blocked_s > 0 else DenyReason.LIMIT
                waiter.granted.set_result(self.later(workers, max(blocked_s, 0.0), why, urgent=urgent))

    async def woken(self, within_s: float) -> None:
        """Wait until something urgent happens, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._wake.wait()
