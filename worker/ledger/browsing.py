"""Lists batches and jobs for people, a page at a time by key: no list is counted, and no statement reads without a bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

from schemas.batch import BatchStatus
from schemas.grounding import Verdict
from schemas.states import JobState, Outcome
from worker.ledger.database import Store
from worker.ledger.views import STATUS

BATCHES_READ = 2_000
"""Batches that a filter looks at for one page."""

POSITIONS_READ = 100_000
RECORDS_READ = 10_000
"""Jobs that a filter looks at for one page: by their rows alone, or with their records."""

QUEUE_BATCHES = 200
"""Newest batches of a tenant whose answers make up its review queue."""


class BatchFilter(StrEnum):
    """The batches of a list."""

    ALL = "all"
    MOVING = "moving"
    WITH_HOLDS = "held"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class BatchSelection:
    """The batches to list, newest first.

    Attributes:
        words: part of the name or key, in lower case; empty: any.
        after: time and id of the last batch that was looked at; None: from the beginning.
    """

    tenant: str
    show: BatchFilter = BatchFilter.ALL
    words: str = ""
    after: tuple[datetime, UUID] | None = None


@dataclass(frozen=True, slots=True)
class BatchList:
    """A page of batches; ``after`` is where the next one begins, None: at the end."""

    batches: list[BatchStatus]
    after: tuple[datetime, UUID] | None


@dataclass(frozen=True, slots=True)
class JobSelection:
    """The jobs of a batch to list, behind a position; an ending is an outcome or a state."""

    batch_id: UUID
    ending: str = ""
    verdict: Verdict | None = None
    after: int = -1


@dataclass(frozen=True, slots=True)
class JobRow:
    """A line of a list of jobs."""

    id: UUID
    batch_id: UUID
    position: int
    custom_id: str | None
    state: JobState
    outcome: Outcome | None
    held_reason: str | None
    standing: float | None
    grounding_score: float | None
    verdicts: dict[str, int]
    query: str
    failure: str | None
    cost_usd: Decimal | None
    labels: int

    @property
    def ending(self) -> str:
        """The outcome; without one the state."""
        return self.outcome.value if self.outcome is not None else self.state.value


@dataclass(frozen=True, slots=True)
class JobList:
    """A page of jobs; ``after`` is where the next one begins, None: at the end."""

    jobs: list[JobRow]
    after: int | None


@dataclass(frozen=True, slots=True)
class QueueSelection:
    """The answers to review, the worst verdict first: of a batch, or of the tenant's newest batches.

    Attributes:
        actor: the person, whose judged answers are left out.
        after: standing and id of the last one looked at; None: from the beginning.
    """

    tenant: str
    actor: str
    batch_id: UUID | None = None
    after: tuple[float, UUID] | None = None


_FIRST, _LAST = UUID(int=0), UUID(int=2**128 - 1)

_MATCHES = """
SELECT w.id, w.created_at, strpos(lower(concat_ws(' ', w.name, w.key, w.id::text)), %(words)s) > 0 AND {counted} AS matches
FROM (
    SELECT id, created_at, name, key FROM batch
    WHERE tenant = %(tenant)s AND (created_at, id) < (coalesce(%(at)s::timestamptz, 'infinity'), %(id)s)
    ORDER BY created_at DESC, id DESC LIMIT %(window)s
) w ORDER BY w.created_at DESC, w.id DESC
"""
_COUNTED = {
    BatchFilter.ALL: "true",
    **{
        show: f"""coalesce((SELECT sum(jobs) FILTER (WHERE {rows}) FROM job_count
                 WHERE batch_id = w.id AND folded = ANY ('{{false,true}}')), 0) > 0"""
        for show, rows in {
            BatchFilter.MOVING: "state IN ('scheduled', 'available', 'running', 'pending')",
            BatchFilter.WITH_HOLDS: "held_reason IS NOT NULL",
            BatchFilter.FAILED: "state = 'failed'",
        }.items()
    },
}
_STATUSES = STATUS + "WHERE b.id = ANY(%(ids)b::uuid[])"

_IN_WINDOW = """
SELECT j.position, j.id FROM job j {join}
WHERE j.batch_id = %(batch_id)s AND j.position > %(after)s AND j.position <= %(after)s::bigint + %(window)s
  AND (%(ending)s = '' OR coalesce(j.outcome, j.state) = %(ending)s) {verdict}
