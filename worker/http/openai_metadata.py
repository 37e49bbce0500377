"""Bounds the metadata of objects in the form of OpenAI's API."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

MOST_PAIRS = 16
LONGEST_KEY = 64
LONGEST_VALUE = 512


def _check(value: Any) -> Any:
    # All under the one name, as at OpenAI; PostgreSQL can't keep U+0000, and jobs must not run before that is known.
    if isinstance(value, dict):
        for key, text in value.items():
            if len(key) > LONGEST_KEY:
                raise ValueError(f"the key {key[:LONGEST_KEY]!r}... is longer than {LONGEST_KEY} characters")
            if not isinstance(text, str) or len(text) > LONGEST_VALUE:
                raise ValueError(f"the value of {key!r} must be a string of at most {LONGEST_VALUE} characters")
            if "\0" in key or "\0" in text:
                raise ValueError(f"{key!r} or its value holds the character U+0000; remove it")
    return value


Metadata = Annotated[
    Annotated[dict[str, str], Field(max_length=MOST_PAIRS)] | None, BeforeValidator(_check), Field(default=None)
]
"""Pairs of strings."""
