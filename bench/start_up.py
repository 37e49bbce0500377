"""Measures the start of ``nightdesk run`` and ``up``: python -m bench.start_up [--tree DIR ...] [--rounds 5] [--workers 2 4].

Each tree is a checkout with its own ``.venv``; they take turns, for other work slows them alike. Each has a home that was used before,
with its servers stopped. ``run`` answers one question by a stand-in for OpenAI, which takes seconds for its answer: the time runs from
the start of the command to the first byte of the call, and CPU and memory are read while the call is open. Then ``up`` starts a
number of workers that wait for jobs.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

import psutil

REPOSITORY = Path(__file__).parents[1]
ANSWER_S = 4.0
SETTLE_S = 2.5
"""Until all workers have started, after the first call or the end of ``up``."""
QUESTION = {"query": "When does the desk open?", "context": ["The desk opens at nine."]}
REPLY = {
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1_795_000_000, "model": "stand-in",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "The desk opens at nine [1]."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60},
}  # fmt: skip


class StandIn(asyncio.Protocol):
    """Answers each call after ``ANSWER_S``, and tells when the first bytes of one came."""

    def __init__(self, called: asyncio.Queue[float]) -> None:
        self._called = called
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers a list of models at once, and a call later."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        if head.startswith(b"GET"):
            self._received.clear()
            self._send({"object": "list", "data": [{"id": "stand-in", "object": "model"}]})
        elif body.rstrip().endswith(b"}"):
            self._received.clear()
            self._called.put_nowait(time.monotonic())
            asyncio.get_running_loop().call_later(ANSWER_S, self._send, REPLY)

    def _send(self, document: object) -> None:
        body = json.dumps(document).encode()
        if self._transport is not None and not self._transport.is_closing():
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            self._transport.write(head.encode() + body)


class Tree:
    """A checkout, with a home and figures of its own."""

    def __init__(self, path: Path, scratch: Path, url: str) -> None:
        self.path = path
        self.home = scratch / path.name / "home"
        self.home.parent.mkdir()
        self.question = self.home.parent / "question.jsonl"
        self.question.write_text(json.dumps(QUESTION))
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("NIGHTDESK_")},
            "NIGHTDESK_HOME": str(self.home),
            "NIGHTDESK_PROVIDER": "stand-in",
            "NIGHTDESK_PROVIDERS": json.dumps(
                {"stand-in": {"kind": "openai_chat", "base_url": f"{url}/v1", "model": "stand-in"}}
            ),
            "NIGHTDESK_JUDGE_SHARE": "0",
        }
        self.figures: dict[str, list[float]] = defaultdict(list)

    def command(self, *arguments: str) -> list[str]:
        """A command line of this tree."""
        return [str(self.path / ".venv/bin/python"), "-m", "worker.cli", *arguments]

    async def start(self, *arguments: str) -> "asyncio.subprocess.Process":
        """Starts a command."""
        return await asyncio.create_subprocess_exec(
            *self.command(*arguments), cwd=self.path, env=self.environment, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def note(self, name: str, value: float) -> None:
        """Keeps a figure."""
        self.figures[name].append(value)

    def programs(self) -> list[psutil.Process]:
        """The Python processes of the home: command, workers, and what they are made of."""
        programs = []
        for process in psutil.process_iter():
            try:
                own = process.environ().get("NIGHTDESK_HOME") == str(self.home)
                if own and "python" in process.name():
                    programs.append(process)
            except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return programs


def pss_mb(processes: list[psutil.Process]) -> float:
    """Memory of processes, shared pages divided among those that share them."""
    return sum(process.memory_full_info().pss for process in processes) / 2**20


async def measure_run(tree: Tree, called: asyncio.Queue[float]) -> None:
    """Seconds to the first call; CPU seconds and megabytes of the command and all that it started."""
    while not called.empty():
        called.get_nowait()
    began = time.monotonic()
    process = await tree.start("run", str(tree.question), "-o", "-", "--again", "--quiet")
    tree.note("run: s to the first call", await asyncio.wait_for(called.get(), 120) - began)
    await asyncio.sleep(SETTLE_S)
    programs = tree.programs()
    tree.note("run: CPU s of all its Python processes", sum(sum(each.cpu_times()[:2]) for each in programs))
    tree.note("run: MB of all its Python processes", pss_mb(programs))
    if await process.wait():
        raise RuntimeError(f"run failed: {process.returncode}")


async def measure_up(tree: Tree, workers: int) -> None:
    """Seconds until so many workers listen, their CPU seconds and megabytes."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    await (await tree.start("up", "--workers", str(workers), "--json")).wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    tree.note(f"up, {workers} workers: s until they listen", time.monotonic() - began)
    await asyncio.sleep(SETTLE_S)
    programs = tree.programs()
    command_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    workers_s = sum(sum(each.cpu_times()[:2]) for each in programs)
    tree.note(f"up, {workers} workers: CPU s of command and workers", command_s + workers_s)
    tree.note(f"up, {workers} workers: MB of the workers", pss_mb(programs))
    await (await tree.start("down", "--json")).wait()


async def measure(paths: list[Path], rounds: int, workers: list[int]) -> list[Tree]:
    """All figures of all trees."""
    called: asyncio.Queue[float] = asyncio.Queue()
    server = await asyncio.get_running_loop().create_server(lambda: StandIn(called), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as scratch:
        trees = [Tree(path.resolve(), Path(scratch), url) for path in paths]
        for tree in trees:
            await measure_run(tree, called)
            tree.figures.clear()
        for _ in range(rounds):
            for tree in trees:
                await measure_run(tree, called)
                for count in workers:
                    await measure_up(tree, count)
        server.close()
        return trees


def main() -> None:
    """Prints a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, action="append", help="a checkout; default: this one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 4])
    options = parser.parse_args()
    trees = asyncio.run(measure(options.tree or [REPOSITORY], options.rounds, options.workers))
    for tree in trees:
        for name, values in tree.figures.items():
            listing = ", ".join(f"{value:.2f}" for value in sorted(values))
            sys.stdout.write(f"{tree.path.name}: {name}: {median(values):.2f} ({listing})\n")


if __name__ == "__main__":
    main()
