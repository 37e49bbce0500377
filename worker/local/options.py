"""Holds what a caller may change about the embedded servers; every value has a default that works."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["LocalOptions"]


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Choices for ``start``; the defaults suit a developer's machine and a container alike.

    ``run_as`` and ``shared_root`` count only when the caller is root, and only until the data exists: afterwards
    the servers run as the owner of their data, where it is.
    """

    run_as: str | None = None
    """Account the servers run under; None is the owner of home, or ``nobody`` when that is root."""
    shared_root: Path = Path("/var/lib/nightdesk")
    """Where data and programs go when that account cannot reach home or the installed wheels."""
    start_s: float = 60.0
    """Seconds a start may take in all: waiting for another start, then for each server to answer."""
    stop_s: float = 30.0
    """Seconds both servers together may take to end."""
