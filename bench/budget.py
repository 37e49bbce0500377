"""Measures a budget over several workers: never exceeded, used to the last call, and resumed by raising it.

    python -m bench.budget [--jobs 2000] [--paid 700] [--latency 0.5] [--workers 4] [--slots 40]
                           [--tenant | --key] [--lane provider_batch]

A first run without a ceiling has only jobs that are paid for; the second has all jobs, and money for those; then the ceiling
is raised, and the rest is answered. During the second run the money that is spent and reserved is compared with the ceiling
again and again, by the ledger's sums and by the provider's own count of billed calls. With ``--tenant`` the ceiling is a budget
of the tenant for the day, in place of that of the batch, with ``--key`` the money of a key of the HTTP service. With ``--lane provider_batch`` the calls ride in batches of the provider,
each of which takes ``--latency`` seconds: a batch reserves the worst case of all its calls until it ends.

Statements are counted by the server (pg_stat_statements). The second run's surplus of openings, holds and fundings, by refused
job, is the price of a refusal; its surplus of leases and closings belongs to jobs that are paid for, whose last ones come in
small groups, as the money for them comes back.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import psycopg

from schemas.access import Role
from tasks.ports import Submitter
from tests.acceptance.conftest import questions
from tests.faults.lab import Lab, open_lab
from worker import local
from worker.ledger.postgres import PostgresLedger
from worker.ledger.tenant_budgets import TOTAL
from worker.operations.api_keys import KeyRequest, add_key, limit_key

_PROBE = 20
_TICKS_S = 4.0
_COUNTED = """
SELECT kind, sum(calls)::int FROM (
    SELECT calls, CASE WHEN query LIKE '%WITH RECURSIVE input%' THEN 'open' WHEN query LIKE '%unnest%next_state%' THEN 'close'
                       WHEN query LIKE '%new_lease AS%' THEN 'lease' WHEN query LIKE '%affordable_job AS%' THEN 'fund'
                       WHEN query LIKE '%progress AS%' OR query LIKE '%WITH least AS%' THEN 'hold' END AS kind
    FROM pg_stat_statements
) s WHERE kind IS NOT NULL GROUP BY kind
"""
_BATCHES = {
    "default_judge_share": 0,
    "provider_batch_gather_s": 2,
    "provider_batch_look_s": 1,
    "provider_batch_create_s": 10,
}
"""Settings with which batches of the provider take seconds, and not hours."""

_ON_HOLD = "coalesce(held_reason, '') IN ('budget', 'key_budget', 'tenant_budget')"
_MOVING = f"job WHERE finished_at IS NULL AND NOT {_ON_HOLD}"


@dataclass(frozen=True)
class Run:
    """Costs of a run; ``settled_s`` is from the last call's beginning until nothing moved any more."""

    called: int
    held_jobs: int
    whole_s: float
    settled_s: float
    most_committed_usd: str
    most_billed_usd: str
    looks: int
    statements: dict[str, int]


class Witness:
    """Compares the money of a batch with its ceiling, by the ledger and by the provider."""

    def __init__(self, lab: Lab, batch_id: UUID, price: Decimal, ceiling: Decimal | None) -> None:
        self._lab, self._batch_id, self._price, self._ceiling = lab, batch_id, price, ceiling
        self._billed_before = sum(lab.stub.billed.values())
        self.most_committed = self.most_billed = Decimal(0)
        self.looks = 0

    def look(self) -> None:
        """Raises ``AssertionError`` where the ceiling is exceeded."""
        committed = self._lab.scalar("SELECT reserved_usd + spent_usd FROM batch WHERE id = %s", self._batch_id)
        of_day = self._lab.scalar("SELECT max(reserved_usd + spent_usd - max_cost_usd) FROM budget_period")
        assert of_day is None or of_day <= 0, f"{of_day} USD committed beyond the budget of the day"
        billed = (sum(self._lab.stub.billed.values()) - self._billed_before) * self._price
        self.looks += 1
        self.most_committed = max(self.most_committed, committed)
        self.most_billed = max(self.most_billed, billed)
        if self._ceiling is not None:
            assert committed <= self._ceiling, f"{committed} USD committed of {self._ceiling}"
            assert billed <= self._ceiling, f"{billed} USD billed of {self._ceiling}"


def set_day(lab: Lab, usd: Decimal, *, of_key: bool) -> Submitter | None:
    """Sets the budget of the tenant for the day, or the total of the key, and lets jobs go on that wait for it."""

    async def change(ledger: object) -> Submitter | None:
        assert isinstance(ledger, PostgresLedger)
        if not of_key:
            await ledger.budgets.set("default", "day UTC", usd, "bench")
            return None
        if not await ledger.api_keys.all():
            await add_key(ledger, KeyRequest("bench", "default", Role.SUBMIT), "bench")
        return (await limit_key(ledger, "bench", {}, {TOTAL: usd}, "bench")).submitter

    return lab.with_ledger(change)


