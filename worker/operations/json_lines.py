"""Reads JSON lines from files and standard input as a stream of bounded memory, unpacked where they are gzip."""

import gzip
import io
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

import orjson

from schemas.job import MAX_LINE_BYTES, MAX_VALUES
from tasks.errors import InputError
from tasks.submit import too_many_values
from worker.operations.unpacked_file import GZIP

STDIN = "-"
UPLOAD_SUFFIX = ".upload"
"""Of the file that holds the body of a request: its name is nothing to a producer."""

BOM = b"\xef\xbb\xbf"
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
SAVE_AS_UTF_8 = (
    "Save it as UTF-8 ('CSV UTF-8' in Excel), or name its encoding: --encoding cp1252 for Excel in Western Europe"
)
UTF_32 = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")
"""The first begins as UTF-16 does."""

_SKIPPED_BYTES = 1_000_000
"""Read at a time of the rest of a line that is too long."""


def check_files(files: Sequence[str]) -> None:
    """Raises ``InputError`` for files that can't be read, before anything is started."""
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


def display_name(name: str) -> str:
    """The name of an input file in messages."""
    return "standard input" if name == STDIN else "body" if name.endswith(UPLOAD_SUFFIX) else name


def read_lines(name: str) -> Iterator[tuple[int, bytes | None]]:
    """Number (from 1) and bytes of each line that is not blank, without its end; None for one that is too long.

    However long a line is, no more of it than ``MAX_LINE_BYTES`` is ever in memory.
    """
    with readable(name), opened(name) as file:
        yield from lines_of(file, name)


