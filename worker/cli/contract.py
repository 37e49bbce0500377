"""The JSON Schemas of the wire contract, as the doors really accept and give it."""

from typing import Any

from schemas import CONTRACT_VERSION
from schemas.base import Contract
from schemas.batch import BatchRequest, BatchStatus
from schemas.job import JobRequest
from schemas.record import GenerationRecord, JobResult
from schemas.structured import READY_MADE

MODELS: dict[str, type[Contract]] = {
    **{model.__name__: model for model in (JobRequest, JobResult, GenerationRecord, BatchRequest, BatchStatus)},
    **READY_MADE,
}
_HANDED_IN = {"JobRequest", "BatchRequest"}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(name: str) -> dict[str, Any]:
    """The schema of a model; raises ``KeyError`` for an unknown name."""
    mode = "validation" if name in _HANDED_IN else "serialization"
    schema: dict[str, Any] = {"$schema": _DIALECT, **MODELS[name].model_json_schema(mode=mode)}  # type: ignore[arg-type]
    if name == "JobRequest":
        _say_what_is_accepted(schema)
    return {**schema, "x-contract-version": CONTRACT_VERSION}


def _say_what_is_accepted(schema: dict[str, Any]) -> None:
    """Add what validators accept beyond the fields: unknown keys, sources as strings, the query's condition."""
    source = schema["$defs"]["SourceContext"]
    # Unknown keys are put into metadata; only in 'config' is one an error.
    schema["additionalProperties"] = True
    source["additionalProperties"] = True
    for field in ("chunk_id", "document_id"):
        source["properties"][field]["type"] = ["string", "integer"]
    schema["properties"]["context"]["items"] = {
        "anyOf": [{"$ref": "#/$defs/SourceContext"}, {"type": "string", "minLength": 1}]
    }
    # A check-only job, one with 'response', may leave the query out.
    schema["anyOf"] = [
        {"required": ["query"], "properties": {"query": {"pattern": r"\S"}}},
        {"required": ["response"], "properties": {"response": {"type": "string"}}},
    ]
