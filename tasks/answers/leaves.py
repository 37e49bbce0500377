"""Lists the leaves of a model's object, each with its path and the words that its schema has for it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Scalar = str | int | float | bool

MAX_LEAVES = 2_000
"""Most leaves of an object that are checked."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|[^\W_]+")
"""A word of an identifier: ``noticePeriod``, ``notice_period`` and ``notice-period`` have two."""
_ANY_INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value of an object.

    Attributes:
        path: such as ``$.items[0].price``.
        value: no null, and no empty text.
        names: the words of the names on its path.
        key: those of the last name alone.
        described: the title and the description in its schema.
        chosen: one of several values that the schema lists.
    """

    path: str
    value: Scalar
    names: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    described: str = ""
    chosen: bool = False

    @property
    def label(self) -> str:
        """The words for it, as text."""
        return " ".join((*self.key, self.described)).strip()


def leaves(data: Mapping[str, Any], schema: Mapping[str, Any], free: Sequence[str] = ()) -> list[Leaf]:
    """The leaves of an object in order, without those that the schema leaves no choice for.

    Args:
        data: the object.
        schema: its JSON Schema.
        free: paths that are left out; ``[*]`` stands for any place in a list, and a path covers all below it.
    """
    listed = []
    for leaf in _walk(data, ("$", (), ()), list(_expanded(iter([schema]), schema)), schema):
        if not any(_covers(path, leaf.path) for path in free):
            listed.append(leaf)
        if len(listed) == MAX_LEAVES:
            break
    return listed


def _covers(path: str, other: str) -> bool:
    path = path if path.startswith("$") else f"$.{path}"
    for candidate in (other, _ANY_INDEX.sub("[*]", other)):
        if candidate == path or candidate.startswith((f"{path}.", f"{path}[")):
            return True
    return False


_Place = tuple[str, tuple[str, ...], tuple[str, ...]]
"""The path of a value, the words of its names, and those of the last one."""


def _walk(value: Any, place: _Place, schemas: Sequence[Mapping[str, Any]], root: Mapping[str, Any]) -> Iterator[Leaf]:
    path, names, key = place
    if isinstance(value, Mapping):
        for name, inner in value.items():
            below = list(_expanded(_properties(schemas, name), root))
            yield from _walk(inner, (f"{path}.{name}", (*names, *_words(name)), _words(name)), below, root)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            below = list(_expanded(_items(schemas, position), root))
            yield from _walk(inner, (f"{path}[{position}]", names, key), below, root)
    elif isinstance(value, str | int | float) and value != "" and not _is_fixed(schemas):
        texts = [str(schema[key]) for schema in schemas for key in ("title", "description") if key in schema]
        chosen = any(isinstance(schema.get("enum"), list) for schema in schemas)
        yield Leaf(path, value, names, key, " ".join(dict.fromkeys(texts)), chosen)


def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name))


def _properties(schemas: Sequence[Mapping[str, Any]], name: str) -> Iterator[Any]:
    for schema in schemas:
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            yield properties[name]
        else:
            yield schema.get("additionalProperties")


def _items(schemas: Sequence[Mapping[str, Any]], position: int) -> Iterator[Any]:
    for schema in schemas:
        first = schema.get("prefixItems")
        if isinstance(first, list) and position < len(first):
            yield first[position]
        else:
            yield schema.get("items")
        # A list is described as such, and so are its entries.
        yield {key: schema[key] for key in ("title", "description") if key in schema}


_DEEPEST = 16


def _expanded(schemas: Iterator[Any], root: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The schemas with those that they refer to or consist of."""
    for schema in schemas:
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            continue
        yield schema
        if isinstance(reference := schema.get("$ref"), str):
            yield from _expanded(iter([target_of(root, reference)]), root, depth + 1)
        for key in ("allOf", "anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                yield from _expanded(iter(schema[key]), root, depth + 1)


_POSITION = re.compile("[0-9]{1,9}")


def target_of(root: Any, reference: str) -> Any:
    """The part of a schema that a reference within it leads to; None for one that leads nowhere."""
    place = root
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, list):
            at = int(name) if _POSITION.fullmatch(name) else len(place)
            place = place[at] if at < len(place) else None
        else:
            place = place.get(name) if isinstance(place, Mapping) else None
    return place


def _is_fixed(schemas: Sequence[Mapping[str, Any]]) -> bool:
    """Tells whether the schema allows one value alone, which says nothing."""
    return any(
        "const" in schema or (isinstance(schema.get("enum"), list) and len(schema["enum"]) == 1) for schema in schemas
    )
