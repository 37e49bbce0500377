"""Presence of the workers, and the lanes that are paused: messages between workers through the ledger."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson

from schemas.failure import FailureKind
from schemas.states import HeldReason, Step
from worker.ledger.database import Store

PRESENT_FOR = timedelta(seconds=20)
"""A worker that was not seen for so long no longer counts."""

URGENT = "urgent"
"""Stands among the steps of a worker that takes urgent jobs alone."""


@dataclass(frozen=True, slots=True)
class Present:
    """The workers that are alive, and the lanes that are paused."""

    workers: int
    steps: frozenset[Step]
    """Served by at least one of them."""
    paused: tuple[tuple[str, str, str], ...] = ()
    """Paused lanes, as provider, lane and model."""
    longest_pause: timedelta = timedelta(0)
    urgent: bool = False
    """One of them takes urgent jobs alone."""


_REMEDIES = {
    FailureKind.QUOTA: "raise the quota or spend limit at the provider",
    FailureKind.AUTHENTICATION: "put a key that is accepted in the environment of the workers and restart them",
    FailureKind.PERMISSION: "let the key use this model at the provider, or give the workers another key",
    FailureKind.NOT_FOUND: "set a model that exists (NIGHTDESK_MODEL, or 'model' in NIGHTDESK_PROVIDERS) and restart the "
    "workers; cancel jobs that name the model themselves and hand them in again with another",
    FailureKind.PARAMETER: "change the settings of the provider as it says and restart the workers; cancel jobs that set it "
    "themselves and hand them in again without it",
    FailureKind.UNAVAILABLE: "start the server, or correct its address and restart the workers",
    FailureKind.CONFIGURATION: "correct the settings of the workers and restart them",
}
"""The remedy of an operator before jobs are released, by the cause of the pause."""


@dataclass(frozen=True, slots=True)
class LaneNotice:
    """A lane that is paused; or, with ``paused`` False, one whose provider a worker can't reach or can't ask now."""

    provider: str
    lane: str
    model: str
    """Empty: all models."""
    since: datetime
    kind: FailureKind
    why: str
    paused: bool

    @property
    def event(self) -> str:
        """The event, its time, and the provider's words without their full stop, the same for every command."""
        since, why = f"{self.since:%Y-%m-%d %H:%M} UTC", self.why.rstrip().rstrip(".")
        if not self.paused and self.kind is FailureKind.CONFIGURATION:
            return f"calls to {self.provider} wait in the lane {self.lane} since {since} for a worker that can look after them: {why}"
        if not self.paused:
            why = why.removeprefix(f"{self.provider} can't be reached: ")
            return f"{self.provider} can't be reached since {since}: {why}"
        target = f"{self.provider} with the model {self.model}" if self.model else self.provider
        return f"no calls are made to {target} in the lane {self.lane} since {since}: {why}"

    @property
    def consequence(self) -> str:
        """The effect on its jobs."""
        if self.paused:
            return "its jobs are held"
        until = "a worker looks after them" if self.kind is FailureKind.CONFIGURATION else "it answers"
        return f"its jobs wait, and go on by themselves once {until}"

    @property
    def remedy(self) -> str:
        """The remedy for the cause."""
        return _REMEDIES.get(self.kind, "fix the cause that the failure names")


# Workers that are long gone leave no rows behind.
_BEAT = """
WITH absent_worker AS (
    DELETE FROM worker WHERE seen_at < nightdesk_now() - interval '1 hour' AND name <> %(name)s
), presence AS (
    INSERT INTO worker (name, seen_at, steps, unreachable, report)
    VALUES (%(name)s, nightdesk_now(), %(steps)s, %(unreachable)s::jsonb, %(report)s::jsonb)
    ON CONFLICT (name) DO UPDATE
    SET seen_at = excluded.seen_at, steps = excluded.steps, unreachable = excluded.unreachable,
        report = coalesce(excluded.report, worker.report)
), other_worker AS (
    SELECT steps FROM worker WHERE name <> %(name)s AND seen_at > nightdesk_now() - %(present_for)s
)
SELECT (SELECT count(*) + 1 FROM other_worker) AS workers,
       ARRAY(SELECT DISTINCT s.step FROM other_worker, unnest(steps) AS s(step)) || %(steps)s::text[] AS steps,
       (SELECT coalesce(json_agg(json_build_array(provider, lane, model)), '[]') FROM lane_pause) AS paused,
       (SELECT nightdesk_now() - min(paused_at) FROM lane_pause) AS longest_pause
"""

