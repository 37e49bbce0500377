"""Measures submit, poll and export beside what the server alone takes: COPY in, SELECT 1, COPY out.

    python -m bench.transfer [--submit 100000] [--load 5000] [--export 25000 100000] [--wide 20000] [--rounds 3]

Each round submits a file of small jobs by ``nightdesk submit`` into an empty ledger, and copies the same rows into the same
tables by COPY, taken from memory, in turns. Then two workers answer further jobs, and meanwhile polls and ``SELECT 1`` take
turns on one connection. At last the results of these jobs and of as many copies of them as it takes are written by ``nightdesk
results``, its start included, in turns with three COPYs into memory: of the records as they lie in their table, long ones packed;
of all columns that results are made of, which stand in four tables; and of the lines of the results themselves out of a table
without any index, which is the least that a user wants. The same follows for jobs
of 8 sources with 2.5 KB, whose answers and records are packed. 0 leaves a part out. Compare the figures of one run only.
"""

import argparse
import asyncio
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import psycopg

from bench.embedded import Servers, embedded_servers
from bench.finished import REPOSITORY, await_final, copy_jobs, workers
from bench.side_by_side.workload import write_workload
from tasks.results import poll
from worker import local
from worker.ledger.database import Database
from worker.ledger.views import PostgresReading
from worker.process.garbage import spare_the_modules

TABLES = ("batch", "job", "job_request")
RECORDS = "SELECT g.* FROM generation_record g JOIN job j ON j.id = g.job_id WHERE j.batch_id = '{}'"
"""One table of those that results are made of; with columns that they have not, like the answer's canonical form."""

VALUES = """
SELECT j.id, j.custom_id, j.position, j.batch_id, j.state, j.outcome, j.held_reason, j.cost_usd, j.replay_of, j.errors, r.head,
       g.answer, g.output_format, g.citations, g.grounding, g.quality, g.output_structured, g.usage, g.prompt_version, g.timing_ms,
       g.provider_snapshot, g.failure, g.asks, g.frame, c.parsed
FROM job j JOIN job_request r ON r.job_id = j.id LEFT JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
LEFT JOIN completion c ON c.attempt_id = g.attempt_id WHERE j.batch_id = '{}' ORDER BY j.position
"""
"""The columns that results are made of, whole and as stored, in the order of the results."""
RUN_JOBS = 1_000
"""Wide jobs that are run; the others are copies of them."""
PATIENCE_S = 900.0
LOOK_S = 0.05
"""Between two looks at the memory of a command."""


def write_jobs(path: Path, count: int) -> None:
    """Writes small jobs with custom ids, all different."""
    with path.open("w") as file:
        for number in range(count):
            days = number % 90 + 3
            fact = f"The notice period of contract {number} is {days} days. It begins with the next month."
            job = {
                "custom_id": f"q{number}",
                "query": f"How long is the notice period of contract {number}?",
                "context": [{"content": fact, "chunk_id": f"c{number}"}],
            }
            file.write(json.dumps(job) + "\n")


def command(servers: Servers, *arguments: str) -> tuple[str, float, float, float]:
    """Output, seconds, CPU seconds and peak megabytes of a command."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "worker.cli", *arguments], cwd=REPOSITORY, env=servers.environment, stdout=output
        )
        kilobytes, end = 0, os.pidfd_open(process.pid)
        # Not a sleep: a command ends amid it, and its time would be too long by half of one.
        while not select.select([end], [], [], LOOK_S)[0]:
            kilobytes = max(kilobytes, _peak_kilobytes(process.pid))
        seconds = time.perf_counter() - began
        os.close(end)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode()
    if process.returncode not in {0, 3}:
        raise SystemExit(f"nightdesk {' '.join(arguments)} ended with {process.returncode}")
    return text, seconds, usage.ru_utime + usage.ru_stime, kilobytes / 1024


def _peak_kilobytes(pid: int) -> int:
    """The largest resident size of a process so far; the usage it ends with counts this process, too, which it was forked from."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def copy_out(url: str, query: str) -> tuple[list[bytes], float]:
    """The rows of a query or table in binary, and the seconds it took."""
    began = time.perf_counter()
    with (
        psycopg.connect(url) as connection,
        connection.cursor().copy(f"COPY {query} TO STDOUT (FORMAT BINARY)") as copy,
    ):
        blocks = [bytes(block) for block in copy]
    return blocks, time.perf_counter() - began


