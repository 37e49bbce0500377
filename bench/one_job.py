"""Measures one job by itself, from its submission to its result: python -m bench.one_job [--jobs 60] [--waiting 50000].

The workers that ``nightdesk up`` starts (``--urgent 1`` as with NIGHTDESK_URGENT_PROCESSES) answer with the offline provider, which takes no time of its own. A producer submits one urgent job over Redis and
polls its result each 5 ms, and pauses; first on an idle system, then, with ``--waiting``, while so many bulk jobs wait. The time
ends when the poll has the final result. The submission's own answer is a part of it, and told apart.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from celery import Celery

from bench.embedded import Servers, embedded_servers
from bench.transfer import command, write_jobs
from schemas.states import FINAL_STATES
from tasks.results import poll
from worker.ledger.postgres import PostgresLedger
from worker.supervise.workers import worker_specs

REPOSITORY = Path(__file__).parents[1]
FIRST = 10
"""Jobs whose times are left out: a process does things for the first time in them."""
SLOTS = 1_000
PAUSE_S = 0.4
POLL_S = 0.005
PATIENCE_S = 120.0


@contextmanager
def workers(servers: Servers, urgent: int) -> Iterator[None]:
    """The workers of an installation: one per core, and two at least; each takes submissions, makes calls and checks answers."""
    with ExitStack() as stack:
        for spec in worker_specs(SLOTS, urgent=urgent):
            environment = {
                **servers.environment, "NIGHTDESK_PROVIDER": "extractive", "NIGHTDESK_SLOTS": str(spec.slots or SLOTS),
            }  # fmt: skip
            log = stack.enter_context((servers.home / f"{spec.name}.log").open("wb"))
            arguments = [sys.executable, "-m", "worker.cli", "worker", "--queues", ",".join(spec.queues)]
            worker = subprocess.Popen(arguments, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
            stack.callback(worker.wait)
            stack.callback(worker.terminate)
        yield


def job(number: int) -> dict[str, Any]:
    """A small urgent job; no two ask the same."""
    fact = f"The service desk of hall {number} opens at nine on working days."
    return {"query": f"When does the desk of hall {number} open?", "context": [fact], "priority": 1}


async def measure(servers: Servers, count: int, title: str) -> None:
    """Prints the quantiles of ``count`` jobs, one after the other."""
    url = servers.endpoints.redis_url
    accepted, final = [], []
    first, began_at = _bulk_jobs(servers), time.perf_counter()
    with Celery(broker=url, backend=url, set_as_current=False) as producer:
        async with PostgresLedger(servers.endpoints.database_url, connections=1) as ledger:
            for number in range(FIRST + count):
                began = time.perf_counter()
                receipt = producer.send_task("nightdesk.submit", args=[[job(number)]], queue="submit")
                (job_id,) = (await asyncio.to_thread(receipt.get, timeout=PATIENCE_S))["job_ids"]
                accepted.append(time.perf_counter() - began)
                await _until_final(ledger, UUID(job_id))
                final.append(time.perf_counter() - began)
                await asyncio.sleep(PAUSE_S)
    rate = (_bulk_jobs(servers) - first) / (time.perf_counter() - began_at)
    for name, times in (("accepted", accepted), ("final", final)):
        ordered = sorted(1000 * seconds for seconds in times[FIRST:])
        p50, p95 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]
        print(f"{title}: {name} after {p50:.0f} ms (p50), {p95:.0f} ms (p95); {len(ordered)} jobs", flush=True)
    print(f"{title}: {rate:,.0f} bulk jobs a second meanwhile", flush=True)


def _bulk_jobs(servers: Servers) -> int:
    """The number of bulk jobs that are final."""
    with psycopg.connect(servers.endpoints.database_url) as connection:
        row = connection.execute("SELECT count(*) FROM job WHERE finished_at IS NOT NULL AND priority = 0").fetchone()
    assert row is not None
    return int(row[0])


async def _until_final(ledger: PostgresLedger, job_id: UUID) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        (result,) = await poll(ledger.reading, [job_id])
        if result is not None and result.state in FINAL_STATES:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"job {job_id} is not final after {PATIENCE_S:.0f} s: {result and result.state}")
        await asyncio.sleep(POLL_S)


def main() -> None:
    """Runs both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--waiting", type=int, default=0, help="bulk jobs that wait meanwhile")
    parser.add_argument("--urgent", type=int, default=0, help="workers of urgent jobs alone")
    arguments = parser.parse_args()
    with embedded_servers() as servers, workers(servers, arguments.urgent):
        asyncio.run(measure(servers, arguments.jobs, "idle"))
        if arguments.waiting:
            path = servers.home / "bulk.jsonl"
            write_jobs(path, arguments.waiting)
            command(servers, "submit", "--again", str(path))
            asyncio.run(measure(servers, arguments.jobs, f"{arguments.waiting:,} bulk jobs waiting"))


if __name__ == "__main__":
    main()
