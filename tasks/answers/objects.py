"""Validates ``output_schema`` at submission, and the object of an answer against it.

Callers write the schemas and models write the objects, so both are untrusted: no reference is fetched, patterns run
in linear time, and the cost of one schema is bounded.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from schemas.answer import Citation
from schemas.job import GenerationConfig
from schemas.structured import DERIVED, requested_schema
from tasks.answers.leaves import target_of
from tasks.answers.parse import storable
from tasks.errors import InputError

MAX_SCHEMA_BYTES = 32_768
"""Largest ``output_schema`` in bytes of JSON; every prompt contains it."""
MAX_APPLICATIONS = 10_000
"""Most subschemas that references may apply to one value; nested references double them with each level."""
MAX_REPORTED = 5
"""Most violations in a correction; a model that gets more corrects no more of them."""

MAX_LEVELS = 64
"""Deepest nesting of a model's object; a schema made by people has a handful of levels."""

_LONGEST_MESSAGE = 300
_FIELD = "config.output_schema"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MOST_OF_A_PATTERN = 1_000_000
"""Bytes of a pattern's automaton, in the linear-time engine, which has no look-around and no back-references."""
_DEFINITIONS = ("$defs", "definitions")
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose subschemas apply to the same value, so that references in them multiply."""


def check_schema(config: GenerationConfig) -> None:
    """Validates a caller's own ``output_schema`` at submission.

    Raises: InputError if it is no JSON Schema of an object (draft 2020-12 unless ``$schema`` names another), exceeds
    ``MAX_SCHEMA_BYTES``, or refers to anything outside itself.
    """
    schema = config.output_schema
    if not isinstance(schema, dict):
        return
    try:
        document = _document(schema)
        if len(document) > MAX_SCHEMA_BYTES:
            problem = f"holds {len(document):,} bytes of JSON, at most {MAX_SCHEMA_BYTES:,} are allowed"
            raise InputError(problem, field=_FIELD)
        _check_references(schema)
        kinds = _kinds(schema)
        if "object" not in kinds:
            raise InputError(_no_object(schema, kinds), field=_FIELD)
        _validator(document)
    except (orjson.JSONEncodeError, ValueError, RecursionError) as error:
        raise InputError(f"can't be read as a JSON Schema: {_short(str(error))}", field=_FIELD) from None


def violations(config: GenerationConfig, data: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Violations of the requested schema by a model's object, in words, at most ``MAX_REPORTED``.

    Args:
        config: without an ``output_schema`` there are no violations.
        data: the parsed object of the answer; None without one.
    """
    if config.output_schema is None:
        return ()
    schema = requested_schema(config.output_schema)
    own = _requested_fields(config, data) if data is not None else None
    if own is None:
        return (f"the object asked for by output_schema is missing, or nested more than {MAX_LEVELS} levels deep",)
    try:
        errors = _validator(_document(schema)).iter_errors(own)
        problems = [f"{_path(error.instance_path)}: {_short(error.message)}" for error in errors]
    except (InputError, ValueError) as error:
        # Such as a number too long to be read.
        problems = [f"$: {_short(str(error))}"]
    more = f"; and {len(problems) - MAX_REPORTED} more" if len(problems) > MAX_REPORTED else ""
    return tuple(
        f"the object does not satisfy output_schema at {problem}{more if number == MAX_REPORTED else ''}"
        for number, problem in enumerate(problems[:MAX_REPORTED], start=1)
    )


def complete_object(
    config: GenerationConfig, data: Mapping[str, Any] | None, response: str, citations: Sequence[Citation]
) -> dict[str, Any] | None:
    """The object of the result: for a ready-made schema, with the fields that derive from the answer itself."""
    own = _requested_fields(config, data) if data is not None else None
    if own is None:
        return None
    derived = _derived_fields(config)
    if "answer" in derived:
        own = {"answer": response, **own}
    if "sources_used" in derived:
        own["sources_used"] = sorted({citation.source_index for citation in citations})
    return own


