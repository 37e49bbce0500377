"""Runs the tests that use servers over PostgreSQL 15 and Redis 7 as Debian 12 ships them: ``python -m tests.debian``.

It starts both from the distribution's binaries, on free loopback ports and in a directory that is deleted afterwards,
and ends with pytest's exit code; with 2 when a package is missing. What follows ``--`` goes to pytest.
"""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import redis

REPOSITORY = Path(__file__).resolve().parents[1]

POSTGRES_BIN = Path("/usr/lib/postgresql/15/bin")
VERSIONS = {"PostgreSQL": 15, "Redis": 7}
MISSING = 2

START_S = 60.0
STOP_S = 30.0

TESTS = (
    "tests/contract",
    "tests/integration",
    "tests/acceptance",
    # The embedded servers are what it says: not Debian's.
    "--ignore=tests/integration/local",
)


def main(arguments: Sequence[str]) -> int:
    """Run the tests; returns the exit code."""
    missing = missing_packages()
    if missing:
        sys.stderr.write(f"missing: apt-get install {' '.join(missing)}\n")
        return MISSING
    with running_servers() as environment:
        # Nobody else may decide where the tests go.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("NIGHTDESK_")}
        command = [sys.executable, "-m", "pytest", "-n", "0", *TESTS, *arguments]
        return subprocess.run(command, cwd=REPOSITORY, env={**inherited, **environment}, check=False).returncode


def missing_packages() -> list[str]:
    """The Debian packages whose programs are not there."""
    programs = {"postgresql-15": POSTGRES_BIN / "postgres", "redis-server": shutil.which("redis-server")}
    return [package for package, program in programs.items() if program is None or not Path(program).is_file()]


@contextmanager
def running_servers() -> Iterator[dict[str, str]]:
    """Both servers, as the variables that ``tests.servers`` reads."""
    with tempfile.TemporaryDirectory(prefix="nightdesk-debian-") as name:
        directory = Path(name)
        directory.chmod(0o711)  # PostgreSQL's account passes through to its own directory
        with _postgres(directory / "postgres") as database_url, _redis(directory / "redis") as redis_url:
            yield {"NIGHTDESK_TEST_DATABASE_URL": database_url, "NIGHTDESK_TEST_REDIS_URL": redis_url}


@contextmanager
def _postgres(directory: Path) -> Iterator[str]:
    account = _account()
    directory.mkdir(mode=0o700)
    if account:
        shutil.chown(directory, *account)
    password = secrets.token_urlsafe(16)
    password_file = directory / "password"
    password_file.write_text(password)
    if account:
        shutil.chown(password_file, *account)
    data = directory / "data"
    initdb: list[str | Path] = [
        POSTGRES_BIN / "initdb", "-D", data, "--username=postgres", f"--pwfile={password_file}",
        "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync",
    ]  # fmt: skip
    subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, **_as(account))
    port = free_port()
    command = [
        POSTGRES_BIN / "postgres", "-D", data, "-p", port, "-k", directory,
        # The disk's promise is not what is tested here.
        *("-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200", "-c", "fsync=off"),
    ]  # fmt: skip
    url = f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres"
    with _running("PostgreSQL", command, directory, lambda: _postgres_version(url), **_as(account)):
        yield url


@contextmanager
def _redis(directory: Path) -> Iterator[str]:
    directory.mkdir(mode=0o700)
    port = free_port()
    password = secrets.token_urlsafe(16)
    command = [
        "redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", directory, "--requirepass", password,
        *("--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"),
    ]  # fmt: skip
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    with _running("Redis", command, directory, lambda: _redis_version(url)):
        yield url


@contextmanager
def _running(
    name: str, command: Sequence[object], directory: Path, version: Callable[[], int | None], **options: Any
) -> Iterator[None]:
    """A server in the foreground of its own session, from when it answers until the block ends."""
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is pytest's, the servers end after it
            **options,
        )
    try:
        deadline = time.monotonic() + START_S
        while (running_version := version()) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name} does not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.05)
        if running_version != VERSIONS[name]:
            raise SystemExit(f"this is {name} {running_version}, not {VERSIONS[name]}")
        yield
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    # SIGINT is PostgreSQL's fast shutdown, and Redis ends by it too.
    process.send_signal(2)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_S)


def _postgres_version(url: str) -> int | None:
    try:
        with psycopg.connect(url, connect_timeout=2) as connection:
            return connection.info.server_version // 10_000
    except psycopg.OperationalError:
        return None


def _redis_version(url: str) -> int | None:
    try:
        with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
            return int(str(client.info("server")["redis_version"]).partition(".")[0])
    except redis.RedisError:
        return None


def _account() -> tuple[int, int] | None:
    """PostgreSQL refuses to run as root; its package's own account replaces root."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("postgres")
    return entry.pw_uid, entry.pw_gid


def _as(account: tuple[int, int] | None) -> dict[str, Any]:
    return {} if account is None else {"user": account[0], "group": account[1], "extra_groups": []}


def free_port() -> int:
    """A free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
