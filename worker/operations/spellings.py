"""Reads the names that other tools give to the fields of a job: one table for every command that takes files."""

from collections.abc import Collection, Mapping
from typing import Any

from schemas.job import JobRequest
from tasks.errors import InputError

FIELDS = {
    "question": "query",
    "prompt": "query",
    "user_input": "query",
    "sources": "context",
    "documents": "context",
    "contexts": "context",
    "passages": "context",
    "chunks": "context",
    "retrieved_contexts": "context",
    "id": "custom_id",
}
"""Other names of a job's fields, with the field."""

ANSWERS = {"answer": "response"}
"""The same for a line that holds an answer to check. An answer beside a question to ask is somebody's reference."""

CONTENTS = ("text", "page_content", "passage")
"""Other names of a source's ``content``."""

_ALONE = frozenset({"question", "sources", "answer"})
"""Names that a line of answers may not give beside the field itself: either could be the one that is meant."""


def names_of(*, check_only: bool) -> dict[str, str]:
    """The other names that are read, with their fields."""
    return FIELDS | ANSWERS if check_only else FIELDS


def field_of(name: str) -> str:
    """The field of a job that a person means by a name."""
    return (FIELDS | ANSWERS).get(name, name)


def plan_names(keys: Collection[str], *, check_only: bool, elsewhere: Collection[str] = ()) -> dict[str, str]:
    """The keys of a row that are other names of fields, with these fields.

    A key beside the field itself is left as it is, and ends up in the metadata.

    Args:
        keys: those of the row.
        check_only: the row holds an answer.
        elsewhere: fields that have a value from elsewhere.

    Raises: InputError for two keys that could be the same field.
    """
    names = names_of(check_only=check_only)
    plan: dict[str, str] = {}
    for key in keys:
        field = names.get(key)
        if field is None or field in elsewhere:
            continue
        if field in keys:
            if check_only and key in _ALONE:
                raise InputError(f"is another name of {field!r}, which is given too: keep one of them", field=key)
            continue
        if field in plan.values():
            other = next(earlier for earlier, target in plan.items() if target == field)
            raise InputError(
                f"is another name of {field!r}, as {other!r} is: keep one of them, or say which with --map {field}={key}",
                field=key,
            )
        plan[key] = field
    return plan


def rename(raw: Mapping[str, Any], plan: Mapping[str, str]) -> dict[str, Any]:
    """A row under the names of the contract; values of a ``plan`` in their usual forms elsewhere become ours."""
    return {plan.get(key, key): as_field(plan[key], value) if key in plan else value for key, value in raw.items()}


def as_field(field: str, value: Any) -> Any:
    """A value in the form of a field: ids as text, sources with ``content``."""
    if field == "custom_id" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if field == "context" and isinstance(value, list | tuple):
        return [_source(each) for each in value]
    return value


def _source(source: Any) -> Any:
    if not isinstance(source, dict) or "content" in source:
        return source
    name = next((name for name in CONTENTS if isinstance(source.get(name), str)), None)
    return source if name is None else {("content" if key == name else key): value for key, value in source.items()}


def as_check_only(raw: Any) -> Any:
    """Makes a raw check-only job of a line that holds an answer and its sources.

    Other keys are left as they are; what is no JSON object is passed through, for ``parse_request`` to refuse.

    Raises: InputError for a line without an answer, or with two spellings of one field.
    """
    if not isinstance(raw, dict):
        return raw
    job = rename(raw, plan_names(raw, check_only=True))
    require_answer(job)
    return job


def require_answer(job: Mapping[str, Any]) -> None:
    """Raises ``InputError`` for a job without an answer to check."""
    if job.get("response") is None:
        raise InputError("is missing: put the answer to check there, or under 'answer'", field="response")


def is_field(name: str) -> bool:
    """Tells a field of the contract from other names."""
    return name in JobRequest.model_fields
