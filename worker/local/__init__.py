"""Runs a real PostgreSQL and a real Valkey under a home directory, without Docker, root or any set-up.

``start(home)`` returns their URLs, ``stop(home)`` ends them, ``status(home)`` inspects them, ``remove(home)`` deletes
them. The modules, from the outside in: ``servers`` (these four functions), ``launch`` (starts one server and waits for
its answer), ``postgres`` and ``valkey`` (the two implementations of ``server``), ``process`` (detached processes and
their identity), ``binaries`` and ``account`` (the program and its account), ``home`` (paths, passwords, lock),
``ports``, ``files``, ``polling``; ``options`` are the input, ``report`` and ``errors`` the output.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

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


def start(home: Path, options: LocalOptions | None = None) -> Endpoints:
    """Starts what is not running of a home's servers; see ``servers.start``."""
    endpoints: Endpoints = _servers().start(home, options)
    return endpoints


def stop(home: Path, options: LocalOptions | None = None) -> frozenset[str]:
    """Stops the servers of a home; see ``servers.stop``."""
    stopped: frozenset[str] = _servers().stop(home, options)
    return stopped


def status(home: Path) -> LocalStatus:
    """Returns the status of a home's servers without any change; see ``servers.status``."""
    report: LocalStatus = _servers().status(home)
    return report


def remove(home: Path, options: LocalOptions | None = None) -> None:
    """Stops the servers of a home and delete their data; see ``servers.remove``."""
    _servers().remove(home, options)


def _servers() -> Any:
    # Imported on demand: it loads both servers' clients, and the help needs only this package's errors.
    return import_module("worker.local.servers")
