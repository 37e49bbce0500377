"""Measures the shared limits with four real worker processes against a provider that notes when each call arrives.

    python -m bench.limits [requests] [tokens] [redis-away] [interactive] [interactive-slots] [--seconds 150]

``requests``: 600 calls a minute; ``tokens``: 90,000 input tokens a minute, the provider counts a quarter of the request's
bytes. Of each the worst sliding 60 s window and the mean use while work waits, as shares of the limit. ``redis-away``: the
first with Redis stopped after a third of the time. ``interactive``: ten jobs of high priority, one by one, while 50,000
others wait for that limit; ``interactive-slots``: while they wait for slots; the seconds until the call arrives.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import psutil
from aiohttp import web

from bench.embedded import embedded_servers
from tasks.submit import chunked, new_batch, new_job, parse_request
from tests.stub.answers import chat
from worker import local
from worker.ledger.postgres import PostgresLedger
from worker.process.celery_app import make_app
from worker.settings import Settings

REPOSITORY = Path(__file__).parents[1]
WORKERS = 4
WINDOW_S = 60.0
REQUESTS, TOKENS = 600, 90_000
BULK = 50_000
TRIES = 10
MARK = "interactive question "


@dataclass
class Provider:
    """An OpenAI-compatible server on a loop of its own."""

    latency_s: float
    url: str = ""
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    arrival_times: dict[str, float] = field(default_factory=dict)
    _seen_one: threading.Event = field(default_factory=threading.Event)

    async def handle(self, request: web.Request) -> web.Response:
        """Note the call, and answer after the latency."""
        body = await request.read()
        at, tokens = time.monotonic(), len(body) // 4
        self.arrivals.append((at, tokens))
        if MARK.encode() in body:
            text = body.decode()
            self.arrival_times[text[text.index(MARK) :][: len(MARK) + 2]] = at
            self._seen_one.set()
        await asyncio.sleep(self.latency_s)
        answer = chat(orjson.loads(body))
        answer["usage"].update(prompt_tokens=tokens, total_tokens=tokens + answer["usage"]["completion_tokens"])
        return web.Response(body=orjson.dumps(answer), content_type="application/json")

    def until_seen(self, mark: str, within_s: float) -> float | None:
        """When the call with this question arrived; None if it did not."""
        until = time.monotonic() + within_s
        while mark not in self.arrival_times and (remaining_s := until - time.monotonic()) > 0:
            self._seen_one.wait(min(remaining_s, 0.05))
            self._seen_one.clear()
        return self.arrival_times.get(mark)


@contextmanager
def provider(latency_s: float) -> Iterator[Provider]:
    stub, loop = Provider(latency_s), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", stub.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        host, port = runner.addresses[0][:2]
        stub.url = f"http://{host}:{port}/v1"
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield stub
    finally:
        asyncio.run_coroutine_threadsafe(_stop(runner), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _stop(runner: web.AppRunner) -> None:
    await runner.cleanup()
    late = asyncio.all_tasks() - {asyncio.current_task()}
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)


@contextmanager
def system(stub: Provider, **settings: object) -> Iterator[tuple[local.Endpoints, Path]]:
    """Servers and four generate workers, ended afterwards."""
    with embedded_servers() as servers, ExitStack() as stack:
        environment = {
            **servers.environment,
            "NIGHTDESK_PROVIDER": "stub",
            "NIGHTDESK_PROVIDERS": json.dumps({"stub": {"kind": "openai_chat", "base_url": stub.url, "model": "m"}}),
            **{f"NIGHTDESK_{name.upper()}": str(value) for name, value in settings.items()},
        }
        for number in range(WORKERS):
            log = stack.enter_context((servers.home / f"worker-{number}.log").open("wb"))
            worker = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "worker.cli", "worker", "--queues", "generate,submit"],
                    cwd=REPOSITORY,
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
            )
            stack.callback(worker.kill)
        yield servers.endpoints, servers.home


def submit(where: local.Endpoints, count: int) -> None:
    """Write jobs whose sources have 1 to 12 KB."""

    async def work() -> None:
        jobs = [
            new_job(
                parse_request(
                    {"query": f"question {n}?", "context": ["The desk opens at nine. " * (40 + n * 37 % 460)]}
                )[0],
                position=n,
                tenant="default",
            )
            for n in range(count)
        ]
        async with PostgresLedger(where.database_url, connections=1) as ledger:
            await ledger.submission.submit(new_batch(None, tenant="default"), list(chunked(jobs, 500)))

    asyncio.run(work())


def measured(
    arrivals: Sequence[tuple[float, int]], weigh: Callable[[int], int], limit: int, warm_s: float
) -> dict[str, object]:
    """Worst window over all, use from the end of the warm-up on."""
    times = [at for at, _ in arrivals]
    sums = [0]
    for _, tokens in arrivals:
        sums.append(sums[-1] + weigh(tokens))
    worst = max(sums[bisect_left(times, at + WINDOW_S)] - sums[n] for n, at in enumerate(times))
    begin = bisect_left(times, times[0] + warm_s)
    span_s = times[-1] - times[begin]
    return {
        "calls": len(times),
        "seconds": round(times[-1] - times[0], 1),
        "worst_window_percent": round(100 * worst / limit, 2),
        "used_percent": round(100 * (sums[-1] - sums[begin + 1]) / span_s * WINDOW_S / limit, 2),
    }


def limited(case: str, seconds: float) -> dict[str, object]:
    by_tokens = case == "tokens"
    limit = TOKENS if by_tokens else REQUESTS
    setting = "input_tokens_per_minute" if by_tokens else "requests_per_minute"
    with provider(0.5) as stub, system(stub, **{setting: limit}) as (where, home):
        submit(where, 5_000)
        _first_call(stub)
        stopped_at = None
        if case == "redis-away":
            time.sleep(seconds / 3)
            pid = local.status(home).valkey.pid
            assert pid
            stopped_at = time.monotonic()
            psutil.Process(pid).kill()
        time.sleep(seconds - (time.monotonic() - stub.arrivals[0][0]))
        arrivals = list(stub.arrivals)
        logs = {name: (home / name).read_text() for name in sorted(p.name for p in home.glob("worker-*.log"))}
    figures = measured(arrivals, (lambda tokens: tokens) if by_tokens else (lambda _: 1), limit, 15.0)
    if stopped_at is not None:
        after = [arrival for arrival in arrivals if arrival[0] > stopped_at]
        figures["after_redis_stopped"] = measured(after, lambda _: 1, limit, 5.0)
    if broken := [line for text in logs.values() for line in text.splitlines() if line.endswith(" broke")]:
        figures["broken"] = broken[:5]
    return {"case": case, "limit_per_minute": limit, "workers": WORKERS, **figures}


def _first_call(stub: Provider) -> None:
    until = time.monotonic() + 60
    while not stub.arrivals:
        if time.monotonic() > until:
            raise TimeoutError("no call arrived within a minute")
        time.sleep(0.05)


def interactive(case: str) -> dict[str, object]:
    """Send jobs of high priority over Redis, as a producer would, while bulk jobs wait."""
    settings = {"requests_per_minute": REQUESTS} if case == "interactive" else {"slots": 100}
    with provider(0.5 if case == "interactive" else 20.0) as stub, system(stub, **settings) as (where, home):
        submit(where, BULK)
        _first_call(stub)
        time.sleep(20)
        waits = []
        with make_app(Settings(home=home), where.redis_url) as app:
            for number in range(TRIES):
                mark = f"{MARK}{number:02}"
                job = {"query": mark, "context": ["The desk opens at nine."], "priority": 9}
                began = time.monotonic()
                app.send_task("nightdesk.submit", args=[[job]], queue="submit")
                at = stub.until_seen(mark, 30)
                waits.append(round(at - began, 2) if at else None)
                time.sleep(1.3)
        return {"case": case, "bulk_waiting": BULK - len(stub.arrivals), "seconds_until_the_call": waits}


def main() -> None:
    """Print one JSON line a case."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = ("requests", "tokens", "redis-away", "interactive", "interactive-slots")
    arguments.add_argument("cases", nargs="*", choices=[[], *cases], metavar="CASE", help=", ".join(cases))
    arguments.add_argument("--seconds", type=float, default=150.0, help="of each limited case")
    options = arguments.parse_args()
    for case in options.cases or cases:
        figures = interactive(case) if case.startswith("interactive") else limited(case, options.seconds)
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
