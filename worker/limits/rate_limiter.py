"""Grants permits for provider calls, from a bucket of each provider's model."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from time import monotonic
from typing import Protocol
from uuid import UUID

from uuid_utils.compat import uuid7

from schemas.failure import Failure, FailureKind
from schemas.generation import Lane
from schemas.model_call import Completion
from tasks.calls.retry import REFUSED_LANE
from tasks.ports import Call, Denied, DenyReason, Leased, Limits, Permit, Room
from worker.cancellation import cancel
from worker.limits.bucket import Acquire, Release
from worker.limits.lanes import LaneHealth, Lanes, PausedLane, SlowStart, Unreachable
from worker.limits.permit_queue import SLOT_RENEWAL_S, PermitQueue, QueueEntry
from worker.limits.presence import EVERY_S
from worker.limits.rates import LONGEST_PAUSE_S, NONE, PERIOD_S, rates_of, read
from worker.limits.redis_bucket import LATEST_S, FailoverBuckets, RedisBuckets
from worker.provider_settings import ProviderKind
from worker.settings import Settings

log = logging.getLogger(__name__)

SOONEST_S = 0.02
"""Shortest time between two exchanges of a queue with waiting jobs."""
GATHER_S = 0.1
"""Time in which ends of calls are collected while no job waits."""
AFTER_BREAK_S = 1.0

SETTLE_S = 2 * EVERY_S
"""Without Redis a new worker grants nothing for so long: until the other workers have counted it."""

ACTIVE_S = 30.0
"""A provider's model without a call in that time no longer counts."""
FIRST_LEASES = 8
"""Jobs that are leased to learn their providers, where something is limited."""
PEEK_S, PEEK = 2.0, 2
"""While all providers in use are blocked, so many jobs are leased in that time, to see if they call another one."""

MOST_QUEUES, IDLE_S = 500, 600.0
"""From so many models on, those without a call in that time are dropped."""

SLOT_GRACE_S = 60.0
"""Time beyond a call's timeout after which its slot comes back, even without its end."""

UNHEALTHY = frozenset({FailureKind.OVERLOADED, FailureKind.UNAVAILABLE, FailureKind.UNKNOWN_OUTCOME})
NEUTRAL = frozenset({FailureKind.BAD_ANSWER, FailureKind.INTERNAL, FailureKind.CONFIGURATION, FailureKind.CANCELLED})
"""Failures that say nothing about the provider's health; all further ones show that it answers."""


class Presence(Protocol):
    """Knows the workers of this system."""

    workers: int
    """Number of processes that make calls now, at least 1."""


