"""Starts a process that outlives its starter, recognises it later, and signals it: never by its name alone.

Two things identify a process. First, its command line contains a path that no other process has. The process id in a
stale file may belong to any process by now, but the command line is readable without rights over the process (unlike
the program's path and working directory, which a container's root usually cannot see). Second, its guard: a file that
the starter locks and the process inherits open. The lock is free only when the process and its children have ended,
even if the starter died before it stored a process id.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from tasks.errors import ServiceUnavailable
from worker.supervise.files import open_append, open_lock, try_lock

_Result = TypeVar("_Result")

_PAUSE_S = 0.02  # short compared with a process's start (0.1 s and up), long compared with one check (a millisecond)

# The shell starts the process in the background and ends, so the process is no child of the caller: it never becomes a
# zombie of a parent that does not wait, and gets no signal for the parent's process group.
_DETACH = '"$@" >&2 & echo $!'


class ProcessError(ServiceUnavailable):
    """A process cannot be started or signalled, or an earlier one does not end; the message names the remedy."""


def poll(look: Callable[[], _Result], seconds: float) -> _Result:
    """Calls ``look`` until it returns a true value or ``seconds`` have passed; returns the last value.

    ``look`` runs at least once; its exceptions propagate.
    """
    deadline = time.monotonic() + seconds
    while True:
        result = look()
        if result or time.monotonic() >= deadline:
            return result
        time.sleep(_PAUSE_S)


def seconds_left(deadline: float) -> float:
    """Returns the seconds until a deadline on the monotonic clock, never less than 0."""
    return max(0.0, deadline - time.monotonic())


@contextmanager
def exclusive_lock(path: Path, seconds: float, refusal: Exception) -> Iterator[int]:
    """Locks a file across processes and threads and yields its descriptor; the system unlocks it after a crash.

    A process that inherits the descriptor keeps the lock.

    Raises: ``refusal`` if another process still has the lock after ``seconds``.
    """
    descriptor = open_lock(path)
    try:
        if not poll(lambda: try_lock(descriptor), seconds):
            raise refusal
        yield descriptor
    finally:
        os.close(descriptor)  # not unlocked: a process that inherited it keeps the lock


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of one process."""

    name: str
    """Its name in messages."""
    argument: str
    """An argument of its command line that no other process has."""
    pid_file: Path
    """A file whose first line is the process id."""
    guard: Path
    """A file that is locked as long as the process or a child of it lives."""
    program: str | None = None
    """File name of its program, unless the program may differ."""


def find(identity: Identity) -> psutil.Process | None:
    """Returns the running process with this identity, or None.

    With a missing or stale pid file and a locked guard, the process table is searched.
    """
    pid = _recorded_pid(identity.pid_file)
    if pid is not None and (process := _process_of(identity, pid)) is not None:
        return process
    if guard_is_free(identity):
        return None
    return next((process for pid in psutil.pids() if (process := _process_of(identity, pid)) is not None), None)


def find_or_wait(identity: Identity, seconds: float) -> psutil.Process | None:
    """Returns the running process, or None once its guard is free.

    A locked guard without a visible process means that the process is starting, or that its children are ending: this
    waits for the one or the other.
    """
    result = poll(lambda: find(identity) or guard_is_free(identity), seconds)
    return None if isinstance(result, bool) else result


def guard_is_free(identity: Identity) -> bool:
    """Tells whether neither the process nor any child of it lives."""
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

    Raises: ProcessError if the caller has no right to.
    """
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
    except psutil.AccessDenied as error:
        raise ProcessError(
            f"Process {process.pid} belongs to another user: run this as that user or as root."
        ) from error


@contextmanager
def hold_guard(identity: Identity, seconds: float) -> Iterator[int]:
    """Locks the guard of a process and yields its descriptor for ``spawn``.

    It waits for the children of a killed process, which end a moment later, so that two generations never share data.

    Raises: ProcessError if another process still holds the guard after ``seconds``.
    """
    refusal = ProcessError(
        f"A process of an earlier {identity.name} still holds {identity.guard}: find it (fuser {identity.guard}), end "
        f"it, then try again."
    )
    with exclusive_lock(identity.guard, seconds, refusal) as descriptor:
        yield descriptor


def spawn(
    command: Sequence[str],
    log: Path,
    guard: int,
    *,
    directory: Path,
    environment: Mapping[str, str],
    account: tuple[int, int] | None = None,
    umask: int = -1,
) -> psutil.Process | None:
    """Starts a command in its own session, with its output in ``log`` and with the guard, and returns at once.

    Args:
        command: the program and its arguments.
        log: the file that its output is appended to.
        guard: the descriptor of its locked guard.
        directory: where it starts.
        environment: all its variables.
        account: user id and group id, if not the caller's.
        umask: its umask, if not the caller's.

    Returns: its process, or None if it has already ended.
    Raises: ProcessError if it cannot be started at all.
    """
    user, group = account or (None, None)
    descriptor = open_append(log)
    try:
        result = subprocess.run(  # noqa: S603 - the shell text is constant, the command goes in as arguments
            ["/bin/sh", "-c", _DETACH, "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=descriptor,
            check=True,
            cwd=directory,
            env=environment,
            umask=umask,
            pass_fds=(guard,),
            start_new_session=True,
            user=user,
            group=group,
            extra_groups=None if account is None else (),
        )
        return psutil.Process(int(result.stdout))
    except psutil.NoSuchProcess:
        return None
    except (OSError, subprocess.CalledProcessError) as error:
        raise ProcessError(f"{command[0]} cannot be started: {error}") from error
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
    if not command or identity.program not in {None, Path(command[0]).name}:
        return None
    return process if identity.argument in command[1:] and is_alive(process) else None
