"""Reads jobs from JSON-lines files as a stream; says of each bad line where it stands and what is wrong."""

import gzip
import io
import os
import shutil
import stat
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import orjson

from schemas.job import MAX_LINE_BYTES
from schemas.states import Step
from tasks.errors import InputError
from tasks.ports import Catalog, Everything, NewBatch, NewJob, Refused
from tasks.submission.supplied import as_check_only
from tasks.submit import check_served, new_job, parse_request

STDIN = "-"
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_GZIP = b"\x1f\x8b"

SMALL = 50
"""Jobs; a submission up to this size is hinted at once."""

_SKIPPED_BYTES = 1_000_000
"""Read at a time of what is left of a line that is too long."""


@dataclass(slots=True)
class Intake:
    """The jobs of some files, in order; afterwards, what was found on the way.

    A job's position is that of its line among the lines that are not blank, over all files; so line N of the output
    answers the Nth such line of the input.
    """

    files: Sequence[str]
    batch: NewBatch
    strict: bool
    bad_line: Callable[[Refused], None]
    """Told of each bad line as it is met."""
    check_only: bool = False
    """Each line holds an answer to check."""
    catalog: Catalog = field(default_factory=Everything)
    """What the installation serves."""
    lines: int = 0
    accepted: int = 0
    bad: list[Refused] = field(default_factory=list)
    warnings: Counter[str] = field(default_factory=Counter)
    first: dict[UUID, Step] = field(default_factory=dict)
    """The first ``SMALL`` jobs and the step they begin with."""
    _taken: dict[tuple[str, str], str] = field(default_factory=dict)
    """Place of the job that has a custom id or a message id."""

    def jobs(self) -> Iterator[NewJob]:
        """Read and validate everything once; bad lines are noted and skipped.

        Raises: InputError when a file can't be read, and at the end in strict mode when a line was bad.
        """
        for name in self.files:
            for number, line in read_lines(name):
                position = self.lines
                self.lines += 1
                place = f"{shown(name)}, line {number}"
                try:
                    job = self._job(line, position, place)
                except InputError as error:
                    self._refuse(Refused(position, str(error), error.field, _custom_id(line), place))
                    continue
                # In strict mode the rest is read only to name all that is wrong.
                if not (self.strict and self.bad):
                    self.accepted += 1
                    if len(self.first) < SMALL:
                        self.first[job.id] = job.step
                    yield job
        if self.strict and self.bad:
            raise InputError(f"{len(self.bad)} of {self.lines} lines are not valid; nothing was submitted (--strict)")

    def refuse(self, refused: Iterable[Refused]) -> None:
        """Take back jobs that were read as valid, and that the ledger refused."""
        for one in refused:
            self.accepted -= 1
            self._refuse(one)

    def _job(self, line: bytes | None, position: int, place: str) -> NewJob:
        raw = parsed(line)
        if self.check_only:
            raw = as_check_only(raw)
        request, warnings = parse_request(raw, self.batch.defaults)
        warnings += check_served(request, self.catalog, priced=self.batch.max_cost_usd is not None)
        job = new_job(request, position=position, tenant=self.batch.tenant, place=place)
        for name, value in (("custom_id", job.custom_id), ("message_id", job.message_id)):
            if value is not None:
                self._once(name, value, place)
        self.warnings.update(warnings)
        return job

    def _once(self, name: str, value: str, place: str) -> None:
        earlier = self._taken.setdefault((name, value), place)
        if earlier != place:
            raise InputError(f"{value!r} stands already in {earlier}", field=name)

    def _refuse(self, bad: Refused) -> None:
        self.bad.append(bad)
        self.bad_line(bad)


def check_files(files: Sequence[str]) -> None:
    """Raise ``InputError`` for what can be seen to be wrong before anything is started."""
    if not files:
        raise InputError("no file is given; name one, or - for standard input")
    if list(files).count(STDIN) > 1:
        raise InputError("standard input (-) can be read only once")
    for name in files:
        path = Path(name)
        if name == STDIN:
            continue
        if path.is_dir():
            raise InputError(f"{name} is a directory; name a file of JSON lines")
        if not path.exists():
            raise InputError(f"{name} does not exist")
        if not os.access(path, os.R_OK):
            raise InputError(f"{name} can't be read: permission denied")


def shown(name: str) -> str:
    """The name of an input file as people are told it."""
    return "standard input" if name == STDIN else name


def read_lines(name: str) -> Iterator[tuple[int, bytes | None]]:
    """Number (from 1) and bytes of each line that is not blank, without its end; None for one that is too long.

    However long a line is, no more of it than ``MAX_LINE_BYTES`` is ever held.
    """
    try:
        with _opened(name) as file:
            for number, line in enumerate(_bounded(file), 1):
                if number == 1 and line is not None and line.startswith(_UTF_16):
                    raise InputError(f"{shown(name)} is UTF-16; save it as UTF-8")
                if line is None:
                    yield number, None
                elif content := (line.removeprefix(_BOM) if number == 1 else line).strip():
                    yield number, content
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{shown(name)} can't be read: {error}") from error


def parsed(line: bytes | None) -> Any:
    """The JSON of a line as ``read_lines`` gives it; raises ``InputError``."""
    if line is None:
        raise InputError(f"the line is longer than {MAX_LINE_BYTES:,} bytes; each job must stand on a line of its own")
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"not valid JSON: {error}") from None


def _bounded(file: IO[bytes]) -> Iterator[bytes | None]:
    """The lines of a file with their ends; None in the place of one that is too long."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) <= MAX_LINE_BYTES or line.endswith(b"\n"):
            yield line
            continue
        del line
        while (rest := file.readline(_SKIPPED_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield None


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked when it is gzip, whatever its name.

    What is not a regular file is copied to disk first: a slow writer must not keep the transaction waiting.
    """
    with sys.stdin.buffer if name == STDIN else Path(name).open("rb") as given, tempfile.TemporaryFile() as copy:
        file: Any = given
        if not stat.S_ISREG(os.fstat(given.fileno()).st_mode):
            shutil.copyfileobj(given, copy)
            copy.seek(0)
            file = copy
        if file.peek(2)[:2] == _GZIP:
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield io.BufferedReader(unpacked)
        else:
            yield file


def _custom_id(line: bytes | None) -> str | None:
    """The custom id of a line that was refused, so that its producer recognises it."""
    try:
        value = parsed(line)["custom_id"]
    except (InputError, KeyError, TypeError, IndexError):
        return None
    return value if isinstance(value, str) else None
