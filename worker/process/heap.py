"""Keeps the memory of a worker from falling to pieces: settings of the C library's allocator, and free pages given back."""

import ctypes
import logging
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
"""Names of ``mallopt`` in glibc's malloc.h."""

BIG_BLOCK = 64 * 1024
"""Bytes from which a block is mapped by itself and goes back to the system when it is freed. Left alone, glibc raises its own
128 KiB to the largest block that was ever freed, and the bodies and pages of jobs then leave holes between what stays."""
ARENAS = 2
"""Heaps of all threads together: Python runs one thread at a time, so that more of them only hold more free memory."""
TRIM_EVERY_S = 30.0


@contextmanager
def tidy_heap() -> Iterator[None]:
    """Sets the allocator of this process for good, and gives free pages back meanwhile; nothing without glibc."""
    library = _glibc()
    if library is None:
        yield
        return
    bound_fragmentation(library)
    ended = threading.Event()
    trimming = threading.Thread(target=_trim, args=(library, ended), name="heap", daemon=True)
    trimming.start()
    try:
        yield
    finally:
        ended.set()
        # A thread that comes back from the library while the interpreter ends can hold up its end.
        trimming.join()


def bound_fragmentation(library: ctypes.CDLL) -> None:
    """Sets the allocator of this process."""
    options = ((_M_MMAP_THRESHOLD, BIG_BLOCK), (_M_TRIM_THRESHOLD, 2 * BIG_BLOCK), (_M_ARENA_MAX, ARENAS))
    accepted = [library.mallopt(option, value) == 1 for option, value in options]
    if not all(accepted):
        log.warning(
            "the C library did not take the settings of its allocator: the worker uses more memory, nothing else"
        )


def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


def _trim(library: ctypes.CDLL, ended: threading.Event) -> None:
    # Holes of whole pages lie between small blocks that stay; freeing a block never gives those back.
    while not ended.wait(TRIM_EVERY_S):
        library.malloc_trim(0)
