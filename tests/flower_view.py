"""Attaches Flower to the broker of a running worker, and asks its API for the workers (make test-flower)."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2

from tests.acceptance.conftest import System
from tests.forking import PROGRAM
from tests.servers import running_servers

WITHIN_S = 180.0
TASKS = {"nightdesk.generate", "nightdesk.check", "nightdesk.submit"}
"""Tasks of which each is registered by the worker."""


def main() -> int:
    """Start a worker and Flower; ends with 1 when Flower does not show the worker with its queues and tasks."""
    with running_servers() as servers, servers.database() as url, tempfile.TemporaryDirectory() as folder:
        system = System(url, servers.redis_url, Path(folder))
        system.program = PROGRAM
        worker = system.start_worker("generate,check,submit", provider="extractive")
        try:
            return _ask_flower(servers.redis_url, worker.pid)
        finally:
            system.stop()


def _ask_flower(redis_url: str, pid: int) -> int:
    port = _free_port()
    program = Path(sys.executable).with_name("celery")
    command = [
        program,
        f"--broker={redis_url}",
        "flower",
        "--address=127.0.0.1",
        f"--port={port}",
        "--persistent=False",
    ]
    environment = {**os.environ, "FLOWER_UNAUTHENTICATED_API": "true"}
    flower = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + WITHIN_S
        workers: dict[str, Any] = {}
        while time.monotonic() < ends and not any(_is_whole(each) for each in workers.values()):
            time.sleep(1)
            workers = _workers(port)
    finally:
        flower.terminate()
        flower.wait(30)
    for name, worker in workers.items():
        queues = sorted(queue["name"] for queue in worker.get("active_queues") or ())
        sys.stdout.write(f"{name}: queues {', '.join(queues)}; {len(worker.get('registered') or ())} tasks\n")
    fits = [name for name, worker in workers.items() if _is_whole(worker)]
    sys.stdout.write(f"Flower shows {len(fits)} worker with its queues and tasks (process {pid})\n")
    return 0 if len(fits) == 1 else 1


def _workers(port: int) -> dict[str, Any]:
    """The workers that Flower knows; none while it starts."""
    try:
        answer = httpx2.get(f"http://127.0.0.1:{port}/api/workers", params={"refresh": "1"}, timeout=30)
    except httpx2.HTTPError:
        return {}
    return dict(answer.json()) if answer.status_code == httpx2.codes.OK else {}


def _is_whole(worker: Any) -> bool:
    queues = {queue["name"] for queue in worker.get("active_queues") or ()}
    tasks = {task.partition(" ")[0] for task in worker.get("registered") or ()}
    return queues >= {"generate", "check", "submit"} and tasks >= TASKS


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
