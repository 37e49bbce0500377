"""The options of the embedded servers; every default works."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["LocalOptions"]


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """Choices for ``start``; the defaults suit a developer's machine and a container alike.

    ``run_as`` and ``shared_root`` apply only if the caller is root, and only until the data exists. After that the
    servers run as the owner of their data, in its place.
    """

    run_as: str | None = None
    """The servers' account; None means the owner of home, or ``nobody`` if that is root."""
    shared_root: Path = Path("/var/lib/nightdesk")
    """Directory for data and programs if that account cannot reach home or the installed wheels."""
    start_s: float = 60.0
    """Most seconds of a start in all: waiting for another start, then for each server's answer."""
    stop_s: float = 30.0
    """Most seconds for both servers to end."""
