"""Chooses the account that a line's orders go to: the one all workers share, or the worker's own while Redis is away."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Protocol

from tasks.errors import BrokerUnavailable
from worker.limits.bucket import Exchange, ExchangeReply, Release
from worker.limits.permit_queue import PermitQueue
from worker.process.cancellation import cancelled

log = logging.getLogger(__name__)

LATEST_S = 0.5
"""The longest between two exchanges of a line in which somebody waits."""
RETURN_S = 10.0
"""After Redis came back both its account and the local share must agree: others may not have noticed yet."""
LOOK_S = 1.0
"""Between looks whether Redis is back."""


class Buckets(Protocol):
    """The shared accounts."""

    async def exchange(self, provider: str, model: str, order: Exchange) -> ExchangeReply:
        """See ``Bucket.exchange``; raises ``BrokerUnavailable``."""
        ...


class FailoverBuckets:
    """The shared account and the worker's own of each line, and which of them counts now; belongs to one event loop.

    Args:
        buckets: the shared ones.
        workers: how many processes make calls now.
        settle_s: seconds until all workers know of this one.
    """

    def __init__(self, buckets: Buckets, workers: Callable[[], int], settle_s: float) -> None:
        self._buckets = buckets
        self._workers = workers
        self._settle_s = settle_s
        self._began = monotonic()
        self._looking: asyncio.Task[None] | None = None
        self._agree_until = 0.0

    async def close(self) -> None:
        """Look for Redis no more."""
        if self._looking is not None:
            await cancelled(self._looking)

    async def exchange(
        self, queue: PermitQueue, order: Exchange, settlements: tuple[Release, ...]
    ) -> tuple[ExchangeReply, bool]:
        """Ask an account and tell it what ended; returns its reply, and whether it is that of the shared one.

        The local one learns of everything, so that it can go on alone at any time.
        """
        own = replace(order, settlements=settlements, workers=self._workers())
        if self._looking is not None:
            return self._alone(queue, own), False
        agreed = len(order.asks)
        if monotonic() < self._agree_until:
            local = queue.bucket.exchange(own)
            if local.granted < agreed:
                agreed = local.granted
                if not agreed:
                    # What ended is still to be told.
                    await self._tell(queue, replace(order, asks=()))
                    return local, True
            shared = await self._tell(queue, replace(order, asks=order.asks[:agreed]))
            if shared is None:
                return local, False
            back = tuple(
                Release(ask.id, local.at_s, tuple(-weight for weight in ask.weights))
                for ask in order.asks[shared.granted : agreed]
            )
            if back:
                queue.bucket.exchange(replace(own, asks=(), settlements=back))
            elif local.why:
                shared = replace(shared, wait_s=max(shared.wait_s, local.wait_s), why=shared.why or local.why)
            return shared, True
        shared = await self._tell(queue, order)
        if shared is None:
            return self._alone(queue, own), False
        queue.bucket.exchange(replace(own, asks=()))
        queue.bucket.note(own, order.asks[: shared.granted])
        return shared, True

    def _alone(self, queue: PermitQueue, own: Exchange) -> ExchangeReply:
        """The local account's reply; it grants nothing until all workers have counted this one."""
        if monotonic() - self._began < self._settle_s:
            return replace(queue.bucket.exchange(replace(own, asks=())), wait_s=LATEST_S, why="limit")
        return queue.bucket.exchange(own)

    async def _tell(self, queue: PermitQueue, order: Exchange) -> ExchangeReply | None:
        """The shared account's reply; None when Redis went away, which is looked after from then on."""
        try:
            return await self._buckets.exchange(queue.provider, queue.model, order)
        except BrokerUnavailable as error:
            if self._looking is None:
                log.warning("each worker keeps to its own share of the limits (%d workers): %s", self._workers(), error)
                self._looking = asyncio.get_running_loop().create_task(self._look(queue), name="look for Redis")
            return None

    async def _look(self, queue: PermitQueue) -> None:
        """Go back to the shared account when Redis answers."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._buckets.exchange(queue.provider, queue.model, Exchange(queue.terms))
            except BrokerUnavailable:
                continue
            except Exception:
                log.exception("the look for Redis broke")
                continue
            log.warning("the limits are shared over Redis again")
            self._agree_until = monotonic() + RETURN_S
            self._looking = None
            return
