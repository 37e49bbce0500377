"""The bucket of a provider and model that all workers share in Redis, or the worker's own share while Redis is away."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from time import monotonic
from urllib.parse import quote

import orjson
from pydantic import TypeAdapter
from redis import asyncio as redis
from redis.exceptions import RedisError

from tasks.errors import BrokerUnavailable
from worker.cancellation import cancel
from worker.limits import bucket
from worker.limits.bucket import Exchange, ExchangeReply, Release
from worker.limits.permit_queue import PermitQueue

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""Seconds that an exchange may take before the local share decides instead."""
LATEST_S = 0.5
"""Longest time between two exchanges of a queue with waiting jobs."""
RETURN_S = 10.0
"""Seconds after a return of Redis in which each worker keeps to its share: the others may not know yet."""
RECONNECT_S = 1.0
"""Seconds between two tries to reach Redis."""

RULES = orjson.dumps({name: rule for name, rule in vars(bucket).items() if isinstance(rule, int | float)})
"""The constants of ``bucket``, which the script takes by their names."""
_REPLY = TypeAdapter(ExchangeReply)


@cache
def _script() -> str:
    return (files("worker.limits") / "exchange.lua").read_text()


class RedisBuckets:
    """The buckets in one Redis, one script call an exchange; belongs to the event loop it is used on."""

    def __init__(self, redis_url: str, key_prefix: str = "") -> None:
        # No retries of the client's own: a second try would be counted twice.
        pool = redis.BlockingConnectionPool.from_url(
            redis_url,
            # Jobs of one tenant may name any number of models: a hundred that connect at once would take too long for all.
            max_connections=16,
            # The wait for one; each exchange has its own bound.
            timeout=None,
            socket_timeout=PATIENCE_S,
            socket_connect_timeout=PATIENCE_S,
            socket_keepalive=True,
            health_check_interval=10,
            retry=None,
        )
        self._redis = redis.Redis.from_pool(pool)
        self._prefix = key_prefix
        self._exchange = self._redis.register_script(_script())

    async def exchange(self, provider: str, model: str, request: Exchange) -> ExchangeReply:
        """Does an exchange in Redis; raises ``BrokerUnavailable``."""
        name = f"{self._prefix}nightdesk:limit:{{{quote(provider, safe='')}/{quote(model, safe='')}}}"
        try:
            answer = await self._exchange(keys=[name, f"{name}:slots"], args=[orjson.dumps(request), RULES])
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(f"the limits in Redis can't be reached: {error}") from error
        return _REPLY.validate_json(answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


class FailoverBuckets:
    """The shared bucket and the worker's own share of each queue; belongs to one event loop.

    Args:
        buckets: the shared ones.
        workers: number of processes that make calls now.
        settle_s: seconds until all workers know of this one.
    """

    def __init__(self, buckets: RedisBuckets, workers: Callable[[], int], settle_s: float) -> None:
        self._buckets = buckets
        self._workers = workers
        self._settle_s = settle_s
        self._began = monotonic()
        self._reconnecting: asyncio.Task[None] | None = None
        self._alone_until = 0.0

    async def close(self) -> None:
        """Stops the tries to reach Redis."""
        if self._reconnecting is not None:
            await cancel(self._reconnecting)

    async def exchange(
        self, queue: PermitQueue, request: Exchange, releases: tuple[Release, ...]
    ) -> tuple[ExchangeReply, bool]:
        """Sends a request to the bucket that counts now; returns its reply, and True for a reply of the shared bucket.

        The share learns of everything, so that it can go on alone at any time.
        """
        share = replace(request, releases=releases, workers=self._workers())
        if self._reconnecting is not None:
            return self._alone(queue, share), False
        if monotonic() < self._alone_until:
            # There it counts what is under way; other workers may not know yet that it is back.
            await self._exchange_shared(queue, replace(request, acquires=()))
            return self._alone(queue, share), False
        shared = await self._exchange_shared(queue, request)
        if shared is None:
            return self._alone(queue, share), False
        queue.share.note(share, request.acquires[: shared.granted])
        return shared, True

    def _alone(self, queue: PermitQueue, share: Exchange) -> ExchangeReply:
        """The reply of the share; it grants nothing until all workers have counted this one."""
        if monotonic() - self._began < self._settle_s:
            return replace(queue.share.exchange(replace(share, acquires=())), wait_s=LATEST_S, why="limit")
        return queue.share.exchange(share)

    async def _exchange_shared(self, queue: PermitQueue, request: Exchange) -> ExchangeReply | None:
        """The shared bucket's reply; None when Redis went away, which starts the tries to reach it."""
        try:
            return await self._buckets.exchange(queue.provider, queue.model, request)
        except BrokerUnavailable as error:
            if self._reconnecting is None:
                log.warning("each worker keeps to its own share of the limits (%d workers): %s", self._workers(), error)
                self._reconnecting = asyncio.get_running_loop().create_task(
                    self._reconnect(queue), name="reconnect to Redis"
                )
            return None

    async def _reconnect(self, queue: PermitQueue) -> None:
        """Returns to the shared bucket when Redis answers."""
        while True:
            await asyncio.sleep(RECONNECT_S)
            try:
                await self._buckets.exchange(queue.provider, queue.model, Exchange(queue.rates))
            except BrokerUnavailable:
                continue
            except Exception:
                log.exception("a try to reach Redis broke")
                continue
            log.warning("the limits are shared over Redis again")
            self._alone_until = monotonic() + RETURN_S
            self._reconnecting = None
            return
