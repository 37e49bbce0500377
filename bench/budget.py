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
from tests.faults.lab import Lab, open_lab
from worker import local

_PROBE = 20
_COUNTED = """
SELECT kind, sum(calls)::int FROM (
    SELECT calls, CASE WHEN query LIKE '%WITH RECURSIVE input%' THEN 'open' WHEN query LIKE '%unnest%next_state%' THEN 'close'
                       WHEN query LIKE '%new_lease AS%' THEN 'lease' WHEN query LIKE '%affordable_job AS%' THEN 'fund'
                       WHEN query LIKE '%progress AS%' THEN 'hold' END AS kind
    FROM pg_stat_statements
) s WHERE kind IS NOT NULL GROUP BY kind
"""
_MOVING = "job WHERE finished_at IS NULL AND held_reason IS DISTINCT FROM 'budget'"


@dataclass(frozen=True)
class Run:
    """Costs of a run; ``settled_s`` is from the last call's beginning until nothing moved any more."""

    called: int
    held_jobs: int
    whole_s: float
    settled_s: float
    statements: dict[str, int]


def run(lab: Lab, jobs: int, slots: int, ceiling: Decimal | None) -> Run:
    """Submit jobs, let a worker do what it can, and count."""
    lab.admin("SELECT pg_stat_statements_reset()")
    batch_id, _ = lab.submit(questions(jobs), max_cost_usd=ceiling)
    worker = lab.work(slots=slots)
    started = time.monotonic()
    try:
        lab.until(lambda: lab.count(_MOVING) == lab.count("attempt WHERE closed_at IS NULL") == 0, within_s=300)
        whole_s = time.monotonic() - started
        settled_s = lab.scalar(
            "SELECT extract(epoch FROM now() - max(opened_at)) FROM attempt JOIN job j ON j.id = job_id WHERE batch_id = %s",
            batch_id,
        )
        held_jobs = lab.count(f"job WHERE held_reason = 'budget' AND batch_id = '{batch_id}'")
        return Run(jobs - held_jobs, held_jobs, round(whole_s, 1), round(float(settled_s), 1), _counted(lab))
    finally:
        lab.kill(worker)


def _counted(lab: Lab) -> dict[str, int]:
    with psycopg.connect(local.start(lab.home).admin_database_url) as connection:
        return dict(connection.execute(_COUNTED).fetchall())


def main() -> None:
    """Print both runs and the two numbers."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--jobs", type=int, default=2_000)
    arguments.add_argument("--paid", type=int, default=700)
    arguments.add_argument("--latency", type=float, default=0.5)
    arguments.add_argument("--slots", type=int, default=200)
    options = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as folder,
        open_lab(Path(folder), 0, latency_s=options.latency) as lab,
    ):
        lab.admin("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        local.stop(lab.home)
        lab.restart()
        lab.admin("CREATE EXTENSION pg_stat_statements")
        run(lab, _PROBE, options.slots, None)
        price = Decimal(lab.scalar("SELECT max(cost_usd) FROM attempt"))
        paid = run(lab, options.paid, options.slots, None)
        ceiling = (price * options.paid).quantize(Decimal("0.000001"))
        bounded = run(lab, options.jobs, options.slots, ceiling)
    more = {kind: count - paid.statements.get(kind, 0) for kind, count in bounded.statements.items()}
    refusing = sum(more.get(kind, 0) for kind in ("open", "hold", "fund"))
    print(json.dumps({"paid_for": paid.__dict__, "used_up": bounded.__dict__, "ceiling_usd": str(ceiling)}, indent=1))
    print(
        json.dumps(
            {
                "settled_s": bounded.settled_s,
                "statements_per_refused_job": round(refusing / bounded.held_jobs, 3),
                "with_the_smaller_groups_at_the_end": round(sum(more.values()) / bounded.held_jobs, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
