"""The directory that all processes of a test run share, gone with the run."""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

from tests.left_homes import watch

VARIABLE = "NIGHTDESK_TEST_RUN"
"""Names the directory."""
_MEMORY = Path("/dev/shm")
"""A file system in memory, where Linux has one."""
_FILES_BYTES = 4 << 30
"""Several times the most that the homes of a run hold at once."""
_AVAILABLE_BYTES = 8 << 30
"""The least available memory of a machine that has some to spare for files."""


def share_directory() -> None:
    """Make the directory, unless a process that started this one did; it goes with the process that made it."""
    if VARIABLE in os.environ:
        return
    directory = tempfile.mkdtemp(prefix="nightdesk-tests-", dir=parent_of_homes())
    Path(directory).chmod(0o755)
    os.environ[VARIABLE] = directory
    watch(Path(directory))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # a fork server may end at the same moment


@cache
def parent_of_homes() -> Path | None:
    """A directory in memory for homes of which no test's subject is the disk; None for the usual one.

    A new database is 300 files, and a home a thousand: a disk's file system takes some 30 s of CPU for those of one run.
    """
    if not os.access(_MEMORY, os.W_OK) or os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        return None
    free = os.statvfs(_MEMORY).f_bavail * os.statvfs(_MEMORY).f_frsize
    return _MEMORY if free >= _FILES_BYTES and psutil.virtual_memory().available >= _AVAILABLE_BYTES else None


@contextmanager
def home_directory() -> Iterator[Path]:
    """A directory for a home, which the servers' account can pass through; gone afterwards.

    As root, pytest's own lies below a closed one: the servers' data would be put elsewhere, on the disk.
    """
    with tempfile.TemporaryDirectory(prefix="nightdesk-test-", dir=parent_of_homes()) as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


def shared_directory() -> Path | None:
    """The directory; None outside of pytest."""
    return Path(os.environ[VARIABLE]) if VARIABLE in os.environ else None


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """A lock of the run; the first who has it makes what all share."""
    directory = shared_directory()
    assert directory is not None
    with (directory / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
