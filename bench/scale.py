"""Measures the hot statements of the ledger over an empty ledger and one full of finished jobs, in turns of one run.

    python -m bench.scale [--finished 1000000] [--rounds 3] [--plans]

Each has an embedded server of its own. The full one is filled by SQL: jobs with a small request, an attempt and a published
result, 10,000 a batch. Prints the median milliseconds of each verb and the ratio of full to empty. Machines differ: compare
within one run only. ``--plans`` also prints the pages of 8 KB that the statements of each verb touch on both, and the indexes of
their plans on the full one; these do not depend on the machine.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar
from unittest.mock import patch

import psycopg

from bench.embedded import embedded_servers
from schemas.states import Step
from tasks.ports import NewBatch
from tests.builders import closed_ok, lease_key, make_attempt, make_batch, make_final, make_jobs, make_request
from worker.ledger.database import Database
from worker.ledger.postgres import PostgresLedger

Value = TypeVar("Value")

BATCH = 10_000
"""Finished jobs of a batch, and rows of a page of the filling."""

JOBS = 50
"""Jobs of each submission that is timed."""

TURNS = 20
LEASE = timedelta(seconds=60)
SECOND = timedelta(seconds=1)
EMPTY, FULL = "empty", "full"

FILL = """
WITH b AS (
    INSERT INTO batch (id, tenant, created_at) VALUES (uuidv7(interval '-1 day'), 'desk', now() - interval '1 day') RETURNING id
), j AS (
    INSERT INTO job (id, batch_id, position, tenant, state, step, request_bytes, outcome, scheduled_at, available_at,
                     created_at, started_at, finished_at, result_published_at)
    SELECT uuidv7(interval '-1 day'), b.id, n, 'desk', 'completed', 'check', 300, 'answered', t.at, t.at, t.at, t.at, t.at, t.at
    FROM b, generate_series(1, %(rows)s) n, LATERAL (SELECT now() - interval '1 day' AS at) t
    RETURNING id, position
), r AS (
    -- Every hundredth is as wide as 8 sources of 2.5 KB; the others are narrow, and their rows and indexes real.
    INSERT INTO job_request (job_id, head, request_hash, contract_version)
    SELECT id, jsonb_build_object('query', 'When?', 'context', CASE WHEN position %% 100 = 0 THEN jsonb_build_array(%(wide)s::text) ELSE '[]' END),
           sha256(id::text::bytea), 1
    FROM j
), a AS (
    INSERT INTO attempt (id, job_id, run, round, purpose, number, lane, provider, model, request_hash, lease_token, closed_at,
                         outcome, cost_usd)
    SELECT uuidv7(interval '-1 day'), id, 1, 0, 'generate', 1, 'standard', 'stub', 'stub-1', sha256(id::text::bytea), id, now(),
           'ok', 0.001
    FROM j RETURNING id, job_id
), c AS (
    INSERT INTO completion (attempt_id, job_id, run, round, purpose, won, finish_reason, parsed, prompt)
    SELECT id, job_id, 1, 0, 'generate', true, 'stop', '{}', '{}' FROM a
)
INSERT INTO generation_record (job_id, run, tenant, message_id, contract_version, answer, output_format, citations, quality,
                               status, timing_ms)
