"""Measures 500 pollers over HTTP beside SELECT 1 at the same pace, and a batch submitted meanwhile (make bench-api)."""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from psycopg_pool import AsyncConnectionPool

from tests.servers import running_servers


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


def show(name: str, times: list[float]) -> float:
    cuts = statistics.quantiles(times, n=100)
    print(f"{name:<44} {len(times):>7,} looks, p50 {cuts[49]:7.1f} ms, p99 {cuts[98]:7.1f} ms")
    return cuts[98]


async def measure(url: str, database_url: str, options: argparse.Namespace) -> None:
    connector = aiohttp.TCPConnector(limit=options.pollers)
    pool = AsyncConnectionPool(database_url, min_size=8, max_size=8, open=False)
    await pool.open(wait=True)
    errors: list[int] = []
    async with aiohttp.ClientSession(url, connector=connector) as http, pool:

        async def submit(count: int) -> tuple[str, float]:
            body = b"\n".join(orjson.dumps(question(number)) for number in range(count))
            began = time.perf_counter()
            async with http.post("/v1/batches", data=body, headers={"Content-Type": "application/x-ndjson"}) as answer:
                accepted = await answer.json()
                assert accepted["jobs"] == count, accepted
            return accepted["batch_id"], count / (time.perf_counter() - began)

        batch, _ = await submit(options.pollers)
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

        for turn in range(options.rounds):
            select_ms = show("SELECT 1", await pace(options.pollers, options.seconds, select))
            polls = show("polls", await pace(options.pollers, options.seconds, poll))
            submission = asyncio.create_task(submit(options.submit))
            busy = show("polls while a batch comes in", await pace(options.pollers, options.seconds, poll))
            _, rate = await submission
            print(
                f"round {turn + 1}: p99 of polls {polls / select_ms:.1f} times that of SELECT 1, {busy / select_ms:.1f} times with"
            )
            print(f"         {options.submit:,} lines coming in, {rate:,.0f} a second; errors: {len(errors)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pollers", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--submit", type=int, default=20_000)
    options = parser.parse_args()
    with running_servers() as servers, servers.database() as database_url, tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "NIGHTDESK_DATABASE_URL": database_url,
            "NIGHTDESK_REDIS_URL": servers.redis_url,
            "NIGHTDESK_HOME": str(Path(home) / "home"),
        }
        serve = [sys.executable, "-m", "worker.cli", "serve", "--port", "0"]
        with subprocess.Popen(serve, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as service:
            assert service.stdout is not None
            try:
                url = service.stdout.readline().decode().strip()
                asyncio.run(measure(url, database_url, options))
            finally:
                service.terminate()


if __name__ == "__main__":
    main()
