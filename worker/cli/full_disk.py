"""Names a full disk where a service that lacks it only ends connections, and files can't be written."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from tasks.errors import LedgerError, ServiceUnavailable
from worker.local import LocalServerError
from worker.operations.free_disk import full_disk_line
from worker.settings import Settings


class DiskFull(ServiceUnavailable):
    """The disk of the embedded servers has no room; what is stored stays."""


@contextmanager
def naming_full_disk(settings: Settings) -> Iterator[None]:
    """Raises ``DiskFull`` in place of what a full disk led to."""
    try:
        yield
    except (ServiceUnavailable, LedgerError, LocalServerError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        if not (line := full_disk_line(settings)):
            raise
        raise DiskFull(line) from error
