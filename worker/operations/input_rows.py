"""Reads the rows of a file as a stream: JSON lines, a JSON array, a table of text or Parquet, recognised by its content."""

import csv
import io
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import chain, count
from typing import IO, Any, NamedTuple, NoReturn

from pydantic_core import from_json

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
    documents,
    lines_of,
    parse_line,
    readable,
)
from worker.operations.wrapped_rows import rows_of

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


LINES = Form("JSON lines")
ARRAY = Form("a JSON array")
OBJECTS = Form("JSON objects")
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
def reading(
    name: str,
    headings: Headings,
    encoding: str | None = None,
    opened: Callable[[Iterator[Row]], Iterator[Row]] | None = None,
) -> Iterator[Rows]:
    """The rows of a file that are not blank.

    Args:
        name: of the file, or ``-``.
        headings: of a table that is taken.
        encoding: of a table of text; None: UTF-8, or UTF-16 with its mark.
        opened: takes the jobs out of their rows; None: they are the rows, or in these.

    Raises: InputError for a file that is no input, and while it is read for one that can't be read to its end.
    """
    with readable(name), json_lines.opened(name) as file:
        title, head = display_name(name), file.peek(HEAD_BYTES)
        encoding = encoding or _encoding_of(head, title)
        try:
            content = file if encoding == "UTF-8" or head.startswith(_PARQUET) else _as_utf_8(file, encoding)
            # The body of a request is in the form that its interface documents.
            form = LINES if name.endswith(UPLOAD_SUFFIX) else recognise(content.peek(HEAD_BYTES), title, headings)
            read = {LINES: _lines, PARQUET: _parquet}.get(form, _table if form.cells else _values)
            # Ended while its file is open, also where its reader stopped half way.
            with closing(read(_Source(content, title, form))) as rows:
                yield Rows(form, (opened or _each_question)(rows))
        except UnicodeDecodeError:
            raise InputError(f"{title} is not {encoding}; nothing was submitted. {SAVE_AS_UTF_8}") from None


def _as_utf_8(file: IO[bytes], encoding: str) -> Any:
    return io.BufferedReader(io.BytesIO(file.read().decode(encoding).encode()), HEAD_BYTES)


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
    first, _, rest = content.partition("\n")
    if not rest.strip() or not _is_line(first.rstrip(", \t\r")):
        try:
            beginning = from_json(content, allow_partial="trailing-strings")
            if rest.strip() or rows_of(beginning) != [beginning]:
                return OBJECTS
        except InputError:
            return OBJECTS
        except ValueError:
            return LINES
    # The keys of a result come in the order of the contract.
    if content.startswith('{"job_id":') and all(f'"{key}":' in content for key in ("batch_id", "state", "held_reason")):
        _refuse_results(title)
    return LINES


def _is_line(text: str) -> bool:
    """Tells a line of its own from the beginning of an object, also where it holds a NaN, with which it will be refused."""
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def _refuse_results(title: str) -> NoReturn:
    raise InputError(
        f"{title} holds no jobs: it holds results. Give the file of the questions; of the same one only lines that "
        "failed or changed are asked again"
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
    """The rows of an array, of an object around them, or of objects over several lines; the file is read whole."""
    file, title, _ = source
    content = file.read(MOST_JSON_BYTES + 1)
    if len(content) > MOST_JSON_BYTES:
        raise InputError(
            f"{title} is larger than the {MOST_JSON_BYTES:,} bytes of an array or object that are read at once; write each job on a "
            "line of its own; nothing was submitted"
        )
    try:
        text = content.removeprefix(BOM).decode()
    except UnicodeDecodeError:
        raise InputError(f"{title} is not UTF-8; nothing was submitted. {SAVE_AS_UTF_8}") from None
    del content
    try:
        rows = chain.from_iterable(rows_of(value) for value in documents(text))
        for number, row in enumerate(rows, 1):
            yield Row(f"{title}, element {number}", row)
    except InputError as error:
        raise InputError(f"{title}: {error}; nothing was submitted") from None


MOST_JSON_BYTES = 1_000_000_000
"""Of a file that is read whole, and takes some three times as much memory."""


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