def embed_schema(schema: Mapping[str, Any], key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema rewritten as the property ``key`` of an outer schema, and the definitions for the outer root.

    References start at the root of the outer schema: the definitions move there, other references get a longer path.
    """
    moved = {name: schema[name] for name in _DEFINITIONS if isinstance(schema.get(name), dict)}
    inner = {name: value for name, value in schema.items() if name not in moved and name not in {"$schema", "$id"}}
    root = f"#/properties/{key}"
    return _rebase_references(inner, root), _rebase_references(moved, root)


# ---- schemas ---------------------------------------------------------------------------------------------------


def _document(schema: Mapping[str, Any]) -> bytes:
    return orjson.dumps(schema)


def _validator(document: bytes) -> Any:
    return _compile(hashlib.sha256(document).digest(), document)


@lru_cache(maxsize=256)
def _compile(digest: bytes, document: bytes) -> Any:  # noqa: ARG001 - the digest alone would do as the key
    schema = orjson.loads(document)
    schema.setdefault("$schema", _DIALECT)
    # Loaded for the first schema: it takes 3 MB, and most workers see no schema.
    import jsonschema_rs  # noqa: PLC0415

    patterns = jsonschema_rs.RegexOptions(size_limit=_MOST_OF_A_PATTERN)
    try:
        return jsonschema_rs.validator_for(schema, offline=True, pattern_options=patterns, mask="the value")
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        place = _path(getattr(error, "instance_path", ()))
        raise InputError(f"is not a valid JSON Schema at {place}: {_short(str(error))}", field=_FIELD) from None


def _kinds(schema: Mapping[str, Any]) -> set[str]:
    """The types that a schema names for its value, at its root or where that refers to."""
    kinds: set[str] = set()
    references: set[str] = set()
    remaining: list[Any] = [schema]
    while remaining:
        place = remaining.pop()
        if not isinstance(place, dict):
            continue
        types = place.get("type", [])
        kinds.update(map(str, types if isinstance(types, list) else [types]))
        reference = place.get("$ref")
        if isinstance(reference, str) and reference not in references:
            references.add(reference)
            remaining.append(target_of(schema, reference))
        branches = [place.get(name) for name in ("anyOf", "oneOf", "allOf")]
        remaining += [each for several in branches if isinstance(several, list) for each in several]
    return kinds


def _no_object(schema: Mapping[str, Any], kinds: set[str]) -> str:
    around = next((name for name in ("schema", "json_schema") if isinstance(schema.get(name), dict)), None)
    if around is not None:
        return f"is the object around a JSON Schema: give what it has under {around!r}"
    if kinds:
        return (
            f"must describe an object, and this describes {', '.join(sorted(kinds))}: put that into a field, such as "
            '{"type": "object", "properties": {"items": ...}, "required": ["items"]}'
        )
    return 'must describe an object: "type": "object", or a reference to a definition of one'


def _check_references(schema: Mapping[str, Any]) -> None:
    """Refuses references that leave the schema, and references that multiply beyond the bound."""
    # A nested "$id" changes the base of "#/...".
    nested = [value for inner in schema.values() for value in _values_of(inner, ("$id",)) if isinstance(value, str)]
    for reference in (*nested, *_references(schema)):
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            problem = f"refers to {_short(str(reference))!r}; only references within it ('#/...') are followed"
            raise InputError(problem, field=_FIELD)
    costs: dict[str, int] = {}
    for reference in ("#", *_references(schema)):
        if _applications(schema, reference, costs) > MAX_APPLICATIONS:
            problem = f"its references multiply to more than {MAX_APPLICATIONS:,} subschemas; make it flatter"
            raise InputError(problem, field=_FIELD)


def _references(schema: Any) -> list[Any]:
    """All references of a schema, including the dynamic ones, which are refused."""
    return _values_of(schema, ("$ref", "$dynamicRef", "$recursiveRef"))


def _values_of(value: Any, names: Sequence[str]) -> list[Any]:
    if isinstance(value, list):
        return [nested for inner in value for nested in _values_of(inner, names)]
    if not isinstance(value, dict):
        return []
    own = [value[name] for name in names if name in value]
    return own + [nested for inner in value.values() for nested in _values_of(inner, names)]


def _applications(schema: Mapping[str, Any], reference: str, costs: dict[str, int]) -> int:
    """Number of subschemas that a reference applies to one value; a cycle counts once."""
    if reference not in costs:
        costs[reference] = 1
        costs[reference] = _cost(schema, target_of(schema, reference), costs)
    return costs[reference]


def _cost(schema: Mapping[str, Any], place: Any, costs: dict[str, int]) -> int:
    if not isinstance(place, dict):
        return 1
    total = 1
    if isinstance(reference := place.get("$ref"), str):
        total += _applications(schema, reference, costs)
    for name in _IN_PLACE:
        inner = place.get(name)
        subschemas = (
            inner if isinstance(inner, list) else [*inner.values()] if name == "dependentSchemas" and inner else [inner]
        )
        total += sum(_cost(schema, subschema, costs) for subschema in subschemas if isinstance(subschema, dict))
    return total


def _rebase_references(value: Any, root: str) -> Any:
    if isinstance(value, list):
        return [_rebase_references(inner, root) for inner in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _rebase_references(inner, root) for name, inner in value.items()}
    reference = value.get("$ref")
    if isinstance(reference, str) and not reference.startswith(tuple(f"#/{name}/" for name in _DEFINITIONS)):
        changed["$ref"] = root + reference.removeprefix("#")
    return changed


# ---- values ----------------------------------------------------------------------------------------------------


def _derived_fields(config: GenerationConfig) -> frozenset[str]:
    return DERIVED.get(config.output_schema, frozenset()) if isinstance(config.output_schema, str) else frozenset()


def _requested_fields(config: GenerationConfig, data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fields requested from the model, in storable form; None if they are nested too deeply."""
    derived = _derived_fields(config)
    try:
        return {name: value for name, value in _storable(data, MAX_LEVELS).items() if name not in derived}
    except _TooDeep:
        return None


class _TooDeep(Exception):
    """Nesting deeper than ``MAX_LEVELS``."""


def _storable(value: Any, levels: int) -> Any:
    """The value without characters that the ledger cannot store."""
    if isinstance(value, str):
        return storable(value)
    if not isinstance(value, dict | list):
        return value
    if not levels:
        raise _TooDeep
    if isinstance(value, list):
        return [_storable(inner, levels - 1) for inner in value]
    return {storable(name): _storable(inner, levels - 1) for name, inner in value.items()}


def _path(steps: Sequence[str | int]) -> str:
    """A path as text, like ``$.items[0].price``."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _short(text: str) -> str:
    line = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    return line if len(line) <= _LONGEST_MESSAGE else line[:_LONGEST_MESSAGE] + "…"