ORDER BY j.position LIMIT %(limit)s
"""
_BY_ENDING = _IN_WINDOW.format(join="", verdict="")
_WITH_VERDICT = _IN_WINDOW.format(
    join="JOIN generation_record g ON g.job_id = j.id AND g.run = j.run",
    verdict="AND j.finished_at IS NOT NULL AND coalesce((g.grounding -> 'counts' ->> %(verdict)s)::int, 0) > 0",
)
_IS_MORE = "SELECT EXISTS (SELECT FROM job WHERE batch_id = %(batch_id)s AND position > %(after)s) AS yes"

_ROWS = """
SELECT j.id, j.batch_id, j.position, j.custom_id, j.state, j.outcome, j.held_reason, j.standing,
       (g.grounding ->> 'grounding_score')::float8 AS grounding_score,
       coalesce(g.grounding -> 'counts', '{}') AS verdicts, left(r.head ->> 'query', 300) AS query,
       g.failure ->> 'kind' AS failure,
       CASE WHEN NOT EXISTS (SELECT FROM attempt u WHERE u.job_id = j.id AND u.cost_usd IS NULL AND u.closed_at IS NOT NULL)
            THEN j.cost_usd END AS cost_usd,
       (SELECT count(*) FROM label l WHERE l.job_id = j.id AND l.run = j.run) AS labels
FROM unnest(%(ids)b::uuid[]) WITH ORDINALITY AS d(id, ord) JOIN job j ON j.id = d.id
LEFT JOIN job_request r ON r.job_id = j.id
LEFT JOIN generation_record g ON g.job_id = j.id AND g.run = j.run AND j.finished_at IS NOT NULL
ORDER BY d.ord
"""

_AT = "SELECT position, id FROM job WHERE batch_id = %(batch_id)s AND position = ANY(%(positions)b::int4[])"

_QUEUE = """
SELECT j.id, j.standing FROM job j
WHERE j.batch_id = {batch} AND j.standing IS NOT NULL AND j.finished_at IS NOT NULL
  AND (j.standing, j.id) > (%(standing)s::real, %(id)s)
  AND NOT EXISTS (SELECT FROM label l WHERE l.job_id = j.id AND l.run = j.run AND l.actor = %(actor)s)
ORDER BY j.standing, j.id LIMIT %(limit)s
"""
_OF_BATCH = _QUEUE.format(batch="%(batch_id)s")
_OF_TENANT = f"""
SELECT q.id, q.standing FROM (
    SELECT id FROM batch WHERE tenant = %(tenant)s ORDER BY created_at DESC, id DESC LIMIT {QUEUE_BATCHES}
) b CROSS JOIN LATERAL ({_QUEUE.format(batch="b.id")}) q
ORDER BY q.standing, q.id LIMIT %(limit)s
"""

MOST_OF_NAME = 4
"""Batches of one name that a message lists."""

_OF_NAME = "SELECT id FROM batch WHERE name = %(name)s AND erased_at IS NULL ORDER BY created_at DESC LIMIT %(limit)s"

_LAST_POSITION = "SELECT max(position) AS position FROM job WHERE batch_id = %(batch_id)s"
_SAMPLE = """
SELECT j.id FROM unnest(%(positions)b::int4[]) WITH ORDINALITY AS d(position, ord)
JOIN job j ON j.batch_id = %(batch_id)s AND j.position = d.position
WHERE j.standing IS NOT NULL AND j.finished_at IS NOT NULL AND (j.standing, j.id) > (%(standing)s::real, %(id)s)
  AND NOT EXISTS (SELECT FROM label l WHERE l.job_id = j.id AND l.run = j.run AND l.actor = %(actor)s)
