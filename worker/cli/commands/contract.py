"""``nightdesk schema``: the wire contract as JSON Schemas of accepted input and returned output."""

from typing import Annotated, Any

from schemas import CONTRACT_VERSION
from schemas.base import Contract
from schemas.batch import BatchRequest, BatchStatus
from schemas.job import JobRequest
from schemas.record import GenerationRecord, JobResult
from schemas.structured import READY_MADE
from tasks.errors import InputError
from worker.cli.help import argument
from worker.cli.terminal import write_json

MODELS: dict[str, type[Contract]] = {
    **{model.__name__: model for model in (JobRequest, JobResult, GenerationRecord, BatchRequest, BatchStatus)},
    **READY_MADE,
}
_HANDED_IN = {"JobRequest", "BatchRequest"}
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(
    name: Annotated[str | None, argument(f"One of {', '.join(MODELS)}.", "[NAME]")] = None,
) -> int:
    """Write the JSON Schema of one part of the wire contract, or of all by name."""
    if name is not None and name not in MODELS:
        raise InputError(f"there is no schema {name!r}; choose from {', '.join(MODELS)}")
    write_json(json_schema(name) if name else {each: json_schema(each) for each in MODELS})
    return 0


def json_schema(name: str) -> dict[str, Any]:
    """The schema of a model; raises ``KeyError`` for an unknown name."""
    mode = "validation" if name in _HANDED_IN else "serialization"
    document: dict[str, Any] = {"$schema": _DIALECT, **MODELS[name].model_json_schema(mode=mode)}  # type: ignore[arg-type]
    if name == "JobRequest":
        _add_accepted(document)
    return {**document, "x-contract-version": CONTRACT_VERSION}


def _add_accepted(schema: dict[str, Any]) -> None:
    """Adds the input that validators accept beyond the fields: unknown keys, sources as strings, the query's condition."""
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
