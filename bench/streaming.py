"""Measures what streaming costs in CPU: a call of each provider over HTTP, whole, streamed, and by the SDK's typed way.

    python -m bench.streaming [--calls 100] [--words 300] [--streams 500]

The providers are the tests' stub in a process of its own, so only our side is counted. Then so many attempts tell a
word each 50 ms, for five seconds, to an embedded Valkey. Compare rows of one run only.
"""

import argparse
import asyncio
import subprocess
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import orjson

from schemas.job import JobRequest
from tasks.ports import Listener
from tests.builders import make_attempt, new_id
from tests.integration.test_token_streams import leased
from tests.providers import CHAT, OPENAI, OVER_HTTP, Kind, plan
from tests.servers import running_servers
from tests.stub.server import Stub
from worker.token_streams import RedisTokens

WORD_S = 0.05
SECONDS = 5


async def cpu_ms(calls: int, call: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds of CPU a call, all of them at once; the first one warms up."""
    await call()
    began = time.process_time()
    await asyncio.gather(*(call() for _ in range(calls)))
    return (time.process_time() - began) / calls * 1000


async def typed(kind: Kind, client: Any, body: dict[str, Any]) -> None:
    if kind is OPENAI:
        stream = await client.responses.create(**body)
    elif kind is CHAT:
        stream = await client.chat.completions.create(**body)
    else:
        stream = await client.messages.create(**body)
    async for _ in stream:
        pass


async def calls(url: str, count: int, words: int) -> None:
    for kind in OVER_HTTP:
        costs = []
        for stream in (False, True):
            provider: Any = kind.at(Stub(url=url))
            source = " ".join(["opens"] * words) + "."
            request = JobRequest(query="When?", context=(source,), config={"stream": stream, "timeout_s": 60.0})
            call = plan(provider, request)
            costs.append(await cpu_ms(count, lambda p=provider, c=call: p.call(c, Listener(lambda _: None))))
            if stream:
                body = orjson.loads(call.body)
                costs.append(await cpu_ms(count, lambda p=provider, b=body, k=kind: typed(k, p.client, b)))
            await provider.close()
        print(f"{kind.name:10} whole {costs[0]:6.2f} ms   streamed {costs[1]:6.2f} ms   typed {costs[2]:6.2f} ms")


async def telling(redis_url: str, streams: int) -> None:
    sink, job = RedisTokens(redis_url, key_prefix="", kept_s=60), await leased()
    attempts = [make_attempt(job) for _ in range(streams)]
    began, started = time.process_time(), time.monotonic()
    for attempt in attempts:
        sink.start(replace(job, job_id=new_id()), attempt)
    rounds = int(SECONDS / WORD_S)
    for _ in range(rounds):
        for attempt in attempts:
            sink.text(attempt.id, " opens")
        await asyncio.sleep(WORD_S)
    await sink.close()
    spent_s, took_s = time.process_time() - began, time.monotonic() - started
    print(
        f"telling {streams} streams: {spent_s / took_s:.0%} of a core, {spent_s / rounds / streams * 1e6:.1f} us a word"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--streams", type=int, default=500)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    stub = subprocess.Popen([sys.executable, "-m", "tests.stub.server"], stdout=subprocess.PIPE, text=True)
    try:
        assert stub.stdout is not None
        asyncio.run(calls(stub.stdout.readline().strip(), options.calls, options.words))
    finally:
        stub.terminate()
        stub.wait(10)
    with running_servers() as servers:
        asyncio.run(telling(servers.redis_url, options.streams))


if __name__ == "__main__":
    main()
