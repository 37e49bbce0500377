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
def map_path_parameters(context: Any, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Puts ids that exist in place of generated ones, in half of the requests: most answers are beyond a 404.

    Events last as long as their job, so theirs has ended.
    """
    if not parameters or len(str(parameters)) % 2:
        return parameters
    is_stream = context.operation.path.endswith("/events")
    return {
        name: IDS["ended_job_id"] if is_stream and name == "job_id" else IDS.get(name, value)
        for name, value in parameters.items()
    }


@schemathesis.hook
def map_query(_: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """Lets no request wait for seconds: schemathesis itself waits for ten."""
    if not query:
        return query
    query = {**query, **({"wait": 0.1} if isinstance(query.get("wait"), int | float) and query["wait"] > 1 else {})}
    # The stream of a response lasts as long as its job.
    return {name: value for name, value in query.items() if name != "stream"}


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Orders responses in the background: another one is answered with its job, which nobody does here."""
    if context.operation.path.endswith("/responses") and isinstance(body, dict):
        return {**body, "background": True, "stream": False}
    return body
