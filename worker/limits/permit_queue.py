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
from typing import NamedTuple
from uuid import UUID

from tasks.ports.limits import Denied, DenyReason
from worker.cancellation import is_set_within
from worker.limits.bucket import Acquire, Exchange, ExchangeReply, Feedback, LocalShare, Release
from worker.limits.rates import CALL_S, NONE, Rates

BLOCK = 50
"""Most permits in one exchange."""

AHEAD_S = 1.0
"""Seconds' worth of calls that may wait with a lease: enough to use every permit, few enough to be fair."""
LEAST_AHEAD = 2
SLOTS_AHEAD = 2
"""Calls that may wait with a lease for each slot of this process's share, where the number of calls at once is limited."""

PATIENCE_S = 10.0
"""Seconds that a job with a lease waits where only one limit is in use."""
MIXED_PATIENCE_S = 2.0
"""The same where jobs of other providers or models wait behind it."""
LONGEST_PATIENCE_S = 60.0

LONGEST_DELAY_S = 300.0
"""Longest delay of a denied job, however long the queue."""
URGENT_DELAY_S = 1.0

SLOT_RENEWAL_S = 5.0
"""Seconds between two renewals of the slots of the calls under way."""

TRIP_AFTER = 10
"""Calls in a row that must fail for the breaker to open."""


BYTES_A_TOKEN = 3.0
"""Bytes of a request per token before the first answer: rather too many tokens than too few."""

LEAST_CALL_S = 0.01
"""Seconds that a call takes at least, where slots are shared out."""

AVERAGE_WEIGHT = 0.1
"""Weight of the newest call in the moving averages."""


@dataclass(slots=True)
class QueueEntry:
    """One waiting job."""

    acquire: Acquire
    lasts_s: float
    """Longest time that its slot is renewed."""
    granted: asyncio.Future["GrantedPermit | Denied"]
    since: float = field(default_factory=monotonic)


@dataclass(frozen=True, slots=True)
class GrantedPermit:
    """The time of a permit, and True for one of the shared bucket."""

    at_s: float
    shared: bool


class ActiveCall(NamedTuple):
    """A call under way, by the monotonic clock."""

    since: float
    until: float
    """The end of its slot's renewals."""


class Estimate:
    """The expected use of a call, from moving averages: tokens a byte of the request, and tokens of an answer."""

    def __init__(self) -> None:
        self._tokens_a_byte: float | None = None
        self._answer_tokens: float | None = None

    def input_tokens(self, body_bytes: int) -> float:
        """The expected tokens of a request with so many bytes."""
        per_byte = 1 / BYTES_A_TOKEN if self._tokens_a_byte is None else self._tokens_a_byte
        return body_bytes * per_byte

    def output_tokens(self, most: int) -> float:
        """The expected tokens of an answer that may have ``most``."""
        return float(most) if self._answer_tokens is None else min(self._answer_tokens, float(most))

    def learn(self, body_bytes: int, input_tokens: int, output_tokens: int) -> None:
        """Learns from the use of a call."""
        if body_bytes and input_tokens:
            self._tokens_a_byte = _moving(self._tokens_a_byte, input_tokens / body_bytes)
        if output_tokens:
            self._answer_tokens = _moving(self._answer_tokens, float(output_tokens))


def _moving(average: float | None, newest: float) -> float:
    return newest if average is None else average + AVERAGE_WEIGHT * (newest - average)


