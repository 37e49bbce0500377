"""llmock, a simulator of OpenAI and Anthropic from outside this project, as a process on a free port."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen


@dataclass(frozen=True)
class Llmock:
    """A running simulator."""

    url: str

    def script(self, *behaviors: dict[str, Any]) -> None:
        """Say what the next requests get."""
        self._ask("/_llmock/scenario", {"behaviors": list(behaviors)})

    def requests(self) -> list[dict[str, Any]]:
        """Its journal."""
        answer: Any = self._ask("/_llmock/requests")
        return list(answer["requests"] if isinstance(answer, dict) else answer)

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = Request(self.url + path, data=data, headers={"content-type": "application/json"})
        with urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")


@contextmanager
def running_llmock(*options: str) -> Iterator[Llmock]:
    """Start it with command-line options, and end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        str(Path(sys.executable).with_name("llmock")),
        "serve",
        "-p",
        str(port),
        "--log-level",
        "error",
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, "llmock ended"
                assert time.monotonic() < deadline, "llmock did not start"
                time.sleep(0.05)
        yield Llmock(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(10)
