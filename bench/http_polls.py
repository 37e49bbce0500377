"""Measures 500 pollers over HTTP beside SELECT 1 at the same pace, while batches come in, while jobs run, and without Redis; and submission over HTTP beside the command line's (make bench-api)."""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psutil
from psycopg_pool import AsyncConnectionPool

from tests.servers import running_servers

LINES = {"Content-Type": "application/x-ndjson"}


def question(number: int) -> dict[str, Any]:
    source = f"The warranty of the product {number} lasts two years from the date of purchase. " * 20
    return {"custom_id": f"q{number}", "query": "How long is the warranty?", "context": [source]}


async def pace(pollers: int, seconds: float, look: Callable[[int], Awaitable[None]]) -> list[float]:
    """Let each poller look once a second; returns the milliseconds of each look."""
    times: list[float] = []

    async def poll(number: int) -> None:
        until = time.perf_counter() + seconds
        await asyncio.sleep(number / pollers)
        while time.perf_counter() < until:
            began = time.perf_counter()
            await look(number)
            times.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(max(0.0, 1 - (time.perf_counter() - began)))

    await asyncio.gather(*(poll(number) for number in range(pollers)))
    return times


def lines_of(count: int) -> bytes:
    return b"\n".join(orjson.dumps(question(number)) for number in range(count))


class Lateness:
    """Lateness of the loop of the pollers itself, before which they see no answer."""

    def __init__(self) -> None:
        self._late_ms = 0.0

    async def watch(self) -> None:
        """Looks at the clock each 5 ms."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            self._late_ms = max(self._late_ms, (time.perf_counter() - before) * 1000 - 5)

    def take(self) -> float:
        """The most milliseconds since the last call."""
        late_ms, self._late_ms = self._late_ms, 0.0
        return late_ms


def send_batches(url: str, count: int, orders: "Connection[Any, Any]") -> None:
    """Submits batches one after the other, from the first order to the second; a process of its own."""

    async def send() -> None:
        body, lines = lines_of(count), 0
        async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=None)) as http:
            orders.send("ready")
            orders.recv()
            began = time.perf_counter()
            while not orders.poll():
                async with http.post("/v1/batches", data=body, headers=LINES) as answer:
                    assert (await answer.json())["jobs"] == count
                lines += count
            orders.send(lines / (time.perf_counter() - began))

    asyncio.run(send())


@contextmanager
def sender(url: str, count: int) -> "Iterator[Connection[Any, Any]]":
    """A process that sends batches, ready to begin."""
    context = multiprocessing.get_context("spawn")
    own, other = context.Pipe()
    process = context.Process(target=send_batches, args=(url, count, other))
    process.start()
    try:
        own.recv()
        yield own
    finally:
        process.join(60)


def show(name: str, times: list[float]) -> float:
    cuts = statistics.quantiles(times, n=100)
    print(f"{name:<44} {len(times):>7,} looks, p50 {cuts[49]:7.1f} ms, p99 {cuts[98]:7.1f} ms")
    return cuts[98]


async def measure(
    url: str, environment: dict[str, str], options: argparse.Namespace, service: psutil.Process, *, redis: bool
) -> None:
    database_url = environment["NIGHTDESK_DATABASE_URL"]
    connector = aiohttp.TCPConnector(limit=options.pollers)
    pool = AsyncConnectionPool(database_url, min_size=8, max_size=8, open=False)
    await pool.open(wait=True)
    errors: list[int] = []
    async with aiohttp.ClientSession(url, connector=connector) as http, pool:

        async def submit(count: int) -> str:
            async with http.post("/v1/batches", data=lines_of(count), headers=LINES) as answer:
                accepted = await answer.json()
                assert accepted["jobs"] == count, accepted
            return str(accepted["batch_id"])

        batch = await submit(options.pollers)
        async with http.get(f"/v1/batches/{batch}/results") as answer:
            jobs = [orjson.loads(line)["job_id"] async for line in answer.content]

        async def poll(number: int) -> None:
            async with http.get(f"/v1/jobs/{jobs[number]}") as answer:
                await answer.read()
                if answer.status != 200:
                    errors.append(answer.status)

        async def select(_: int) -> None:
            async with pool.connection() as connection:
                await connection.execute("SELECT 1")

        late = Lateness()
        watch = asyncio.create_task(late.watch())
        for turn in range(options.rounds):
            select_ms = show("SELECT 1", await pace(options.pollers, options.seconds, select))
            before = _cpu_ms(service)
            late.take()
            looks = await pace(options.pollers, options.seconds, poll)
            polls = show("polls", looks)
            print(f"{'CPU of the service for a poll':<44} {(_cpu_ms(service) - before) / len(looks):.2f} ms")
            quiet_late = late.take()
            with sender(url, options.submit) as orders:
                # The start of the sender kept this loop waiting.
                await asyncio.sleep(0.1)
                late.take()
                orders.send("begin")
                busy = show("polls while batches come in", await pace(options.pollers, options.seconds, poll))
                busy_late = late.take()
                orders.send("end")
                rate = await asyncio.to_thread(orders.recv)
            print(
                f"round {turn + 1}, {'with' if redis else 'without'} Redis: p99 of polls {polls / select_ms:.1f} times that of SELECT 1; "
                f"{busy / polls:.1f} times that while batches of {options.submit:,} lines come in, {rate:,.0f} a second"
            )
            print(
                f"         the pollers themselves were late by at most {quiet_late:.0f} and {busy_late:.0f} ms; errors: {len(errors)}"
            )
        with worker_of(environment):
            await _until_some_are_final(pool)
            ended = await _finals(pool)
            select_ms = show("SELECT 1 while jobs run", await pace(options.pollers, options.seconds, select))
            polls = show("polls while jobs run", await pace(options.pollers, options.seconds, poll))
            ended = await _finals(pool) - ended
        print(
            f"         p99 of polls {polls / select_ms:.1f} times that of SELECT 1, while {ended:,} jobs ended; errors: {len(errors)}"
        )
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch


async def _finals(pool: AsyncConnectionPool) -> int:
    async with pool.connection() as connection:
        row = await (await connection.execute("SELECT count(*) FROM job WHERE finished_at IS NOT NULL")).fetchone()
    assert row is not None
    return int(row[0])


async def _until_some_are_final(pool: AsyncConnectionPool) -> None:
    for _ in range(600):
        if await _finals(pool):
            return
        await asyncio.sleep(0.2)
    raise TimeoutError("the worker ends no job")


@contextmanager
def worker_of(environment: dict[str, str]) -> Iterator[None]:
    """Run a worker until the end of the block."""
    command = [sys.executable, "-m", "worker.cli", "worker", "--queues", "generate,check,submit"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        try:
            yield
        finally:
            worker.terminate()


async def submit_large(url: str, body: bytes) -> float:
    """Send one large batch; returns its seconds."""
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=None)) as http:
        began = time.perf_counter()
        async with http.post("/v1/batches", data=body, headers=LINES) as answer:
            assert answer.status == 202, await answer.text()
        return time.perf_counter() - began


def compare_submission(url: str, service: psutil.Process, environment: dict[str, str], count: int) -> None:
    """Submit the same lines over HTTP and with the command, in turn, and show the memory that the service took."""
    body = lines_of(count)
    before = service.memory_info().rss
    over_http = asyncio.run(submit_large(url, body))
    grown = (_peak(service) - before) / 1e6
    children = sum(_peak(child) for child in service.children()) / 1e6
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        file.write(body)
        file.flush()
        began = time.perf_counter()
        command = [sys.executable, "-m", "worker.cli", "submit", "--again", file.name]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        by_command = time.perf_counter() - began
    print(
        f"{count:,} jobs ({len(body) / 1e6:,.0f} MB): {count / over_http:,.0f} a second over HTTP, {count / by_command:,.0f} with the command "
        f"({by_command / over_http:.2f} times); the service grew by at most {grown:,.0f} MB, its process for submissions took {children:,.0f} MB"
    )


def _cpu_ms(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system) * 1000


def _peak(process: psutil.Process) -> int:
    """The most memory that a process had."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


