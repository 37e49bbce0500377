"""Metadata as a producer hands it in: any JSON object, as long as it is small and flat enough to be carried along."""

import json
from typing import Annotated, Any

from pydantic import AfterValidator

MAX_METADATA_CHARACTERS = 100_000
"""As JSON; it is stored with each job and returned with each result."""

MAX_METADATA_LEVELS = 32
"""Objects and lists inside each other; deeper ones break parsers further on."""


def _bounded(metadata: dict[str, Any]) -> dict[str, Any]:
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
            f"holds {size:,} characters of JSON, at most {MAX_METADATA_CHARACTERS:,} are taken; leave some out"
        )
    return metadata


Metadata = Annotated[dict[str, Any], AfterValidator(_bounded)]
"""A JSON object within both limits."""