ORDER BY d.ord LIMIT %(limit)s
"""


class Browsing(Store):
    """Pages of batches and jobs; the caller has made sure of the tenant where only a batch is named."""

    async def batches(self, selection: BatchSelection, limit: int) -> BatchList:
        """Batches of a tenant; where a filter looked at its most, the next page goes on behind."""
        window = limit + 1 if selection.show is BatchFilter.ALL and not selection.words else BATCHES_READ
        at, batch_id = selection.after or (None, _LAST)
        parameters = {
            "tenant": selection.tenant, "words": selection.words, "at": at, "id": batch_id, "window": window,
        }  # fmt: skip
        rows = await self._db.rows(_MATCHES.format(counted=_COUNTED[selection.show]), parameters)
        matches = [row for row in rows if row.matches]
        page = matches[:limit]
        last = page[-1] if len(matches) > limit else rows[-1] if len(rows) == window else None
        after = None if last is None else (last.created_at, last.id)
        return BatchList(await self._statuses([row.id for row in page]), after)

    async def _statuses(self, ids: Sequence[UUID]) -> list[BatchStatus]:
        rows = {row.batch_id: row for row in await self._db.rows(_STATUSES, {"ids": list(ids)})}
        return [BatchStatus(**rows[batch_id]._asdict()) for batch_id in ids if batch_id in rows]

    async def jobs(self, selection: JobSelection, limit: int) -> JobList:
        """Jobs of a batch by position; where a filter looked at its most, the next page goes on behind."""
        window = POSITIONS_READ if selection.verdict is None else RECORDS_READ
        parameters = {
            "batch_id": selection.batch_id, "after": selection.after, "window": window, "ending": selection.ending,
            "verdict": selection.verdict and selection.verdict.value, "limit": limit + 1,
        }  # fmt: skip
        rows = await self._db.rows(_BY_ENDING if selection.verdict is None else _WITH_VERDICT, parameters)
        page = rows[:limit]
        last = page[-1].position if len(rows) > limit else selection.after + window
        key = {"batch_id": selection.batch_id, "after": last}
        more = len(rows) > limit or (last < 2**31 - 1 and await self._db.value(_IS_MORE, key))
        return JobList(await self.rows([row.id for row in page]), last if more else None)

    async def rows(self, ids: Sequence[UUID]) -> list[JobRow]:
        """The lines of jobs, in this order; erased questions are empty."""
        return [_job_row(row) for row in await self._db.rows(_ROWS, {"ids": list(ids)})]

    async def at(self, batch_id: UUID, positions: Sequence[int]) -> dict[int, UUID]:
        """The jobs at these positions of a batch."""
        rows = await self._db.rows(_AT, {"batch_id": batch_id, "positions": list(positions)})
        return {row.position: row.id for row in rows}

    async def queue(self, selection: QueueSelection, limit: int) -> list[JobRow]:
        """Answers to review, the worst verdict first."""
        statement = _OF_TENANT if selection.batch_id is None else _OF_BATCH
        rows = await self._db.rows(statement, {**_queue_parameters(selection), "limit": limit})
        return await self.rows([row.id for row in rows])

    async def of_name(self, name: str) -> list[UUID]:
        """The newest few batches with a name; reads all batches, which are few beside their jobs."""
        return await self._db.column(_OF_NAME, {"name": name, "limit": MOST_OF_NAME})

    async def last_position(self, batch_id: UUID) -> int:
        """The last position of a batch; -1 without jobs."""
        position = await self._db.value(_LAST_POSITION, {"batch_id": batch_id})
        return -1 if position is None else int(position)

    async def sample(self, selection: QueueSelection, positions: Sequence[int], limit: int) -> list[JobRow]:
        """Answers at these positions of a batch, in this order, that stand behind ``after`` in the queue."""
        parameters = {**_queue_parameters(selection), "positions": list(positions), "limit": limit}
        return await self.rows(await self._db.column(_SAMPLE, parameters))


def _queue_parameters(selection: QueueSelection) -> dict[str, Any]:
    standing, job_id = selection.after or (-1.0, _FIRST)
    return {
        "tenant": selection.tenant, "batch_id": selection.batch_id, "actor": selection.actor,
        "standing": standing, "id": job_id,
    }  # fmt: skip


def _job_row(row: Any) -> JobRow:
    values = row._asdict()
    return JobRow(
        **{
            **values,
            "state": JobState(row.state),
            "outcome": Outcome(row.outcome) if row.outcome else None,
            "query": row.query or "",
        }
    )
