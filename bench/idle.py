"""Measures the cost of two workers with nothing to do, on this machine, by composing the real system.

    python -m bench.idle [--seconds 60] [--workers 2]

Starts the embedded servers and the workers, lets them settle, and prints for the time after that: CPU milliseconds a second of
a worker, of PostgreSQL and of Valkey, commits a second, and commands a second at Valkey. Then it submits one job and prints the
seconds until its call, once with a hint and once without Redis.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import psycopg
import redis

from bench.embedded import embedded_servers
from worker import local

REPOSITORY = Path(__file__).parents[1]
SETTLE_S = 20.0
PATIENCE_S = 60.0

JOB = """
WITH b AS (INSERT INTO batch (id, tenant) VALUES (gen_random_uuid(), 'default') RETURNING id), j AS (
    INSERT INTO job (id, batch_id, position, tenant, state, step, request_bytes, scheduled_at, available_at)
    SELECT gen_random_uuid(), b.id, 0, 'default', 'available', 'generate', 100, now(), now() FROM b RETURNING id)
INSERT INTO job_request (job_id, head, request_hash, contract_version)
SELECT id, '{"query": "When?", "context": [{"content": "The desk opens at nine."}]}', '', 1 FROM j RETURNING job_id
"""


@contextmanager
def idle_system(count: int) -> Iterator[tuple[local.Endpoints, Path, list[subprocess.Popen[bytes]]]]:
    """Servers and workers with nothing to do, ended afterwards."""
    with embedded_servers() as servers, ExitStack() as stack:
        home, where = servers.home, servers.endpoints
        environment = {**servers.environment, "NIGHTDESK_PROVIDER": "extractive"}
        workers = []
        for number in range(count):
            log = stack.enter_context((home / f"worker-{number}.log").open("wb"))
            worker = subprocess.Popen(
                [sys.executable, "-m", "worker.cli", "worker", "--queues", "generate,check,submit"],
                cwd=REPOSITORY,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(_end, worker)
            workers.append(worker)
        _until(lambda: _rows(where.database_url, "SELECT count(*) FROM worker") == count, "the workers are there")
        yield where, home, workers


def _end(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10)


def _until(true: Callable[[], bool], what: str) -> float:
    """Seconds until it is true."""
    began = time.monotonic()
    while not true():
        if time.monotonic() > began + PATIENCE_S:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


def _rows(url: str, statement: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
        return int(row[0]) if row else 0


def cpu_s(root: int) -> float:
    """User and system seconds of a process, its living and its ended children."""
    process = psutil.Process(root)
    family = [process, *process.children(recursive=True)]
    return sum(sum(member.cpu_times()[:2]) for member in family) + sum(process.cpu_times()[2:4])


def sample(where: local.Endpoints, home: Path, workers: list[subprocess.Popen[bytes]]) -> dict[str, float]:
    """Counters so far."""
    status = local.status(home)
    assert status.postgres.pid
    assert status.valkey.pid
    with redis.Redis.from_url(where.redis_url) as client:
        commands = client.info("stats")["total_commands_processed"]
    return {
        "seconds": time.monotonic(),
        "worker_cpu": sum(cpu_s(worker.pid) for worker in workers) / len(workers),
        "postgres_cpu": cpu_s(status.postgres.pid),
        "valkey_cpu": cpu_s(status.valkey.pid),
        "commits": _rows(where.database_url, "SELECT xact_commit FROM pg_stat_database WHERE datname = 'nightdesk'"),
        "commands": commands,
    }


def measure(where: local.Endpoints, home: Path, workers: list[subprocess.Popen[bytes]], seconds: float) -> None:
    """Print what an idle stretch costs."""
    first = sample(where, home, workers)
    time.sleep(seconds)
    last = sample(where, home, workers)
    span = last["seconds"] - first["seconds"]
    rates = {name: (last[name] - first[name]) / span for name in first}
    print(
        json.dumps(
            {
                "workers": len(workers),
                "seconds": round(span, 1),
                "cpu_ms_per_s": {
                    "a_worker": round(1000 * rates["worker_cpu"], 2),
                    "postgres": round(1000 * rates["postgres_cpu"], 2),
                    "valkey": round(1000 * rates["valkey_cpu"], 2),
                },
                "commits_per_s": round(rates["commits"], 2),
                "commits_per_s_a_worker": round(rates["commits"] / len(workers), 2),
                "valkey_commands_per_s": round(rates["commands"], 2),
            }
        ),
        flush=True,
    )


def first_call(where: local.Endpoints) -> float:
    """Seconds from the commit of a job to its attempt."""
    attempts = _rows(where.database_url, "SELECT count(*) FROM attempt")
    _rows(where.database_url, JOB.replace("RETURNING job_id", "RETURNING 1"))
    return round(_until(lambda: _rows(where.database_url, "SELECT count(*) FROM attempt") > attempts, "a call"), 2)


def main() -> None:
    """Print one JSON line a measurement."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=60.0)
    arguments.add_argument("--workers", type=int, default=2)
    options = arguments.parse_args()
    with idle_system(options.workers) as (where, home, workers):
        time.sleep(SETTLE_S)
        measure(where, home, workers, options.seconds)
        with_redis = []
        for _ in range(3):
            with_redis.append(first_call(where))
            time.sleep(7)
        pid = local.status(home).valkey.pid
        assert pid
        psutil.Process(pid).kill()
        time.sleep(10)
        without = []
        for _ in range(3):
            without.append(first_call(where))
            time.sleep(7)
        print(json.dumps({"seconds_until_the_call": with_redis, "without_redis": without}), flush=True)


if __name__ == "__main__":
    main()
