"""Metadata of a job: any JSON object of limited size and depth."""

import json
from typing import Annotated, Any

from pydantic import AfterValidator

MAX_METADATA_CHARACTERS = 100_000
"""Most characters of JSON; each job stores it and each result returns it."""

MAX_METADATA_LEVELS = 32
"""Deepest nesting of objects and lists; deeper nesting breaks parsers downstream."""


def _check_bounds(metadata: dict[str, Any]) -> dict[str, Any]:
    levels = 0
    inside: list[Any] = [metadata] if metadata else []
    while inside:
        levels += 1
        if levels > MAX_METADATA_LEVELS:
            raise ValueError(f"is nested more than {MAX_METADATA_LEVELS} levels deep; make it flatter")
        values = (value for outer in inside for value in (outer.values() if isinstance(outer, dict) else outer))
        inside = [value for value in values if isinstance(value, dict | list | tuple)]
    size = len(json.dumps(metadata, ensure_ascii=False, default=str)) if levels else 0
    if size > MAX_METADATA_CHARACTERS:
        raise ValueError(
            f"holds {size:,} characters of JSON, at most {MAX_METADATA_CHARACTERS:,} are allowed; remove some"
        )
    return metadata


Metadata = Annotated[dict[str, Any], AfterValidator(_check_bounds)]
"""A JSON object within both limits."""
