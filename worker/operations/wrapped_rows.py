"""Finds the rows of a file that is one JSON object: around a list of rows, or made of columns."""

from itertools import zip_longest
from typing import Any

from tasks.errors import InputError
from tasks.raw_jobs.left_over import reads_like_a_text
from tasks.raw_jobs.names import field_of, is_field, plain
from tasks.raw_jobs.sources import table_rows

LISTS = frozenset({
    "data", "rows", "examples", "questions", "items", "records", "instances", "samples", "train", "validation", "test", "dev",
    "dataset", "test_cases", "goldens", "entries", "results", "jobs", "queries",
})  # fmt: skip
"""Names of a list of rows."""

_ABOUT_A_TEXT = frozenset({"questions", "queries", "qa", "qas", "qa_pairs"})
"""Names of questions about a text beside them; what stands beside other rows describes these."""


def rows_of(value: Any) -> list[Any]:
    """The rows of a JSON value that is a file, or one of its values: an object is one itself, unless it holds them.

    Raises: InputError for two lists of them.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, dict) or any(_is_main(key) and isinstance(each, str) for key, each in value.items()):
        return [value]
    return _rows_of_columns(value) or _listed_rows(value) or [value]


def _rows_of_columns(value: dict[str, Any]) -> list[Any]:
    """The rows of an object of columns, or of rows by their index, as pandas writes both; none of any other."""
    if rows := table_rows(value):
        return rows
    kinds = {*map(type, value.values())}
    if kinds == {list}:
        texts = [key for key, cells in value.items() if [*map(type, cells[:1])] == [str]]
        if any(_is_main(key) or plain(key) in LISTS for key in texts):
            return [dict(zip(value, cells, strict=True)) for cells in zip_longest(*value.values())]
    elif kinds == {dict} and any(map(str.isdigit, "".join(value))):
        return [each if key == str(at) else {"id": key, **each} for at, (key, each) in enumerate(value.items())]
    return []


def _listed_rows(value: dict[str, Any]) -> list[Any]:
    """The list of rows nearest to the outside; none in an object that asks, or is about a text."""
    level: dict[str, Any] = (
        {} if any(field_of(key) in {"query", "context"} and each for key, each in value.items()) else value
    )
    is_text = any(isinstance(each, str) and reads_like_a_text(each) for each in value.values())
    while level:
        lists = {
            path: each
            for path, each in level.items()
            if isinstance(each, list) and isinstance(next(iter(each), 0), list | dict)
        }
        asking = [path for path, rows in lists.items() if any(map(_is_row, rows))]
        named = [path for path in lists if path in value and plain(path) in LISTS]
        fine = [path for path in asking or named if not (is_text and plain(path.rpartition(".")[2]) in _ABOUT_A_TEXT)]
        if len(fine) > 1 and asking:
            raise InputError(
                f"it has questions in {fine[1]!r}, too, beside the rows in {fine[0]!r}: make a file of each list, or one list of all"
            )
        if fine:
            rows: list[Any] = lists[fine[0]]
            return rows
        level = {
            f"{path}.{key}": inner
            for path, each in level.items()
            if isinstance(each, dict) and not is_field(field_of(path.rpartition(".")[2]))
            for key, inner in each.items()
        }
    return []


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and any(map(_is_main, value))


def _is_main(name: str) -> bool:
    return field_of(name) in {"query", "response"}
