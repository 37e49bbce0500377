"""The order in which available jobs are taken, as one reusable part of a statement."""

from collections.abc import Mapping

import orjson

FAIR_ORDER = """
WITH RECURSIVE tenants AS (
    (SELECT tenant FROM job WHERE state = 'available' AND step = %(step)s ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT j.tenant FROM job j
            WHERE j.state = 'available' AND j.step = %(step)s AND j.tenant > t.tenant ORDER BY j.tenant LIMIT 1)
    FROM tenants t WHERE t.tenant IS NOT NULL
), fair AS (
    SELECT n.id, n.priority, n.hinted_at
    FROM tenants t
    CROSS JOIN LATERAL (
        SELECT i.id, i.priority, i.deadline, i.hinted_at,
               row_number() OVER (PARTITION BY i.priority ORDER BY i.deadline NULLS LAST, i.id)
                   / coalesce((%(shares)s::jsonb ->> t.tenant)::float8, 1) AS turn
        FROM (
            SELECT j.id, j.priority, j.deadline, j.hinted_at FROM job j
            WHERE j.state = 'available' AND j.step = %(step)s AND j.tenant = t.tenant
              AND j.priority >= %(min_priority)s AND (j.deadline IS NULL OR j.deadline > nightdesk_now())
            ORDER BY j.priority DESC, j.deadline NULLS LAST, j.id
            LIMIT %(limit)s
        ) i
    ) n
    WHERE t.tenant IS NOT NULL
    ORDER BY n.priority DESC, n.turn, n.deadline NULLS LAST, n.id
    LIMIT %(limit)s
)"""
"""Defines ``fair(id, priority, hinted_at)``: the next ``limit`` available jobs of ``step``.

Higher priority goes first; within a priority tenants take turns, as many as their weight in ``shares`` says; within a tenant the nearest deadline goes first,
then the order of submission. Tenants are found by skipping through the index ``job_available``, so the cost grows with
the number of tenants and ``limit``, not with the number of jobs.

Join it to ``job`` as ``id = ANY (ARRAY(SELECT id FROM fair))``: the planner takes a recursive part for a handful of
rows, and a plain join over 2,000 of them became a nested loop of millions.
"""


def shares_document(shares: Mapping[str, float]) -> str:
    """The parameter ``shares``: weights by tenant as JSON; who is not named weighs 1."""
    return orjson.dumps(dict(shares)).decode()
