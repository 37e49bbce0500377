"""Writes results as CSV or Parquet, as a stream."""

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Annotated, Any, Union, get_args, get_origin

import orjson
from pydantic import BaseModel

from schemas.record import JobResult
from tasks.errors import InputError
from worker.operations.file_form import FileForm
from worker.operations.input_columns import harmless

PARQUET_ROWS = 500
"""Rows of a row group; a few megabytes."""

STDOUT = "-"

_OTHER_TABLES = frozenset({"ods", "tsv", "xls", "xlsm", "xlsx"})

WriteRow = Callable[[dict[str, Any]], object]


def form_of(output: str, form: FileForm | None) -> FileForm:
    """The form of an output: as named, else by its suffix, else JSON lines.

    Raises: InputError for the suffix of a table that is not written, and for Parquet that can't be written there.
    """
    name = Path(output.removesuffix(".gz")).suffix.removeprefix(".").lower()
    if form is None and name in _OTHER_TABLES:
        raise InputError(
            f"{output!r}: no .{name} can be written; name a .csv, which spreadsheets open, or say --format"
        )
    if form is None:
        form = FileForm(name) if name in set(FileForm) else FileForm.JSONL
    if form is FileForm.PARQUET and (output == STDOUT or output.endswith(".gz")):
        raise InputError(f"Parquet can't be written to {output!r}: name a file such as answers.parquet")
    return form


# ---- columns ---------------------------------------------------------------------------------------------------------

RESULT_COLUMNS = (
    "custom_id", "position", "state", "outcome", "query", "response", "confidence", "decided", "grounding_score",
    "answer_quality", "sufficient_context", "reasoning", "abstain_reason", "warnings", "failure_kind",
    "failure_message", "held_reason", "citations", "claims", "sources_used", "sources_provided", "values", "structured",
    "output_format", "cost_usd", "tokens_used", "usage", "asks", "latency_ms", "timing_ms", "provider_snapshot",
    "prompt_version", "metadata", "job_id", "batch_id", "message_id", "trace_id", "shared_from", "replay_of",
    "truncated",
)  # fmt: skip
"""Of a table of results; lists and objects are JSON in a cell."""


def result_row(content: bytes) -> dict[str, Any]:
    """A result as a row of a table."""
    row: dict[str, Any] = orjson.loads(content)
    failure = row.pop("failure", None) or {}
    return {**row, "failure_kind": failure.get("kind"), "failure_message": failure.get("message")}


# ---- forms -----------------------------------------------------------------------------------------------------------


@contextmanager
def writing_rows(file: IO[bytes], form: FileForm) -> Iterator[WriteRow]:
    """A function that writes one row to a table; all are written when the block ends."""
    if form is FileForm.PARQUET:
        with _parquet(file) as add:
            yield add
        return
    # With a byte order mark, by which spreadsheets know UTF-8.
    text = io.TextIOWrapper(file, "utf-8-sig", newline="", write_through=True)
    try:
        rows = csv.writer(text)
        rows.writerow(RESULT_COLUMNS)
        yield lambda row: rows.writerow([_cell(row.get(name)) for name in RESULT_COLUMNS])
    finally:
        text.detach()


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, list | dict):
        return orjson.dumps(value).decode() if value else ""
    return str(value).lower() if isinstance(value, bool) else value


@contextmanager
def _parquet(file: IO[bytes]) -> Iterator[WriteRow]:
    """A Parquet file that grows by row groups."""
    # Forty megabytes that only this form needs.
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import parquet  # noqa: PLC0415

    schema = pa.schema([(name, _arrow_type(pa, _annotation(name))) for name in RESULT_COLUMNS])
    writer = parquet.ParquetWriter(file, schema, compression="zstd")
    rows: list[dict[str, Any]] = []

    def write() -> None:
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        rows.clear()

    def add(row: dict[str, Any]) -> None:
        rows.append({column.name: _arrow_value(row.get(column.name), column.type) for column in schema})
        if len(rows) == PARQUET_ROWS:
            write()

    yield add
    write()
    writer.close()


def _annotation(name: str) -> Any:
    """The type of a column as the contract has it; a text for those that are of the table alone."""
    return JobResult.model_fields[name].annotation if name in JobResult.model_fields else str


def _arrow_type(pa: Any, annotation: Any) -> Any:
    """The type of Parquet for one of a contract: lists and objects as they are, what may be anything as JSON in a text."""
    origin, parts = get_origin(annotation), [each for each in get_args(annotation) if each is not NoneType]
    if origin is Annotated or (origin in {Union, UnionType} and len(parts) == 1):
        return _arrow_type(pa, parts[0])
    if origin in {tuple, list} and len({*parts} - {Ellipsis}) == 1:
        return pa.list_(_arrow_type(pa, parts[0]))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return pa.struct([(name, _arrow_type(pa, each.annotation)) for name, each in annotation.model_fields.items()])
    return {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}.get(annotation, pa.string())


def _arrow_value(value: Any, kind: Any) -> Any:
    if isinstance(value, dict) and hasattr(kind, "fields"):
        return {column.name: _arrow_value(value.get(column.name), column.type) for column in kind.fields}
    if isinstance(value, list) and hasattr(kind, "value_type"):
        return [_arrow_value(each, kind.value_type) for each in value]
    # A page may be a number or a text.
    mixed = value is not None and not isinstance(value, str) and str(kind) == "string"
    return orjson.dumps(value).decode() if mixed else value
