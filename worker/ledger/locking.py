"""Fixes the one order in which statements lock rows, so that no two of them ever wait for each other in a circle.

1. Advisory locks, by key.
2. Jobs, by id.
3. What hangs on a job (attempts, completions, records), only under the lock of its job.
4. Batches, by id. Every attempt of a batch comes by here, so a transaction that locks a batch ends soon after.

A statement that writes several jobs or batches locks them first, in a CTE of its own: an ``UPDATE ... FROM`` takes them in
the order of its plan. What follows refers to that CTE, for PostgreSQL runs the parts of a statement in no fixed order.
``SKIP LOCKED`` never waits, so it may take jobs in any order, also under the lock of a batch. Nothing else does: whoever
changes a batch and then its jobs commits in between.

``FOR NO KEY UPDATE`` is enough: no key that another table refers to ever changes, and rows that are inserted with such a
reference need not wait then.
"""


def lock_batches(ids: str, columns: str = "b.id") -> str:
    """Return a query that locks the batches whose ids a query yields, all of which it reads before it locks the first."""
    return f"SELECT {columns} FROM batch b WHERE b.id = ANY (ARRAY({ids})) ORDER BY b.id FOR NO KEY UPDATE"


LOCK_LEASED = """
SELECT j.id, d.token FROM unnest(%(ids)b::uuid[], %(tokens)b::uuid[]) AS d(id, token)
JOIN job j ON j.id = d.id AND j.lease_token = d.token AND j.state = 'running'
ORDER BY j.id FOR NO KEY UPDATE OF j
"""
"""Locks the jobs that are still held by their tokens."""