def copy_in(url: str, rows: dict[str, list[bytes]]) -> float:
    """Seconds to copy rows into the tables they came from, in one transaction."""
    began = time.perf_counter()
    with psycopg.connect(url) as connection:
        for table, blocks in rows.items():
            with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT BINARY)") as copy:
                for block in blocks:
                    copy.write(block)
    return time.perf_counter() - began


def empty(url: str) -> None:
    """Removes all batches and jobs."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("TRUNCATE batch CASCADE")


def measure_submit(servers: Servers, count: int, rounds: int) -> None:
    """Prints ``nightdesk submit`` beside COPY of the same rows."""
    url, path = servers.endpoints.database_url, servers.home / "jobs.jsonl"
    write_jobs(path, count)
    ratios = []
    for _ in range(rounds):
        empty(url)
        _, wall, cpu, megabytes = command(servers, "submit", "--again", str(path))
        rows = {table: copy_out(url, table)[0] for table in TABLES}
        empty(url)
        raw = copy_in(url, rows)
        size = sum(len(block) for blocks in rows.values() for block in blocks)
        ratios.append(raw / wall)
        print(
            f"submit {count:,} jobs ({size / 1e6:.0f} MB): {wall:.1f} s, {count / wall:,.0f}/s, {1e6 * cpu / count:.0f} us of "
            f"CPU a job, {megabytes:.0f} MB; COPY of the same rows {raw:.1f} s, {count / raw:,.0f}/s; ratio {raw / wall:.2f}",
            flush=True,
        )
    print(f"submit beside COPY, median: {statistics.median(ratios):.2f}", flush=True)
    empty(url)


async def measure_polls(url: str) -> None:
    """Prints polls of one job and of 100, beside ``SELECT 1``, while the jobs run; returns when all are final.

    What they take of this process and of the server's is printed, too: the rest of their time they wait for a core.
    """
    times: dict[str, list[float]] = {"SELECT 1": [], "poll of 1": [], "poll of 100": []}
    used: dict[str, list[tuple[float, float]]] = {name: [] for name in times}
    # As in the processes that answer polls.
    spare_the_modules()
    database = Database(url, size=1)
    async with AsyncExitStack() as stack:
        await database.open()
        stack.push_async_callback(database.close)
        reading, of_ledger = PostgresReading(database), (await database.rows("SELECT pg_backend_pid()"))[0][0]
        with psycopg.connect(url, autocommit=True) as connection:
            ids = [row[0] for row in connection.execute("SELECT id FROM job ORDER BY random() LIMIT 1000")]
        plain = await psycopg.AsyncConnection.connect(url, autocommit=True)
        await stack.enter_async_context(plain)
        until, number = time.monotonic() + PATIENCE_S, 0
        while time.monotonic() < until:
            for name, job_ids in _questions(ids, number):
                backend = of_ledger if job_ids else plain.info.backend_pid
                cpu, began = (_run_ms(os.getpid()), _run_ms(backend)), time.perf_counter()
                if job_ids:
                    await poll(reading, job_ids)
                else:
                    await (await plain.execute("SELECT 1")).fetchall()
                times[name].append(1000 * (time.perf_counter() - began))
                used[name].append((_run_ms(os.getpid()) - cpu[0], _run_ms(backend) - cpu[1]))
            number += 1
            if number % 50 == 0 and await _all_final(plain):
                break
            await asyncio.sleep(0.01)
        else:
            raise SystemExit("the jobs do not come to an end")
    base = _quantiles(times["SELECT 1"])
    for name, values in times.items():
        p50, p99 = _quantiles(values)
        client, server = (statistics.median(part) for part in zip(*used[name], strict=True))
        print(
            f"{name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms ({len(values)} while jobs run); beside SELECT 1 "
            f"{p50 / base[0]:.1f} and {p99 / base[1]:.1f}; CPU {client:.2f} ms here and {server:.2f} of PostgreSQL, median",
            flush=True,
        )


def _run_ms(pid: int) -> float:
    """Milliseconds that a process of one thread has run so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def _questions(ids: Sequence[UUID], number: int) -> list[tuple[str, Sequence[UUID]]]:
    single = [("SELECT 1", []), ("poll of 1", [ids[number % len(ids)]])]
    at = number % max(1, len(ids) - 100)
    return [*single, ("poll of 100", ids[at : at + 100])] if number % 10 == 0 else single


