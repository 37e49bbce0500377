"""Finds the rows of a file that is one JSON object: around a list of rows, or made of columns."""

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from tasks.raw_jobs.names import field_of, is_field, plain

LISTS = frozenset(
    "data rows examples questions items records instances samples train validation test dev dataset test_cases goldens "
    "entries results jobs queries".split()
)
"""Names of a list of rows."""

_MAIN = frozenset({"query", "response"})


class Wrapper(NamedTuple):
    """An object around rows."""

    path: str = ""
    """Of a row, as ijson names it; empty: the object is made of columns, or of rows by their index."""
    columns: tuple[str, ...] = ()
    """Names of the cells of rows that are lists."""


def wrapper_of(head: bytes) -> Wrapper | None:
    """The wrapper of a file by its beginning; None for rows."""
    try:
        row = orjson.loads(head.partition(b"\n")[0])
    except orjson.JSONDecodeError:
        row = None
    cells = row.items() if isinstance(row, dict) else ()
    is_row = any(field_of(name) in _MAIN and isinstance(text, str) for name, text in cells)
    return None if is_row else _wrapper_of(head)


def _wrapper_of(head: bytes) -> Wrapper | None:
    # Only a file of one object needs it.
    import ijson  # noqa: PLC0415

    columns: list[str] = []
    key = ""
    try:
        for (prefix, event, value), (_, following, inner) in pairwise(ijson.parse(BytesIO(head))):
            if not prefix and event == "map_key":
                key = value
            elif prefix == "columns.item" and event == "string":
                columns.append(value)
            elif prefix == key and (wrapper := _begin_of(key, event, following, inner, columns)) is not None:
                return wrapper
            elif event == "map_key" and field_of(value) == "query" and _holds_rows(prefix):
                return Wrapper(prefix)
            if prefix == key and field_of(key) in _MAIN and event == "string":
                return None
    except ijson.JSONError:
        pass
    return None


def _begin_of(key: str, event: str, following: str, first: Any, columns: list[str]) -> Wrapper | None:
    """The wrapper whose rows or columns begin as the value of a key; None where none do."""
    if event == "start_array" and plain(key) in LISTS and following in {"start_map", "start_array"}:
        return Wrapper(f"{key}.item", tuple(columns))
    if event == "start_array" and field_of(key) in _MAIN and following == "string":
        return Wrapper()
    by_index = key.isdigit() or (following == "map_key" and first == "0")
    return Wrapper() if event == "start_map" and by_index else None


def _holds_rows(path: str) -> bool:
    """Tells whether elements of the list at a path can be rows: it is in no other list, and in no field of a job."""
    *parents, last = path.split(".")
    return last == "item" and bool(parents) and not any(name == "item" or is_field(field_of(name)) for name in parents)


def rows_of_columns(value: Any) -> Iterator[Any]:
    """The rows of an object of columns, or of rows by their index, as pandas writes both."""
    if not isinstance(value, dict) or not value:
        yield value
        return
    if all(isinstance(each, list) for each in value.values()):
        for cells in zip(*value.values(), strict=False):
            yield dict(zip(value, cells, strict=True))
    elif all(isinstance(each, dict) for each in value.values()):
        if all(key.isdigit() for key in value):
            yield from value.values()
        else:
            for index in next(iter(value.values())):
                yield {key: each.get(index) for key, each in value.items()}
    else:
        yield value


def questions_of(value: Any) -> Sequence[Any]:
    """The rows of a row: the questions about the paragraphs of an article, as SQuAD has them; else the row itself."""
    if not isinstance(value, dict):
        return (value,)
    if isinstance(paragraphs := value.get("paragraphs"), list) and any(
        "qas" in each for each in paragraphs if isinstance(each, dict)
    ):
        return [row for each in paragraphs if isinstance(each, dict) for row in _rows_of(each, value.get("title"))]
    return _rows_of(value, value.get("title")) if isinstance(value.get("qas"), list) else (value,)


def _rows_of(paragraph: Mapping[str, Any], title: Any) -> list[Any]:
    source = {"content": paragraph.get("context"), **({"title": title} if title else {})}
    return [{**each, "context": [source]} if isinstance(each, dict) else each for each in paragraph.get("qas") or ()]
