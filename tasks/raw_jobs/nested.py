"""Finds jobs further inside of a row: in objects of it, as exports of runs have them, and in lists of questions about its text."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tasks.raw_jobs.names import FIELDS, field_of, is_field, plain
from tasks.raw_jobs.sources import is_list_of_sources, text_of

DEEPEST = 6
"""Objects in each other that are looked into; SQuAD has its questions in the third."""

MOST_COPIED = 100_000
"""Values around the questions of a row, each counted once a question: all of them are copied to each."""

ASKS = frozenset({"query", "conversation_history"})
"""Fields that hold a question."""


def questions_of(row: Any, most: int = MOST_COPIED) -> Sequence[Any]:
    """The rows of a row: the nearest objects in it that ask, each with what stands around it; the row itself where none does.

    Also where more than ``most`` ask, or so much stands around them that to copy it would take long.

    >>> questions_of({"text": "It closes.", "qas": [{"question": "When?"}, {"question": "Why?"}]})
    [{'text': 'It closes.', 'question': 'When?'}, {'text': 'It closes.', 'question': 'Why?'}]
    """
    if not isinstance(row, dict):
        return (row,)
    # Each object with those around it, from the outside, and the keys that lead on.
    level: list[tuple[dict[str, Any], tuple[Any, ...]]] = [(row, ())]
    while level and not any(_has(each, ASKS, str | list) for each, _ in level):
        level = [
            (inner, (*way, (each, key)))
            for each, way in level
            if len(way) < DEEPEST
            # Once for each object: it may have a hundred thousand keys.
            for shut in [_has(each, {"response"}, str) or any(map(_is_question, each.items()))]
            for key, value in each.items()
            if not is_field(key) and key != "answers" and (field_of(key) in ASKS or not shut)
            for inner in _objects(key, value)
        ]
    asking = [
        (each, way)
        for each, way in level
        if any(field_of(key) in ASKS and not isinstance(value, dict) for key, value in each.items())
    ]
    if len(asking) > most or sum(len(outer) for _, way in asking for outer, _ in way) > MOST_COPIED:
        asking = []
    ways = {(id(outer), key) for _, way in asking for outer, key in way}
    return [_with_sources(_with_surroundings(each, way, ways)) for each, way in asking] or (_with_sources(row),)


def _is_question(item: tuple[str, Any]) -> bool:
    """Tells the object that holds the question of its row; others beside it ask no further one."""
    key, value = item
    return field_of(key) in ASKS and isinstance(value, dict) and _has(value, ASKS, str)


def _objects(key: str, value: Any) -> list[dict[str, Any]]:
    """The objects in a value, and a question for each text of a list of such."""
    listed = value if isinstance(value, list) else _rows(value)
    if plain(key) in {"questions", "queries"}:
        listed = [{"question": each} if isinstance(each, str) else each for each in listed]
    return [each for each in listed if isinstance(each, dict)]


def _rows(value: Any) -> list[Any]:
    """The rows of an object of columns, as the Hub writes a list of objects, where it has several questions; else the value alone."""
    columns = {name: each for name, each in value.items() if isinstance(each, list)} if isinstance(value, dict) else {}
    if not any(field_of(name) == "query" and [*map(type, each[:1])] == [str] for name, each in columns.items()):
        return [value]
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=False)]


def _has(row: Mapping[str, Any], fields: Collection[str], kind: Any = object) -> bool:
    return any(_is_filled(each) and field_of(key) in fields and isinstance(each, kind) for key, each in row.items())


def _is_filled(value: Any) -> bool:
    return any(value.values()) if isinstance(value, dict) else bool(value)


def _with_surroundings(row: dict[str, Any], way: Sequence[Any], ways: Collection[Any]) -> dict[str, Any]:
    """A question with what stands around it, but other questions; its text, where it is one, with the title of that.

    An id around a list of questions is that of none of them.
    """
    listed = False
    for outer, on in reversed(way):
        own = {*map(field_of, row)}
        listed |= isinstance(outer[on], list)
        for key, each in outer.items():
            field = field_of(key)
            if field == "custom_id" and (listed or field in own):
                row = {"parent_id": each, **row}
            elif field not in own and (id(outer), key) not in ways:
                row = {key: each, **row}
        for name in [key for key, each in row.items() if field_of(key) == "context" and isinstance(each, str)]:
            if title := row.pop("title", None):
                row[name] = [{"content": row[name], "title": title}]
    return row


def _with_sources(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the members of the one object in it that holds its sources, or a retriever's list of them, where it has none itself."""
    if _has(row, {"context"}):
        return {
            key: each
            for key, each in row.items()
            if _is_filled(each) or plain(key) in {"context", *FIELDS} or field_of(key) != "context"
        }
    inside = [key for key, each in row.items() if isinstance(each, dict) and _may_hold_sources(key, each)]
    if len(inside) != 1:
        return row if inside else _with_list(row)
    rest = dict(row)
    return {**rest.pop(inside[0]), **rest}


def _with_list(row: dict[str, Any]) -> dict[str, Any]:
    if any(each is not None and field_of(key) == "context" for key, each in row.items()):
        # Empty on purpose.
        return row
    name = next((key for key, each in row.items() if is_list_of_sources(plain(key), each)), None)
    return {"context" if key == name else key: each for key, each in row.items()}


def _may_hold_sources(key: str, value: dict[str, Any]) -> bool:
    is_other = text_of(value) is not None if key == "response" else is_field(key)
    return not is_other and _has(value, {"context"}, list | dict)
