"""Measures how long lease renewals of one tenant wait while a big batch of another tenant is cancelled, on this machine.

    python -m bench.cancelling [--jobs 200000] [--verb cancel|pause|release] [--page 500]

Starts the embedded PostgreSQL, submits a batch of so many jobs and a small one of another tenant, and leases jobs of both for
one worker, which renews them all in one statement again and again, in a process of its own. Prints the renewals before
and during the verb: number, median, 99th percentile and slowest, in milliseconds. ``--page`` shows the cost of larger
transactions.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from uuid import UUID

from bench.embedded import embedded_servers
from schemas.job import JobRequest
from schemas.states import Step
from tasks.ports import LeaseKey, NewBatch, NewJob
from tasks.submit import chunked, new_batch, new_job
from worker.ledger import pages
from worker.ledger.postgres import PostgresLedger

LEASE = timedelta(seconds=60)
LEASED = 200
"""Jobs of each tenant that the renewing worker holds."""
QUIET_S = 5.0
"""Seconds of renewals before the verb begins."""

ACTOR = "bench"


def jobs_of(tenant: str, number: int) -> Iterator[NewJob]:
    """So many small questions."""
    request = JobRequest(query="When does the desk open?", context=("The desk opens at nine.",))
    for position in range(number):
        yield new_job(request, position=position, tenant=tenant)


async def submit(ledger: PostgresLedger, tenant: str, number: int) -> tuple[NewBatch, list[LeaseKey]]:
    """Submit a batch and lease the first of its jobs."""
    batch = new_batch(None, tenant=tenant)
    receipt = await ledger.submission.submit(batch, chunked(jobs_of(tenant, number), 500))
    leased = await ledger.queue.lease(Step.GENERATE, "bench", LEASE, LEASED, ids=receipt.job_ids[:LEASED])
    return batch, [LeaseKey(job.job_id, job.token) for job in leased]


def renew(url: str, leases: Sequence[LeaseKey], end: Event, results: Connection) -> None:
    """Renew leases until the end; sends when each renewal began and its milliseconds."""

    async def work() -> list[tuple[float, float]]:
        waits = []
        async with PostgresLedger(url, connections=1) as ledger:
            while not end.is_set():
                began = time.monotonic()
                await ledger.queue.renew(leases, LEASE)
                waits.append((began, 1000 * (time.monotonic() - began)))
                await asyncio.sleep(0.02)
        return waits

    results.send(asyncio.run(work()))


async def change(ledger: PostgresLedger, verb: str, batch_id: UUID) -> int:
    """Do the verb over the whole batch."""
    if verb == "cancel":
        return len(await ledger.actions.cancel_batch(batch_id, ACTOR))
    return await ledger.actions.pause_batch(batch_id, ACTOR, paused=verb == "pause")


def summary(waits: Sequence[float]) -> dict[str, float]:
    """Number, median, 99th percentile and slowest of some waits."""
    ordered = sorted(waits)
    return {
        "renewals": len(ordered),
        "median_ms": round(statistics.median(ordered), 1),
        "p99_ms": round(ordered[int(0.99 * (len(ordered) - 1))], 1),
        "slowest_ms": round(ordered[-1], 1),
    }


async def measure(url: str, jobs: int, verb: str) -> dict[str, object]:
    """Renew beside the verb; returns what both took."""
    async with PostgresLedger(url) as ledger:
        big, big_leases = await submit(ledger, "big", jobs)
        _, other_leases = await submit(ledger, "other", LEASED)
        if verb == "release":
            await ledger.actions.pause_batch(big.id, ACTOR, paused=True)
        end = multiprocessing.Event()
        receiver, sender = multiprocessing.Pipe(duplex=False)
        renewing = multiprocessing.Process(target=renew, args=(url, big_leases + other_leases, end, sender))
        renewing.start()
        try:
            await asyncio.sleep(QUIET_S)
            began = time.monotonic()
            changed = await change(ledger, verb, big.id)
            ended = time.monotonic()
        finally:
            end.set()
        waits: list[tuple[float, float]] = await asyncio.to_thread(receiver.recv)
        await asyncio.to_thread(renewing.join)
    return {
        "verb": verb,
        "jobs": changed,
        "page": pages.PAGE_ROWS,
        "seconds": round(ended - began, 1),
        "quiet": summary([wait for at, wait in waits if at < began]),
        "beside": summary([wait for at, wait in waits if began <= at < ended]),
    }


def main() -> None:
    """Print one JSON line."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--jobs", type=int, default=200_000)
    arguments.add_argument("--verb", choices=("cancel", "pause", "release"), default="cancel")
    arguments.add_argument("--page", type=int, default=pages.PAGE_ROWS)
    options = arguments.parse_args()
    pages.PAGE_ROWS = options.page
    with embedded_servers() as servers:
        print(json.dumps(asyncio.run(measure(servers.endpoints.database_url, options.jobs, options.verb))), flush=True)


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
