"""Measures how the results of a day are published again after Redis lost them, and that the other duties go on meanwhile.

    python -m bench.republish [--results 500000] [--workers 2]

Fills the ledger by SQL with finished jobs, starts real workers, empties Redis, and submits a job that is due at once every
two seconds until all results are there again. Prints the seconds it took, results a second, the longest time until such a job
was promoted, hinted and begun, and the longest time between two pages.
"""

import argparse
import json
import time
from pathlib import Path

import psycopg
import redis

from bench.idle import idle_system
from worker import local

PROBE_EVERY_S = 2.0
PATIENCE_S = 3_600.0

FILL = """
WITH b AS (INSERT INTO batch (id, tenant) VALUES (gen_random_uuid(), 'default') RETURNING id), j AS (
    INSERT INTO job (id, batch_id, position, tenant, state, step, request_bytes, outcome, scheduled_at, available_at, created_at,
                     started_at, finished_at, result_published_at)
    SELECT gen_random_uuid(), b.id, n, 'default', 'completed', 'check', 300, 'answered', t.at, t.at, t.at, t.at, t.at, t.at
    FROM b, generate_series({first}, {last}) n,
         LATERAL (SELECT now() - interval '23 hours' * (1 - n::float8 / {count}) AS at) t
    RETURNING id
), r AS (
    INSERT INTO job_request (job_id, head, request_hash, contract_version)
    SELECT id, '{{"query": "When does the desk open?", "context": [{{"content": "The desk opens at nine."}}]}}', '', 1 FROM j
)
INSERT INTO generation_record (job_id, run, tenant, message_id, contract_version, answer, output_format, citations, quality,
                               status, timing_ms)
SELECT id, 1, 'default', id::text, 1, repeat('The desk opens at nine. ', 10), 'markdown', '[]', '{{}}', 'success', '{{}}' FROM j
"""

DUE = """
WITH b AS (INSERT INTO batch (id, tenant) VALUES (gen_random_uuid(), 'default') RETURNING id), j AS (
    INSERT INTO job (id, batch_id, position, tenant, state, step, request_bytes, scheduled_at)
    SELECT gen_random_uuid(), b.id, 0, 'default', 'scheduled', 'generate', 300, now() FROM b RETURNING id), r AS (
    INSERT INTO job_request (job_id, head, request_hash, contract_version)
    SELECT id, '{"query": "When?", "context": [{"content": "The desk opens at nine."}]}', '', 1 FROM j)
SELECT id FROM j
"""

SLOWEST = """
SELECT coalesce(extract(epoch FROM max(coalesce(started_at, now()) - scheduled_at)), 0)::float8 FROM job WHERE created_at >= %s
"""

PAGE = 20_000


def fill(url: str, count: int) -> None:
    """Write finished jobs of the last day."""
    with psycopg.connect(url, autocommit=True) as connection:
        for first in range(1, count + 1, PAGE):
            last = min(count, first + PAGE - 1)
            connection.execute(FILL.format(first=first, last=last, count=count).encode())
        connection.execute("VACUUM ANALYZE")


def watch(url: str, count: int) -> dict[str, float]:
    """Submit due jobs until all is published again."""
    began = last_change = time.monotonic()
    longest, published, next_probe = 0.0, 0, began
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT now()").fetchone()
        assert row is not None
        since = row[0]
        while True:
            now = time.monotonic()
            if now >= next_probe:
                connection.execute(DUE)
                next_probe = now + PROBE_EVERY_S
            state = connection.execute("SELECT republish_until IS NOT NULL, republished FROM dispatch").fetchone()
            assert state is not None
            if state[1] != published:
                published, last_change = state[1], now
            longest = max(longest, now - last_change)
            if (not state[0] and published >= count) or now - began > PATIENCE_S:
                break
            time.sleep(0.05)
        slowest = connection.execute(SLOWEST, (since,)).fetchone()
        assert slowest is not None
    return {
        "seconds_until_all_is_published": round(now - began, 1),
        "results_per_s": round(published / (now - began)),
        "longest_until_begun_s": round(slowest[0], 2),
        "longest_between_pages_s": round(longest, 2),
    }


def main() -> None:
    """Print one JSON line."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--results", type=int, default=500_000)
    arguments.add_argument("--workers", type=int, default=2)
    options = arguments.parse_args()
    with idle_system(options.workers) as (where, home, _):
        fill(where.database_url, options.results)
        with redis.Redis.from_url(where.redis_url) as client:
            client.flushall()
            figures = watch(where.database_url, options.results)
            there = sum(1 for _ in client.scan_iter("celery-task-meta-*", count=10_000))
        print(
            json.dumps({"results": options.results, "in_redis": there, **figures, "valkey_mb": _valkey_mb(home)}),
            flush=True,
        )


def _valkey_mb(home: Path) -> int:
    with redis.Redis.from_url(local.start(home).redis_url) as client:
        return int(client.info("memory")["used_memory"]) // 1_000_000


if __name__ == "__main__":
    main()
