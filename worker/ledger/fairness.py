"""The order in which available jobs are taken, as one reusable part of a statement."""

from collections.abc import Mapping

import orjson

from worker.ledger.pages import NOT_BARRED

LEAST_PRIORITY, MOST_PRIORITY = -32768, 32767
"""Of a smallint."""

_READY = f"""FROM job j
    WHERE {NOT_BARRED} AND j.state = 'available' AND j.step = %(step)s AND j.priority BETWEEN %(min_priority)s AND %(max_priority)s
      AND j.rescues <= %(max_rescues)s
      AND (j.deadline IS NULL OR j.deadline > nightdesk_now())"""

FAIR_ORDER = f"""
WITH RECURSIVE level AS (
    SELECT 32768 AS priority, 0::bigint AS above, 0::bigint AS jobs
    UNION ALL
    SELECT p.priority, l.above + l.jobs, n.jobs
    FROM level l
    CROSS JOIN LATERAL (
        SELECT j.priority::int {_READY} AND j.priority < l.priority ORDER BY j.priority DESC LIMIT 1
    ) p
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs
        FROM (SELECT {_READY} AND j.priority = p.priority LIMIT %(limit)s - l.above - l.jobs) r
    ) n
    WHERE l.above + l.jobs < %(limit)s
), tenant_at AS (
    SELECT l.priority, n.tenant
    FROM level l
    CROSS JOIN LATERAL (SELECT j.tenant {_READY} AND j.priority = l.priority ORDER BY j.tenant LIMIT 1) n
    UNION ALL
    SELECT t.priority, n.tenant
    FROM tenant_at t
    CROSS JOIN LATERAL (
        SELECT j.tenant {_READY} AND j.priority = t.priority AND j.tenant > t.tenant ORDER BY j.tenant LIMIT 1
    ) n
), contender AS MATERIALIZED (
    SELECT t.priority, t.tenant, coalesce((%(shares)s::jsonb ->> t.tenant)::float8, 1) AS share FROM tenant_at t
), lowest AS MATERIALIZED (
    SELECT l.priority, %(limit)s - l.above AS room, s.turns, s.least
    FROM level l
    CROSS JOIN LATERAL (
        SELECT (%(limit)s - l.above + count(*)) / sum(c.share) AS turns, min(c.share) AS least
        FROM contender c WHERE c.priority = l.priority
    ) s
    ORDER BY l.priority LIMIT 1
), reach AS (
    SELECT l.priority, l.room, l.least, l.turns / 2 AS turns, 0::bigint AS jobs FROM lowest l
    UNION ALL
    SELECT e.priority, e.room, e.least, e.turns * 2, n.jobs
    FROM reach e
    CROSS JOIN LATERAL (
        SELECT sum(r.jobs)::bigint AS jobs
        FROM contender c
        CROSS JOIN LATERAL (
            SELECT count(*) AS jobs
            FROM (SELECT {_READY} AND j.priority = c.priority AND j.tenant = c.tenant
                  LIMIT ceil(2 * e.turns * c.share)::bigint) q
        ) r
        WHERE c.priority = e.priority
    ) n
    WHERE e.jobs < e.room AND e.turns * e.least <= e.room
), fair AS (
    SELECT n.id, n.priority, n.available_at, n.hinted_at
    FROM contender c
    CROSS JOIN (SELECT e.priority, e.room, max(e.turns) AS turns FROM reach e GROUP BY 1, 2) b
    CROSS JOIN LATERAL (
        SELECT i.id, i.priority, i.deadline, i.available_at, i.hinted_at,
               row_number() OVER (ORDER BY i.deadline NULLS LAST, i.id) / c.share AS turn
        FROM (
            SELECT j.id, j.priority, j.deadline, j.available_at, j.hinted_at {_READY}
              AND j.priority = c.priority AND j.tenant = c.tenant
            ORDER BY j.deadline NULLS LAST, j.id
            LIMIT CASE WHEN c.priority > b.priority THEN %(limit)s
                       ELSE least(b.room, ceil(b.turns * c.share)::bigint) END
        ) i
    ) n
    ORDER BY n.priority DESC, n.turn, n.deadline NULLS LAST, n.id
    LIMIT %(limit)s
)"""
"""Defines ``fair(id, priority, available_at, hinted_at)``: the next ``limit`` available jobs of ``step``.

Higher priority goes first. Within a priority tenants take turns, as many as their weight in ``shares`` says. Within a
tenant the nearest deadline goes first, then the order of submission.

The cost grows with ``limit`` and with the number of tenants, not with their product and not with the number of jobs.
``level`` counts down the priorities until they hold ``limit`` jobs: all of them are taken but for the ``lowest`` level.
There each tenant gets its share of the room. Where some tenants have less than that, ``reach`` doubles the turns until the
others fill the room. All look-ups go through the index ``job_available``.

Join it to ``job`` as ``id = ANY (ARRAY(SELECT id FROM fair))``: the planner takes a recursive part for a handful of
rows, and a plain join over 2,000 of them became a nested loop of millions.
"""


def shares_document(shares: Mapping[str, float]) -> str:
    """The parameter ``shares``: weights by tenant as JSON; who is not named weighs 1."""
    return orjson.dumps(dict(shares)).decode()


FAIR_IDS = FAIR_ORDER + " SELECT id FROM fair"
"""The ids alone, without a lock."""