@contextmanager
def service_of(environment: dict[str, str]) -> Iterator[tuple[str, psutil.Process]]:
    """Run a service; yields its address and process."""
    serve = [sys.executable, "-m", "worker.cli", "serve", "--port", "0"]
    with subprocess.Popen(serve, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as service:
        assert service.stdout is not None
        try:
            yield service.stdout.readline().decode().strip(), psutil.Process(service.pid)
        finally:
            service.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pollers", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--submit", type=int, default=20_000)
    parser.add_argument("--large", type=int, default=100_000, help="jobs of the submission beside the command's")
    options = parser.parse_args()
    with running_servers() as servers, tempfile.TemporaryDirectory() as home:

        @contextmanager
        def running(redis_url: str) -> Iterator[tuple[str, psutil.Process, dict[str, str]]]:
            with servers.database() as database_url:
                environment = {
                    **os.environ,
                    "NIGHTDESK_DATABASE_URL": database_url,
                    "NIGHTDESK_REDIS_URL": redis_url,
                    "NIGHTDESK_HOME": str(Path(home) / "home"),
                    "NIGHTDESK_PROVIDER": "extractive",
                }
                with service_of(environment) as (url, process):
                    yield url, process, environment

        for redis_url in (servers.redis_url, "redis://127.0.0.1:1/0"):
            with running(redis_url) as (url, process, environment):
                redis = redis_url == servers.redis_url
                asyncio.run(measure(url, environment, options, process, redis=redis))
        # The last of all: PostgreSQL is busy for a while after it.
        with running(servers.redis_url) as (url, process, environment):
            compare_submission(url, process, environment, options.large)


if __name__ == "__main__":
    main()
