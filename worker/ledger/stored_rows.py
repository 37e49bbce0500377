"""Reads stored rows one by one: a row that can't be read is a value that says so, and no other row suffers from it."""

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from pydantic import ValidationError

from tasks.ports import UnreadableRow

Value = TypeVar("Value")

MOST_WORDS = 200
"""Characters of a cause that are kept."""


def read_row(read: Callable[[Any], Value], row: Any, job_id: UUID) -> Value | UnreadableRow:
    """Read one row; a reader only computes, so any error of it is the fault of the row."""
    try:
        return read(row)
    except Exception as error:  # noqa: BLE001 - damaged bytes make each layer of the readers fail in its own way
        return UnreadableRow(job_id, cause(error))


def cause(error: Exception) -> str:
    """The cause of an error in reading, without the value that it is about: that may be a person's text."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))[:MOST_WORDS]
    words = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {words}"[:MOST_WORDS].removesuffix(": ")