_PAUSE_LANE = """
INSERT INTO lane_pause (provider, lane, model, kind, why)
VALUES (%(provider)s, %(lane)s, %(model)s, %(kind)s, %(why)s)
ON CONFLICT (provider, lane, model) DO NOTHING
"""

_LANE_NOTICES = """
SELECT provider, lane, model, paused_at AS since, kind, why, true AS paused FROM lane_pause
UNION ALL
SELECT provider, lane, '', to_timestamp(min(since_s)), kind, min(why), false
FROM worker CROSS JOIN LATERAL (
    SELECT u ->> 'provider' AS provider, coalesce(u ->> 'lane', '') AS lane, (u ->> 'since_s')::float8 AS since_s,
           coalesce(u ->> 'kind', %(unavailable)s) AS kind, u ->> 'why' AS why
    FROM jsonb_array_elements(unreachable) AS u
) u
WHERE seen_at > nightdesk_now() - %(present_for)s
  AND NOT EXISTS (SELECT FROM lane_pause p WHERE p.provider = u.provider AND p.kind = u.kind AND u.kind = %(unavailable)s)
GROUP BY provider, lane, kind
ORDER BY since, provider, model
"""

# Of the jobs that are due first in the whole ledger: no index is kept for this alone.
_NEXT_TRY = """
SELECT (
    SELECT d.scheduled_at FROM (
        SELECT batch_id, scheduled_at FROM job WHERE state = 'scheduled' AND held_reason IS NULL
        ORDER BY scheduled_at LIMIT %(most)s
    ) d WHERE d.batch_id = %(batch_id)s ORDER BY d.scheduled_at LIMIT 1
) AS at
"""

MOST_DUE = 5_000
"""Jobs that are looked through for the next one of a batch."""

# Jobs for the local model go on without it after a while.
_UNSERVED = """
SELECT s.step FROM unnest(ARRAY['generate', 'check']) AS s(step)
WHERE EXISTS (SELECT FROM job j WHERE j.state = 'available' AND j.step = s.step)
  AND NOT EXISTS (SELECT FROM worker w WHERE w.seen_at > nightdesk_now() - %(present_for)s AND s.step = ANY (w.steps))
  AND NOT EXISTS (
      SELECT FROM job j JOIN worker w ON w.name = j.worker AND s.step = ANY (w.steps)
      WHERE j.state = 'running' AND j.step = s.step AND j.lease_until > nightdesk_now()
  )
"""

# Jobs of every paused lane are held for the same reason; those whose lane stays paused are held again when called.
_RELEASED_JOB = """released_job AS (
    UPDATE job j
    SET state = CASE WHEN b.paused OR j.scheduled_at > nightdesk_now() THEN 'scheduled' ELSE 'available' END,
        held_reason = CASE WHEN b.paused THEN 'batch_paused' END, available_at = nightdesk_now()
    FROM batch b
    WHERE b.id = j.batch_id AND j.state = 'scheduled' AND j.held_reason = %(reason)s
      AND EXISTS (SELECT FROM resumed_lane)
    RETURNING j.id, j.run
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, 'release', %(actor)s, jsonb_build_object('held_reason', %(reason)s::text) FROM released_job
)"""

_RETRY_LANES = f"""
WITH resumed_lane AS (
    DELETE FROM lane_pause WHERE paused_at < nightdesk_now() - %(older_than)s RETURNING provider, lane, model
), {_RELEASED_JOB}
SELECT provider, lane, model FROM resumed_lane
"""


