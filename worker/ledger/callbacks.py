"""Callbacks of batches that are settled: which are due, their tries, and their ends."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from uuid import UUID

from schemas.batch import BatchStatus
from worker.ledger.database import Store
from worker.ledger.views import STATUS

KEPT_FOR = timedelta(minutes=2)
"""The time after which another worker tries a callback again whose worker died in the midst."""

LOOK_AFTER = timedelta(minutes=5)
"""Between two looks at a batch whose counts do not change."""

MOST_LOOKS = 1_000
"""Batches that are looked at for the first time, or after so long, at once."""

_IS_SETTLED = """NOT EXISTS (
        SELECT FROM job_count n
        WHERE n.batch_id = c.batch_id AND n.folded = ANY ('{false,true}')
          AND n.state IN ('available', 'pending', 'running', 'scheduled')
        GROUP BY n.state HAVING sum(n.jobs) <> 0)"""

# A batch is settled when the counts that triggers keep have no job that may still move: no job is read. It can only have become so
# where a count changed; the fold of counts makes those due that it takes along.
_SETTLE = f"""
WITH changed AS (
    SELECT DISTINCT n.batch_id FROM job_count n JOIN callback c ON c.batch_id = n.batch_id
    WHERE NOT n.folded AND c.settled_at IS NULL AND c.ended_at IS NULL
), unseen AS (
    SELECT batch_id FROM callback WHERE settled_at IS NULL AND ended_at IS NULL AND next_at <= nightdesk_now()
    ORDER BY next_at LIMIT {MOST_LOOKS}
), looked_at AS (
    SELECT c.batch_id, c.next_at <= nightdesk_now() AS unseen, {_IS_SETTLED} AS settled
    FROM callback c WHERE c.batch_id IN (SELECT batch_id FROM changed UNION SELECT batch_id FROM unseen)
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE callback c SET settled_at = CASE WHEN l.settled THEN nightdesk_now() END,
                      next_at = nightdesk_now() + CASE WHEN l.settled THEN interval '0' ELSE %(look_after)s END
FROM looked_at l WHERE c.batch_id = l.batch_id AND (l.settled OR l.unseen)
"""

# Hosts take turns within a tenant, and tenants within a host and with each other, the one served least lately first; none has more
# tries under way than it may. A batch that was retried meanwhile is not settled any more.
_TAKE = f"""
WITH due AS (
    SELECT c.batch_id, c.next_at, b.tenant, lower(split_part(c.url, '/', 3)) AS host
    FROM callback c JOIN batch b ON b.id = c.batch_id
    WHERE c.ended_at IS NULL AND c.settled_at IS NOT NULL AND c.next_at <= nightdesk_now()
), by_tenant_and_host AS (
    SELECT d.*, coalesce(s.served, 0) AS served, coalesce(s.tries, 0) AS tenant_tries,
           row_number() OVER (PARTITION BY d.tenant, host ORDER BY next_at, batch_id) AS turn
    FROM due d
    LEFT JOIN unnest(%(tenants)s::text[], %(served)s::bigint[], %(tenant_tries)s::int[]) AS s(tenant, served, tries)
        ON s.tenant = d.tenant
), by_host AS (
    SELECT t.*, row_number() OVER (PARTITION BY t.host ORDER BY turn, served, next_at, batch_id) + coalesce(u.tries, 0) AS host_turn
    FROM by_tenant_and_host t LEFT JOIN unnest(%(hosts)s::text[], %(host_tries)s::int[]) AS u(host, tries) ON u.host = t.host
), by_tenant AS (
    SELECT h.*, row_number() OVER (PARTITION BY tenant ORDER BY turn, next_at, batch_id) AS tenant_turn
    FROM by_host h WHERE host_turn <= %(host_most)s
), next_callback AS (
    SELECT batch_id, tenant, host FROM by_tenant WHERE tenant_turn + tenant_tries <= %(tenant_most)s
    ORDER BY tenant_turn, served, next_at, batch_id LIMIT %(most)s
)
UPDATE callback c SET next_at = nightdesk_now() + CASE WHEN {_IS_SETTLED} THEN %(keep_for)s ELSE interval '0' END,
                      settled_at = CASE WHEN {_IS_SETTLED} THEN c.settled_at END
FROM next_callback n
WHERE c.batch_id = n.batch_id AND c.ended_at IS NULL AND c.next_at <= nightdesk_now()
RETURNING c.batch_id, c.url, c.tries, c.settled_at, n.tenant, n.host, nightdesk_now()
"""

_NOTE = """
UPDATE callback SET tries = tries + %(tried)s, last_error = %(error)s, next_at = nightdesk_now() + coalesce(%(pause)s, interval '0'),
                    ended_at = CASE WHEN %(pause)s::interval IS NULL THEN nightdesk_now() END
WHERE batch_id = %(batch_id)s AND ended_at IS NULL
"""

_STATUS = STATUS + "WHERE b.id = %(batch_id)s"


@dataclass(frozen=True, slots=True)
class DueCallback:
    """A callback to be delivered; ``tries`` were made before."""

    batch_id: UUID
    url: str
    tries: int
    settled_at: datetime
    tenant: str
    host: str
    taken_at: datetime
    """Now, by the clock of the ledger: receivers refuse what is signed by one that is minutes off."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Most callbacks that are under way at once."""

    tries: int = 64
    of_tenant: int = 16
    of_host: int = 4


_BOUNDS = Bounds()
_NO_TURNS: Mapping[str, int] = MappingProxyType({})


class Callbacks(Store):
    """The callbacks of all batches."""

    async def settle(self) -> None:
        """Makes the callbacks due whose batch is settled by now; batches whose counts did not change are passed over."""
        await self._db.rows(_SETTLE, {"look_after": LOOK_AFTER})

    async def take(
        self, under_way: Collection[DueCallback] = (), served: Mapping[str, int] = _NO_TURNS, bounds: Bounds = _BOUNDS
    ) -> list[DueCallback]:
        """Callbacks whose time has come, in turns; no other worker takes them for a while.

        Args:
            under_way: those that are tried now.
            served: tenants with a number that grows with each of their turns.
            bounds: on those that are tried at once.
        """
        hosts = Counter(callback.host for callback in under_way)
        tries = Counter(callback.tenant for callback in under_way)
        tenants = list({**served, **tries})
        parameters = {
            "keep_for": KEPT_FOR,
            "hosts": list(hosts),
            "host_tries": list(hosts.values()),
            "tenants": tenants,
            "served": [served.get(tenant, 0) for tenant in tenants],
            "tenant_tries": [tries[tenant] for tenant in tenants],
            "host_most": bounds.of_host,
            "tenant_most": bounds.of_tenant,
            "most": bounds.tries - len(under_way),
        }
        return [DueCallback(*row) for row in await self._db.rows(_TAKE, parameters) if row.settled_at is not None]

    async def status(self, batch_id: UUID) -> BatchStatus:
        """The batch as the callback tells it."""
        (row,) = await self._db.rows(_STATUS, {"batch_id": batch_id})
        return BatchStatus(**row._asdict())

    async def note(self, batch_id: UUID, error: str | None, pause: timedelta | None, *, tried: bool = True) -> None:
        """Notes a try: its error, and the time until the next; without one the callback has ended."""
        values = {"batch_id": batch_id, "error": error, "pause": pause, "tried": int(tried)}
        await self._db.rows(_NOTE, values)


def cost_text(usd: Decimal | None) -> str | None:
    """An amount as JSON carries it; None where it is not known."""
    return None if usd is None else f"{usd.normalize():f}"
