"""Starts, stops and inspects the two servers of a home, from any state: running, crashed, half started, never started."""

import logging
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import psutil

from worker.local import (
    Endpoints,
    HomeError,
    LocalOptions,
    LocalServerError,
    LocalStatus,
    ServerStatus,
    StartError,
    StartTimeoutError,
    StopError,
)
from worker.local.home import LOOPBACK, Home, Passwords, is_free
from worker.local.postgres_server import DATABASE, ROLE, SUPERUSER, PostgresServer
from worker.local.programs import Account, Binaries, find_binaries
from worker.local.valkey_server import ValkeyServer
from worker.supervise.files import tail
from worker.supervise.processes import (
    ProcessError,
    find,
    find_or_wait,
    hold_guard,
    is_alive,
    poll,
    seconds_left,
    send_signal,
    spawn,
)

_log = logging.getLogger(__name__)

_PORT_TRIES = 3
"""Most starts of one server if other programs take its port each time."""
_PORT_LOSS_S = 2.0
"""Seconds; a server that loses its port ends much sooner, on a slow machine too."""


Server = PostgresServer | ValkeyServer


def start(path: Path, options: LocalOptions | None = None) -> Endpoints:
    """Starts a home's PostgreSQL and Valkey unless they are running, and returns when both answer.

    The servers outlive the caller. Another call from anywhere finds them; simultaneous calls wait for each other. A
    crashed server starts again and recovers its data.

    After a failure the servers that this call started are stopped, except a server that is still recovering.

    Raises: LocalServerError with the remedy and the end of the server's log.
    """
    options = options or LocalOptions()
    deadline = time.monotonic() + options.start_s
    home = Home.at(path)
    home.create()
    with home.lock(options.start_s):
        account = home.prepare_data(options)
        passwords = home.passwords()
        home.data_directory("valkey", account)

        @cache
        def programs() -> Binaries:
            """The programs, tried out: three processes, which a command beside servers that run does without."""
            home.check_reach(account)
            return find_binaries(account, options.shared_root)

        started: list[Server] = []
        try:
            for server in _servers(home, passwords):
                if _ensure_running(server, home, account, programs, deadline):
                    started.append(server)  # noqa: PERF401 - a failure must find what came before it in the list
        except BaseException:
            _abandon(started, options.stop_s)
            raise
        return _endpoints(home, passwords, frozenset(server.name for server in started))


def stop(path: Path, options: LocalOptions | None = None) -> frozenset[str]:
    """Stops the servers of a home cleanly and returns the names of the servers that were running.

    Open connections are closed and their transactions rolled back. Without a running server it does nothing.

    Raises: StopError with the process that did not end in time; HomeError if the home is not the caller's.
    """
    options = options or LocalOptions()
    home = Home.at(path)
    if not home.exists():
        return frozenset()
    with home.lock(options.stop_s):
        return _stop(_known_servers(home), options.stop_s)


def status(path: Path) -> LocalStatus:
    """The status of the servers of a home; changes nothing and does not even create the directory.

    Raises: HomeError if the home is not the caller's.
    """
    home = Home.at(path)
    present = home.exists()
    postgres, valkey = (_look(server, home, present=present) for server in _known_servers(home))
    return LocalStatus(home=home.root, postgres=postgres, valkey=valkey)


def ended(path: Path) -> frozenset[str]:
    """Returns the names of the servers that have data in this home and no process; connects to nothing.

    Raises: HomeError if the home is not the caller's.
    """
    home = Home.at(path)
    if not home.exists():
        return frozenset()
    servers = [server for server in _known_servers(home) if server.directory.is_dir()]
    return frozenset(server.name for server in servers if find(server.identity) is None)


def _known_servers(home: Home) -> Sequence[Server]:
    """Returns both servers, for finding and stopping them, which takes no passwords."""
    try:
        return _servers(home, home.passwords(create=False))
    except HomeError:
        return _servers(home, Passwords("", "", ""))


def _servers(home: Home, passwords: Passwords) -> Sequence[Server]:
    data = home.data.resolve()
    return (
        PostgresServer(
            directory=data / "postgres",
            guard=home.local / "postgres.guard",
            log=home.logs / "postgres.log",
            superuser_password=passwords.postgres_superuser,
            password=passwords.postgres,
        ),
        ValkeyServer(
            directory=data / "valkey",
            guard=home.local / "valkey.guard",
            log=home.logs / "valkey.log",
            password=passwords.valkey,
        ),
    )


