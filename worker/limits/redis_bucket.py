"""The bucket of one provider and model in Redis, for all workers: one script call an exchange."""

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
"""Seconds that an exchange may take before the local share decides instead."""

RULES = {
    "slices": bucket.SLICES,
    "burst": bucket.BURST,
    "cut_factor": bucket.CUT_FACTOR,
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
    """The buckets in one Redis; belongs to the event loop it is used on."""

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

    async def exchange(self, provider: str, model: str, request: Exchange) -> ExchangeReply:
        """Does ``Bucket.exchange`` in Redis; raises ``BrokerUnavailable``."""
        name = f"{self._prefix}nightdesk:limit:{{{quote(provider, safe='')}/{quote(model, safe='')}}}"
        try:
            answer = await self._exchange(keys=[name, f"{name}:slots"], args=[_request(request)])
        except (RedisError, OSError) as error:
            raise BrokerUnavailable(f"the limits in Redis can't be reached: {error}") from error
        reply = orjson.loads(answer)
        limits = tuple(map(float, reply["limits"]))
        blocked_s = float(reply["blocked"])
        broken = reply["trips"] > 0
        limited = any(limits) or bool(request.rates.concurrency) or blocked_s > 0 or broken
        at_s, wait_s = float(reply["at"]), float(reply["wait"])
        return ExchangeReply(reply["granted"], at_s, wait_s, reply["why"], limits, limited, blocked_s, broken)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


def _request(request: Exchange) -> bytes:
    feedback = request.feedback
    return orjson.dumps(
        {
            "period": request.rates.period_s,
            "most": request.rates.most,
            "concurrency": request.rates.concurrency,
            "rules": RULES,
            "feedback": {
                "rate_limited": feedback.rate_limited,
                "pause": feedback.pause_s,
                "trip": feedback.trip,
                "well": feedback.well,
                "probe": feedback.probe,
                "learned": feedback.learned,
            },
            "releases": [{"id": end.id, "at": end.taken_at_s, "more": end.more} for end in request.releases],
            "active": request.active,
            "acquires": [{"id": call.id, "urgent": call.urgent, "weights": call.weights} for call in request.acquires],
        }
    )
