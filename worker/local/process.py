"""Starts a server that outlives us, recognises it again later, and ends it: always this home's own, never by name.

Two things tell a server of ours. Its command line names a path that only this home has: a process id found in a stale
file may belong to anybody by now, and the command line is readable without rights over the process (the program's path
and working directory are not: a container's root usually lacks the capability to see them). And its guard: a file that
we lock and that the server inherits open, so the lock is free only when the server and its children are gone, even if
we died before anybody noted an id.
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

__all__ = ["Identity", "find", "guard_is_free", "guarded", "is_alive", "send_signal", "spawn"]

# The shell puts the server into the background and ends, so the server is nobody's child: no zombie is left to a
# parent that does not wait, and no signal meant for the parent's group arrives.
_DETACH = '"$@" >&2 & echo $!'


@dataclass(frozen=True, slots=True)
class Identity:
    """How one server of one home is recognised."""

    program: str
    """File name of its program."""
    argument: str
    """An argument of its command line that no other home's server has."""
    pid_file: Path
    """Written by the server; its first line is the process id."""
    guard: Path
    """Locked as long as the server or a child of it lives."""


def find(identity: Identity) -> psutil.Process | None:
    """Return the running server of this home, or None.

    A pid file that is missing, stale or overtaken by a foreign process does not mislead it: when the guard is held
    all the same, the process table is searched.
    """
    pid = _noted_pid(identity.pid_file)
    if pid is not None:
        process = _matching(identity, pid)
        if process is not None:
            return process
    if guard_is_free(identity):
        return None
    candidates = (_matching(identity, pid) for pid in psutil.pids())
    return next((process for process in candidates if process is not None), None)


def guard_is_free(identity: Identity) -> bool:
    """Tell whether neither the server nor any child of it lives."""
    if not identity.guard.exists():
        return True
    descriptor = open_lock(identity.guard)
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


def is_alive(process: psutil.Process) -> bool:
    """Tell whether a process still runs; one that ended and waits to be collected does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def send_signal(process: psutil.Process, number: signal.Signals) -> None:
    """Send a signal, unless the process is gone; a process id that was given to another one is never hit.

    Raises: HomeError when the caller has no right to.
    """
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
    except psutil.AccessDenied as error:
        raise HomeError(f"Process {process.pid} belongs to another user: run this as that user or as root.") from error


@contextmanager
def guarded(identity: Identity, seconds: float) -> Iterator[int]:
    """Hold a server's guard and yield its descriptor, for ``spawn`` to hand on.

    Children of a killed server need a moment to notice; this waits for them, so that two generations never share
    the data.

    Raises: HomeError when something still holds it after ``seconds``.
    """
    descriptor = open_lock(identity.guard)
    try:
        if not poll(lambda: try_lock(descriptor), seconds):
            raise HomeError(
                f"A process left by an earlier {identity.program} still holds {identity.guard}: find it "
                f"(fuser {identity.guard}), end it, then try again."
            )
        yield descriptor
    finally:
        os.close(descriptor)  # not unlocked: a server that inherited it keeps the lock


def spawn(command: Sequence[str], account: Account, log: Path, guard: int) -> psutil.Process | None:
    """Start a command in a session of its own, writing to ``log``, holding the guard; return at once.

    Returns: its process, or None when it ended before it could be looked at.
    Raises: StartError when it could not be started at all.
    """
    descriptor = open_append(log)
    try:
        done = subprocess.run(  # noqa: S603 - the shell text is constant, the command goes in as arguments
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
        return psutil.Process(int(done.stdout))
    except psutil.NoSuchProcess:
        return None
    except (OSError, subprocess.CalledProcessError) as error:
        raise StartError(
            f"{command[0]} cannot be started as '{account.name}' ({error}): PostgreSQL refuses to run as root, so the "
            f"caller must be a normal user, or root with the right to become one."
        ) from error
    finally:
        os.close(descriptor)


def _noted_pid(pid_file: Path) -> int | None:
    try:
        pid = int(pid_file.read_text(encoding="ascii", errors="replace").split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
    return pid if pid > 0 else None


def _matching(identity: Identity, pid: int) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        command = process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
    ours = bool(command) and Path(command[0]).name == identity.program and identity.argument in command[1:]
    return process if ours and is_alive(process) else None