def _ensure_running(
    server: Server, home: Home, account: Account, programs: Callable[[], Binaries], deadline: float
) -> bool:
    """Makes one server run and answer; returns True if this call started it.

    ``programs`` is called only for a start.
    """
    running = find_or_wait(server.identity, seconds_left(deadline))
    if running is not None:
        port = home.port(server.name)
        if port is None:
            raise HomeError(
                f"{server.name} runs (process {running.pid}) but {home.ports} does not say on which port: stop the "
                f"servers of this home and start them again."
            )
        _await_answer(server, running, port, deadline, fresh=False)
        return False
    binaries = programs()
    for _ in range(_PORT_TRIES):
        with hold_guard(server.identity, seconds_left(deadline)) as guard:
            port = home.claim_port(server.name)
            server.prepare(port, account, guard, binaries)
            process = _spawn(server, account, guard, binaries)
        if _await_answer(server, process, port, deadline, fresh=True):
            _log.info("started %s on port %d", server.name, port)
            return True
    raise StartError(f"{server.name} lost {_PORT_TRIES} ports in a row to other programs: try again.")


def _spawn(server: Server, account: Account, guard: int, binaries: Binaries) -> psutil.Process | None:
    try:
        return spawn(
            server.command(binaries),
            server.log,
            guard,
            directory=Path("/"),  # pins no mount
            environment=account.environment,
            account=(account.uid, account.gid) if account.switch else None,
            umask=0o077,
        )
    except ProcessError as error:
        raise StartError(
            f"{error}. It was to run as '{account.name}': PostgreSQL refuses to run as root, so the caller must be a normal "
            f"user, or root with the right to become one."
        ) from error


def _await_answer(server: Server, process: psutil.Process | None, port: int, deadline: float, *, fresh: bool) -> bool:
    """Waits until a server answers; False for a new server that ended because another program has its port."""

    def look() -> str | None:
        if process is None or not is_alive(process):
            return "ended"
        return "answers" if server.answers(port) else None

    try:
        outcome = poll(look, seconds_left(deadline))
    except StartError:
        # Another program may have the port and refuse the password; the new server then ends in a moment.
        if not fresh or not poll(lambda: process is None or not is_alive(process), _PORT_LOSS_S):
            raise
        outcome = "ended"
    if outcome == "answers":
        server.settle(port)
        return True
    if outcome == "ended" and fresh and not is_free(port):
        return False
    if outcome == "ended" or process is None:
        raise StartError(why_it_ended(server.name, server.log))
    raise StartTimeoutError(
        f"{server.name} (process {process.pid}) does not answer on {LOOPBACK}:{port} yet. If it is recovering after a "
        f"crash, start again to continue to wait. The end of {server.log}:\n{tail(server.log)}"
    )


_FULL = "No space left on device"


def why_it_ended(name: str, log: Path) -> str:
    """The message about a server that ended while starting: a full disk in one sentence, else the end of its log."""
    end = tail(log)
    if _FULL in end:
        return (
            f"{name} ended while starting, because the disk of {log.parent} is full: make room there. Nothing that was stored "
            "is lost"
        )
    return f"{name} ended while starting. Fix the cause in its log, then start again. The end of {log}:\n{end}"


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


def _look(server: Server, home: Home, *, present: bool) -> ServerStatus:
    process = find(server.identity) if present else None
    port = home.port(server.name) if present else None
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


def _endpoints(home: Home, passwords: Passwords, started: frozenset[str]) -> Endpoints:
    postgres = f"{LOOPBACK}:{home.port('postgres')}"
    valkey = f"{LOOPBACK}:{home.port('valkey')}"
    return Endpoints(
        database_url=f"postgresql://{ROLE}:{passwords.postgres}@{postgres}/{DATABASE}",
        redis_url=f"redis://:{passwords.valkey}@{valkey}/0",
        started=started,
        admin_database_url=f"postgresql://{SUPERUSER}:{passwords.postgres_superuser}@{postgres}/postgres",
    )
