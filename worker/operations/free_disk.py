"""Looks at the free disk of the embedded PostgreSQL, and says when it is nearly or wholly used up."""

import shutil

from worker import local
from worker.settings import Settings

LEAST_FREE = 200_000_000
"""Free bytes below which a running PostgreSQL is near its end."""

FULL = 20_000_000
"""Free bytes below which it can't write: its log grows by files of 16 MB."""


def low_disk_line(settings: Settings, free: int | None = None) -> str:
    """A warning that the disk of the embedded PostgreSQL is nearly full; else empty."""
    free = _below(LEAST_FREE, settings, free)
    if free is None:
        return ""
    return (
        f"only {megabytes(free)} are free on the disk of {settings.home}: a PostgreSQL without room stops, and the jobs wait. "
        "Make room; no job is lost"
    )


def full_disk_line(settings: Settings) -> str:
    """The words for a disk without room for the embedded PostgreSQL to write at all; else empty."""
    free = _below(FULL, settings)
    if free is None:
        return ""
    return (
        f"the disk of {settings.home} is full ({megabytes(free)} free), so nothing can be stored: make room there. "
        "PostgreSQL then starts again within a minute where workers of this home run, else with 'nightdesk up'. No job is lost"
    )


def _below(least: int, settings: Settings, free: int | None = None) -> int | None:
    """The free bytes of the embedded PostgreSQL where they are fewer than so many; else None."""
    if not settings.embedded():
        return None
    free = free_bytes(settings) if free is None else free
    return free if free < least else None


def free_bytes(settings: Settings) -> int:
    """Free bytes where the embedded PostgreSQL keeps its data, or will."""
    path = local.status(settings.home.expanduser().absolute()).postgres.data
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


def megabytes(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 1e6:,.0f} MB"