def lines_of(file: IO[bytes], name: str) -> Iterator[tuple[int, bytes | None]]:
    """Does as ``read_lines`` with an open file."""
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1 and line.startswith(UTF_16):
            raise InputError(f"{display_name(name)} is UTF-16; save it as UTF-8")
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            del line
            while (rest := file.readline(_SKIPPED_BYTES)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        elif (content := line.removeprefix(BOM).rstrip()).lstrip():
            # Files that were put together have a mark at the beginning of each. Blanks before it count in the column of a fault.
            yield number, content


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turns an error of reading a file into an ``InputError`` that names it."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is gzip that is damaged, or cut short"
        raise InputError(f"{display_name(name)} can't be read: {reason}") from error


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""Matches from every quote on, also without an end, so that its time is linear."""


def parse_bounded(document: bytes) -> Any:
    """The value of a JSON document; raises ``orjson.JSONDecodeError``, and ``InputError`` beyond ``MAX_VALUES`` before it is parsed.

    A value of two bytes takes a hundred times as many once parsed, and its validation longer still.
    """
    # A value takes two bytes at least, and most documents have few marks: only what may hold too many is read for its structure.
    if len(document) > 2 * MAX_VALUES and _marks(document) > MAX_VALUES:
        size = 8 * MAX_VALUES
        while _marks(_STRING.sub(b"", document[:size])) <= MAX_VALUES:
            if size >= len(document):
                break
            # What is refused is refused by its beginning.
            size *= 2
        else:
            raise too_many_values()
    value = orjson.loads(document)
    if _holds_inexact(value):
        # What json can't read stays as it is.
        with suppress(RecursionError, ValueError):
            value = json.loads(document, parse_int=_id_or_int)
    return value


def _id_or_int(digits: str) -> int | str:
    """A whole number; one that may be beyond 64 bits as text."""
    return int(digits) if len(digits) < _DIGITS else digits


def documents(text: str) -> Iterator[Any]:
    """The JSON values that stand one behind the other in a text; raises ``InputError``."""
    decoder = json.JSONDecoder(parse_int=_id_or_int, parse_constant=_refuse_constant)
    end = 0
    while (start := _NOT_BLANK.search(text, end)) is not None:
        try:
            value, end = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            raise InputError(_fault_in(text, start.start())) from None
        yield value


_NOT_BLANK = re.compile(r"\S")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _fault_in(text: str, start: int) -> str:
    """The fault of a value that begins there, in the words for lines."""
    try:
        # As far to the right as it stands in its line.
        orjson.loads(" " * (start - text.rfind("\n", 0, start) - 1) + text[start:])
    except orjson.JSONDecodeError as error:
        return json_fault(error, text.count("\n", 0, start))
    return "lists and objects are nested too deeply"


def json_value(text: str) -> Any:
    """The value of a JSON text; None where it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _holds_inexact(value: Any) -> bool:
    """Tells whether a number is beyond 64 bits, which makes it a float: an id would be another."""
    remaining = [value]
    while remaining:
        each = remaining.pop()
        if isinstance(each, dict):
            remaining.extend(each.values())
        elif isinstance(each, list):
            remaining.extend(each)
        elif isinstance(each, float) and abs(each) >= _INEXACT:
            return True
    return False


_INEXACT = float(2**63)
"""Magnitude from which orjson may have read an integer as a float."""


_DIGITS = 19
"""Fewer fit into 64 bits."""


def _marks(document: bytes) -> int:
    return sum(map(document.count, (b",", b"[", b"{")))


def parse_line(line: bytes | None) -> Any:
    """The JSON of a line as ``read_lines`` gives it; raises ``InputError``."""
    if line is None:
        raise InputError(f"the line is longer than {MAX_LINE_BYTES:,} bytes; put each job on a line of its own")
    try:
        # A comma stands behind each value of an array, whose brackets were left out.
        return parse_bounded(line.removesuffix(b","))
    except orjson.JSONDecodeError as error:
        raise InputError(json_fault(error)) from None


_NUMBER = re.compile(r"-?(?:NaN|Infinity)")
_WORDS = {
    "unexpected end of data": "it ends too soon; a line break inside of a text is written as an escape",
    "unexpected control character in string": "a text holds a control character, which is written as an escape",
    "no low surrogate in string": "a text holds half of a surrogate pair, which is no character",
    "unexpected character, expected a string key": "a key stands between quotation marks, which are double ones in JSON",
    "str is not valid UTF-8: surrogates not allowed": "it is not UTF-8; for a file in another encoding: --encoding cp1252",
    "depth limit exceeded": "lists and objects are nested too deeply",
    "number is infinity when parsed as double": "a number is too large; send it as a text",
    "unexpected content after document": "something follows the value; put each job on a line of its own",
}
"""Words for faults that the parser names by its own kinds of values."""


def json_fault(error: orjson.JSONDecodeError, lines_before: int = 0) -> str:
    """The fault of a JSON text with its place; the line only where there are several."""
    # Of one with a sign, the place is behind it.
    start = error.pos - error.doc[: error.pos].endswith("-")
    number = _NUMBER.match(error.doc, start)
    column = error.colno - (error.pos - start if number else 0)
    several = lines_before or "\n" in error.doc.strip()
    place = f"line {error.lineno + lines_before}, column {column}" if several else f"column {column}"
    if number:
        return f"{number[0]} at {place} is no value of JSON: write null, or leave its key out"
    return f"not valid JSON at {place}: {_WORDS.get(error.msg) or error.msg.replace('string', 'text')}"


@contextmanager
def opened(name: str) -> Iterator[Any]:
    """The bytes of a file, unpacked when it is gzip, whatever its name; a body is unpacked already, within its bounds.

    A pipe or a device is copied to disk first: a slow writer must not keep the transaction waiting.
    """
    with sys.stdin.buffer if name == STDIN else Path(name).open("rb") as source, tempfile.TemporaryFile() as copy:
        file: Any = source
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            shutil.copyfileobj(source, copy)
            copy.seek(0)
            file = copy
        if file.peek(2)[:2] == GZIP and not name.endswith(UPLOAD_SUFFIX):
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield io.BufferedReader(unpacked)
        else:
            yield file
