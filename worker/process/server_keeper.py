"""Starts the embedded servers of a home again that have ended, while a worker of that home runs."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from celery import signals

from worker import local
from worker.local import Endpoints, LocalServerError
from worker.settings import Settings

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0

AFTER_START_S = 15.0
"""Pause after a start, which may fail, or whose server may end again."""

STOP_S = 10.0
"""Seconds that a stopping worker waits for a start under way, so that ``nightdesk down`` finds what it started."""

TITLES = {"postgres": "PostgreSQL", "valkey": "Valkey"}


@contextmanager
def keep_servers(settings: Settings, where: Endpoints) -> Iterator[None]:
    """Keeps the embedded servers running until the worker is told to stop; does nothing for servers named by URL.

    Any number of workers and commands may do so at once: the home's lock lets one start a server, and the others find it running.
    """
    if not settings.embedded():
        yield
        return
    stop = threading.Event()

    def stopping(**_: Any) -> None:
        # At once, not after the calls in flight: whoever stops the workers stops the servers next.
        stop.set()

    signals.worker_shutting_down.connect(stopping, weak=False)
    arguments = (settings.home.absolute(), where, stop)
    thread = threading.Thread(target=_keep, args=arguments, name="server keeper", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signals.worker_shutting_down.disconnect(stopping)
        stop.set()
        thread.join(STOP_S)


def _keep(home: Path, where: Endpoints, stop: threading.Event) -> None:
    pause_s, ended = LOOK_EVERY_S, frozenset[str]()
    while not stop.wait(pause_s):
        pause_s, ended_before = LOOK_EVERY_S, ended
        try:
            ended = local.ended(home)
            # Found so twice: a command may be about to start it.
            if ended & ended_before:
                pause_s, ended = AFTER_START_S, frozenset()
                _start_again(home, where)
        except LocalServerError as error:
            log.warning(
                "a server of this home has ended and can't be started (tried again in %.0f s): %s", pause_s, error
            )
        except Exception:
            # The night depends on this thread: it goes on after any error.
            log.exception("looking after the servers of %s broke; it goes on", home)


def _start_again(home: Path, where: Endpoints) -> None:
    now = local.start(home)
    for name in sorted(now.started):
        log.warning("%s of this home had ended, and is started again", TITLES[name])
    if (now.database_url, now.redis_url) != (where.database_url, where.redis_url):
        log.error(
            "a server of this home has another port now, because another program took its own, and this worker can't reach"
            " it: 'nightdesk down', then 'nightdesk up'"
        )
