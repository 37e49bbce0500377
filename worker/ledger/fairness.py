"""The order in which available jobs are taken, and the turns that tenants had, as reusable parts of a statement."""

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
), latest_turn AS MATERIALIZED (
    SELECT priority, max(turn) AS turn FROM tenant_turn WHERE line = %(line)s GROUP BY priority
), waiting_tenant AS MATERIALIZED (
    SELECT c.*, c.begins - min(c.begins) OVER level AS lag, count(*) OVER level AS rivals
    FROM (
        SELECT t.priority, t.tenant, s.share, coalesce(greatest(n.turn, o.turn + 1 / s.share), 0) AS begins
        FROM tenant_at t
        CROSS JOIN LATERAL (SELECT coalesce((%(shares)s::jsonb ->> t.tenant)::float8, 1) AS share) s
        LEFT JOIN tenant_turn o ON o.line = %(line)s AND o.priority = t.priority AND o.tenant = t.tenant
        LEFT JOIN latest_turn n ON n.priority = t.priority
    ) c
    WINDOW level AS (PARTITION BY c.priority)
), lowest AS MATERIALIZED (
    SELECT l.priority, %(limit)s - l.above AS room, s.turns, s.least, s.last
    FROM level l
    CROSS JOIN LATERAL (
        SELECT (%(limit)s - l.above + sum(c.lag * c.share)) / sum(c.share) AS turns, min(c.share) AS least,
               max(c.lag) AS last
        FROM waiting_tenant c WHERE c.priority = l.priority
    ) s
    ORDER BY l.priority LIMIT 1
), reach AS (
    SELECT l.priority, l.room, l.least, l.last, l.turns / 2 AS turns, 0::bigint AS jobs FROM lowest l
    UNION ALL
    SELECT e.priority, e.room, e.least, e.last, e.turns * 2, n.jobs
    FROM reach e
    CROSS JOIN LATERAL (
        SELECT sum(r.jobs)::bigint AS jobs
        FROM waiting_tenant c
        CROSS JOIN LATERAL (
            SELECT count(*) AS jobs
            FROM (SELECT {_READY} AND j.priority = c.priority AND j.tenant = c.tenant
                  LIMIT greatest(0, ceil((2 * e.turns - c.lag) * c.share))::bigint) q
        ) r
        WHERE c.priority = e.priority
    ) n
    WHERE e.jobs < e.room AND (e.turns - e.last) * e.least <= e.room
), fair AS (
    SELECT n.id, n.priority, n.available_at,
           row_number() OVER (ORDER BY n.priority DESC, n.turn, n.deadline NULLS LAST, n.id) AS place
    FROM waiting_tenant c
    CROSS JOIN (SELECT e.priority, e.room, max(e.turns) AS turns FROM reach e GROUP BY 1, 2) b
    CROSS JOIN LATERAL (
        SELECT i.id, i.priority, i.deadline, i.available_at,
               c.lag + (row_number() OVER (ORDER BY i.deadline NULLS LAST, i.id) - 1) / c.share AS turn
        FROM (
            SELECT j.id, j.priority, j.deadline, j.available_at {_READY}
              AND j.priority = c.priority AND j.tenant = c.tenant
            ORDER BY j.deadline NULLS LAST, j.id
            LIMIT CASE WHEN c.priority > b.priority THEN %(limit)s
                       ELSE least(b.room, greatest(0, ceil((b.turns - c.lag) * c.share))::bigint) END
        ) i
    ) n
    ORDER BY place
    LIMIT %(limit)s
)"""
"""Defines ``fair(id, priority, available_at, place)``: the next ``limit`` available jobs of ``step``.

Higher priority goes first. Within a priority tenants take turns, as many as their weight in ``shares`` says. Within a
tenant the nearest deadline goes first, then the order of submission.

Turns go on from one statement to the next: ``tenant_turn`` keeps when each tenant's last job had its turn, in virtual time, in
which a tenant of weight 1 has one job a unit (start-time fair queueing). A tenant that is new, or returns, begins at the
latest turn of all. ``keep_turns`` writes down what was taken.

The cost grows with ``limit`` and with the number of tenants, not with their product and not with the number of jobs.
``level`` counts down the priorities until they hold ``limit`` jobs: all of them are taken but for the ``lowest`` level.
There each tenant gets its share of the room, less by how much it is ahead (``lag``). Where some tenants have less than that, ``reach`` doubles the turns until the
others fill the room. All look-ups go through the index ``job_available``.

Join it to ``job`` as ``id = ANY (ARRAY(SELECT id FROM fair))``: the planner takes a recursive part for a handful of
rows, and a plain join over 2,000 of them became a nested loop of millions.
"""


def shares_document(shares: Mapping[str, float]) -> str:
    """The parameter ``shares``: weights by tenant as JSON; who is not named weighs 1."""
    return orjson.dumps(dict(shares)).decode()


def keep_turns(jobs: str) -> str:
    """The part of a statement that notes the turns of the tenants of the relation ``jobs(priority, tenant)``, after ``FAIR_ORDER``.

    A tenant that is alone needs no turn: so a night of one tenant writes nothing, and its workers wait for no common row.
    """
    return f"""
kept_turn AS (
    INSERT INTO tenant_turn AS t (line, priority, tenant, turn)
    SELECT %(line)s, c.priority, c.tenant, c.begins + (n.jobs - 1) / c.share
    FROM (SELECT priority, tenant, count(*) AS jobs FROM {jobs} GROUP BY priority, tenant) n
    JOIN waiting_tenant c ON c.priority = n.priority AND c.tenant = n.tenant
    WHERE c.rivals > 1
    -- In one order, so that two leases wait for each other, and never in a circle.
    ORDER BY c.priority, c.tenant
    ON CONFLICT (line, priority, tenant) DO UPDATE SET turn = greatest(t.turn, excluded.turn)
)"""


FORGET_TURNS = """
DELETE FROM tenant_turn WHERE ctid = ANY (ARRAY(
    SELECT t.ctid FROM tenant_turn t
    JOIN (SELECT line, priority, max(turn) AS turn FROM tenant_turn GROUP BY line, priority) n USING (line, priority)
    WHERE t.turn < n.turn - (SELECT 1 / least(1, min(value::float8)) FROM jsonb_each_text(%(shares)s::jsonb))
    LIMIT 1000 FOR UPDATE OF t SKIP LOCKED))
"""
"""Removes the turns of tenants that begin at the latest one anyhow: they were away for a while."""

FAIR_IDS = FAIR_ORDER + " SELECT id FROM fair"
"""The ids alone, without a lock."""
