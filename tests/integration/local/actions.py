"""Actions of the tests on the servers: queries, kills, and starts from other processes."""

import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psutil
import psycopg
import redis

from tests.deadlines import scale_to_load
from worker.local import Endpoints, LocalOptions, start, status
from worker.supervise.processes import poll

REPOSITORY = Path(__file__).resolve().parents[3]

# The process is another one, with other programs: what a fork of this one can't show.
_START = """
import sys
from pathlib import Path
from worker.local import LocalOptions, start
endpoints = start(Path(sys.argv[1]), LocalOptions(shared_root=Path(sys.argv[2])))
print(",".join(sorted(endpoints.started)))
"""


def query(url: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def valkey(url: str) -> "closing[redis.Redis]":
    return closing(redis.Redis.from_url(url, decode_responses=True))


def store(endpoints: Endpoints, value: str) -> None:
    """Put a value into both servers and return when both have it on disk."""
    query(endpoints.database_url, "CREATE TABLE IF NOT EXISTS kept (value text)")
    query(endpoints.database_url, "INSERT INTO kept VALUES (%s)", value)
    with valkey(endpoints.redis_url) as client:
        client.rpush("kept", value)
        on_disk: Any = client.waitaof(1, 0, 10_000)
        assert on_disk[0] == 1


def stored(endpoints: Endpoints) -> tuple[list[str], list[str]]:
    rows = query(endpoints.database_url, "SELECT value FROM kept ORDER BY value")
    with valkey(endpoints.redis_url) as client:
        return [value for (value,) in rows], [str(value) for value in client.lrange("kept", 0, -1)]


def pids(home: Path) -> dict[str, int]:
    now = status(home)
    assert now.postgres.pid is not None
    assert now.valkey.pid is not None
    return {"postgres": now.postgres.pid, "valkey": now.valkey.pid}


def kill(pid: int) -> None:
    process = psutil.Process(pid)
    process.kill()
    assert poll(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, scale_to_load(10.0))


def start_by_programs(home: Path, options: LocalOptions, python_path: Path) -> frozenset[str]:
    """Start the servers by an interpreter that looks for their programs elsewhere first; returns what it started."""
    done = subprocess.run(
        [sys.executable, "-c", _START, str(home), str(options.shared_root)],
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(python_path), str(REPOSITORY)])},
        timeout=scale_to_load(60),
        check=True,
    )
    return frozenset(done.stdout.strip().split(",")) - {""}


@dataclass(frozen=True)
class Elsewhere:
    """Another process, which runs a function and tells the names that it returns."""

    pid: int
    names: IO[str]

    def end(self) -> tuple[int, frozenset[str]]:
        """Wait for its end; returns the exit code and the names."""
        with self.names:
            text = self.names.read()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), frozenset(text.strip().split(",")) - {""}


def start_elsewhere(home: Path, options: LocalOptions, *, last_steps: Sequence[str] = ()) -> Elsewhere:
    """Start the servers from another process, which tells what it started and ends.

    ``last_steps``: audit events of Python with a part of their arguments, or ``call NAME``, each after the one before; it is
    killed at the last.
    """
    last = [step.split() for step in last_steps]

    def see(event: str, subject: object) -> None:
        if last and event == last[0][0] and last[0][1] in str(subject):
            last.pop(0)
            if not last:
                os.kill(os.getpid(), signal.SIGKILL)

    def work(names: IO[str]) -> None:
        if last:
            sys.addaudithook(see)
        if any(event == "call" for event, _ in last):
            sys.setprofile(lambda frame, event, _: see(event, frame.f_code.co_name))
        names.write(",".join(sorted(start(home, options).started)) + "\n")

    return _fork(work)


def as_user(uid: int, gid: int, work: Callable[[], str]) -> str:
    """Do work in a child that is this user for good, and return its text.

    A fork, not a new program: the interpreter may be out of that user's reach.
    """

    def report(pipe: IO[str]) -> None:
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            text = work()
        except BaseException as error:  # noqa: BLE001 - told to the parent, which fails the test with it
            text = f"{type(error).__name__}: {error}"
        pipe.write(text)

    child = _fork(report)
    with child.names:
        text = child.names.read()
    os.waitpid(child.pid, 0)
    return text


def _fork(work: Callable[[IO[str]], None]) -> Elsewhere:
    """Fork a process that does work with a pipe to this one, and nothing else: imports are there already."""
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads; the child only does this
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with os.fdopen(writable, "w", encoding="utf-8") as pipe:
                work(pipe)
            code = 0
        except Exception:  # noqa: BLE001 - the parent sees the exit code
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writable)
    return Elsewhere(pid, os.fdopen(readable, encoding="utf-8"))
