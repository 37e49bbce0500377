"""Writes an output file so that it is there whole or not at all."""

import gzip
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tasks.errors import InputError
from worker.cli.exits import OutputFailed

STDOUT = "-"


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


@contextmanager
def writing(name: str) -> Iterator[IO[bytes]]:
    """A file to write to that takes its name only when the work on it succeeded; packed when it ends in ``.gz``.

    Standard output, devices and pipes are written to as they are. Raises ``OutputFailed``.
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
        else:
            with _draft(path) as file:
                yield file
    except OSError as error:
        raise OutputFailed(f"{name} can't be written: {error}") from error


@contextmanager
def _draft(path: Path) -> Iterator[IO[bytes]]:
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            if path.suffix == ".gz":
                packed = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6)
                with io.BufferedWriter(packed) as buffered:
                    yield buffered
            else:
                yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
