"""The HTTP service for tests: the real application under a real uvicorn on a loopback port, in a thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import orjson
import uvloop

from tests.deadlines import scale_to_load
from worker.http.app import make_application
from worker.http.server import Server, listen, make_server
from worker.http.service import Service
from worker.ledger.outage import PROBE_S
from worker.local import Endpoints
from worker.settings import Settings

LINES = {"Content-Type": "application/x-ndjson"}


@dataclass
class Door:
    """A running service, and a client of it."""

    url: str
    http: httpx2.Client
    server: Server
    database_url: str

    @property
    def service(self) -> Service:
        """The parts of the running service."""
        app: Any = self.server.config.app
        service: Service = app.state.service
        return service

    def submit(self, *lines: Any, **options: Any) -> dict[str, Any]:
        """Submit a batch that is accepted; strings go in as they are."""
        answer = self.http.post("/v1/batches", content=body_of(lines), headers=LINES, params=options)
        assert answer.status_code in {200, 202}, answer.text
        return dict(answer.json())


def body_of(lines: Any) -> bytes:
    """JSON lines of values; strings are lines as they are."""
    return b"\n".join(line.encode() if isinstance(line, str) else orjson.dumps(line) for line in lines)


@contextmanager
def running_service(
    database_url: str, redis_url: str, home: Path, *, loopback: bool = True, **settings: Any
) -> Iterator[Door]:
    """Serve on a free port until the end of the block, then stop as on SIGTERM."""
    configured = Settings(home=home, **settings)
    app = make_application(
        configured, Endpoints(database_url, redis_url), loopback=loopback, probe_s=scale_to_load(PROBE_S)
    )
    started = threading.Event()
    with listen("127.0.0.1", 0) as listener:
        server = make_server(app, configured, started.set)

        def run() -> None:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(server.serve([listener]))

        thread = threading.Thread(target=run, name="uvicorn")
        thread.start()
        try:
            assert started.wait(60), "the service does not listen"
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with httpx2.Client(base_url=url, timeout=60) as http:
                yield Door(url, http, server, database_url)
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive(), "the service does not stop"
