"""The account of one provider and model in Redis, for all workers: one script call an exchange."""

from functools import cache
from importlib.resources import files
from urllib.parse import quote

import orjson
from redis import asyncio as redis
from redis.exceptions import RedisError

from tasks.errors import BrokerUnavailable
from worker.limits import bucket
from worker.limits.bucket import Exchange, ExchangeReply

PATIENCE_S = 1.0
"""Seconds an exchange may take before the local share decides instead."""

RULES = {
    "slices": bucket.SLICES,
    "burst": bucket.BURST,
    "cut": bucket.CUT,
    "cut_pause": bucket.CUT_PAUSE,
    "least_factor": bucket.LEAST_FACTOR,
    "growth": bucket.GROWTH,
    "least_growth": bucket.LEAST_GROWTH,
    "learned_kept": bucket.LEARNED_KEPT,
    "slot_kept": bucket.SLOT_KEPT_S,
    "urgent_held": bucket.URGENT_HELD,
    "cool": bucket.COOL,
    "longest_cool": bucket.LONGEST_COOL,
}


@cache
def _script() -> str:
    return (files("worker.limits") / "exchange.lua").read_text()


class RedisBuckets:
    """The accounts in one Redis; belongs to the event loop it is used on."""

    def __init__(self, redis_url: str, key_prefix: str = "") -> None:
        # No retries of the client's own: a second try would be counted twice.
        self._redis = redis.Redis.from_url(
            redis_url,
            socket_timeout=PATIENCE_S,
            socket_connect_timeout=PATIENCE_S,
            socket_keepalive=True,
            health_check_interval=10,
            retry=None,
        )
        self._prefix = key_prefix
        self._exchange = self._redis.register_script(_script())

    async def exchange(self, provider: str, model: str, order: Exchange) -> ExchangeReply:
        """See ``Bucket.exchange``; raises ``BrokerUnavailable``."""
        name = f"{self._prefix}nightdesk:limit:{{{quote(provider, safe='')}/{quote(model, safe='')}}}"
        try:
            told = await self._exchange(keys=[name, f"{name}:slots"], args=[_order(order)])
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(f"the limits in Redis can't be reached: {error}") from error
        reply = orjson.loads(told)
        limits = tuple(map(float, reply["limits"]))
        blocked_s = float(reply["blocked"])
        broken = reply["trips"] > 0
        limited = any(limits) or bool(order.terms.concurrency) or blocked_s > 0 or broken
        at_s, wait_s = float(reply["at"]), float(reply["wait"])
        return ExchangeReply(reply["granted"], at_s, wait_s, reply["why"], limits, limited, blocked_s, broken)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


def _order(order: Exchange) -> bytes:
    notice = order.notice
    return orjson.dumps(
        {
            "period": order.terms.period_s,
            "most": order.terms.most,
            "concurrency": order.terms.concurrency,
            "rules": RULES,
            "notice": {
                "cut": notice.cut,
                "pause": notice.pause_s,
                "trip": notice.trip,
                "well": notice.well,
                "probe": notice.probe,
                "learned": notice.learned,
            },
            "settlements": [{"id": one.id, "at": one.taken_at_s, "more": one.more} for one in order.settlements],
            "held": order.held,
            "asks": [{"id": one.id, "urgent": one.urgent, "weights": one.weights} for one in order.asks],
        }
    )