class RateLimiter(Limits):
    """``tasks.ports.Limits`` of one process; belongs to one event loop.

    Args:
        settings: the limits.
        buckets: the shared ones.
        lanes: the paused lanes.
        presence: knows the number of processes that make calls now.
        slots: of this process; waiting jobs never take more than half of them.
        on_room: called when more jobs may be leased.
        period_s: a minute; tests take less.
        settle_s: seconds until all workers know of this one.
    """

    def __init__(
        self,
        settings: Settings,
        buckets: RedisBuckets,
        lanes: Lanes,
        *,
        presence: Presence,
        slots: int,
        on_room: Callable[[], None],
        period_s: float = PERIOD_S,
        settle_s: float = SETTLE_S,
    ) -> None:
        self._settings = settings
        self._buckets = FailoverBuckets(buckets, lambda: presence.workers, settle_s)
        self._lanes = lanes
        self._presence = presence
        self._slots = slots
        self._on_room = on_room
        self._period_s = period_s
        self._queues: dict[tuple[str, str], PermitQueue] = {}
        self._waiting: set[UUID] = set()
        """Jobs that wait for a permit."""
        self._health = LaneHealth(settings.unreachable_s)
        self._slow_starts: dict[tuple[str, str], SlowStart] = {}
        self._slot_renewal: asyncio.Task[None] | None = None
        self._peeked_at = float("-inf")
        self._configured = any(
            limits.model_fields_set and any(value is not None for value in limits.model_dump().values())
            for limits in (
                settings.default_limits,
                *(own.limits for own in settings.providers.values() if own.limits),
                *(of_model for own in settings.providers.values() for of_model in (own.model_limits or {}).values()),
            )
        )

    # ---- the port ----

    async def permit(self, job: Leased, call: Call) -> Permit | Denied:
        """See ``tasks.ports.Limits``."""
        self._waiting.add(job.job_id)
        try:
            return await self._permit(job, call)
        finally:
            self._waiting.discard(job.job_id)

    def waits(self, job_id: UUID) -> bool:
        """Tells whether a job waits for a permit."""
        return job_id in self._waiting

    async def _permit(self, job: Leased, call: Call) -> Permit | Denied:
        began = monotonic()
        if await self._paused(call):
            return Denied(DenyReason.LANE_PAUSED, timedelta(0))
        queue = self._queue(call.provider, call.model or "")
        if call.lane == Lane.PROVIDER_BATCH:
            # Provider batches have limits of their own, and a provider says so when one is created.
            return Permit(uuid7(), call.provider, queue.model, call.lane, (), 0.0, 0.0)
        if not queue.limited and self._offline(call.provider):
            queue.asked_at = began
            return Permit(uuid7(), call.provider, queue.model, call.lane, (), 0.0, 0.0)
        await self._slow_start(queue).admit()
        if self._lanes.maybe_paused(call.provider, call.lane, queue.model) and await self._paused(call):
            return Denied(DenyReason.LANE_PAUSED, timedelta(0))
        refusal = queue.refusal(self._presence.workers, urgent=job.priority > 0, mixed=self._mixed())
        if refusal is not None:
            queue.asked_at = began
            return refusal
        return await self._granted(queue, call, began, urgent=job.priority > 0)

    async def _granted(self, queue: PermitQueue, call: Call, began: float, *, urgent: bool) -> Permit | Denied:
        """Waits in the queue."""
        weights = self._weights(queue, call)
        entry = queue.join(Acquire(uuid7(), urgent, weights), call.timeout_s + SLOT_GRACE_S)
        self._start(queue)
        try:
            granted = await entry.granted
        except asyncio.CancelledError:
            queue.leave(entry)
            if entry.granted.done() and not entry.granted.cancelled():
                self._give_back(queue, entry)
            raise
        if isinstance(granted, Denied):
            return granted
        if self._lanes.maybe_paused(call.provider, call.lane, queue.model):
            # The lane was paused while this call waited for its permit.
            self._give_back(queue, entry)
            return Denied(DenyReason.LANE_PAUSED, timedelta(0))
        waited_ms = (monotonic() - began) * 1000
        return Permit(
            entry.acquire.id, call.provider, queue.model, call.lane, weights, granted.at_s, waited_ms, granted.shared,
            len(call.body),
        )  # fmt: skip

    def answered(self, permit: Permit, completion: Completion) -> None:
        """See ``tasks.ports.Limits``."""
        if self._health.refusals or self._health.outages:
            self._health.answered(permit.provider, permit.model)
        if not permit.reserved:
            return
        queue = self._queue(permit.provider, permit.model)
        self._slow_start(queue).end()
        used = permit.reserved
        if (usage := completion.usage) is not None:
            queue.estimate.learn(permit.body_bytes, usage.input_tokens, usage.output_tokens)
            used = _weights(usage.input_tokens, usage.output_tokens)
        own_limits = read(completion.snapshot.rate_limits)
        queue.learn(own_limits.limits)
        if own_limits.pause_s:
            queue.throttle(own_limits.pause_s, rate_limited=False)
        queue.note_success()
        self._settle(queue, permit, used)

    def failed(self, permit: Permit, failure: Failure) -> bool:
        """See ``tasks.ports.Limits``."""
        scope = self._health.failed(permit.provider, permit.model, failure)
        if scope is not None:
            self._lanes.pause(PausedLane(permit.provider, permit.lane, scope), failure.kind, failure.message)
        if permit.reserved:
            self._note_failure(self._queue(permit.provider, permit.model), permit, failure, paused=scope is not None)
        return scope is not None

    async def _paused(self, call: Call) -> bool:
        """Tells whether the call's lane is paused; after a pause the calls start slowly again."""
        if not self._lanes.pauses and not self._lanes.writing:
            return False
        paused = await self._lanes.paused(call.provider, call.lane, call.model or "")
        if paused:
            self._slow_starts.pop((call.provider, call.model or ""), None)
        return paused

    def _slow_start(self, queue: PermitQueue) -> SlowStart:
        return self._slow_starts.setdefault((queue.provider, queue.model), SlowStart())

    def unreachable(self) -> tuple[Unreachable, ...]:
        """The unreachable providers, to report to operators."""
        return self._health.unreachable()

    def _note_failure(self, queue: PermitQueue, permit: Permit, failure: Failure, *, paused: bool) -> None:
        rate_limited = failure.kind is FailureKind.RATE_LIMITED
        if rate_limited or failure.retry_after_s:
            queue.throttle(min(failure.retry_after_s or 0.0, LONGEST_PAUSE_S), rate_limited=rate_limited)
        start = self._slow_start(queue)
        if not start.over and failure.kind is FailureKind.UNAVAILABLE and self._health.lost(permit.provider):
            # No call was ever answered: the waiting calls need not try.
            queue.trip()
            start.end()
        elif paused or failure.kind not in REFUSED_LANE | {FailureKind.UNAVAILABLE}:
            start.end()
        if failure.kind in UNHEALTHY:
            queue.note_failure()
        elif failure.kind not in NEUTRAL:
            queue.note_success()
        # The request arrived and counts; it used no tokens, unless its outcome is unknown.
        unknown = failure.kind in {FailureKind.UNKNOWN_OUTCOME, FailureKind.CANCELLED, FailureKind.BAD_ANSWER}
        used = permit.reserved if unknown else _weights(0, 0)
        self._settle(queue, permit, used)

    def unused(self, permit: Permit) -> None:
        """See ``tasks.ports.Limits``."""
        if permit.reserved:
            queue = self._queue(permit.provider, permit.model)
            self._settle(queue, permit, NONE)

    # ---- leases ----

    def room(self) -> Room | None:
        """The number of jobs that may be leased now to wait for permits; None while nothing is limited."""
        now, workers = monotonic(), self._presence.workers
        active = [queue for queue in self._queues.values() if now - queue.asked_at < ACTIVE_S or queue.waiting]
        limited = [queue for queue in active if queue.limited]
        if not limited:
            return Room(FIRST_LEASES, FIRST_LEASES) if self._configured and not active else None
        half = max(1, self._slots // 2)
        waiting_urgent = sum(len(queue.urgent) for queue in active)
        # A lease for all brings urgent ones, too.
        waiting = waiting_urgent + sum(len(queue.bulk) for queue in active)
        if len(limited) < len(active):
            return Room(max(0, half - waiting_urgent), max(0, half - waiting))
        most = min(sum(queue.ahead(workers) for queue in active), half)
        # While nothing goes, urgent ones of another provider are looked for.
        urgent = max(0, (most or half) - waiting_urgent)
        bulk = max(0, most - waiting)
        if bulk < most // 4:
            # A lease for each permit would cost more than the calls: the remaining jobs wait for the next ones.
            bulk = 0
        if bulk == 0 and all(now < queue.blocked_until for queue in active) and now - self._peeked_at > PEEK_S:
            self._peeked_at, bulk = now, PEEK
        return Room(urgent, bulk)

    def _mixed(self) -> bool:
        now = monotonic()
        return sum(now - queue.asked_at < ACTIVE_S for queue in self._queues.values()) > 1

    def try_lane(self, provider: str) -> None:
        """Sends one call after a pause of a lane of this provider, as a probe."""
        for queue in self._queues.values():
            if queue.provider == provider:
                queue.probe()
                self._start(queue)

    async def close(self) -> None:
        """Sends the last feedback, once, and stops."""
        await self._buckets.close()
        for task in (self._slot_renewal, *(queue.pump for queue in self._queues.values())):
            if task is not None:
                await cancel(task)
        for queue in self._queues.values():
            if queue.unsent:
                await self._once(queue)
        # The last exchange may have begun tries to reach Redis.
        await self._buckets.close()

    # ---- queues ----

    def _queue(self, provider: str, model: str) -> PermitQueue:
        queue = self._queues.get((provider, model))
        if queue is None:
            self._forget_idle()
            rates = rates_of(self._settings, provider, model, self._period_s)
            queue = self._queues[provider, model] = PermitQueue(provider, model, rates)
        return queue

    def _forget_idle(self) -> None:
        """Drops unused queues: jobs may name any number of models."""
        if len(self._queues) >= MOST_QUEUES:
            now = monotonic()
            self._slow_starts = {key: start for key, start in self._slow_starts.items() if key in self._queues}
            self._queues = {
                key: queue for key, queue in self._queues.items()
                if queue.waiting or queue.unsent or queue.active or now - queue.asked_at < IDLE_S
            }  # fmt: skip

    def _offline(self, provider: str) -> bool:
        own = self._settings.providers.get(provider)
        kind = own.kind if own is not None else provider
        return kind == ProviderKind.EXTRACTIVE

    def _weights(self, queue: PermitQueue, call: Call) -> tuple[float, ...]:
        expected = queue.estimate
        return _weights(expected.input_tokens(len(call.body)), expected.output_tokens(call.request.config.max_tokens))

    def _settle(self, queue: PermitQueue, permit: Permit, used: tuple[float, ...]) -> None:
        more = tuple(new - old for new, old in zip(used, permit.reserved, strict=True))
        queue.settle(Release(permit.id, permit.taken_at_s, more), shared=permit.shared)
        self._start(queue)

    def _give_back(self, queue: PermitQueue, entry: QueueEntry) -> None:
        granted = entry.granted.result()
        if not isinstance(granted, Denied):
            queue.settle(entry.acquire.undone(granted.at_s), shared=granted.shared)
            self._start(queue)

    # ---- exchanging ----

    def _start(self, queue: PermitQueue) -> None:
        if queue.pump is None or queue.pump.done():
            queue.pump = asyncio.get_running_loop().create_task(self._pump(queue), name=f"limits of {queue.provider}")

    async def _renew_slots(self) -> None:
        """Renews the slots of calls under way, also without other calls."""
        while True:
            await asyncio.sleep(SLOT_RENEWAL_S)
            for queue in self._queues.values():
                if queue.unsent:
                    self._start(queue)

    async def _pump(self, queue: PermitQueue) -> None:
        # The next call of a slot asks in this turn of the loop: its permit goes with the end of the call before.
        await asyncio.sleep(0)
        while queue.waiting or queue.unsent:
            try:
                pause_s = await self._once(queue)
            except Exception:
                # Jobs wait here: after any error they must be served or denied.
                log.exception("the limits of %s broke", queue.provider)
                pause_s = AFTER_BREAK_S
            queue.deny_late(self._presence.workers, mixed=self._mixed())
            self._on_room()
            if pause_s:
                await queue.wait(pause_s)
            elif not queue.waiting:
                # The ends of calls are collected, so that a busy provider costs few exchanges.
                await queue.wait(GATHER_S)

    async def _once(self, queue: PermitQueue) -> float:
        """Exchanges once and serves; returns the pause until the next exchange."""
        entries, request, releases = queue.request(self._presence.workers)
        reply, shared = await self._buckets.exchange(queue, request, releases)
        for entry in queue.serve(entries, reply, shared=shared):
            queue.settle(entry.acquire.undone(reply.at_s), shared=shared)
        if queue.active and self._slot_renewal is None:
            self._slot_renewal = asyncio.get_running_loop().create_task(self._renew_slots(), name="renew slots")
        if not reply.why:
            return 0.0
        return min(max(reply.wait_s, SOONEST_S), LATEST_S)


def _weights(input_tokens: float, output_tokens: float) -> tuple[float, ...]:
    """In the order of ``DIMENSIONS``."""
    return 1.0, float(input_tokens), float(output_tokens), float(input_tokens + output_tokens)
