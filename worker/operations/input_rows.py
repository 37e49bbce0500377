"""Reads the rows of a file as a stream: JSON lines, a JSON array, a table of text or Parquet, recognised by its content."""

import csv
import io
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from functools import partial
from itertools import chain, count
from typing import IO, Any, NamedTuple, NoReturn

from schemas.job import MAX_LINE_BYTES
from tasks.errors import InputError
from tasks.raw_jobs.nested import questions_of
from tasks.raw_jobs.printed import structure
from worker.operations import json_lines
from worker.operations.json_lines import (
    BOM,
    SAVE_AS_UTF_8,
    UPLOAD_SUFFIX,
    UTF_16,
    UTF_32,
    display_name,
    json_words,
    lines_of,
    not_a_number,
    parse_line,
    readable,
)
from worker.operations.wrapped_rows import Wrapper, rows_of_columns, watched, wrapper_of

HEAD_BYTES = 8_192
"""Of a file that tell what it is; the buffer of a file holds as many."""

DELIMITERS = ",;\t|"

PARQUET_ROWS = 64
"""Rows read at a time; each may hold many sources."""

_PARQUET = b"PAR1"

_BINARY = {
    b"PK\x03\x04": "a ZIP archive (unpack it) or an Excel workbook; save the sheet as 'CSV UTF-8'",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook or Word document; save the sheet as 'CSV UTF-8'",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"%PDF": "a PDF",
    b"BZh": "packed with bzip2; unpack it, or use gzip",
    b"\xfd7zXZ": "packed with xz; unpack it, or use gzip",
    b"\x28\xb5\x2f\xfd": "packed with zstd; unpack it, or use gzip",
}

Headings = Callable[[Collection[str]], bool]
"""Tells that the first row of a table names the columns that are needed."""

_RESULT_COLUMNS = frozenset({"job_id", "batch_id", "state", "outcome"})
"""Columns of a table of results, which no table of questions has together."""


class Row(NamedTuple):
    """A row of a file: its value as JSON has it, or the reason that it can't be read."""

    place: str
    value: Any
    error: InputError | None = None
    line: int = 0
    """Its number as an editor counts lines, or a spreadsheet rows; 0 for an element of JSON."""


class Form(NamedTuple):
    """The form of a file."""

    name: str
    """For people."""
    cells: bool = False
    """Its values are cells, whose headings may be written in several ways."""
    delimiter: str = ""
    wrapper: Wrapper = Wrapper()
    """What is around its rows."""


LINES = Form("JSON lines")
ARRAY = Form("a JSON array", wrapper=Wrapper("item"))
OBJECTS = Form("JSON objects")
COLUMNS = Form("a JSON object of columns")
PARQUET = Form("Parquet", cells=True)


class _Source(NamedTuple):
    """An open file and what is known of it."""

    file: IO[bytes]
    title: str
    """Its name in messages."""
    form: Form


class Rows(NamedTuple):
    """A file that is read."""

    form: Form
    rows: Iterator[Row]


@contextmanager
def reading(name: str, headings: Headings, encoding: str | None = None) -> Iterator[Rows]:
    """The rows of a file that are not blank.

    Args:
        name: of the file, or ``-``.
        headings: of a table that is taken.
        encoding: of a table of text; None: UTF-8, or UTF-16 with its mark.

    Raises: InputError for a file that is no input, and while it is read for one that can't be read to its end.
    """
    with readable(name), json_lines.opened(name) as file:
        title, head = display_name(name), file.peek(HEAD_BYTES)
        encoding = encoding or _encoding_of(head, title)
        content = file if encoding == "UTF-8" or head.startswith(_PARQUET) else _as_utf_8(file, encoding)
        try:
            # The body of a request is in the form that its interface documents.
            form = LINES if name.endswith(UPLOAD_SUFFIX) else recognise(content.peek(HEAD_BYTES), title, headings)
            read = {LINES: _lines, PARQUET: _parquet}.get(form, _table if form.cells else _values)
            # Ended while its file is open, also where its reader stopped half way.
            with closing(read(_Source(content, title, form))) as rows:
                yield Rows(form, _each_question(rows))
        except UnicodeDecodeError:
            raise InputError(f"{title} is not {encoding}; nothing was submitted. {SAVE_AS_UTF_8}") from None


def _as_utf_8(file: Any, encoding: str) -> Any:
    return io.BufferedReader(_InUtf8(file, encoding), HEAD_BYTES * 4)


