"""Measures jobs a second and CPU milliseconds a job over all processes, on this machine, by composing the real system.

    python bench/throughput.py [--jobs 5000] [--latency 0 1] [--check-workers 1] [--profile]

Starts the embedded servers in a directory of their own, one generate worker and the check workers, submits jobs of
8 sources with some 2.5 KB each, and waits until every result is published. CPU is read from the operating system for
the whole process tree after start-up. Machines differ and are noisy: compare rows of one run only.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tasks.submit import chunked, new_batch, new_job, parse_request
from tests.left_homes import remove
from worker import local
from worker.ledger.postgres import PostgresLedger
from worker.ledger.schema_version import migrate

REPOSITORY = Path(__file__).parents[1]
SOURCES = 8
SOURCE_CHARACTERS = 2_500


def requests(count: int) -> list[dict[str, object]]:
    """Questions of the examples, each with its sources repeated in turn to the size of a real job."""
    examples = [
        json.loads(line)
        for file in sorted((REPOSITORY / "examples").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    contents = [
        source if isinstance(source, str) else source["content"] for job in examples for source in job["context"]
    ]
    answerable = [job for job in examples if job["metadata"]["expect"] == "answered"]
    jobs = []
    for number in range(count):
        job = answerable[number % len(answerable)]
        own = [source if isinstance(source, str) else source["content"] for source in job["context"]]
        filler = (contents[(number * 7 + step) % len(contents)] for step in range(10_000))
        context = []
        for index in range(SOURCES):
            text = own[index] if index < len(own) else next(filler)
            while len(text) < SOURCE_CHARACTERS:
                text += "\n\n" + next(filler)
            context.append(text[:SOURCE_CHARACTERS])
        jobs.append({"query": job["query"], "context": context})
    return jobs


@dataclass
class Processes:
    """The processes to measure, by name."""

    by_name: dict[str, list[psutil.Process]]

    def cpu_s(self) -> dict[str, float]:
        """User and system seconds used so far, children included."""
        used = {}
        for name, processes in self.by_name.items():
            tree = [member for process in processes for member in (process, *process.children(recursive=True))]
            # PostgreSQL's backends that ended are counted with their parent.
            used[name] = sum(sum(member.cpu_times()[:2]) for member in tree) + sum(
                sum(process.cpu_times()[2:4]) for process in processes
            )
        return used


@contextmanager
def system(latency_s: float, check_workers: int, database_url: str | None = None) -> Iterator[tuple[str, Processes]]:
    """Servers and workers, ended afterwards; the ledger is in a database of its own, or in that of the URL."""
    with tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as directory, ExitStack() as stack:
        home = Path(directory) / "home"
        where = local.start(home)
        stack.callback(remove, home)
        stack.callback(local.stop, home)
        where = replace(where, database_url=database_url or where.database_url)
        migrate(where.database_url)
        status = local.status(home)
        assert status.postgres.pid
        assert status.valkey.pid
        environment = {
            **os.environ,
            "NIGHTDESK_HOME": str(home),
            "NIGHTDESK_DATABASE_URL": where.database_url,
            "NIGHTDESK_REDIS_URL": where.redis_url,
            "NIGHTDESK_EXTRACTIVE_LATENCY_S": str(latency_s),
        }
        workers = {}
        for name, queues in [("generate", "generate,submit"), *[(f"check{n}", "check") for n in range(check_workers)]]:
            log = stack.enter_context((home / f"{name}.log").open("wb"))
            workers[name] = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "worker.cli", "worker", "--queues", queues],
                    cwd=REPOSITORY,
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
            )
            stack.callback(workers[name].terminate)
        yield (
            where.database_url,
            Processes(
                {
                    "generate": [psutil.Process(workers["generate"].pid)],
                    "check": [psutil.Process(worker.pid) for name, worker in workers.items() if name != "generate"],
                    "postgres": [psutil.Process(status.postgres.pid)],
                    "valkey": [psutil.Process(status.valkey.pid)],
                }
            ),
        )


async def measure(database_url: str, processes: Processes, raw: list[dict[str, object]]) -> dict[str, object]:
    """Submit and wait until all is published."""
    async with PostgresLedger(database_url, connections=1) as ledger:
        # The workers are up when they have done a small batch.
        await _finish(ledger, raw[:50])
        before = processes.cpu_s()
        started = time.perf_counter()
        submit_s, batch_s = await _finish(ledger, raw)
        wall_s = time.perf_counter() - started
    after = processes.cpu_s()
    cpu_ms = {name: (after[name] - before[name]) * 1000 / len(raw) for name in after}
    return {
        "jobs": len(raw),
        "jobs_per_s": round(len(raw) / batch_s, 1),
        "submit_jobs_per_s": round(len(raw) / submit_s, 1),
        "wall_s": round(wall_s, 2),
        "cpu_ms_per_job": {name: round(value, 3) for name, value in cpu_ms.items()},
        "cpu_ms_per_job_sum": round(sum(cpu_ms.values()), 3),
    }


async def _finish(ledger: PostgresLedger, raw: list[dict[str, object]]) -> tuple[float, float]:
    batch = new_batch(None, tenant="default")
    jobs = [new_job(parse_request(job)[0], position=at, tenant="default") for at, job in enumerate(raw)]
    started = time.perf_counter()
    await ledger.submission.submit(batch, list(chunked(jobs, 500)))
    submitted = time.perf_counter()
    while True:
        status = await ledger.reading.batch_status(batch.id)
        if status.final == len(raw) and not status.unpublished:
            return submitted - started, time.perf_counter() - submitted
        await asyncio.sleep(0.2)


def main() -> None:
    """Print one JSON line a latency."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--jobs", type=int, default=5_000)
    arguments.add_argument("--latency", type=float, nargs="+", default=[0.0, 1.0], metavar="SECONDS")
    arguments.add_argument("--check-workers", type=int, default=1)
    arguments.add_argument("--profile", action="store_true", help="sample the generate and check workers with py-spy")
    options = arguments.parse_args()
    raw = requests(options.jobs)
    for latency_s in options.latency:
        with system(latency_s, options.check_workers) as (database_url, processes), ExitStack() as stack:
            if options.profile:
                for name in ("generate", "check"):
                    out = Path(f"profile-{name}-{latency_s:g}.txt")
                    command = ["py-spy", "record", "--format", "raw", "--nonblocking", "--output", str(out), "--pid"]
                    sampler = subprocess.Popen(
                        [*command, str(processes.by_name[name][0].pid)], stderr=subprocess.DEVNULL
                    )
                    stack.callback(sampler.wait)
                    stack.callback(sampler.send_signal, signal.SIGINT)
            result = asyncio.run(measure(database_url, processes, raw))
            print(json.dumps({"latency_s": latency_s, "check_workers": options.check_workers, **result}), flush=True)


if __name__ == "__main__":
    main()
