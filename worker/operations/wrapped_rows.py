"""Finds the rows of a file that is one JSON object: around a list of rows, or made of columns."""

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any, NamedTuple

import orjson

from schemas.job import JobRequest
from tasks.raw_jobs.names import names_of

LISTS = frozenset({
    "data", "rows", "examples", "questions", "items", "records", "instances", "samples", "train", "validation", "test", "dev",
    "dataset", "test_cases", "goldens", "entries", "results", "jobs", "queries",
})  # fmt: skip
"""Names of a list of rows."""

_FIELDS = {name: name for name in JobRequest.model_fields} | names_of(check_only=True)


class Wrapper(NamedTuple):
    """An object around rows."""

    path: str = ""
    """Of a row, as ijson names it; empty: the object is made of columns, or of rows by their index."""
    columns: tuple[str, ...] = ()
    """Names of the cells of rows that are lists."""


def wrapper_of(head: bytes) -> Wrapper | None:
    """The wrapper of a file by its beginning; None for rows."""
    first, _, rest = head.partition(b"\n")
    return None if rest.strip() and _is_row(first) else _wrapper_of(head)


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
            elif prefix == key and event == "start_array":
                if key in LISTS and following in {"start_map", "start_array"}:
                    return Wrapper(f"{key}.item", tuple(columns))
                if _FIELDS.get(key) in {"query", "response"} and following == "string":
                    return Wrapper()
            elif (
                prefix == key and event == "start_map" and (key.isdigit() or (following == "map_key" and inner == "0"))
            ):
                return Wrapper()
            if _FIELDS.get(key) in {"query", "response"} and event == "string":
                return None
    except ijson.JSONError:
        pass
    return None


def _is_row(line: bytes) -> bool:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and any(
        _FIELDS.get(name) in {"query", "response"} and isinstance(text, str) for name, text in value.items()
    )


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