class _InUtf8(io.RawIOBase):
    """The UTF-8 of a text file in another encoding."""

    def __init__(self, file: Any, encoding: str) -> None:
        self._text = io.TextIOWrapper(file, encoding, newline="")

    def readable(self) -> bool:
        """Tells that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fills a buffer as far as that goes."""
        # A character takes four bytes at most.
        content = self._text.read(len(buffer) // 4).encode()
        buffer[: len(content)] = content
        return len(content)


def _each_question(rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        values = _questions_of(row.value)
        for number, value in enumerate(values, 1):
            yield row._replace(place=f"{row.place}, question {number}" if len(values) > 1 else row.place, value=value)


def _questions_of(row: Any) -> Sequence[Any]:
    """The questions of a row, also where a cell of it holds them, or its sources, as JSON or as Python prints it."""
    cells = {key: structure(each) for key, each in row.items()} if isinstance(row, dict) else row
    values = questions_of(cells)
    return values if [*values] != [cells] else [row]


# ---- recognition -----------------------------------------------------------------------------------------------------


def _encoding_of(head: bytes, title: str) -> str:
    """The encoding that the mark of a text tells; UTF-8 without one."""
    if head.startswith(UTF_32):
        raise InputError(f"{title} is UTF-32; save it as UTF-8")
    return "UTF-16" if head.startswith(UTF_16) else "UTF-8"


def recognise(head: bytes, title: str, headings: Headings) -> Form:
    """The form of a file by its beginning; raises ``InputError`` for one that is no input."""
    if head.startswith(_PARQUET):
        return PARQUET
    for mark, reason in _BINARY.items():
        if head.startswith(mark):
            raise InputError(f"{title} holds no jobs: it is {reason}")
    if b"\0" in head:
        raise InputError(f"{title} holds no jobs: it is binary, not text")
    text = head.decode("utf-8-sig", "replace")
    content = text.lstrip()
    if content.startswith("{"):
        return _form_of_objects(content, title)
    if content.startswith("["):
        return ARRAY
    if not content:
        return LINES
    return _form_of_table(text, title, headings)


def _form_of_objects(content: str, title: str) -> Form:
    if (wrapper := wrapper_of(content.encode())) is not None:
        return (
            COLUMNS
            if not wrapper.path
            else Form(f"JSON with rows in {wrapper.path.removesuffix('.item')!r}", wrapper=wrapper)
        )
    first, _, rest = content.partition("\n")
    if first.strip() == "{" and rest.lstrip().startswith('"'):
        return OBJECTS
    # The keys of a result come in the order of the contract.
    if content.startswith('{"job_id":') and all(f'"{key}":' in content for key in ("batch_id", "state", "held_reason")):
        _refuse_results(title)
    return LINES


def _refuse_results(title: str) -> NoReturn:
    raise InputError(
        f"{title} holds no jobs: it holds results. Give the file of the questions; failed jobs as one: "
        "nightdesk results BATCH --failed -o FILE"
    )


def _form_of_table(text: str, title: str, headings: Headings) -> Form:
    delimiters = DELIMITERS
    first, _, rest = text.partition("\n")
    if mark := _SEPARATOR.fullmatch(first.strip()):
        delimiters, text = mark[1], rest
    candidates = [(delimiter, columns) for delimiter in delimiters if (columns := _first_record(text, delimiter))]
    delimiter, columns = max(candidates, key=lambda each: (headings(each[1]), len(each[1])), default=("", []))
    short = len(columns) > 1 and all(len(column) <= _LONGEST_HEADING for column in columns)
    if headings(columns) or (short and not text.startswith("#")):
        _check_columns(columns, title)
        name = {",": "CSV", "\t": "TSV"}.get(delimiter, f"CSV with {delimiter!r}")
        return Form(name, cells=True, delimiter=delimiter)
    start = text.strip().partition("\n")[0].strip()[:_LONGEST_HEADING]
    raise InputError(
        f"{title} holds no jobs: it begins with {start!r}. Take JSON (one object a line, or an array), CSV or TSV "
        f"whose first row names the columns, or Parquet"
    )


def _check_columns(columns: Sequence[str], title: str) -> None:
    """Raises ``InputError`` for a table of results, or one with too many columns."""
    _bound_columns(len(columns), title)
    if set(columns) >= _RESULT_COLUMNS:
        _refuse_results(title)


def _bound_columns(count: int, title: str) -> None:
    if count > MOST_COLUMNS:
        raise InputError(
            f"{title} has {count:,} columns, at most {MOST_COLUMNS:,} are taken; nothing was submitted. "
            "Leave out those that no job needs"
        )


_SEPARATOR = re.compile(r"(?i)sep=(.)")
"""First line of a CSV file that tells Excel its delimiter."""

_LONGEST_HEADING = 40

MOST_COLUMNS = 2_000
"""Of a table; each row becomes an object with as many members."""


def _first_record(text: str, delimiter: str) -> list[str]:
    try:
        record = next(iter(csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=delimiter)), [])
    except csv.Error:
        return []
    return [column.strip() for column in record]


# ---- JSON ------------------------------------------------------------------------------------------------------------


def _lines(source: _Source) -> Generator[Row, None, None]:
    for number, line in lines_of(source.file, source.title):
        place = f"{source.title}, line {number}"
        try:
            yield Row(place, parse_line(line), line=number)
        except InputError as error:
            yield Row(place, None, error, number)


def _values(source: _Source) -> Generator[Row, None, None]:
    """The elements of an array, or values over several lines, one after the other."""
    # Lines of JSON, the usual form, need no second parser.
    import ijson  # noqa: PLC0415

    title, wrapper = source.title, source.form.wrapper
    metered = _Metered(source.file)
    number = 0
    # As floats, whole numbers beyond 64 bits would end the file.
    further_lists: set[str] = set()
    events = watched(ijson.parse(metered, multiple_values=source.form is not ARRAY), wrapper.path, further_lists)
    values = map(_numbers, ijson.items(events, wrapper.path))
    try:
        rows = chain.from_iterable(map(rows_of_columns, values)) if source.form is COLUMNS else values
        for number, value in enumerate(rows, 1):
            metered.bytes = 0
            columns = wrapper.columns if isinstance(value, list) else ()
            yield Row(f"{title}, element {number}", dict(zip(columns, value, strict=False)) if columns else value)
        if further_lists:
            raise InputError(
                f"{title} has questions in {min(further_lists)!r}, too, beside the rows in {wrapper.path.removesuffix('.item')!r}: make a file of "
                "each list, or one list of all; nothing was submitted"
            )
    except ijson.JSONError as error:
        if "UTF8" in str(error):
            raise InputError(f"{title} is not UTF-8; nothing was submitted. {SAVE_AS_UTF_8}") from None
        if (place := metered.place_of_nan()) is not None:
            raise InputError(f"{title}: {place}; nothing was submitted") from None
        fault = (
            str(error).strip().partition("\n")[0].removeprefix("parse error: ").removeprefix("lexical error: ")
            or "it ends too soon"
        )
        raise InputError(
            f"{title}, element {number + 1}: not valid JSON: {json_words(fault)}. The file is {source.form.name}, of which nothing after that "
            "can be read; nothing was submitted"
        ) from None
    except TooDeep:
        raise InputError(
            f"{title}, element {number + 1} or one soon after: lists and objects are nested more than {MOST_DEEP} deep; "
            "nothing was submitted"
        ) from None
    except _TooLong:
        raise InputError(
            f"{title}, element {number + 1} is longer than {MAX_LINE_BYTES:,} bytes; nothing was submitted"
        ) from None


def _numbers(value: Any) -> Any:
    """A value with floats, and whole numbers beyond 64 bits as text."""
    if isinstance(value, dict):
        return {key: _numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    if isinstance(value, Decimal):
        return float(value)
    return str(value) if isinstance(value, int) and value.bit_length() > MOST_BITS else value


MOST_BITS = 63


class _TooLong(Exception):
    """An element has no end in sight."""


class _Metered:
    """A file that counts what was read since the last element, so that one without an end does not fill the memory.

    It measures the depth of the nesting, too: the parser's time and memory grow with its square.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.bytes = 0
        self._depth = DepthMeter()
        self._at_start = False
        self._pieces: tuple[bytes, bytes] = (b"", b"")
        self._line, self._column = 1, 0
        """Of the end of what was read before these pieces."""

    def place_of_nan(self) -> str | None:
        """The first number that JSON has not among the last pieces, with its line and column; None without any."""
        content = b"".join(self._pieces)
        match = _NAN.search(content)
        if match is None:
            return None
        line, column = _advanced(self._line, self._column, content[: match.start(1)])
        return not_a_number(match[1].decode(), f"line {line}, column {column + 1}")

    def _keep(self, piece: bytes) -> None:
        self._line, self._column = _advanced(self._line, self._column, self._pieces[0])
        self._pieces = (self._pieces[1], piece)

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        if not self._at_start:
            self._at_start, piece = size != 0, piece.removeprefix(BOM)
        self.bytes += len(piece)
        if self.bytes > MAX_LINE_BYTES + HEAD_BYTES * 16:
            raise _TooLong
        self._depth.add(piece)
        self._keep(piece)
        return piece


_NAN = re.compile(rb"[\[,:]\s*(-?(?:NaN|Infinity))")


def _advanced(line: int, column: int, content: bytes) -> tuple[int, int]:
    """The line, and the characters in it, behind some bytes."""
    ends = content.count(b"\n")
    text = content[content.rfind(b"\n") + 1 :].decode(errors="ignore")
    return line + ends, len(text) + (0 if ends else column)


# ---- tables ----------------------------------------------------------------------------------------------------------


def _table(source: _Source) -> Generator[Row, None, None]:
    """The rows below the first; their numbers are those of a spreadsheet, where the first row is 1."""
    title, form = source.title, source.form
    csv.field_size_limit(MAX_LINE_BYTES)
    text = io.TextIOWrapper(source.file, "utf-8-sig", newline="")
    try:
        # No line is held as a whole that is longer than a cell may be.
        lines = iter(partial(text.readline, MAX_LINE_BYTES), "")
        records = csv.reader(lines, delimiter=form.delimiter, strict=True)
        headings: list[str] = []
        for number in count(1):
            place = f"{title}, line {number}"
            try:
                cells = next(records, None)
            except csv.Error as error:
                if "unexpected end" in str(error) or "field larger" in str(error):
                    # All rows after it are in that cell.
                    raise InputError(
                        f"{place}: a quote that opens there is never closed; nothing was submitted"
                    ) from None
                yield Row(place, None, InputError(_QUOTE_INSIDE), number)
                continue
            if cells is None:
                return
            if not any(cells) or (number == 1 and _SEPARATOR.fullmatch(form.delimiter.join(cells))):
                continue
            if not headings:
                headings = _headings(cells, title)
            elif any(cells[len(headings) :]):
                message = f"the row has {len(cells)} cells, the first row only {len(headings)}: is a text with the delimiter not quoted?"
                yield Row(place, None, InputError(message), number)
            else:
                yield Row(place, {name: cell for name, cell in zip(headings, cells, strict=False) if name}, line=number)
    finally:
        text.detach()


_QUOTE_INSIDE = (
    "the row can't be read: a quotation mark stands inside of a cell; write it twice, and the cell in such marks"
)


def _headings(cells: Sequence[str], title: str) -> list[str]:
    headings = [cell.strip() for cell in cells]
    while headings and not headings[-1]:
        headings.pop()
    _bound_columns(len(headings), title)
    names: set[str] = set()
    for name in filter(None, headings):
        if name in names:
            raise InputError(f"{title} has two columns {name!r}; rename one")
        names.add(name)
    return headings


# ---- Parquet ---------------------------------------------------------------------------------------------------------


def _parquet(source: _Source) -> Generator[Row, None, None]:
    file, title = source.file, source.title
    # Forty megabytes that only this form needs.
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    with tempfile.TemporaryFile() as copy:
        # A packed file can seek, but unpacks all from its beginning each time.
        if not (isinstance(getattr(file, "raw", None), io.FileIO) and file.seekable()):
            # Its table of contents is at its end.
            shutil.copyfileobj(file, copy)
            copy.seek(0)
            file = copy
        number = 0
        try:
            table = parquet.ParquetFile(file, pre_buffer=False)
            _check_columns(table.schema_arrow.names, title)
            for batch in table.iter_batches(batch_size=PARQUET_ROWS, use_threads=False):
                for value in batch.to_pylist(maps_as_pydicts="lossy"):
                    number += 1
                    yield Row(f"{title}, line {number}", value, line=number)
        except (pa.ArrowException, OSError) as error:
            raise InputError(
                f"{title} can't be read as Parquet after line {number}: {error}; nothing was submitted"
            ) from error


MOST_DEEP = 100
"""Of lists and objects in each other."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|("[^"\\]*+(?:\\.[^"\\]*+)*+\\?\Z)', re.DOTALL)
"""A string; its group one that does not end in this piece."""

_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class TooDeep(Exception):
    """The nesting is deeper than is taken."""


class DepthMeter:
    """The depth at the end of what was read so far."""

    def __init__(self) -> None:
        self._depth = 0
        self._open = b""
        """The beginning of a string that the last piece did not end, as far as it matters."""

    def add(self, piece: bytes) -> None:
        """Reads the next piece; raises ``TooDeep``."""
        if not piece:
            return
        plain, quote, rest = _STRING.sub(rb"\1", self._open + piece).partition(b'"')
        escape = (len(rest) - len(rest.rstrip(b"\\"))) % 2
        self._open = quote + b"\\" * escape
        brackets = plain.translate(None, _ALL_BUT_BRACKETS)
        opened = brackets.count(b"[") + brackets.count(b"{")
        if self._depth + opened <= MOST_DEEP:
            self._depth += 2 * opened - len(brackets)
            return
        for bracket in brackets:
            self._depth += 1 if bracket in b"[{" else -1
            if self._depth > MOST_DEEP:
                raise TooDeep
