"""Every refusal of a value speaks of the value: no class, pattern or phrase of the validator."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.base import Contract
from schemas.batch import BatchRequest
from schemas.job import GenerationConfig, JobRequest, SourceContext
from schemas.quality import QualityConstants
from tasks.errors import InputError
from tasks.submit import parse_request, validated

BAD: tuple[Any, ...] = (
    True, 5, -5, 1.5, float("nan"), float("inf"), 10**30, "", "x", [], [1], [[1]], [None], [True, "x"],
    {}, {"x": 1}, {"x": {"x": []}}, [{"x": 1}], "2026-13-45T00:00:00Z", "2026-11-22T08:00:00", "[1, 2", "{'a'}",
)  # fmt: skip

PROGRAM = re.compile(
    r"\b(?:valid|instance|dictionary|tuple|string|integer|boolean|enumeration|dict|str|int|float|bool|constrained|nullable|Input)\b"
    r"|\bpattern\b|[\^$\\]|\[a-z|function-|Field required|Value error|Extra inputs|pydantic|\w+Error\b|[A-Z][a-z]+[A-Z][a-z]+\w*"
)
"""Words of the program; the contract itself is named by the command that prints it."""

ALLOWED = re.compile(r"'nightdesk schema JobRequest'|AnswerWithSources|ComparisonResult|JSON Schema|not valid Unicode")


def fields_of(model: type[Contract], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all fields, those of objects inside too."""
    for name, field in model.model_fields.items():
        yield (*path, name)
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, Contract):
                yield from fields_of(inner, (*path, name))


def placed(path: tuple[str, ...], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


JOBS = [placed(path, bad) for path in fields_of(JobRequest) for bad in BAD]
SOURCES = [{"context": [placed(path, bad)]} for path in fields_of(SourceContext) for bad in BAD]
ITEMS = [{"config": {name: [bad]}} for name in GenerationConfig.model_fields for bad in BAD] + [
    {"conversation_history": [bad, [bad, bad], {"role": "user", "content": bad}]} for bad in BAD
]


def refusal_of(action: Any, *values: Any) -> str:
    try:
        action(*values)
    except InputError as error:
        return str(error)
    return ""


def test_no_refusal_of_a_job_speaks_of_the_program() -> None:
    values = [{"query": "Why?", **job} for job in (*JOBS, *SOURCES, *ITEMS)]
    messages = {refusal_of(parse_request, value) for value in (*values, *BAD)}
    assert len(messages) > 100, "most values were refused"
    assert [message for message in messages if PROGRAM.search(ALLOWED.sub("", message))] == []


@pytest.mark.parametrize("model", [BatchRequest, QualityConstants])
def test_no_refusal_of_options_speaks_of_the_program(model: type[Contract]) -> None:
    messages = {refusal_of(validated, model, placed(path, bad)) for path in fields_of(model) for bad in BAD}
    assert len(messages) > 3
    assert [message for message in messages if PROGRAM.search(ALLOWED.sub("", message))] == []


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("query", 5, "query: must be a text"),
        ("priority", "high", "priority: must be a whole number"),
        ("priority", 1000, "priority: must be at most 100"),
        ("aggregate", "maybe", "aggregate: must be true or false"),
        ("deadline", "soon", "deadline: must be a time with its zone, such as 2026-11-22T08:00:00Z"),
        ("config", {"output_schema": 5}, "config.output_schema: must be an object, or a text"),
        ("config", {"fallbacks": "x"}, "config.fallbacks: must be a list"),
        ("config", {"sampling": 5}, "config.sampling: must be an object"),
        ("metadata", {"a": float("nan")}, "metadata: holds NaN or Infinity"),
        ("metadata", {"team": "x" * 100_001}, "metadata: holds 100,0"),
        ("context", [{"content": "x", "team": list(range(20_000))}], "context.0.metadata: holds 128,"),
        ("config", {"output_schema": {}, "mode": {"x": 1}}, "config.mode: must be one of 'simple'"),
        ("context", ["x", [1]], "context.1: must be a text, or an object"),
        ("context", [{"content": 7}], "context.0.content: must be a text"),
    ],
)
def test_a_refusal_names_what_is_wanted(field: str, value: Any, message: str) -> None:
    assert refusal_of(parse_request, {"query": "Why?", field: value}).startswith(message)
