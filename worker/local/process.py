"""Starts a server that outlives its caller, identifies it later, and ends it: only this home's server, never by name.

Two things identify a server. First, its command line contains a path that only this home has. The process id in a stale
file may belong to any process by now, but the command line is readable without rights over the process (unlike the
program's path and working directory, which a container's root usually cannot see). Second, its guard: a file that the
caller locks and the server inherits open. The lock is free only when the server and its children have ended, even if
the caller died before it stored a process id.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from worker.local.account import Account
from worker.local.errors import HomeError, StartError
from worker.local.files import open_append, open_lock, try_lock
from worker.local.polling import poll

__all__ = ["Identity", "find", "guard_is_free", "hold_guard", "is_alive", "send_signal", "spawn"]

# The shell starts the server in the background and ends, so the server is no child of the caller: it never becomes a
# zombie of a parent that does not wait, and gets no signal for the parent's process group.
_DETACH = '"$@" >&2 & echo $!'


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of one server of one home."""

    program: str
    """File name of its program."""
    argument: str
    """An argument of its command line that no other home's server has."""
    pid_file: Path
    """The server's own file; its first line is the process id."""
    guard: Path
    """A file that is locked as long as the server or a child of it lives."""


def find(identity: Identity) -> psutil.Process | None:
    """Returns the running server of this home, or None.

    With a missing or stale pid file and a locked guard, the process table is searched.
    """
    pid = _recorded_pid(identity.pid_file)
    if pid is not None:
        process = _process_of(identity, pid)
        if process is not None:
            return process
    if guard_is_free(identity):
        return None
    candidates = (_process_of(identity, pid) for pid in psutil.pids())
    return next((process for process in candidates if process is not None), None)


def guard_is_free(identity: Identity) -> bool:
    """Tells whether neither the server nor any child of it lives."""
    if not identity.guard.exists():
        return True
    descriptor = open_lock(identity.guard)
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def is_alive(process: psutil.Process) -> bool:
    """Tells whether a process still runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def send_signal(process: psutil.Process, number: signal.Signals) -> None:
    """Sends a signal unless the process has ended; another process with the same id never gets it.

    Raises: HomeError if the caller has no right to.
    """
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
    except psutil.AccessDenied as error:
        raise HomeError(f"Process {process.pid} belongs to another user: run this as that user or as root.") from error


@contextmanager
def hold_guard(identity: Identity, seconds: float) -> Iterator[int]:
    """Locks a server's guard and yields its descriptor for ``spawn``.

    It waits for the children of a killed server, which end a moment later, so that two generations never share the
    data.

    Raises: HomeError if another process still holds the guard after ``seconds``.
    """
    descriptor = open_lock(identity.guard)
    try:
        if not poll(lambda: try_lock(descriptor), seconds):
            raise HomeError(
                f"A process of an earlier {identity.program} still holds {identity.guard}: find it "
                f"(fuser {identity.guard}), end it, then try again."
            )
        yield descriptor
    finally:
        os.close(descriptor)  # not unlocked: a server that inherited it keeps the lock


def spawn(command: Sequence[str], account: Account, log: Path, guard: int) -> psutil.Process | None:
    """Starts a command in its own session, with its output in ``log`` and with the guard, and returns at once.

    Returns: its process, or None if it has already ended.
    Raises: StartError if it cannot be started at all.
    """
    descriptor = open_append(log)
    try:
        result = subprocess.run(  # noqa: S603 - the shell text is constant, the command goes in as arguments
            ["/bin/sh", "-c", _DETACH, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=descriptor,
            check=True,
            cwd="/",  # pins no mount
            env=account.environment,
            umask=0o077,
            pass_fds=(guard,),
            start_new_session=True,
            user=account.uid if account.switch else None,
            group=account.gid if account.switch else None,
            extra_groups=() if account.switch else None,
        )
        return psutil.Process(int(result.stdout))
    except psutil.NoSuchProcess:
        return None
    except (OSError, subprocess.CalledProcessError) as error:
        raise StartError(
            f"{command[0]} cannot be started as '{account.name}' ({error}): PostgreSQL refuses to run as root, so the "
            f"caller must be a normal user, or root with the right to become one."
        ) from error
    finally:
        os.close(descriptor)


def _recorded_pid(pid_file: Path) -> int | None:
    try:
        pid = int(pid_file.read_text(encoding="ascii", errors="replace").split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
    return pid if pid > 0 else None


def _process_of(identity: Identity, pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        command = process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    matches = bool(command) and Path(command[0]).name == identity.program and identity.argument in command[1:]
    return process if matches and is_alive(process) else None
