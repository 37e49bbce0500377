"""Reads the figures for ``/metrics`` that no other command needs: queue age, workers, the leader, batches under way; ``inspection`` counts what waits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.states import FINAL_STATES, Step
from worker.ledger.database import Store
from worker.ledger.fleet import PRESENT_FOR, URGENT

MOST_BATCHES = 20
LOOKED_AT = 200
"""Newest batches among which those under way are looked for."""

NEXT_JOBS = 10_000

# By the index of available jobs, which has them in the order in which they are taken.
_AGE = """
SELECT coalesce(extract(epoch FROM nightdesk_now() - min(available_at)), 0)::float8 AS age_s
FROM (SELECT available_at FROM job WHERE state = 'available' AND step = %(step)s
      ORDER BY priority DESC, tenant, deadline NULLS LAST, id LIMIT %(next)s) j
"""

_WORKERS = """
SELECT step, count(*) AS workers FROM worker, unnest(steps) AS step
WHERE seen_at > nightdesk_now() - %(present_for)s GROUP BY step
"""

_DUTIES = """
SELECT coalesce(leads_until > nightdesk_now(), false) AS led, leader_has_broker, check_behind FROM dispatch
"""

_BATCHES = """
SELECT b.id, coalesce(b.name, '') AS name, c.jobs, c.final
FROM (SELECT id, name, created_at FROM batch WHERE erased_at IS NULL ORDER BY created_at DESC LIMIT %(looked_at)s) b
CROSS JOIN LATERAL (
    SELECT sum(jobs)::bigint AS jobs, coalesce(sum(jobs) FILTER (WHERE state = ANY(%(ends)s)), 0)::bigint AS final
    FROM job_count WHERE batch_id = b.id AND folded = ANY ('{false,true}')
) c
WHERE c.final < c.jobs AND c.jobs > 1 ORDER BY b.created_at DESC LIMIT %(most)s
"""


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """A batch of several jobs that is under way."""

    batch_id: UUID
    name: str
    jobs: int
    final: int


@dataclass(frozen=True, slots=True)
class GaugeReading:
    """The figures of a moment."""

    ages_s: Mapping[Step, float]
    workers: Mapping[str, int]
    """By the step that they serve; those of urgent jobs alone as ``urgent``."""
    led: bool
    leader_has_broker: bool
    check_behind: bool
    batches: Sequence[BatchProgress]


class Gauges(Store):
    """Reads them, each by an index and with a limit."""

    async def read(self) -> GaugeReading:
        """Read all of them; raises ``LedgerUnavailable``."""
        ages_s = {}
        for step in Step:
            ages_s[step] = await self._db.value(_AGE, {"step": step.value, "next": NEXT_JOBS})
        workers = {step.value: 0 for step in Step} | {URGENT: 0}
        for row in await self._db.rows(_WORKERS, {"present_for": PRESENT_FOR}):
            if row.step in workers:
                workers[row.step] = row.workers
        (duties,) = await self._db.rows(_DUTIES)
        parameters = {
            "looked_at": LOOKED_AT,
            "most": MOST_BATCHES,
            "ends": [state.value for state in FINAL_STATES],
        }
        batches = [BatchProgress(*row) for row in await self._db.rows(_BATCHES, parameters)]
        return GaugeReading(ages_s, workers, duties.led, duties.leader_has_broker, duties.check_behind, batches)