class Fleet(Store):
    """Messages between workers that concern no job: presence, lanes, unreachable providers."""

    async def beat(
        self,
        worker: str,
        steps: Iterable[Step] = (),
        unreachable: Sequence[dict[str, Any]] = (),
        *,
        urgent_only: bool = False,
        report: Mapping[str, Any] | None = None,
    ) -> Present:
        """Note that a worker is alive, which steps it serves and which providers it can't reach; returns who is there.

        Of each unreachable provider there are ``provider``, ``since_s`` (Unix time) and ``why``; of calls that wait for a
        worker with other settings also ``lane`` and ``kind``. Of a worker that takes urgent jobs alone there are no ``steps``.
        ``report`` says who answers there; None leaves what the worker said before.
        """
        parameters = {
            "name": worker,
            "steps": [URGENT] if urgent_only else sorted(step.value for step in steps),
            "unreachable": orjson.dumps(list(unreachable)).decode(),
            "present_for": PRESENT_FOR,
            "report": None if report is None else orjson.dumps(report).decode(),
        }
        (row,) = await self._db.rows(_BEAT, parameters)
        return Present(
            int(row.workers),
            known_steps(row.steps),
            tuple((provider, lane, model) for provider, lane, model in row.paused),
            row.longest_pause or timedelta(0),
            urgent=URGENT in row.steps,
        )

    async def leave(self, worker: str) -> None:
        """Note that a worker works no more."""
        await self._db.rows("DELETE FROM worker WHERE name = %(name)s", {"name": worker})

    async def pause_lane(
        self, provider: str, lane: str, why: str, *, model: str = "", kind: FailureKind = FailureKind.QUOTA
    ) -> None:
        """Note that a lane is paused, for one model or (empty) all of them; the first reason stays."""
        parameters = {"provider": provider, "lane": lane, "model": model, "kind": kind.value, "why": why}
        await self._db.rows(_PAUSE_LANE, parameters)

    async def paused_lanes(self) -> list[tuple[str, str, str]]:
        """The lanes that are paused now, as provider, lane and model."""
        rows = await self._db.rows("SELECT provider, lane, model FROM lane_pause ORDER BY provider, lane, model")
        return [(row.provider, row.lane, row.model) for row in rows]

    async def retry_lanes(self, older_than: timedelta) -> list[tuple[str, str, str]]:
        """Let lanes go on that were paused for so long, with the jobs held for it; returns those lanes."""
        parameters = {"older_than": older_than, "reason": HeldReason.LANE_PAUSED.value, "actor": "dispatch"}
        return [(row.provider, row.lane, row.model) for row in await self._db.rows(_RETRY_LANES, parameters)]

    async def unserved(self) -> list[str]:
        """The queues with available jobs that no worker takes.

        A worker whose presence is late still renews its leases; one that checks its own answers does not take others' to check.
        """
        return await self._db.column(_UNSERVED, {"present_for": PRESENT_FOR})

    async def workers(self) -> list[str]:
        """The names of the workers that said lately that they are alive, wherever they run."""
        query = "SELECT name FROM worker WHERE seen_at > nightdesk_now() - %(present_for)s"
        return await self._db.column(query, {"present_for": PRESENT_FOR})

    async def reports(self, step: Step) -> list[tuple[str, dict[str, Any] | None]]:
        """Each worker that takes jobs at a step, by name, with its report of who answers; None for one that made none."""
        query = """
            SELECT name, report FROM worker
            WHERE seen_at > nightdesk_now() - %(present_for)s AND steps && %(steps)s::text[] ORDER BY name
        """
        rows = await self._db.rows(query, {"present_for": PRESENT_FOR, "steps": [step.value, URGENT]})
        return [(row.name, row.report) for row in rows]

    async def next_try(self, batch_id: UUID) -> datetime | None:
        """The time at which the first waiting job of a batch goes on; None where thousands of other batches are due before."""
        at: datetime | None = await self._db.value(_NEXT_TRY, {"batch_id": batch_id, "most": MOST_DUE})
        return at

    async def lane_notices(self) -> list[LaneNotice]:
        """The lanes in which no calls are made, and the providers that the workers can't reach; the oldest first."""
        parameters = {"unavailable": FailureKind.UNAVAILABLE.value, "present_for": PRESENT_FOR}
        rows = await self._db.rows(_LANE_NOTICES, parameters)
        return [
            LaneNotice(**{**row._asdict(), "since": row.since.astimezone(UTC), "kind": known_kind(row.kind)})
            for row in rows
        ]


def known_kind(name: str) -> FailureKind:
    """A failure kind by its name; one that only a newer version knows is an internal one."""
    return FailureKind(name) if name in set(FailureKind) else FailureKind.INTERNAL


def known_steps(names: Iterable[str]) -> frozenset[Step]:
    """Steps by their names; those that only a newer version knows are left out."""
    by_name = {step.value: step for step in Step}
    return frozenset(by_name[name] for name in names if name in by_name)
