"""Finds the rows of a file that is one JSON object: around a list of rows, or made of columns."""

import re
from collections.abc import Collection, Iterable, Iterator
from io import BytesIO
from itertools import pairwise, zip_longest
from operator import ne
from typing import Any, NamedTuple

import orjson

from tasks.raw_jobs.left_over import reads_like_a_text
from tasks.raw_jobs.names import field_of, is_field, plain
from tasks.raw_jobs.sources import rows_by_index

LISTS = frozenset({
    "data", "rows", "examples", "questions", "items", "records", "instances", "samples", "train", "validation", "test", "dev",
    "dataset", "test_cases", "goldens", "entries", "results", "jobs", "queries",
})  # fmt: skip
"""Names of a list of rows."""

_PATH_OF_QUESTIONS = re.compile(r"(?i)(\w+\.)*(questions|queries|qas?|qa_pairs)\.item")
"""Path of questions about a text beside them; what stands beside other rows describes these."""

_MAIN = frozenset({"query", "response"})


class Wrapper(NamedTuple):
    """An object around rows."""

    path: str = ""
    """Of a row, as ijson names it; empty: the object is made of columns, or of rows by their index."""
    columns: tuple[str, ...] = ()
    """Names of the cells of rows that are lists."""


def wrapper_of(head: bytes) -> Wrapper | None:
    """The wrapper of a file by its beginning; None for rows."""
    first, _, rest = head.partition(b"\n")
    cells = _cells(first)
    is_row = any(field_of(name) in _MAIN and isinstance(text, str) for name, text in cells)
    # A list in one object of several is about what stands beside it.
    if is_row or (cells and rest.lstrip().startswith(b"{")):
        return None
    # Only a file of one object needs it.
    import ijson  # noqa: PLC0415

    columns: list[str] = []
    key, about, text = "", False, False
    try:
        for (prefix, event, value), (_, following, inner) in pairwise(ijson.parse(BytesIO(head))):
            if not prefix and event == "map_key":
                # The questions that follow sources are about these.
                key, about = value, about or field_of(key) == "context"
            elif prefix == "columns.item" and event == "string":
                columns.append(value)
            elif prefix == key and event == "string":
                text |= reads_like_a_text(value)
            elif prefix == key and (wrapper := _begin_of(key, event, following, inner, columns)) is not None:
                return (
                    None if wrapper.path and (about or (text and _PATH_OF_QUESTIONS.match(wrapper.path))) else wrapper
                )
            elif event == "map_key" and field_of(value) == "query" and (path := _path_of_rows(prefix)):
                return None if about or (text and _PATH_OF_QUESTIONS.match(path)) else Wrapper(path)
            if prefix == key and field_of(key) in {"string": _MAIN, "start_map": {"query"}}.get(event, ()):
                return None
    except ijson.JSONError:
        pass
    return None


def watched(events: Iterable[Any], path: str, further_lists: set[str]) -> Iterator[Any]:
    """The events of a parser; ``further_lists`` receives paths of rows with questions in lists beside that of ``path``."""
    own = path.split(".")
    for event in events:
        if event[1] == "map_key" and field_of(event[2]) in _MAIN and not event[0].startswith(path):
            other = _path_of_rows(event[0]).split(".")
            if len(other) == len(own) and sum(map(ne, own, other)) == 1:
                further_lists.add(".".join(other[:-1]))
        yield event


def _cells(line: bytes) -> Collection[tuple[str, Any]]:
    """The names and values of a line that is an object; none of any other."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return ()
    return row.items() if isinstance(row, dict) else ()


def _begin_of(key: str, event: str, following: str, first: Any, columns: list[str]) -> Wrapper | None:
    """The wrapper whose rows or columns begin as the value of a key; None where none do."""
    if event == "start_array" and plain(key) in LISTS and following in {"start_map", "start_array"}:
        return Wrapper(f"{key}.item", tuple(columns))
    if event == "start_array" and following == "string" and (field_of(key) in _MAIN or plain(key) in LISTS):
        return Wrapper()
    by_index = any(map(str.isdigit, key)) or (following == "map_key" and first == "0")
    return Wrapper() if event == "start_map" and by_index else None


def _path_of_rows(place: str) -> str:
    """The path of the elements that hold a place; empty where they can be no rows: in another list, or in a field of a job."""
    parents, item, inside = place.partition(".item")
    names = [*parents.split("."), *inside.split(".")]
    return "" if not item or "item" in names or any(is_field(field_of(name)) for name in names) else parents + item


def rows_of_columns(value: Any) -> Iterator[Any]:
    """The rows of an object of columns, or of rows by their index, as pandas writes both."""
    kinds = {*map(type, value.values())} if isinstance(value, dict) else None
    if kinds == {list}:
        for cells in zip_longest(*value.values()):
            yield dict(zip(value, cells, strict=True))
    elif kinds != {dict}:
        yield value
    elif any(field_of(key) in _MAIN for key in value):
        yield from rows_by_index(value)
    else:
        for number, (key, each) in enumerate(value.items()):
            yield each if key == str(number) else {"id": key, **each}
