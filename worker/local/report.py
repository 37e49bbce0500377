"""States what the public functions hand back: the servers' addresses and how they are."""

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Endpoints", "LocalStatus", "ServerStatus"]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the servers of a home listen; the URLs contain passwords, so repr leaves them out."""

    database_url: str = field(repr=False)
    """``postgresql://...`` as the role ``nightdesk``, which owns the database ``nightdesk`` and is no superuser."""
    redis_url: str = field(repr=False)
    """``redis://...``, database 0."""
    started: frozenset[str]
    """Which of ``postgres`` and ``valkey`` this call started; the others were running already."""
    admin_database_url: str = field(repr=False)
    """As the superuser, in the maintenance database ``postgres``: for backups and for making further databases."""


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One server as seen from outside."""

    running: bool
    answering: bool
    """Whether it serves clients; False with ``running`` while it starts or recovers."""
    pid: int | None
    port: int | None
    """The port it listens on, or last listened on; None when it never did."""
    data: Path
    log: Path


@dataclass(frozen=True, slots=True)
class LocalStatus:
    """Both servers of a home."""

    home: Path
    postgres: ServerStatus
    valkey: ServerStatus

    @property
    def running(self) -> bool:
        """Whether both run and answer."""
        return self.postgres.answering and self.valkey.answering
