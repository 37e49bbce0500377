"""Opens every output of a command: a file is there whole or not at all, and no other output is lost for it."""

import gzip
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path
from typing import IO
from uuid import UUID

from tasks.errors import InputError
from worker.cli.exits import OutputFailed
from worker.cli.terminal import tell

STDOUT = "-"

BLOCK_BYTES = 256 * 1024
"""Bytes of a file that are written at once."""


def check_output(name: str, inputs: Sequence[str] = ()) -> None:
    """Raises ``InputError`` for an output that could not be written, before anything is started."""
    if name == STDOUT:
        return
    path = Path(name)
    if path.is_dir():
        raise InputError(f"{name} is a directory; name a file for the results")
    directory = path.resolve().parent
    if not directory.is_dir():
        raise InputError(f"{name} can't be written: there is no directory {directory}")
    if not os.access(directory, os.W_OK):
        raise InputError(f"{name} can't be written: permission denied in {directory}")
    if path.exists() and any(Path(source).exists() and path.samefile(source) for source in inputs):
        raise InputError(f"{name} is an input too; the results would replace it")


def is_replaced(name: str) -> bool:
    """Tells a file, renamed when complete, from an output that is read line by line."""
    path = Path(name)
    return name != STDOUT and (path.is_file() or not path.exists())


def previous_name(path: Path) -> Path:
    """The name that a file of results gets when those of another batch take its place; none that is taken already.

    >>> previous_name(Path("answers.jsonl.gz")).name
    'answers.previous.jsonl.gz'
    """
    stem, dot, suffixes = path.name.partition(".") if not path.name.startswith(".") else (path.name, "", "")
    numbers = chain([""], (f"-{number}" for number in count(2)))
    places = (path.with_name(f"{stem}.previous{number}{dot}{suffixes}") for number in numbers)
    return next(place for place in places if not place.exists())


def keep_previous(path: Path, batch_id: UUID | None) -> Path | None:
    """Gives a file of anything but this batch another name, and says so; returns that, or None where nothing is lost."""
    if not path.is_file() or not path.stat().st_size:
        return None
    if batch_id is not None and str(batch_id).encode() in _head_of(path):
        return None
    path.replace(place := previous_name(path))
    tell(f"{path.name} held something else; that is in {place.name} now")
    return place


def _head_of(path: Path) -> bytes:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except (EOFError, gzip.BadGzipFile):
        return b""


_HEAD_BYTES = 200_000
"""The part of a file in which its batch is looked for."""


@contextmanager
def writing(name: str, batch_id: UUID | None = None) -> Iterator[IO[bytes]]:
    """A file to write to that takes its name only when the work on it succeeded; packed when it ends in ``.gz``.

    Standard output, devices and pipes are written to as they are.

    Args:
        name: of the file, or ``-``.
        batch_id: the batch whose results or report this is: an earlier file of the same is replaced. Any other file, and
            with None every one, gets another name first.

    Raises: OutputFailed.
    """
    if name == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # Through a link to what it names; renaming over the link itself would replace it.
    path = Path(name).resolve()
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        draft = draft_of(path)
        try:
            with draft.open("wb", buffering=BLOCK_BYTES) as file:
                if path.suffix == ".gz":
                    packed = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6)
                    with io.BufferedWriter(packed, BLOCK_BYTES) as buffered:
                        yield buffered
                else:
                    yield file
                file.flush()
                os.fsync(file.fileno())
            keep_previous(path, batch_id)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise OutputFailed(f"{name} can't be written: {error.strerror or error}") from error


def draft_of(path: Path) -> Path:
    """The name of a file until it takes its own."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")
