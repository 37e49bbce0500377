"""Touches a file while the event loop runs, so that a health check is a look at the time of a file."""

import asyncio
import logging
from pathlib import Path
from tempfile import TemporaryFile

from tasks.errors import ConfigurationError

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""A health check that allows a minute allows for five touches that come late."""


def prepare(path: Path) -> None:
    """Removes the file of an earlier process, which would look alive; raises ``ConfigurationError``.

    What can be written is tried on a neighbour: the file itself would say that the worker lives before its loop runs.
    """
    try:
        path.unlink(missing_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"NIGHTDESK_ALIVE_FILE: {path} can't be written ({error.strerror}); name a file in a folder that can be, or mount a tmpfs there"
        ) from error


async def keep_fresh(path: Path) -> None:
    """Touches the file until cancelled; one that can't be touched is a failed health check, and says why in the log."""
    failing = False
    while True:
        try:
            await asyncio.to_thread(path.touch)
            failing = False
        except OSError as error:
            if not failing:
                log.warning("the health check will fail: %s can't be written: %s", path, error.strerror)
            failing = True
        await asyncio.sleep(EVERY_S)
