"""Writes what a caller sends to a file, unpacked where it is gzip, within bounds of bytes and lines."""

import zlib
from typing import IO, Any

from tasks.errors import InputError

GZIP = b"\x1f\x8b"

STEP_BYTES = 1_000_000
"""Most bytes that are unpacked at a time: a piece may hold a thousand times its size."""


class TooLarge(InputError):
    """The content is larger than is taken."""


class DamagedGzip(InputError):
    """The content can't be unpacked."""


def too_many_lines(most: int) -> InputError:
    """The refusal of more lines than are taken; blank ones cost time, too."""
    return InputError(
        f"there are more than {most:,} lines, blank ones included; submit several batches. Nothing was accepted"
    )


class UnpackedFile:
    """A file that counts what it holds: a small piece of gzip may hold any number of bytes, and of lines."""

    def __init__(self, file: IO[bytes], most_bytes: int, most_lines: int) -> None:
        self._file = file
        self._most_bytes = most_bytes
        self._most_lines = most_lines
        self._lines = 0
        self._unpacker: Any = None
        self.size = 0
        """Unpacked."""

    def write(self, piece: bytes) -> bytes:
        """Writes a piece, of gzip no more than a step; returns the rest, which comes next. Raises ``InputError``, ``OSError``."""
        if not self.size and self._unpacker is None and piece.startswith(GZIP):
            self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        if self._unpacker is None:
            self._keep(piece)
            return b""
        try:
            self._keep(self._unpacker.decompress(piece, STEP_BYTES))
        except zlib.error:
            raise DamagedGzip("it is gzip that is damaged; pack it anew") from None
        if not self._unpacker.eof:
            rest: bytes = self._unpacker.unconsumed_tail
            return rest
        # Files that were joined: each has a head of its own.
        rest = self._unpacker.unused_data
        self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16) if rest else self._unpacker
        return rest

    def end(self) -> None:
        """Writes what is in memory still; raises as ``write`` does."""
        if self._unpacker is not None and not self._unpacker.eof:
            raise DamagedGzip("it ends amid its gzip; send it whole")
        self._file.flush()

    def _keep(self, content: bytes) -> None:
        self.size += len(content)
        self._lines += content.count(b"\n")
        if self.size > self._most_bytes:
            raise TooLarge(f"it is larger than the {self._most_bytes:,} bytes that are taken; send less at a time")
        if self._lines > self._most_lines:
            raise too_many_lines(self._most_lines)
        self._file.write(content)
