"""Measures how a budget ends: jobs whose money is used up, settled how soon, and at how many statements each.

    python -m bench.budget [--jobs 2000] [--paid 700] [--latency 0.5] [--slots 200]

A first run without a ceiling has only jobs that are paid for; the second has all jobs and money for those. Statements are
counted by the server (pg_stat_statements). The second run's surplus of openings, holds and fundings, by refused job, is the
price of a refusal; its surplus of leases and closings belongs to jobs that are paid for, whose last ones come in small
groups, as the money for them comes back.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import psycopg

from tests.acceptance.conftest import questions
from tests.faults.ground import Ground, ground
from worker import local

_PROBE = 20
_COUNTED = """
SELECT kind, sum(calls)::int FROM (
    SELECT calls, CASE WHEN query LIKE '%WITH RECURSIVE given%' THEN 'open' WHEN query LIKE '%unnest%next_state%' THEN 'close'
                       WHEN query LIKE '%taken AS%' THEN 'lease' WHEN query LIKE '%fitting AS%' THEN 'fund'
                       WHEN query LIKE '%turned AS%' THEN 'hold' END AS kind
    FROM pg_stat_statements
) s WHERE kind IS NOT NULL GROUP BY kind
"""
_MOVING = "job WHERE finished_at IS NULL AND held_reason IS DISTINCT FROM 'budget'"


@dataclass(frozen=True)
class Run:
    """What a run took; ``settled_s`` is from the last call's beginning until nothing moved any more."""

    called: int
    held: int
    whole_s: float
    settled_s: float
    statements: dict[str, int]


def run(here: Ground, jobs: int, slots: int, ceiling: Decimal | None) -> Run:
    """Submit jobs, let a worker do what it can, and count."""
    here.admin("SELECT pg_stat_statements_reset()")
    batch_id, _ = here.submit(questions(jobs), max_cost_usd=ceiling)
    worker = here.work(slots=slots)
    started = time.monotonic()
    try:
        here.until(lambda: here.count(_MOVING) == here.count("attempt WHERE closed_at IS NULL") == 0, within_s=300)
        whole_s = time.monotonic() - started
        settled_s = here.one(
            "SELECT extract(epoch FROM now() - max(opened_at)) FROM attempt JOIN job j ON j.id = job_id WHERE batch_id = %s",
            batch_id,
        )
        held = here.count(f"job WHERE held_reason = 'budget' AND batch_id = '{batch_id}'")
        return Run(jobs - held, held, round(whole_s, 1), round(float(settled_s), 1), _counted(here))
    finally:
        here.kill(worker)


def _counted(here: Ground) -> dict[str, int]:
    with psycopg.connect(local.start(here.home).admin_database_url) as connection:
        return dict(connection.execute(_COUNTED).fetchall())


def main() -> None:
    """Print both runs and the two numbers."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--jobs", type=int, default=2_000)
    arguments.add_argument("--paid", type=int, default=700)
    arguments.add_argument("--latency", type=float, default=0.5)
    arguments.add_argument("--slots", type=int, default=200)
    given = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as folder,
        ground(Path(folder), 0, latency_s=given.latency) as here,
    ):
        here.admin("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        local.stop(here.home)
        here.restart()
        here.admin("CREATE EXTENSION pg_stat_statements")
        run(here, _PROBE, given.slots, None)
        price = Decimal(here.one("SELECT max(cost_usd) FROM attempt"))
        paid = run(here, given.paid, given.slots, None)
        ceiling = (price * given.paid).quantize(Decimal("0.000001"))
        bounded = run(here, given.jobs, given.slots, ceiling)
    more = {kind: count - paid.statements.get(kind, 0) for kind, count in bounded.statements.items()}
    refusing = sum(more.get(kind, 0) for kind in ("open", "hold", "fund"))
    print(json.dumps({"paid_for": paid.__dict__, "used_up": bounded.__dict__, "ceiling_usd": str(ceiling)}, indent=1))
    print(
        json.dumps(
            {
                "settled_s": bounded.settled_s,
                "statements_per_refused_job": round(refusing / bounded.held, 3),
                "with_the_smaller_groups_at_the_end": round(sum(more.values()) / bounded.held, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
