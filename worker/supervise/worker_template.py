"""Keeps a process that has loaded the modules of a worker, of which workers are forks: they share its memory and begin at once.

The template is a child of its starter. Its standard input is a socket: an order comes over it with a log and a guard, and the forked
worker answers with its process id. The template ends with the socket; its workers go on. It has one thread, no connection and no
event loop, so that a fork takes nothing along that two processes must not share. Where Linux does not run, there is none.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from worker.supervise.files import open_append

PACKAGES = Path(__file__).parents[2]
"""The directory of our packages: workers start there, whatever the directory of the command."""

PATIENCE_S = 60.0
"""Seconds that a template may take until it answers; loading takes two, and ten times as long on a machine with much else to do."""

LOG = "template.log"
"""Its name among the logs of a home. A template has nothing to say but why it can't be."""

_MODULE = "worker.cli.template_process"
_ORDER = b"fork"
_FAILED = b"0"
_ROOM = 256
"""Bytes of a worker's command line beside the home's path: its program, queues and name."""


HEAPS = "2"
"""Heaps of all threads together: Python runs one thread at a time, so that more of them only hold more free memory."""


def worker_environment(home: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of all workers of a home, which start in another directory than their command."""
    # People read the logs of a home; a collector of logs reads those of containers.
    environment = {"NIGHTDESK_LOG_FORMAT": "text", "MALLOC_ARENA_MAX": HEAPS, **variables, "NIGHTDESK_HOME": str(home)}
    for name in ("NIGHTDESK_CONFIG", "NIGHTDESK_CALIBRATION", "NIGHTDESK_LOCAL_MODEL"):
        # A local model may also be named by an import path.
        if (path := environment.get(name)) and (name != "NIGHTDESK_LOCAL_MODEL" or Path(path).is_dir()):
            environment[name] = str(Path(path).absolute())
    return environment


@dataclass(frozen=True, slots=True)
class Order:
    """A worker to be forked: its command line, from the command's name on, and its variables."""

    arguments: Sequence[str]
    environment: Mapping[str, str]


class WorkerTemplate:
    """The starter's side of a template.

    Args:
        home: whose workers are forked; their records must lie in it.
        variables: as its workers have them: they decide which libraries it loads.
    Raises: OSError if it can't be started.
    """

    def __init__(self, home: Path, variables: Mapping[str, str]) -> None:
        self.home = home
        self._channel, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.has_forked = False
        try:
            with there:
                self._process = _start(home, variables, there)
        except OSError:
            self._channel.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Tells whether it can still be asked."""
        return self._channel.fileno() >= 0 and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fork(self, order: Order, log: int, guard: int) -> int | None:
        """Forks a worker in a session of its own; waits until the modules are loaded.

        Args:
            order: the worker.
            log: a descriptor that it writes to.
            guard: the descriptor of its locked guard, which it keeps.

        Returns: its process id, or None if no worker was forked, nor will be.
        """
        if not self.is_alive:
            return None
        try:
            self._send(order, log, guard)
            self._channel.settimeout(PATIENCE_S)
            answer = self._channel.recv(32)
        except OSError:
            answer = self._last_answer()
        except BaseException:
            self._last_answer()
            raise
        if answer == _FAILED or not answer:
            return None
        self.has_forked = True
        return int(answer)

    def _send(self, order: Order, log: int, guard: int) -> None:
        # A message has a size limit, and an environment may exceed it.
        body = os.memfd_create("order")
        try:
            with os.fdopen(os.dup(body), "w") as file:
                json.dump([list(order.arguments), dict(order.environment)], file)
            socket.send_fds(self._channel, [_ORDER], [body, log, guard])
        finally:
            os.close(body)

    def _last_answer(self) -> bytes:
        """Kills the template, and returns the answer of the worker that it may have forked before."""
        self._process.kill()
        self._process.wait()
        self._channel.settimeout(None)
        # The other end is closed when the template is dead and a worker of it has answered or died.
        with suppress(OSError), self._channel:
            return self._channel.recv(32)
        return b""

    def end(self) -> None:
        """Ends it; its workers go on."""
        if self._channel.fileno() >= 0:
            self._channel.close()
        self._process.kill()
        self._process.wait()


def template_of(home: Path) -> WorkerTemplate | None:
    """A template for a home; None where the system can't have one: each worker then loads its modules itself."""
    if sys.platform != "linux" or not (home / "logs").is_dir():
        return None
    try:
        return WorkerTemplate(home, os.environ)
    except OSError:
        # A worker that can't be started either says why.
        return None


def _start(home: Path, variables: Mapping[str, str], channel: socket.socket) -> "subprocess.Popen[bytes]":
    log = open_append(home / "logs" / LOG)
    # A forked process shows its command line in the memory of the template's.
    room = "-" * (len(os.fsencode(sys.executable)) + len(os.fsencode(home)) + _ROOM)
    try:
        return subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", _MODULE, str(home), room],
            stdin=channel.fileno(),
            stdout=log,
            stderr=log,
            cwd=PACKAGES,
            env=worker_environment(home, variables),
            start_new_session=True,
        )
    finally:
        os.close(log)


def await_orders() -> Order | None:
    """Forks a worker for each order on standard input.

    Returns: in each worker its order, which it has taken on; in the template None, when its starter has gone.
    """
    # The system collects the workers that end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=os.dup(0)) as channel:
        while True:
            message, descriptors, *_ = socket.recv_fds(channel, len(_ORDER), 3)
            if not message:
                return None
            body, log, guard = descriptors
            try:
                pid = os.fork()
            except OSError as error:
                sys.stderr.write(f"{time.ctime()}: no worker can be forked: {error}\n")
                channel.send(_FAILED)
            else:
                if pid == 0:
                    try:
                        return _take_on(body, log, guard)
                    finally:
                        # Last: whoever has the process id looks for the worker by its command line.
                        _answer(channel)
            for descriptor in descriptors:
                os.close(descriptor)


def _answer(channel: socket.socket) -> None:
    try:
        channel.send(str(os.getpid()).encode())
    except OSError:
        # The starter has gone: no command would look after this worker.
        os._exit(0)


def _take_on(body: int, log: int, guard: int) -> Order:
    """Becomes what an executed worker would begin as."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for standard, descriptor in enumerate((nothing, log, log)):
        os.dup2(descriptor, standard)
    os.close(nothing)
    os.close(log)
    os.set_inheritable(guard, True)
    with os.fdopen(body) as file:
        file.seek(0)
        arguments, environment = json.load(file)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    show_command([sys.executable, "-m", "worker.cli", *arguments])
    return Order(arguments, environment)


def show_command(words: Sequence[str]) -> None:
    """Lets the process table show a command line, by which workers are recognised; raises ``OSError`` where it does not."""
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    # Fields 48 and 49 of proc(5): the memory that the command line is read from.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(field) for field in fields[45:47])
    if not 0 < len(text) <= end - start:
        raise OSError(f"a command line of {len(text)} bytes does not fit into {end - start}")
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
    if not Path("/proc/self/cmdline").read_bytes().startswith(text):
        raise OSError("the process table does not show a changed command line")
