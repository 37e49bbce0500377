"""Imports the command ``nightdesk`` once and forks a process for each request; see ``tests.forking``."""

import array
import contextlib
import ctypes
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

MODULES = (
    "celery.apps.worker",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "kombu.transport.redis",
    "worker.cli.commands.run_commands",
    "worker.cli.commands.worker_process",
    "worker.ledger.postgres",
    "worker.process.main",
    "worker.providers.anthropic",
    "worker.providers.extractive",
    "worker.providers.openai",
    "worker.providers.openai_chat",
    "worker.providers.prices",
)
"""Modules that most commands come to import."""
MOST_DESCRIPTORS = 8


@dataclass(frozen=True)
class Request:
    """A command line with its environment and descriptors."""

    arguments: list[str]
    environment: dict[str, str]
    session: bool
    stdout: int
    stderr: int
    exit_code: int
    inherited: tuple[int, ...]


def main() -> None:
    """Serve until the other end closes; in a forked process, run the command."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    request = serve(requests)
    if request is not None:
        prepare(request)
        requests.send(str(os.getpid()).encode())
        requests.close()
        runpy.run_module("worker.cli", run_name="__main__", alter_sys=True)


def serve(requests: socket.socket) -> Request | None:
    """Fork for each request and report exit codes; returns the request in a forked process, and None at the end."""
    for module in MODULES:
        import_module(module)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, (
        "a fork takes one thread along, and locks as the others hold them"
    )
    gc.collect()
    gc.freeze()  # a collection in a forked process would touch, and so copy, every page
    wake, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    exit_codes: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if wake in ready:
                wake.recv(4096)
                report(exit_codes)
            if requests not in ready:
                continue
            request = receive(requests)
            if request is None:
                return None
            pid = os.fork()
            if pid == 0:
                break
            exit_codes[pid] = request.exit_code
            for descriptor in (request.stdout, request.stderr, *request.inherited):
                os.close(descriptor)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wake.close()
    woken.close()
    for descriptor in (*exit_codes.values(), request.exit_code):
        os.close(descriptor)
    return request


def receive(requests: socket.socket) -> Request | None:
    """Receive a request; None when the other end is closed."""
    size = array.array("i").itemsize
    message, passed, *_ = requests.recvmsg(16, socket.CMSG_SPACE(MOST_DESCRIPTORS * size))
    if not message:
        return None
    descriptors = array.array("i")
    descriptors.frombytes(passed[0][2])
    body, stdout, stderr, exit_code, *inherited = descriptors
    with os.fdopen(body, "rb") as file:
        file.seek(0)
        arguments, environment, session = json.load(file)
    return Request(arguments, environment, session, stdout, stderr, exit_code, tuple(inherited))


def report(exit_codes: dict[int, int]) -> None:
    """Collect the children that ended and tell their exit codes."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            descriptor = exit_codes.pop(ended[0])
            with contextlib.suppress(BrokenPipeError):  # the test waits no longer
                os.write(descriptor, str(os.waitstatus_to_exitcode(ended[1])).encode())
            os.close(descriptor)


def prepare(request: Request) -> None:
    """Take on what an executed process would begin with."""
    if request.session:
        os.setsid()
    os.dup2(request.stdout, 1)
    os.dup2(request.stderr, 2)
    os.close(request.stdout)
    os.close(request.stderr)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    sys.argv = [sys.argv[0], *request.arguments]
    show([sys.executable, "-m", "worker.cli", *request.arguments])


def show(command: list[str]) -> None:
    """Let the process table show a command line, by which workers are recognised."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(field) for field in fields[45:47])
    text = b"".join(os.fsencode(word) + b"\0" for word in command)
    assert len(text) <= end - start
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()
