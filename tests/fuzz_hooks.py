"""Teaches schemathesis the lines of a batch, and the ids of things that exist (tests/http_fuzz.py)."""

import json
import os
from typing import Any

import schemathesis

IDS: dict[str, str] = json.loads(os.environ.get("NIGHTDESK_FUZZ_IDS", "{}"))
"""Values of the parameters of paths, by name."""


@schemathesis.serializer("application/x-ndjson", "application/jsonl")
def lines(_: Any, value: Any) -> bytes:
    """A generated text as it is, or as the question of a job that is valid but for the text: half and half."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if len(text) % 2:
        return text.encode(errors="surrogatepass")
    return b"\n".join(
        json.dumps({"query": text, "context": sources}).encode() for sources in ([], ["The desk opens at nine."])
    )


@schemathesis.hook
def map_path_parameters(_: Any, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Puts ids that exist in place of generated ones, in half of the requests: most answers are beyond a 404."""
    if not parameters or len(str(parameters)) % 2:
        return parameters
    return {name: IDS.get(name, value) for name, value in parameters.items()}
