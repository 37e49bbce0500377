"""Makes one server run and answer from any state before: running, crashed, half started, or never started."""

import logging
from pathlib import Path

import psutil

from worker.local.account import Account
from worker.local.errors import HomeError, StartError, StartTimeoutError
from worker.local.home import Home
from worker.local.ports import LOOPBACK, claim_port, is_free, stored_port
from worker.local.server import Server
from worker.supervise.files import tail
from worker.supervise.processes import ProcessError, find_or_wait, hold_guard, is_alive, poll, seconds_left, spawn

__all__ = ["ensure_running"]

_log = logging.getLogger(__name__)

_PORT_TRIES = 3
"""Most starts of one server if other programs take its port each time."""
_PORT_LOSS_S = 2.0
"""Seconds; a server that loses its port ends much sooner, on a slow machine too."""


def ensure_running(server: Server, place: Home, account: Account, deadline: float) -> bool:
    """Makes one server run and answer; returns True if this call started it."""
    # A locked guard without a visible server: a server is starting (its starter died), or its children are ending.
    running = find_or_wait(server.identity, seconds_left(deadline))
    if running is not None:
        port = stored_port(place.ports, server.name)
        if port is None:
            raise HomeError(
                f"{server.name} runs (process {running.pid}) but {place.ports} does not say on which port: stop the "
                f"servers of this home and start them again."
            )
        _await_answer(server, running, port, deadline, fresh=False)
        return False
    for _ in range(_PORT_TRIES):
        with hold_guard(server.identity, seconds_left(deadline)) as guard:
            port = claim_port(place.ports, server.name)
            server.prepare(port, account, guard)
            process = _spawn(server, account, guard)
        if _await_answer(server, process, port, deadline, fresh=True):
            _log.info("started %s on port %d", server.name, port)
            return True
    raise StartError(f"{server.name} lost {_PORT_TRIES} ports in a row to other programs: try again.")


def _spawn(server: Server, account: Account, guard: int) -> psutil.Process | None:
    try:
        return spawn(
            server.command(),
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
    log_end = f"The end of {server.log}:\n{tail(server.log)}"
    if outcome == "ended" or process is None:
        raise StartError(f"{server.name} ended while starting. Fix the cause in its log, then start again. {log_end}")
    raise StartTimeoutError(
        f"{server.name} (process {process.pid}) does not answer on {LOOPBACK}:{port} yet. If it is recovering after a "
        f"crash, start again to continue to wait. {log_end}"
    )
