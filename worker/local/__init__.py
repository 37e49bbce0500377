"""Runs a real PostgreSQL and a real Valkey under a home directory, without Docker, root or any set-up.

``start(home)`` returns their URLs, ``stop(home)`` ends them, ``status(home)`` and ``ended(home)`` inspect them. The modules,
from the outside in: ``servers`` (these four functions), ``postgres_server`` and ``valkey_server``
(configuration and health of each), ``home`` (paths, ports, passwords, lock), ``programs`` (the programs and their
account). ``worker.supervise`` starts and recognises their processes.
"""

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any


class LocalServerError(Exception):
    """The base of all errors of the embedded PostgreSQL and Valkey."""


class BinariesError(LocalServerError):
    """A server's program is missing, or the servers' account cannot execute it."""


class HomeError(LocalServerError):
    """The home directory is not usable: wrong owner, locked for too long, secrets lost, data of another home."""


class StartError(LocalServerError):
    """A server refused to start; the message includes the end of its log."""


class StartTimeoutError(StartError):
    """A server is alive but not ready in time; it keeps running, and another ``start`` continues to wait."""


class StopError(LocalServerError):
    """A server did not end in time; the message names its process id."""


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Choices for ``start``; the defaults suit a developer's machine and a container alike.

    ``shared_root`` applies only if the caller is root, and only until the data exists. After that the servers run as the
    owner of their data, in its place.
    """

    shared_root: Path = Path("/var/lib/nightdesk")
    """Directory for data and programs if that account cannot reach home or the installed wheels."""
    start_s: float = 60.0
    """Most seconds of a start in all: waiting for another start, then for each server's answer."""
    stop_s: float = 30.0
    """Most seconds for both servers to end."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The URLs of PostgreSQL and Redis, embedded or not; they contain passwords, so repr omits them."""

    database_url: str = field(repr=False)
    """Of the ledger; embedded, its role ``nightdesk`` owns the database ``nightdesk`` and is no superuser."""
    redis_url: str = field(repr=False)
    started: frozenset[str] = frozenset()
    """Names of the embedded servers (``postgres``, ``valkey``) that this call started; the others were running already."""
    admin_database_url: str | None = field(default=None, repr=False)
    """URL of the embedded superuser for the maintenance database ``postgres``, for backups and for more databases."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The status of one server."""

    running: bool
    answering: bool
    """True if it serves clients; False with ``running`` while it starts or recovers."""
    pid: int | None
    port: int | None
    """Its current or last port; None if it never had one."""
    data: Path
    log: Path


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """The status of both servers of a home."""

    home: Path
    postgres: ServerStatus
    valkey: ServerStatus

    @property
    def running(self) -> bool:
        """True if both run and answer."""
        return self.postgres.answering and self.valkey.answering


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


def ended(home: Path) -> frozenset[str]:
    """Returns the names of the servers of a home that have ended; see ``servers.ended``."""
    names: frozenset[str] = _servers().ended(home)
    return names


def _servers() -> Any:
    # Imported on demand: it loads both servers' clients, and the help needs only this package's errors.
    return import_module("worker.local.servers")
