"""Who works here, and which lanes are paused: what the workers tell each other through the ledger."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from schemas.states import HeldReason, Step
from worker.ledger.database import Database

PRESENT_FOR = timedelta(seconds=20)
"""A worker that was not seen for so long no longer counts."""


@dataclass(frozen=True, slots=True)
class Present:
    """Who is here."""

    workers: int
    steps: frozenset[Step]
    """Served by at least one of them."""


# Workers that are long gone leave no rows behind.
_BEAT = """
WITH forgotten AS (
    DELETE FROM worker WHERE seen_at < nightdesk_now() - interval '1 hour' AND name <> %(name)s
), seen AS (
    INSERT INTO worker (name, seen_at, steps) VALUES (%(name)s, nightdesk_now(), %(steps)s)
    ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at, steps = excluded.steps
), others AS (
    SELECT steps FROM worker WHERE name <> %(name)s AND seen_at > nightdesk_now() - %(present_for)s
)
SELECT (SELECT count(*) + 1 FROM others) AS workers,
       ARRAY(SELECT DISTINCT s.step FROM others, unnest(steps) AS s(step)) || %(steps)s::text[] AS steps
"""

_PAUSE_LANE = """
INSERT INTO lane_pause (provider, lane, why) VALUES (%(provider)s, %(lane)s, %(why)s)
ON CONFLICT (provider, lane) DO NOTHING
"""

# Jobs of every paused lane are held for the same reason; those whose lane stays paused are held again when called.
_RETRY_LANES = """
WITH resumed AS (
    DELETE FROM lane_pause WHERE paused_at < nightdesk_now() - %(older_than)s RETURNING provider, lane
), freed AS (
    UPDATE job j
    SET state = CASE WHEN b.paused OR j.scheduled_at > nightdesk_now() THEN 'scheduled' ELSE 'available' END,
        held_reason = CASE WHEN b.paused THEN 'batch_paused' END, available_at = nightdesk_now(), hinted_at = NULL
    FROM batch b
    WHERE b.id = j.batch_id AND j.state = 'scheduled' AND j.held_reason = %(reason)s
      AND EXISTS (SELECT FROM resumed)
    RETURNING j.id, j.run
), noted AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, 'release', 'dispatch', jsonb_build_object('held_reason', %(reason)s::text) FROM freed
)
SELECT provider, lane FROM resumed
"""


class Presence:
    """The workers' verbs of the PostgreSQL ledger that concern no job."""

    _db: Database

    async def beat(self, worker: str, steps: Iterable[Step] = ()) -> Present:
        """Note that a worker is alive and which steps it serves; returns who is, this one included."""
        given = {"name": worker, "steps": sorted(step.value for step in steps), "present_for": PRESENT_FOR}
        (row,) = await self._db.rows(_BEAT, given)
        return Present(int(row.workers), known_steps(row.steps))

    async def leave(self, worker: str) -> None:
        """Note that a worker works no more."""
        await self._db.rows("DELETE FROM worker WHERE name = %(name)s", {"name": worker})

    async def pause_lane(self, provider: str, lane: str, why: str) -> None:
        """Note that a lane is paused; the first reason stays."""
        await self._db.rows(_PAUSE_LANE, {"provider": provider, "lane": lane, "why": why})

    async def paused_lanes(self) -> list[tuple[str, str]]:
        """The lanes that are paused now, as provider and lane."""
        rows = await self._db.rows("SELECT provider, lane FROM lane_pause ORDER BY provider, lane")
        return [(row.provider, row.lane) for row in rows]

    async def retry_lanes(self, older_than: timedelta) -> list[tuple[str, str]]:
        """Let lanes go on that were paused for so long, with the jobs held for it; returns those lanes."""
        given = {"older_than": older_than, "reason": HeldReason.LANE_PAUSED.value}
        return [(row.provider, row.lane) for row in await self._db.rows(_RETRY_LANES, given)]


def known_steps(names: Iterable[str]) -> frozenset[Step]:
    """Steps by their names; those that only a newer version knows are left out."""
    known = {step.value: step for step in Step}
    return frozenset(known[name] for name in names if name in known)
