"""Looks whether PostgreSQL and Redis can be reached."""

import asyncio
import time

from redis import asyncio as redis
from redis.exceptions import RedisError

from worker.http.documents import Readiness
from worker.ledger.outage import Outage

ANSWER_S = 1.5
"""Seconds that Redis may take to count as reachable."""

VALID_S = 1.0
"""Seconds that a look is good for: anybody may ask, as often as they like."""


class Lookout:
    """Looks at both servers, once a second at most."""

    def __init__(self, outage: Outage, client: "redis.Redis") -> None:
        self._outage = outage
        self._redis = client
        self._looked_at = float("-inf")
        self._turn = asyncio.Lock()
        self._readiness = Readiness(ready=False, postgres="", redis="")

    async def look(self) -> Readiness:
        """The state of a moment ago."""
        async with self._turn:
            if time.monotonic() - self._looked_at > VALID_S:
                is_ready = self._outage.takes_writes and not self._outage.is_on
                postgres = "ok" if is_ready else "unreachable, or takes no writes: nothing can be accepted"
                self._readiness = Readiness(ready=is_ready, postgres=postgres, redis=await self._broker())
                self._looked_at = time.monotonic()
        return self._readiness

    async def _broker(self) -> str:
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._redis.ping()
        except (RedisError, OSError, TimeoutError):
            return "unreachable: jobs are accepted and start some seconds later, results are read from the ledger"
        return "ok"