async def _all_final(connection: psycopg.AsyncConnection[Any]) -> bool:
    cursor = await connection.execute("SELECT NOT EXISTS (SELECT FROM job WHERE finished_at IS NULL)")
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


def _quantiles(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]


def measure_export(servers: Servers, batch_id: str, count: int, rounds: int) -> None:
    """Prints ``nightdesk results`` of a batch with this many jobs, beside COPY of their records, of all columns, and of the lines."""
    url, path = servers.endpoints.database_url, servers.home / "results.jsonl"
    postgres = local.status(servers.home).postgres.pid
    assert postgres is not None
    sources = {
        "the records as stored": f"({RECORDS.format(batch_id)})",
        "all columns of results": f"({VALUES.format(batch_id)})",
        "the same lines": "exported_line",
    }
    ratios: dict[str, list[float]] = {name: [] for name in sources}
    for number in range(rounds):
        before = _tree_cpu_s(postgres)
        _, wall, cpu, megabytes = command(servers, "results", batch_id, "-o", str(path))
        server_cpu = _tree_cpu_s(postgres) - before
        if not number:
            copy_lines_in(url, path)
        beside = []
        for name, source in sources.items():
            blocks, raw = copy_out(url, source)
            ratios[name].append(raw / wall)
            beside.append(f"{name} ({sum(map(len, blocks)) / 1e6:.0f} MB) {raw:.2f} s, ratio {raw / wall:.2f}")
        print(
            f"results of {count:,} jobs ({path.stat().st_size / 1e6:.0f} MB): {wall:.2f} s, {count / wall:,.0f}/s, "
            f"{1e6 * cpu / count:.0f} us of CPU a job and {1e6 * server_cpu / count:.0f} of PostgreSQL, {megabytes:.0f} MB; "
            f"COPY of {'; of '.join(beside)}",
            flush=True,
        )
    medians = ", ".join(f"{statistics.median(values):.2f} of {name}" for name, values in ratios.items())
    print(f"export of {count:,} beside COPY, medians: {medians}", flush=True)


def copy_lines_in(url: str, path: Path) -> None:
    """Fills a table with the lines of a file."""
    with psycopg.connect(url) as connection, path.open() as lines:
        connection.execute("DROP TABLE IF EXISTS exported_line")
        connection.execute("CREATE UNLOGGED TABLE exported_line (line text)")
        with connection.cursor().copy("COPY exported_line FROM STDIN") as copy:
            for line in lines:
                copy.write_row([line])


def _tree_cpu_s(root: int) -> float:
    process = psutil.Process(root)
    while True:
        try:
            family = [process, *process.children(recursive=True)]
            return sum(sum(member.cpu_times()[:2]) for member in family) + sum(process.cpu_times()[2:4])
        except psutil.NoSuchProcess:
            # It ended amid this: from now on its time is in that of its parent.
            process.status()


def submit(servers: Servers, path: Path) -> str:
    """The id of the batch of a file."""
    return command(servers, "submit", "--again", str(path))[0].split()[0]


def main() -> None:
    """Runs all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submit", type=int, default=100_000, help="small jobs to submit")
    parser.add_argument("--load", type=int, default=5_000, help="jobs that run while polls are measured")
    parser.add_argument("--export", type=int, nargs="*", default=[25_000, 100_000], help="results to export, ascending")
    parser.add_argument("--wide", type=int, default=20_000, help="results of wide jobs to export")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with embedded_servers() as servers:
        url = servers.endpoints.database_url
        if arguments.submit:
            measure_submit(servers, arguments.submit, arguments.rounds)
        if arguments.load:
            path = servers.home / "load.jsonl"
            write_jobs(path, arguments.load)
            batch_id = submit(servers, path)
            with workers(servers):
                asyncio.run(measure_polls(url))
            for count in arguments.export:
                copy_jobs(url, batch_id, count)
                measure_export(servers, batch_id, count, arguments.rounds)
        if arguments.wide:
            batch_id = submit(servers, write_workload(servers.home, min(RUN_JOBS, arguments.wide)).questions)
            with workers(servers):
                await_final(url)
            copy_jobs(url, batch_id, arguments.wide)
            measure_export(servers, batch_id, arguments.wide, arguments.rounds)


if __name__ == "__main__":
    main()
