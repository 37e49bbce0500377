"""Ready-made objects beside the answer, which ``output_schema`` may name in place of a JSON Schema."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import Field, NonNegativeInt

from schemas.base import Contract


class AnswerWithSources(Contract):
    """The answer with what it rests on.

    ``answer`` and ``sources_used`` are taken from the checked answer and its citations; the model is asked only for
    the others, so that no text is paid for twice and none evades the check.
    """

    answer: str = Field(description="the answer, without the list of what was not verified")
    confidence: float = Field(ge=0, le=1, description="how sure you are of the answer, 0 to 1")
    sources_used: tuple[NonNegativeInt, ...] = Field(
        description="0-based indexes into the request's context of the sources that the answer cites, ascending"
    )
    key_facts: tuple[str, ...] = Field(description="the facts of the answer, one short sentence each")
    limitations: tuple[str, ...] = Field(description="what the sources leave open or do not say")


class ComparisonResult(Contract):
    """A comparison point by point, for the mode ``comparison``."""

    similarities: tuple[str, ...] = Field(description="what the sources say alike")
    differences: tuple[str, ...] = Field(description="where they differ")
    contradictions: tuple[str, ...] = Field(description="where they exclude each other")
    conclusion: str = Field(description="the result of the comparison")


READY_MADE: Mapping[str, type[Contract]] = {model.__name__: model for model in (AnswerWithSources, ComparisonResult)}
"""The objects by the name that ``output_schema`` takes."""

DERIVED: Mapping[str, frozenset[str]] = {AnswerWithSources.__name__: frozenset({"answer", "sources_used"})}
"""Fields that Nightdesk derives from the answer itself; the prompt does not request them."""

_OWN_VIEW: Mapping[str, frozenset[str]] = {AnswerWithSources.__name__: frozenset({"confidence"})}
"""Fields that hold the model's view of its answer, and no fact."""


def unchecked_fields(name: str) -> tuple[str, ...]:
    """The paths of a ready-made object's fields that no source holds."""
    fields = DERIVED.get(name, frozenset()) | _OWN_VIEW.get(name, frozenset())
    return tuple(f"$.{field}" for field in sorted(fields))


def requested_schema(output_schema: dict[str, Any] | str) -> dict[str, Any]:
    """The JSON Schema that the prompt requests; for a ready-made object without its derived fields."""
    return _schema_of(output_schema) if isinstance(output_schema, str) else output_schema


@cache
def _schema_of(name: str) -> dict[str, Any]:
    """A closed schema with all properties required, for OpenAI's strict mode and Anthropic's output format."""
    whole = READY_MADE[name].model_json_schema()
    properties = {
        key: {word: value for word, value in shape.items() if word != "title"}
        for key, shape in whole["properties"].items()
        if key not in DERIVED.get(name, ())
    }
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}
