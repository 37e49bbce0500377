"""Actions of the tests on the servers: queries, kills, and starts from other processes."""

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis

from tests.deadlines import scale_to_load
from worker.local import Endpoints, LocalOptions, status
from worker.supervise.processes import poll

REPOSITORY = Path(__file__).resolve().parents[3]

_START = """
import os, signal, sys
from pathlib import Path
from worker.local import LocalOptions, start
last = [step.split() for step in sys.argv[4:]]
def see(event, subject):
    if last and event == last[0][0] and last[0][1] in str(subject):
        last.pop(0)
        if not last:
            os.kill(os.getpid(), signal.SIGKILL)
if last:
    sys.addaudithook(see)
if any(event == "call" for event, _ in last):
    sys.setprofile(lambda frame, event, _: see(event, frame.f_code.co_name))
endpoints = start(Path(sys.argv[1]), LocalOptions(shared_root=Path(sys.argv[2])))
print(",".join(sorted(endpoints.started)), flush=True)
if sys.argv[3] == "stay":
    signal.pause()
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


def start_elsewhere(
    home: Path,
    options: LocalOptions,
    *,
    stay: bool = False,
    python_path: Path = REPOSITORY,
    last_steps: Sequence[str] = (),
) -> "subprocess.Popen[str]":
    """Start the servers from another process, which prints what it started, and then ends or stays.

    ``last_steps``: audit events of Python with a part of their arguments, or ``call NAME``, each after the one before; it is
    killed at the last.
    """
    words = [str(home), str(options.shared_root), "stay" if stay else "end", *last_steps]
    return subprocess.Popen(
        [sys.executable, "-c", _START, *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(python_path), str(REPOSITORY)])},
    )


def finish(process: "subprocess.Popen[str]") -> frozenset[str]:
    """Wait for a process of ``start_elsewhere`` and return the names it printed."""
    output, _ = process.communicate(timeout=scale_to_load(60))
    assert process.returncode == 0
    return frozenset(output.strip().split(",")) - {""}


def as_user(uid: int, gid: int, work: Callable[[], str]) -> str:
    """Do work in a child that is this user for good, and return its text.

    A fork, not a new program: the interpreter may be out of that user's reach.
    """
    readable, writable = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads; the child only does this
        child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            text = work()
        except BaseException as error:  # noqa: BLE001 - told to the parent, which fails the test with it
            text = f"{type(error).__name__}: {error}"
        os.write(writable, text.encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


def interrupt(process: "subprocess.Popen[str]") -> None:
    """Kill a process the hard way, and collect it."""
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=scale_to_load(10))
    assert process.stdout is not None
    process.stdout.close()
