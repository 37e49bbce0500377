"""Starts the command ``nightdesk`` as a fork of a process that has imported it: a start costs no second of imports.

A forked process has its own environment and descriptors, and runs ``worker.cli`` as ``python -m`` does. So do the worker
processes that it starts, unless a test asks for a command that is executed.
"""

import atexit
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from unittest import mock

import psutil

from tests.fork_client import request_process
from tests.run_directory import VARIABLE, exclusive, shared_directory
from worker.supervise import workers
from worker.supervise.processes import spawn

REPOSITORY = Path(__file__).resolve().parents[1]

PROGRAM = ("-m", "worker.cli")

NAME = "forks"
"""Of the socket in the run's directory."""

_READ_AT_EXECUTION = ("PYTHON", "LD_", "LC_", "LANG")
"""Variables that have no effect on a process that runs already."""
_SETTINGS = ("NIGHTDESK_", "OPENAI_", "ANTHROPIC_", "GEMINI_")
_END_S = 60.0
"""The longest to wait for the other processes of a run at the end."""
_ROOM = "-" * 4096
"""An argument whose memory holds the command lines of forked processes."""


class Forked(subprocess.Popen[bytes]):
    """A process whose parent is the fork server, which reports the exit code through a pipe."""

    def __init__(self, arguments: Sequence[str], pid: int, exit_code: int) -> None:
        self.args = list(arguments)
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = self.stdout = self.stderr = None
        self._exit_code = exit_code
        self._child_created = False  # the destructor has nothing to collect

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def forget(self) -> None:
        """Stop waiting for the exit code."""
        os.close(self._exit_code)

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._exit_code], [], [], timeout)[0]:
            code = os.read(self._exit_code, 16)
            os.close(self._exit_code)
            if not code:
                raise RuntimeError("the fork server ended before its child")
            self.returncode = int(code)
        return self.returncode


class ForkServer:
    """A connection to the process that forks, which all processes of a test run share; it ends with the last of them."""

    def __init__(self) -> None:
        path = socket_path()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        atexit.register(self._socket.close)
        with exclusive(NAME):
            try:
                self._socket.connect(str(path))
            except (FileNotFoundError, ConnectionRefusedError):
                process = _start(path)
                self._socket.connect(str(path))
                atexit.register(self._await_end, process)

    def fork(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stdout: int,
        stderr: int,
        *,
        session: bool,
        stdin: int | None = None,
        inherited: Sequence[int] = (),
    ) -> Forked:
        """Fork a process that runs ``nightdesk``, in a session of its own if ``session``."""
        exit_code, exit_code_end = os.pipe()
        try:
            with Path(os.devnull).open("rb") as nothing:
                source = nothing.fileno() if stdin is None else stdin
                descriptors = [source, stdout, stderr, exit_code_end, *inherited]
                pid = request_process(self._socket, arguments, environment, descriptors, session=session)
        finally:
            os.close(exit_code_end)
        return Forked(arguments, pid, exit_code)

    def _await_end(self, process: "subprocess.Popen[bytes]") -> None:
        """Count the CPU of the server and of what it forked as this process's, so that ``time`` shows it."""
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)


def socket_path() -> Path:
    """The path on which the server of the run listens."""
    directory = shared_directory()
    assert directory is not None
    return directory / NAME


def _start(path: Path) -> "subprocess.Popen[bytes]":
    """Start the process that forks, which listens on a path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    path.unlink(missing_ok=True)  # of one that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(path))
        listener.listen()
        return subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server", str(listener.fileno()), _ROOM],
            cwd=REPOSITORY,
            env={**environment, VARIABLE: os.environ[VARIABLE]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )


def start_server() -> None:
    """Start the server of the run, which lives as long as this process then."""
    _server()


@cache
def _server() -> ForkServer:
    return ForkServer()


def start_command(
    arguments: Sequence[str | Path],
    environment: Mapping[str, str],
    *,
    stdout: int,
    stderr: int,
    stdin: int | None = None,
    session: bool = False,
    program: Sequence[str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start ``nightdesk`` in the repository, with nothing on its standard input unless that is given.

    The caller closes the descriptors. ``session``: make the process lead a session, so that signals to its group
    reach no other. ``program``: arguments of Python that make it the command, to execute it instead of a fork.
    """
    words = [str(argument) for argument in arguments]
    if program is None and _is_forkable(environment):
        return _server().fork(words, environment, stdout, stderr, session=session, stdin=stdin)
    return subprocess.Popen(
        [sys.executable, *(program or PROGRAM), *words],
        cwd=REPOSITORY,
        env=dict(environment),
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=session,
    )


def run_command(
    arguments: Sequence[str | Path], environment: Mapping[str, str], timeout: float
) -> "subprocess.CompletedProcess[str]":
    """Run ``nightdesk`` to its end; raises ``subprocess.TimeoutExpired``."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start_command(arguments, environment, stdout=out.fileno(), stderr=err.fileno())
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read().decode(), err.read().decode())


def spawn_worker(
    command: Sequence[str],
    log: Path,
    guard: int,
    *,
    directory: Path,
    environment: Mapping[str, str],
) -> psutil.Process | None:
    """Do as ``worker.supervise.processes.spawn`` for the command of a worker; its parent is the fork server."""
    python, *arguments = command
    if not _is_forkable(environment) or directory != REPOSITORY:
        return spawn(command, log, guard, directory=directory, environment=environment)
    assert (python, *arguments[:2]) == (sys.executable, *PROGRAM)
    with log.open("ab") as output:
        process = _server().fork(
            arguments[2:],
            environment,
            output.fileno(),
            output.fileno(),
            session=True,
            inherited=[guard],
        )
    process.forget()
    try:
        return psutil.Process(process.pid)
    except psutil.NoSuchProcess:
        return None


def fork_workers() -> ExitStack:
    """Let commands in this process start their workers as forks of the run's server, until the stack is closed."""
    stack = ExitStack()
    stack.enter_context(mock.patch.object(workers, "spawn", spawn_worker))
    return stack


def _is_forkable(environment: Mapping[str, str]) -> bool:
    return (
        sys.platform == "linux" and shared_directory() is not None and _read_at_execution(environment) == _AT_EXECUTION
    )


def _read_at_execution(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_EXECUTION)}


_AT_EXECUTION = _read_at_execution(os.environ)
