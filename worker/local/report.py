"""The results of the public functions: the servers' addresses and their status."""

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Endpoints", "LocalStatus", "ServerStatus"]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The URLs of the servers of a home; they contain passwords, so repr omits them."""

    database_url: str = field(repr=False)
    """``postgresql://...`` as the role ``nightdesk``, which owns the database ``nightdesk`` and is no superuser."""
    redis_url: str = field(repr=False)
    """``redis://...``, database 0."""
    started: frozenset[str]
    """Names of the servers (``postgres``, ``valkey``) that this call started; the others were running already."""
    admin_database_url: str = field(repr=False)
    """URL of the superuser for the maintenance database ``postgres``, for backups and for more databases."""


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
