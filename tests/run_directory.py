"""The directory that all processes of a test run share, gone with the run."""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.left_homes import watch

VARIABLE = "NIGHTDESK_TEST_RUN"
"""Names the directory."""


def share_directory() -> None:
    """Make the directory, unless a process that started this one did; it goes with the process that made it."""
    if VARIABLE in os.environ:
        return
    directory = tempfile.mkdtemp(prefix="nightdesk-tests-")
    Path(directory).chmod(0o755)
    os.environ[VARIABLE] = directory
    watch(Path(directory))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)  # a fork server may end at the same moment


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
