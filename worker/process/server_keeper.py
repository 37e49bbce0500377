"""Starts the embedded servers of a home again that have ended, while a worker of that home runs."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from celery import signals

from worker import local
from worker.local import Endpoints, LocalServerError
from worker.settings import Settings

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0
LOOKS = 2
"""A server has ended when so many looks in a row found no process of it: a command may be about to start it."""

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
"""Pause after a try; doubles each time, and is short again once the servers have run as long."""

STOP_S = 10.0
"""Seconds that a stopping worker waits for a start under way, so that ``nightdesk down`` finds what it started."""

TITLES = {"postgres": "PostgreSQL", "valkey": "Valkey"}


@contextmanager
def keep_servers(settings: Settings, where: Endpoints) -> Iterator[None]:
    """Keeps the embedded servers running until the worker is told to stop; does nothing for servers named by URL."""
    if not settings.embedded():
        yield
        return
    keeper = ServerKeeper(settings.home.absolute(), where)

    def stopping(**_: Any) -> None:
        # At once, not after the calls in flight: whoever stops the workers stops the servers next.
        keeper.stop()

    signals.worker_shutting_down.connect(stopping, weak=False)
    keeper.start()
    try:
        yield
    finally:
        signals.worker_shutting_down.disconnect(stopping)
        keeper.stop()
        keeper.join()


class ServerKeeper:
    """Looks after the servers of a home, in a thread of its own.

    Any number of workers and commands may do so at once: the home's lock lets one start a server, and the others find
    it running.
    """

    def __init__(self, home: Path, where: Endpoints) -> None:
        self._home = home
        self._where = where
        self._looks = 0
        self._pause_s = FIRST_PAUSE_S
        self._tried_at = float("-inf")
        self._known_causes: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server keeper", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Begins no further start; safe in a signal handler."""
        self._stop.set()

    def join(self) -> None:
        """Waits some seconds for a start under way."""
        self._thread.join(STOP_S)

    def _run(self) -> None:
        pause_s = LOOK_EVERY_S
        while not self._stop.wait(pause_s):
            try:
                pause_s = self.look()
            except Exception as error:
                # The night depends on this thread: it goes on after any error.
                if self._is_new(repr(error)):
                    log.exception("looking after the servers of %s broke; it goes on", self._home)
                pause_s = LONGEST_PAUSE_S

    def look(self) -> float:
        """Starts what has ended; returns the seconds until the next look."""
        ended = local.ended(self._home)
        if not ended:
            self._looks = 0
            if monotonic() - self._tried_at > LONGEST_PAUSE_S:
                self._pause_s = FIRST_PAUSE_S
                self._known_causes.clear()
            return LOOK_EVERY_S
        self._looks += 1
        if self._looks < LOOKS:
            return LOOK_EVERY_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._start_again(ended)
        self._tried_at = monotonic()
        return pause_s

    def _start_again(self, ended: frozenset[str]) -> None:
        try:
            where = local.start(self._home)
        except LocalServerError as error:
            # The first line is the cause; below it is the end of the server's log, with its times.
            cause = str(error).split("\n", 1)[0]
            if self._is_new(cause):
                log.warning(
                    "%s of this home had ended and can't be started (tried again, at most a minute apart): %s",
                    _titles(ended),
                    error,
                )
            return
        self._looks = 0
        if where.started:
            verb = "it is" if len(where.started) == 1 else "they are"
            log.warning("%s of this home had ended; %s started again", _titles(where.started), verb)
        moved = (where.database_url, where.redis_url) != (self._where.database_url, self._where.redis_url)
        if moved and self._is_new("another port"):
            log.error(
                "a server of this home has another port now, because another program took its own, and this worker can't reach"
                " it: 'nightdesk down', then 'nightdesk up'"
            )

    def _is_new(self, cause: str) -> bool:
        """Tells once that a cause is new: a start that fails is tried again every minute, all night."""
        new = cause not in self._known_causes
        self._known_causes.add(cause)
        return new


def _titles(names: frozenset[str]) -> str:
    return " and ".join(TITLES[name] for name in sorted(names))