SELECT id, 1, 'desk', id::text, 1, 'In May.', 'markdown', '[]', '{}', 'success', '{}' FROM j
"""

REFERENCES = {
    "job": "job_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batch (id)",
    "job_request": "job_request_job_id_fkey FOREIGN KEY (job_id) REFERENCES job (id) ON DELETE CASCADE",
    "attempt": "attempt_job_id_fkey FOREIGN KEY (job_id) REFERENCES job (id) ON DELETE CASCADE",
    "completion": "completion_attempt_id_fkey FOREIGN KEY (attempt_id) REFERENCES attempt (id) ON DELETE CASCADE",
    "generation_record": "generation_record_job_id_fkey FOREIGN KEY (job_id) REFERENCES job (id) ON DELETE CASCADE",
}
"""Checked row by row they would take longer than all else of the filling; they are back before anything is measured."""

WIDE_BYTES = 20_000


def fill(url: str, finished: int) -> None:
    """Write finished jobs, and bring the statistics up to date as autovacuum would."""
    with psycopg.connect(url, autocommit=True) as connection:
        for table, reference in REFERENCES.items():
            connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {reference.split()[0]}".encode())
        for number in range(finished // BATCH):
            connection.execute(FILL, {"rows": BATCH, "wide": "long text " * (WIDE_BYTES // 10)})
            if (number + 1) % 100 == 0:
                print(f"{(number + 1) * BATCH:,} finished jobs written", flush=True)
        for table, reference in REFERENCES.items():
            connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT {reference} NOT VALID".encode())
        for table in (*REFERENCES, "batch", "job_count"):
            connection.execute(f"VACUUM ANALYZE {table}".encode())


class Plans:
    """Pages and scans of the statements of each verb, by an EXPLAIN that is rolled back before the statement runs."""

    def __init__(self) -> None:
        self.pages: dict[str, dict[str, list[int]]] = {}
        self.scans: dict[str, set[str]] = {}

    async def explain(self, database: Database, statement: str, parameters: Any, verb: str, ledger: str) -> None:
        """Explain a statement with its parameters."""
        async with database.connection() as connection, connection.transaction(force_rollback=True):
            explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
            (rows,) = await (await connection.execute(explained.encode(), parameters)).fetchall()
        plan = rows[0][0]["Plan"]
        self.pages.setdefault(verb, {}).setdefault(ledger, []).append(
            plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        )
        if ledger == FULL:
            self.scans.setdefault(verb, set()).update(_scans(plan))


def _scans(plan: dict[str, Any]) -> Iterator[str]:
    """The indexes of a plan, and the tables that it read as a whole."""
    if plan["Actual Loops"]:
        if "Index Name" in plan:
            yield plan["Index Name"]
        elif plan["Node Type"] == "Seq Scan":
            yield f"all of {plan['Relation Name']}"
    for part in plan.get("Plans", ()):
        yield from _scans(part)


class Clock:
    """Milliseconds of each verb, by ledger; with plans their pages and no times."""

    def __init__(self, plans: Plans | None = None) -> None:
        self.times: dict[str, dict[str, list[float]]] = {}
        self._plans = plans

    async def time(self, ledger: str, verb: str, work: Coroutine[Any, Any, Value]) -> Value:
        """Run and time a verb."""
        with self._explaining(ledger, verb):
            began = time.perf_counter()
            value = await work
        self.times.setdefault(verb, {}).setdefault(ledger, []).append(1000 * (time.perf_counter() - began))
        return value

    def _explaining(self, ledger: str, verb: str) -> AbstractContextManager[object]:
        plans, run = self._plans, Database.rows
        if plans is None:
            return nullcontext()

        async def rows(database: Database, statement: str, parameters: Any = (), **options: Any) -> list[Any]:
            await plans.explain(database, statement, parameters, verb, ledger)
            return await run(database, statement, parameters, **options)

        return patch.object(Database, "rows", rows)


async def live(clock: Clock, name: str, ledger: PostgresLedger) -> None:
    """Lead a group of jobs through its life, with the duties and the polls between."""
    batch: NewBatch = make_batch()
    jobs = make_jobs(*(make_request(f"Question {number}?") for number in range(JOBS)))
    receipt = await clock.time(name, f"submit of {JOBS} jobs", ledger.submission.submit(batch, [jobs]))
    ids = receipt.job_ids
    lease = ledger.queue.lease
    half = JOBS // 2
    leased = await clock.time(name, f"lease of {half} by id", lease(Step.GENERATE, "w", LEASE, JOBS, ids=ids[:half]))
    leased += await clock.time(name, f"lease of {half} idle", lease(Step.GENERATE, "w", LEASE, half))
    await clock.time(name, "renewal", ledger.queue.renew([lease_key(job) for job in leased], LEASE))
    attempts = [make_attempt(job) for job in leased]
    await clock.time(name, "opening of attempts", ledger.attempts.open_attempts(attempts))
    answers = [closed_ok(job, attempt) for job, attempt in zip(leased, attempts, strict=True)]
    await clock.time(name, "closing with answers", ledger.attempts.close_attempts(answers))
    await clock.time(name, "poll of one job", ledger.reading.results(ids[:1]))
    await clock.time(name, "status of a batch", ledger.reading.batch_status(receipt.batch_id))
    await clock.time(name, "kinds of error", ledger.reading.error_kinds(receipt.batch_id))
    await clock.time(name, "finish", ledger.queue.finish([make_final(job) for job in leased]))
    await clock.time(name, f"poll of {JOBS} final jobs", ledger.reading.results(ids))
    await clock.time(name, "publication", ledger.outbox.mark_published([(job.job_id, job.run) for job in leased]))
    await clock.time(name, "dispatch's look", ledger.duties.attend("w", LEASE, SECOND, 100))
    await clock.time(name, "promotion", ledger.duties.promote(100))
    await clock.time(name, "rescue", ledger.duties.rescue(100, None))
    await clock.time(name, "expiry", ledger.duties.expire(100))
    await clock.time(name, "status of 20 batches", ledger.reading.batches(20))


async def measure(urls: dict[str, str], rounds: int, plans: Plans | None = None) -> Clock:
    """Times of both ledgers, turn by turn."""
    clock = Clock(plans)
    for _ in range(rounds):
        ledgers = {name: PostgresLedger(url, connections=1, repeats=True) for name, url in urls.items()}
        for ledger in ledgers.values():
            await ledger.open()
            await live(Clock(), "", ledger)
        for _ in range(TURNS):
            for name, ledger in ledgers.items():
                await live(clock, name, ledger)
        for ledger in ledgers.values():
            await ledger.close()
    return clock


def main() -> None:
    """Fills, measures and prints."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--finished", type=int, default=1_000_000, help="jobs in the full ledger")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--plans", action="store_true", help="also pages and indexes, in a round of their own")
    options = arguments.parse_args()
    with embedded_servers() as empty_servers, embedded_servers() as full_servers:
        empty, full = (servers.endpoints.database_url for servers in (empty_servers, full_servers))
        began = time.monotonic()
        fill(full, options.finished)
        print(f"{options.finished:,} finished jobs written in {time.monotonic() - began:.0f} s", flush=True)
        urls = {EMPTY: empty, FULL: full}
        clock = asyncio.run(measure(urls, options.rounds))
        plans = Plans()
        if options.plans:
            asyncio.run(measure(urls, 1, plans))
    print_times(clock)
    print_plans(plans)


def print_times(clock: Clock) -> None:
    """Prints a line for each verb."""
    print(f"{'verb, milliseconds':24} {'empty':>8} {'full':>8}  ratio")
    for verb, by_ledger in clock.times.items():
        before, after = (statistics.median(by_ledger[name]) for name in (EMPTY, FULL))
        print(f"{verb:24} {before:8.2f} {after:8.2f} {after / before:6.2f}")


def print_plans(plans: Plans) -> None:
    """Prints a line for each verb whose statements were explained."""
    for verb, by_ledger in plans.pages.items():
        before, after = (sum(by_ledger[name]) / TURNS for name in (EMPTY, FULL))
        print(f"{verb:24} pages {before:8.1f} {after:8.1f}  {', '.join(sorted(plans.scans[verb]))}")


if __name__ == "__main__":
    main()