class PermitQueue:
    """The queue of one provider and model; belongs to one event loop."""

    def __init__(self, provider: str, model: str, rates: Rates) -> None:
        self.provider = provider
        self.model = model
        self.rates = rates
        self.share = LocalShare()
        self.estimate = Estimate()
        self.urgent: deque[QueueEntry] = deque()
        self.bulk: deque[QueueEntry] = deque()
        self.limits: tuple[float, ...] = rates.most
        self.limited = rates.any
        self.blocked_until = 0.0
        self.blocked_by = DenyReason.LIMIT
        self.asked_at = monotonic()
        self.pump: asyncio.Task[None] | None = None
        self.active: dict[UUID, ActiveCall] = {}
        """Calls under way that have a slot."""
        self._call_s = CALL_S
        """Usual time of a call."""
        self._short_of = ""
        """What the first call in the queue waits for, as in ``ExchangeReply.why``."""
        self._slots_renewed_at = monotonic()
        self._releases: list[tuple[Release, bool]] = []
        self._feedback = Feedback()
        self._failures = 0
        self._weights: tuple[float, ...] = NONE
        self._denied_until = 0.0
        self._wake = asyncio.Event()

    # ---- joining and leaving ----

    def join(self, acquire: Acquire, lasts_s: float) -> QueueEntry:
        """Adds a call to the queue."""
        self.asked_at = monotonic()
        self._weights = tuple(
            new if not old else _moving(old, new) for old, new in zip(self._weights, acquire.weights, strict=True)
        )
        entry = QueueEntry(acquire, lasts_s, asyncio.get_running_loop().create_future())
        (self.urgent if acquire.urgent else self.bulk).append(entry)
        if acquire.urgent or len(self.bulk) == 1:
            self._wake.set()
        return entry

    def leave(self, entry: QueueEntry) -> None:
        """Removes an entry from the queue."""
        with suppress(ValueError):
            (self.urgent if entry.acquire.urgent else self.bulk).remove(entry)

    @property
    def waiting(self) -> bool:
        """True if any job waits."""
        return bool(self.urgent or self.bulk)

    # ---- waiting times and denials ----

    def calls_per_s(self, workers: int) -> float:
        """The calls that this process's share allows a second; infinite without a limit."""
        shares = [most / weight for most, weight in zip(self.limits, self._weights, strict=True) if most and weight]
        return min(shares, default=math.inf) / self.rates.period_s / workers

    def turns_per_s(self, workers: int) -> float:
        """The calls that begin here in a second, by the limits of rates and by that of calls at once."""
        return min(self.calls_per_s(workers), self._slots_per_s(workers))

    def _slots_per_s(self, workers: int) -> float:
        """The slots of this process's share that come free in a second."""
        return self.rates.concurrency / self._call_s / workers if self.rates.concurrency else math.inf

    def ahead(self, workers: int) -> int:
        """The number of jobs that may wait here so that no permit is missed: by the scarcest of all limits."""
        if monotonic() < self.blocked_until:
            return 0
        bounds = []
        if math.isfinite(rate := self.calls_per_s(workers)):
            bounds.append(max(LEAST_AHEAD, math.ceil(AHEAD_S * rate)))
        if self.rates.concurrency:
            soon = max(LEAST_AHEAD, math.ceil(AHEAD_S * self._slots_per_s(workers)))
            most = max(1, SLOTS_AHEAD * self.rates.concurrency // workers)
            bounds.append(self.owed(workers) + min(soon, most))
        return min(bounds, default=LEAST_AHEAD)

    def owed(self, workers: int) -> int:
        """The slots that this process lacks of its share."""
        if not self.rates.concurrency:
            return 0
        return max(0, max(1, self.rates.concurrency // workers) - len(self.active))

    def patience_s(self, workers: int, *, mixed: bool) -> float:
        """The longest wait of a job; where calls are rare, long enough for two of them.

        For a slot it waits as long as it takes: it is next, and to go and come back would cost more than it would help.
        """
        if mixed:
            return MIXED_PATIENCE_S
        if self._short_of == "slots":
            return math.inf
        return min(LONGEST_PATIENCE_S, max(PATIENCE_S, 2 / self.calls_per_s(workers)))

    def refusal(self, workers: int, *, urgent: bool, mixed: bool) -> Denied | None:
        """The denial of a job that would wait too long; None if it may join."""
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
        """Denies a job until its probable turn: one after the other, at the pace of the limit."""
        now = monotonic()
        if urgent:
            delay = min(max(least_s, URGENT_DELAY_S), LONGEST_DELAY_S)
            return Denied(why, timedelta(seconds=delay))
        due = max(now + least_s, self._denied_until)
        if due - now > LONGEST_DELAY_S:
            # Beyond the horizon turns mean nothing: the job returns at any time in the second half of it.
            delay = LONGEST_DELAY_S * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        else:
            rate = self.turns_per_s(workers)
            self._denied_until = due + (1 / rate if math.isfinite(rate) else 0.01)
            delay = due - now
        return Denied(why, timedelta(seconds=delay))

    # ---- feedback of calls ----

    def settle(self, release: Release, *, shared: bool) -> None:
        """Puts the end of a call into the next exchange."""
        ended = self.active.pop(release.id, None)
        if ended is not None:
            self._call_s = max(LEAST_CALL_S, _moving(self._call_s, monotonic() - ended.since))
        self._releases.append((release, shared))
        if self._short_of == "slots":
            self._wake.set()

    def note_success(self) -> None:
        """Notes that the provider answers."""
        self._failures = 0
        self._feedback.well = True

    def note_failure(self) -> None:
        """Notes a call that the provider did not serve; many in a row open the breaker."""
        self._failures += 1
        if self._failures >= TRIP_AFTER:
            self.trip()

    def trip(self) -> None:
        """Opens the breaker."""
        self._failures = 0
        self._feedback.trip, self._feedback.well = True, False
        self._wake.set()

    def throttle(self, pause_s: float, *, rate_limited: bool) -> None:
        """Notes that the provider needs a pause; ``rate_limited`` if it refused a call for its rate."""
        self._feedback.rate_limited |= rate_limited
        self._feedback.pause_s = max(self._feedback.pause_s, pause_s)
        self._wake.set()

    def learn(self, limits: tuple[float, ...]) -> None:
        """Notes the provider's own limits."""
        self._feedback.learned = tuple(new or old for old, new in zip(self._feedback.learned, limits, strict=True))

    def probe(self) -> None:
        """Lets one call go through an open breaker."""
        self._feedback.probe = True
        self._wake.set()

    # ---- exchanging ----

    @property
    def unsent(self) -> bool:
        """True if the bucket misses feedback, releases or renewals."""
        return bool(self._releases) or self._feedback != Feedback() or self._renewal_due

    @property
    def _renewal_due(self) -> bool:
        return bool(self.active) and monotonic() - self._slots_renewed_at >= SLOT_RENEWAL_S

    def request(self, workers: int) -> tuple[list[QueueEntry], Exchange, tuple[Release, ...]]:
        """The next exchange of one of so many workers: its entries, the request to the shared bucket, all releases."""
        self._wake.clear()
        entries = list(islice(chain(self.urgent, self.bulk), BLOCK))
        releases, feedback = self._releases, self._feedback
        self._releases, self._feedback = [], Feedback()
        shared_releases = tuple(release for release, shared in releases if shared)
        if self.rates.concurrency:
            # A renewal gave it a slot there; its use was counted in the local bucket only.
            shared_releases += tuple(replace(release, more=NONE) for release, shared in releases if not shared)
        request = Exchange(
            self.rates,
            tuple(entry.acquire for entry in entries),
            shared_releases,
            feedback,
            self._due_slots(),
            self.owed(workers),
        )
        return entries, request, tuple(release for release, _ in releases)

    def _due_slots(self) -> tuple[UUID, ...]:
        """The calls under way, when the renewal of their slots is due."""
        if not self._renewal_due:
            return ()
        self._slots_renewed_at = now = monotonic()
        self.active = {name: call for name, call in self.active.items() if call.until > now}
        return tuple(self.active)

    def serve(self, entries: list[QueueEntry], reply: ExchangeReply, *, shared: bool) -> list[QueueEntry]:
        """Hands out the permits of a reply; returns the entries whose job was cancelled meanwhile."""
        abandoned = []
        for entry in entries[: reply.granted]:
            self.leave(entry)
            if entry.granted.done():
                abandoned.append(entry)
                continue
            if self.rates.concurrency:
                self._slots_renewed_at = monotonic() if not self.active else self._slots_renewed_at
                self.active[entry.acquire.id] = ActiveCall(monotonic(), monotonic() + entry.lasts_s)
            entry.granted.set_result(GrantedPermit(reply.at_s, shared))
        self.limits, self._short_of = reply.limits, reply.why
        self.limited = self.rates.any or any(reply.limits) or reply.blocked_s > 0 or reply.broken
        now = monotonic()
        self.blocked_until = now + reply.blocked_s
        self.blocked_by = DenyReason.BREAKER if reply.broken else DenyReason.LIMIT
        return abandoned

    def deny_late(self, workers: int, *, mixed: bool) -> None:
        """Denies the jobs that have waited, or would have to wait, for too long."""
        now = monotonic()
        blocked_s = self.blocked_until - now
        patience_s = self.patience_s(workers, mixed=mixed)
        for entry in [*self.urgent, *self.bulk]:
            urgent = entry.acquire.urgent
            if blocked_s <= MIXED_PATIENCE_S and (urgent or now - entry.since < patience_s):
                continue
            self.leave(entry)
            if not entry.granted.done():
                why = self.blocked_by if blocked_s > 0 else DenyReason.LIMIT
                entry.granted.set_result(self.later(workers, max(blocked_s, 0.0), why, urgent=urgent))

    async def wait(self, within_s: float) -> None:
        """Waits until a call or feedback is urgent, at most so long."""
        await is_set_within(self._wake, within_s)
