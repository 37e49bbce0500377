"""The stub's server: answers, does the acts it was given, and keeps the account of what it was asked."""

import argparse
import asyncio
import hashlib
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import orjson
from aiohttp import web

from tests.stub.answers import ANSWERS
from tests.stub.background import BackgroundStub
from tests.stub.batches import BatchStub
from tests.stub.faults import Act, anthropic_error, openai_error
from tests.stub.meter import meter
from tests.stub.streams import stream

RATE_LIMIT_HEADERS = {
    "/v1/messages": {"anthropic-ratelimit-requests-remaining": "49"},
    "": {"x-ratelimit-remaining-requests": "4999", "x-ratelimit-reset-requests": "12ms"},
}


@dataclass(frozen=True)
class RequestRecord:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class Stub:
    """A running stub.

    Attributes:
        latency_s: before every normal answer.
        token_s: before every event of a streamed answer.
        metered: usages are those of the words sent and answered, in place of constants.
        requests_per_minute: the limit that its answers name; it keeps none.
        error_rates: shares of requests, by status, that fail instead; drawn with a fixed seed.
        acts: done one a request, in order, before anything else; then the stub answers normally.
        requests: every request, unless ``lean``.
        calls: the billing oracle: how often each request body came, by its SHA-256. The body holds the job's question
            and sources, and the hash is what the ledger keeps with each attempt.
        answered: the same for those that got a normal answer.
        billed: the same for all that a provider would charge: whole answers with a usage, normal or not, heard or not.
    """

    latency_s: float = 0.0
    token_s: float = 0.0
    error_rates: dict[int, float] = field(default_factory=dict)
    requests_per_minute: int = 0
    lean: bool = False
    metered: bool = False
    url: str = ""
    acts: deque[Act] = field(default_factory=deque)
    requests: list[RequestRecord] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    billed: Counter[str] = field(default_factory=Counter)
    remote: BatchStub = field(init=False)
    """Files, Batches and Message Batches; their rows count as calls."""
    background: BackgroundStub = field(init=False)
    """Responses in the background; their creations are calls."""
    _random: Random = field(default_factory=lambda: Random(7))

    def __post_init__(self) -> None:
        self.remote = BatchStub(self._count_row)
        self.background = BackgroundStub(self._count_answer)

    def _count_answer(self, _path: str, body: bytes, done: bool) -> None:  # noqa: FBT001
        if done:
            digest = hashlib.sha256(body).hexdigest()
            self.answered[digest] += 1
            self.billed[digest] += 1

    def _count_row(self, _path: str, body: bytes, done: bool) -> None:  # noqa: FBT001
        digest = hashlib.sha256(body).hexdigest()
        self.calls[digest] += 1
        self.answered[digest] += done
        self.billed[digest] += done

    def then(self, *acts: Act) -> None:
        """Do these with the next requests."""
        self.acts.extend(acts)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Take one request."""
        body = await request.read()
        digest = hashlib.sha256(body).hexdigest()
        self.calls[digest] += 1
        if not self.lean:
            self.requests.append(RequestRecord(request.path, {k.lower(): v for k, v in request.headers.items()}, body))
        answer = partial(meter, ANSWERS[request.path]) if self.metered else ANSWERS[request.path]
        act = self.acts.popleft() if self.acts else self._chance(request.path)
        if act is not None:
            response = await act(request, answer(orjson.loads(body)))
            self.billed[digest] += _charges(response)
        else:
            if self.latency_s:
                await asyncio.sleep(self.latency_s)
            body_json = orjson.loads(body)
            if request.path == "/v1/responses" and "input" not in body_json:
                # As a probe of the key sends it.
                error = {
                    "type": "invalid_request_error",
                    "param": "input",
                    "message": "Missing required parameter: 'input'.",
                }
                return web.json_response({"error": error}, status=400)
            if body_json.get("background"):
                # It is answered and billed when it ends.
                return await self.background.create(body)
            if body_json.get("stream"):
                response = await stream(request, answer(body_json), self._headers(request.path), pause_s=self.token_s)
            else:
                response = web.Response(body=orjson.dumps(answer(body_json)), content_type="application/json")
            self.answered[digest] += 1
            self.billed[digest] += 1
        if not response.prepared:
            response.headers.update(self._headers(request.path))
        return response

    def _headers(self, path: str) -> dict[str, str]:
        identity = "request-id" if path == "/v1/messages" else "x-request-id"
        maker = "anthropic-ratelimit-requests-limit" if path == "/v1/messages" else "x-ratelimit-limit-requests"
        named = {maker: str(self.requests_per_minute)} if self.requests_per_minute else {}
        return {
            **RATE_LIMIT_HEADERS.get(path, RATE_LIMIT_HEADERS[""]),
            **named,
            identity: f"req_{sum(self.calls.values())}",
        }

    def _chance(self, path: str) -> Act | None:
        draw = self._random.random()
        for code, share in self.error_rates.items():
            draw -= share
            if draw < 0:
                kind = "overloaded_error" if code == 529 else "rate_limit_error"
                return anthropic_error(code, kind) if path == "/v1/messages" else openai_error(code, kind)
        return None


def _charges(response: web.StreamResponse) -> bool:
    whole = response.body if isinstance(response, web.Response) else None
    return response.status == 200 and isinstance(whole, bytes) and b'"usage"' in whole


@contextmanager
def running_stub(port: int = 0, **settings: Any) -> Iterator[Stub]:
    """A stub on a loop in a thread of its own."""
    stub = Stub(**settings)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="stub", daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(_start(stub, port), loop).result(10)
    try:
        yield stub
    finally:
        asyncio.run_coroutine_threadsafe(_stop(runner), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _start(stub: Stub, port: int) -> web.AppRunner:
    app = web.Application(client_max_size=300_000_000)
    for path in ANSWERS:
        app.router.add_post(path, stub.handle)
    app.router.add_routes(stub.remote.routes())
    app.router.add_routes(stub.background.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    host, bound = runner.addresses[0][:2]
    stub.url = stub.remote.url = f"http://{host}:{bound}"
    return runner


async def _stop(runner: web.AppRunner) -> None:
    await runner.cleanup()
    # Answers that nobody waits for any more.
    late = asyncio.all_tasks() - {asyncio.current_task()}
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)


def main() -> None:
    """Serve for load tests: ``python -m tests.stub.server --port 8100 --latency 1``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    options = parser.parse_args()
    with running_stub(options.port, latency_s=options.latency, lean=True) as stub:
        sys.stdout.write(f"{stub.url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
