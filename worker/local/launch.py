"""Makes one server run and answer from any state before: running, crashed, half started, or never started."""

import logging

import psutil

from worker.local.account import Account
from worker.local.errors import HomeError, StartError, StartTimeoutError
from worker.local.files import tail
from worker.local.home import Home
from worker.local.polling import poll, seconds_left
from worker.local.ports import LOOPBACK, claim_port, is_free, stored_port
from worker.local.process import find, guard_is_free, hold_guard, is_alive, spawn
from worker.local.server import Server

__all__ = ["ensure_running"]

_log = logging.getLogger(__name__)

_PORT_TRIES = 3
"""Most starts of one server if other programs take its port each time."""
_PORT_LOSS_S = 2.0
"""Seconds; a server that loses its port ends much sooner, on a slow machine too."""


def ensure_running(server: Server, place: Home, account: Account, deadline: float) -> bool:
    """Makes one server run and answer; returns True if this call started it."""
    # A locked guard without a visible server: a server is starting (its starter died), or its children are ending.
    running = poll(lambda: find(server.identity) or guard_is_free(server.identity), seconds_left(deadline))
    if isinstance(running, psutil.Process):
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
            process = spawn(server.command(), account, server.log, guard)
        if _await_answer(server, process, port, deadline, fresh=True):
            _log.info("started %s on port %d", server.name, port)
            return True
    raise StartError(f"{server.name} lost {_PORT_TRIES} ports in a row to other programs: try again.")


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
