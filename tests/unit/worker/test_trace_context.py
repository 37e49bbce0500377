"""The producer's trace context on its way into the ledger."""

import orjson
import pytest
from pydantic import ValidationError

from schemas.job import JobRequest
from tasks.submit import canonical
from worker.http.jobs import with_trace

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-aaaaaaaaaaaaaaaa-00"


def test_a_job_takes_the_header_where_it_brings_none() -> None:
    assert with_trace({"query": "?"}, TRACE) == {"query": "?", "traceparent": TRACE}
    assert with_trace({"query": "?", "traceparent": OTHER}, TRACE)["traceparent"] == OTHER


@pytest.mark.parametrize("header", [None, "", "00-xyz", f"{TRACE}\n", "a" * 5_000])
def test_a_header_that_is_no_trace_context_is_passed_over(header: str | None) -> None:
    assert with_trace({"query": "?"}, header) == {"query": "?"}


def test_a_body_that_is_no_object_stays_for_its_own_error() -> None:
    assert with_trace([1], TRACE) == [1]


def test_the_trace_is_stored_and_no_part_of_what_is_asked() -> None:
    (stored, first), (_, second) = (canonical(JobRequest(query="?", traceparent=trace)) for trace in (TRACE, OTHER))
    assert orjson.loads(stored)["traceparent"] == TRACE
    assert first == second == canonical(JobRequest(query="?"))[1]
    assert first != canonical(JobRequest(query="!"))[1]


def test_a_field_that_is_no_trace_context_is_refused() -> None:
    with pytest.raises(ValidationError, match="traceparent"):
        JobRequest(query="?", traceparent="00-xyz")