def run(lab: Lab, jobs: int, options: argparse.Namespace, price: Decimal, ceiling: Decimal | None) -> tuple[Run, UUID]:
    """Submits jobs, lets workers do what they can, and counts."""
    lab.admin("SELECT pg_stat_statements_reset()")
    shared, submitter = options.tenant or options.key, None
    if shared and ceiling is not None:
        submitter = set_day(lab, ceiling, of_key=options.key)
    asks = [{**job, "config": {"lane": options.lane}} for job in questions(jobs)]
    batch_id, _ = lab.submit(asks, max_cost_usd=None if shared else ceiling, submitter=submitter)
    witness = Witness(lab, batch_id, price, ceiling)
    workers = [lab.work(slots=options.slots) for _ in range(options.workers)]
    started = time.monotonic()

    quiet_since = started

    def settled() -> bool:
        nonlocal quiet_since
        witness.look()
        if lab.count(_MOVING) or lab.count("attempt WHERE closed_at IS NULL"):
            quiet_since = time.monotonic()
            return False
        # Money of the tenant that comes back is shared out by the next tick of dispatch.
        return time.monotonic() - quiet_since >= (_TICKS_S if shared else 0)

    try:
        lab.until(settled, within_s=600)
        whole_s = time.monotonic() - started
        settled_s = lab.scalar(
            "SELECT extract(epoch FROM now() - max(opened_at)) FROM attempt JOIN job j ON j.id = job_id WHERE batch_id = %s",
            batch_id,
        )
    finally:
        for worker in workers:
            lab.kill(worker)
    held_jobs = lab.count(f"job WHERE {_ON_HOLD} AND batch_id = '{batch_id}'")
    sums = str(witness.most_committed), str(witness.most_billed), witness.looks
    times = round(whole_s, 1), round(float(settled_s), 1)
    return Run(jobs - held_jobs, held_jobs, *times, *sums, _counted(lab)), batch_id


def resume(lab: Lab, batch_id: UUID, jobs: int, options: argparse.Namespace) -> dict[str, object]:
    """Raises the ceiling as ``nightdesk release --max-cost-usd`` does, and lets workers answer the rest."""
    before = sum(lab.stub.calls.values())

    async def raise_ceiling(ledger: object) -> None:
        assert isinstance(ledger, PostgresLedger)
        await ledger.actions.set_budget(batch_id, Decimal(1000), "bench")

    if options.tenant or options.key:
        set_day(lab, Decimal(1000), of_key=options.key)
    else:
        lab.with_ledger(raise_ceiling)
    workers = [lab.work(slots=options.slots) for _ in range(options.workers)]
    unfinished = f"job WHERE batch_id = '{batch_id}' AND finished_at IS NULL"
    lab.until(lambda: lab.count(unfinished) == 0, within_s=600)
    for worker in workers:
        lab.kill(worker)
    # A partial answer was paid for all the same.
    answered = lab.count(f"job WHERE batch_id = '{batch_id}' AND state = 'completed'")
    # Not what was opened by a worker that had to let go of it before the call: that costs nothing.
    twice = lab.scalar(
        "SELECT count(*) FROM (SELECT FROM attempt a JOIN job j ON j.id = a.job_id WHERE j.batch_id = %s "
        "AND (a.spent OR a.outcome IN ('ok', 'unknown')) GROUP BY a.job_id HAVING count(*) > 1) t",
        batch_id,
    )
    return {"answered": answered, "of": jobs, "calls": sum(lab.stub.calls.values()) - before, "called_twice": twice}


def _counted(lab: Lab) -> dict[str, int]:
    with psycopg.connect(local.start(lab.home).admin_database_url) as connection:
        return dict(connection.execute(_COUNTED).fetchall())


def main() -> None:
    """Prints the runs, the resumption, and what a refusal costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--paid", type=int, default=700)
    parser.add_argument("--latency", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=4, help="processes")
    parser.add_argument("--slots", type=int, default=40, help="calls in flight of each")
    parser.add_argument("--tenant", action="store_true", help="a budget of the tenant in place of the batch's ceiling")
    parser.add_argument("--key", action="store_true", help="the same of a key of the HTTP service, in all")
    parser.add_argument("--lane", choices=("standard", "provider_batch"), default="standard")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as folder,
        open_lab(Path(folder), 0, latency_s=options.latency) as lab,
    ):
        if options.lane == "provider_batch":
            lab.settings |= _BATCHES
            lab.stub.remote.ends_after_s = options.latency
        lab.admin("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
        local.stop(lab.home)
        lab.restart()
        lab.admin("CREATE EXTENSION pg_stat_statements")
        run(lab, _PROBE, options, Decimal(0), None)
        price = Decimal(lab.scalar("SELECT max(cost_usd) FROM attempt"))
        paid, _ = run(lab, options.paid, options, price, None)
        ceiling = (price * options.paid).quantize(Decimal("0.000001"))
        before = lab.count("provider_batch")
        bounded, batch_id = run(lab, options.jobs, options, price, ceiling)
        batches = lab.count("provider_batch") - before
        resumed = resume(lab, batch_id, options.jobs, options)
    more = {kind: count - paid.statements.get(kind, 0) for kind, count in bounded.statements.items()}
    refusing = sum(more.get(kind, 0) for kind in ("open", "hold", "fund"))
    report = {
        "paid_for": paid.__dict__,
        "used_up": bounded.__dict__,
        "ceiling_usd": str(ceiling),
        "provider_batches": batches,
        "resumed": resumed,
        "statements_per_refused_job": round(refusing / bounded.held_jobs, 3),
        "with_the_smaller_groups_at_the_end": round(sum(more.values()) / bounded.held_jobs, 3),
    }
    sys.stdout.write(f"{json.dumps(report, indent=1)}\n")


if __name__ == "__main__":
    main()
