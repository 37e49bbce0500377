"""Submission refuses any field over its limit, with the field and the limit, and accepts a field at its limit."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import job
from tasks import celery_tasks
from tasks.errors import InputError
from tasks.submit import canonical, chunked, new_job, parse_request

LIMITS: list[tuple[str, int, Any]] = [
    ("query", job.MAX_QUERY_CHARACTERS, lambda n: {"query": "x" * n}),
    ("system_instructions", job.MAX_INSTRUCTIONS_CHARACTERS, lambda n: {"system_instructions": "x" * n}),
    ("conversation_history", job.MAX_TURNS, lambda n: {"conversation_history": [["a", "b"]] * n}),
    ("conversation_history.0.1", job.MAX_TURN_CHARACTERS, lambda n: {"conversation_history": [["a", "x" * n]]}),
    ("response", job.MAX_RESPONSE_CHARACTERS, lambda n: {"response": "x" * n}),
    ("context", job.MAX_SOURCES, lambda n: {"context": ["x"] * n}),
    ("context.0.content", job.MAX_SOURCE_CHARACTERS, lambda n: {"context": ["x" * n]}),
    (
        "context.0.chunk_id",
        job.MAX_SOURCE_ID_CHARACTERS,
        lambda n: {"context": [{"content": "x", "chunk_id": "x" * n}]},
    ),
    (
        "context.0.document_id",
        job.MAX_SOURCE_ID_CHARACTERS,
        lambda n: {"context": [{"content": "x", "document_id": "x" * n}]},
    ),
    ("context.0.sub_query", job.MAX_QUERY_CHARACTERS, lambda n: {"context": [{"content": "x", "sub_query": "x" * n}]}),
    *[
        (f"config.{name}", 300, lambda n, name=name: {"config": {name: "x" * n}})
        for name in ("provider", "model", "judge")
    ],
    ("config.fallbacks", 20, lambda n: {"config": {"fallbacks": ["x"] * n}}),
    ("config.fallbacks.0", 300, lambda n: {"config": {"fallbacks": ["x" * n]}}),
    ("intent", 256, lambda n: {"intent": "x" * n}),
    *[
        (name, 256, lambda n, name=name: {name: "x" * n})
        for name in ("custom_id", "message_id", "idempotency_key", "retrieval_record_id", "trace_id", "request_id")
    ],
]


@pytest.mark.parametrize(("field", "limit", "make"), LIMITS, ids=[field for field, _, _ in LIMITS])
def test_a_field_takes_so_much_and_no_more(field: str, limit: int, make: Any) -> None:
    parse_request({"query": "q", **make(limit)})

    with pytest.raises(InputError) as refused:
        parse_request({"query": "q", **make(limit + 1)})

    assert refused.value.field == field
    assert str(limit) in str(refused.value).replace(",", "")
    assert len(str(refused.value)) < 500


def parts_of(schema: Any) -> Iterator[dict[str, Any]]:
    inside = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    if isinstance(schema, dict):
        yield schema
    yield from chain.from_iterable(map(parts_of, inside))


def test_every_text_and_list_of_a_job_has_a_limit() -> None:
    limits = {"string": {"maxLength", "enum", "const", "format", "pattern"}, "array": {"maxItems"}}
    parts = [part for part in parts_of(job.JobRequest.model_json_schema()) if part.get("type") in {*limits}]
    # A marker of one's own is validated with its braces.
    assert [part for part in parts if limits[part["type"]].isdisjoint(part)] == [{"type": "string"}]


def nested(levels: int) -> dict[str, Any]:
    value: Any = "x"
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return {"a": value}


@pytest.mark.parametrize(("field", "raw"), [
    ("metadata", lambda value: {"metadata": value}),
    ("context.0.metadata", lambda value: {"context": [{"content": "x", "title": value}]}),
])  # fmt: skip
def test_metadata_is_bounded_in_size_and_depth(field: str, raw: Any) -> None:
    parse_request({"query": "q", **raw({"a": "x" * 90_000})})
    parse_request({"query": "q", **raw(nested(29))})

    for value, problem in ((nested(32), "more than 32 levels"), (nested(100_000), "more than 32 levels"),
                        ({f"a{number}": number for number in range(10_000)}, "at most 100,000")):  # fmt: skip
        with pytest.raises(InputError, match=problem) as refused:
            parse_request({"query": "q", **raw(value)})
        assert refused.value.field == field


def test_a_job_as_a_whole_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    request, _ = parse_request({"query": "q", "context": ["é" * 1_000]})
    stored, _ = canonical(request)
    monkeypatch.setattr("tasks.submit.MAX_REQUEST_BYTES", len(stored))
    canonical(request)
    monkeypatch.setattr("tasks.submit.MAX_REQUEST_BYTES", len(stored) - 1)

    with pytest.raises(InputError, match="fewer or shorter sources"):
        canonical(request)


def test_a_chunk_of_a_submission_is_bounded_in_jobs_and_in_bytes() -> None:
    request, _ = parse_request({"query": "q", "context": ["x" * 1_000]})
    jobs = [new_job(request, position=at, tenant="t") for at in range(10)]
    weight = len(jobs[0].request)

    assert [len(chunk) for chunk in chunked(jobs, 4)] == [4, 4, 2]
    assert [len(chunk) for chunk in chunked(jobs, 4, most_bytes=3 * weight)] == [3, 3, 3, 1]
    assert [len(chunk) for chunk in chunked(jobs[:2], 4, most_bytes=1)] == [1, 1]


def test_a_message_holds_so_many_jobs_and_no_more() -> None:
    jobs, _ = celery_tasks.read_message([0] * celery_tasks.MAX_MESSAGE_JOBS, None, "k")
    assert len(jobs) == celery_tasks.MAX_MESSAGE_JOBS

    with pytest.raises(InputError, match="10,001 jobs, at most 10,000") as refused:
        celery_tasks.read_message([0] * (celery_tasks.MAX_MESSAGE_JOBS + 1), None, "k")
    assert refused.value.field == "jobs"


values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), values, max_size=5))
def test_whatever_json_is_small_enough_is_taken_as_it_is(value: dict[str, Any]) -> None:
    assert job._check_bounds(value) is value


def test_the_values_of_a_job_are_counted_however_they_are_nested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.submit.MAX_VALUES", 10)
    parse_request({"query": "q", "metadata": {"a": [1] * 7}})
    for values in ([1] * 8, [[]] * 8, [[1], [2], [3], [4]], {str(number): 1 for number in range(8)}):
        with pytest.raises(InputError, match="10 JSON values"):
            parse_request({"query": "q", "metadata": {"a": values}})
