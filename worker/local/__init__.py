"""Runs a real PostgreSQL and a real Valkey under a home directory, without Docker, root or any set-up.

``start(home)`` returns their URLs, ``stop(home)`` ends them, ``status(home)`` looks, ``remove(home)`` deletes them.
The modules, from the outside in: ``servers`` (these four), ``launch`` (make one run and answer), ``postgres`` and
``valkey`` (what is particular to each, seen through ``server``), ``process`` (detached, recognised again),
``binaries`` and ``account`` (which program, as whom), ``home`` (paths, passwords, lock), ``ports``, ``files``,
``polling``; ``options`` go in, ``report`` and ``errors`` come out.
"""

from worker.local.errors import (
    BinariesError,
    HomeError,
    LocalServerError,
    StartError,
    StartTimeoutError,
    StopError,
)
from worker.local.options import LocalOptions
from worker.local.report import Endpoints, LocalStatus, ServerStatus
from worker.local.servers import remove, start, status, stop

__all__ = [
    "BinariesError",
    "Endpoints",
    "HomeError",
    "LocalOptions",
    "LocalServerError",
    "LocalStatus",
    "ServerStatus",
    "StartError",
    "StartTimeoutError",
    "StopError",
    "remove",
    "start",
    "status",
    "stop",
]
