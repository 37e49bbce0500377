"""Spans of jobs and calls, by the SDK's exporter in memory and by a receiver of OTLP; faults of the exporter reach no job."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install '.[otel]' brings it")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from schemas.failure import Failure, FailureKind
from schemas.grounding import Grounding, Verdict
from schemas.model_call import Usage
from schemas.record import TimingMs
from tests.builders import make_answer
from tests.unit.worker.test_metrics import a_close, a_final
from worker.process.runtime import spans_by
from worker.settings import Settings
from worker.telemetry.metering import Metering
from worker.telemetry.spans import Spans, open_spans

TRACE, PRODUCER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PRODUCER}-01", f"00-{TRACE}-{PRODUCER}-00"


class Case:
    """A job with a call, as the journal tells of them, in the trace of its producer."""

    def __init__(self, traceparent: str | None = SAMPLED, **answer: Any) -> None:
        grounding = Grounding(grounding_score=0.5, confidence=0.25, counts={Verdict.SUPPORTED: 1})
        times = TimingMs(llm=1_500, postprocess=10, check=30, total=9_000)
        self.final = replace(a_final(grounding=grounding, timing_ms=times), traceparent=traceparent, ended_at=1_000.0)
        stored = make_answer(usage=Usage(input_tokens=90, output_tokens=9, cached_input_tokens=40), **answer)
        closed = a_close(answer=stored, cost_usd=Decimal("0.002"))
        assert closed.facts is not None
        facts = replace(closed.facts, traceparent=traceparent, ended_at=995.0)
        self.closed = replace(closed, job_id=self.final.job_id, facts=facts)


def spans_of(case: Case, **options: Any) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    spans = Spans(SimpleSpanProcessor(exporter), **options)
    # Generate and check may be done by two workers, in any order.
    spans.add(case.closed)
    Spans(SimpleSpanProcessor(exporter), **options).add(case.final)
    return {span.name: span for span in exporter.get_finished_spans()}


def test_job_call_and_check_join_the_trace_of_the_producer() -> None:
    spans = spans_of(Case())

    assert spans.keys() == {"nightdesk.job", "chat m-1", "nightdesk.check"}
    job, call, check = spans["nightdesk.job"], spans["chat m-1"], spans["nightdesk.check"]
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {TRACE}
    assert f"{job.parent.span_id:016x}" == PRODUCER
    assert call.parent.span_id == check.parent.span_id == job.context.span_id
    assert len({span.context.span_id for span in spans.values()}) == 3
    assert (job.kind, call.kind) == (SpanKind.CONSUMER, SpanKind.CLIENT)
    assert (job.start_time, job.end_time) == (991 * 10**9, 1_000 * 10**9)
    assert (call.start_time, call.end_time) == (993_500_000_000, 995 * 10**9)
    assert check.end_time - check.start_time == 40_000_000


def test_calls_have_the_attributes_of_the_conventions() -> None:
    attributes = spans_of(Case())["chat m-1"].attributes

    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.provider.name"] == "openai"
    assert attributes["gen_ai.request.model"] == "m-1"
    assert attributes["gen_ai.usage.input_tokens"] == 90
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 40
    assert attributes["nightdesk.cost_usd"] == 0.002
    assert "error.type" not in attributes


def test_failures_are_errors_with_their_kind() -> None:
    exporter = InMemorySpanExporter()
    spans = Spans(SimpleSpanProcessor(exporter))
    spans.add(a_close("error:rate_limited"))
    spans.add(a_final(failure=Failure(kind=FailureKind.BAD_ANSWER, message="secret text")))

    call, job = exporter.get_finished_spans()
    assert (call.attributes["error.type"], job.attributes["error.type"]) == ("rate_limited", "bad_answer")
    assert not call.status.is_ok
    assert not job.status.is_ok
    assert "secret text" not in job.to_json()


@pytest.mark.parametrize("traceparent", [UNSAMPLED, None])
def test_what_is_not_sampled_has_no_spans(traceparent: str | None) -> None:
    assert spans_of(Case(traceparent), ratio=0.0) == {}


class Broken:
    """An exporter that raises at every span."""

    def on_end(self, _span: ReadableSpan) -> None:
        raise RuntimeError("no")

    def shutdown(self) -> None:
        raise RuntimeError("no")


def test_an_exporter_that_raises_costs_no_count_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    meter = Metering(Spans(Broken()))  # type: ignore[arg-type]
    for _ in range(3):
        meter.observe(a_close("unknown"))

    assert meter.sums()["nightdesk_calls_total", ("openai", "other", "standard", "generate", "unknown")] == 3
    assert len(caplog.records) == 1


@contextmanager
def receiver(delay_s: float = 0.0) -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A receiver of OTLP over HTTP on loopback."""
    received: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            time.sleep(delay_s)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing: pytest shows what matters."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()


def test_spans_arrive_at_a_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    with receiver() as (url, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        spans = open_spans(1.0)
        spans.add(case.closed)
        spans.add(case.final)
        spans.close()

    (group,) = [group for request in received for group in request.resource_spans]
    names = {span.name for scope in group.scope_spans for span in scope.spans}
    assert names == {"nightdesk.job", "chat m-1", "nightdesk.check"}
    assert {span.trace_id.hex() for scope in group.scope_spans for span in scope.spans} == {TRACE}
    resource = {item.key: item.value.string_value for item in group.resource.attributes}
    assert resource["service.name"] == "nightdesk"


def test_the_settings_turn_spans_on_and_name_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(traceparent=None, text="The copy is ready at four.")
    texts = []
    with receiver() as (url, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        for settings in (
            Settings(traces=True, traces_ratio=1.0),
            Settings(traces=True, traces_ratio=0.0),
        ):
            spans = spans_by(settings)
            spans.add(case.closed)
            spans.close()
            texts.append("".join(map(str, received)))
            received.clear()

    assert spans_by(Settings()) is None
    assert not any("ready at four" in text for text in texts)
    assert ["chat m-1" in text for text in texts] == [True, False]


@pytest.mark.parametrize("collector", ["away", "hangs"])
def test_a_collector_that_does_not_answer_delays_neither_jobs_nor_a_stop(
    collector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver(delay_s=20.0) as (url, _):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url if collector == "hangs" else "http://127.0.0.1:1")
        spans = open_spans(1.0)
        meter = Metering(spans)
        began = time.monotonic()
        for _ in range(5_000):
            meter.observe(a_close("unknown"))
        counted_s = time.monotonic() - began
        spans.close()
        closed_s = time.monotonic() - began - counted_s

    assert meter.sums()["nightdesk_calls_total", ("openai", "other", "standard", "generate", "unknown")] == 5_000
    assert counted_s < 10
    assert closed_s < 10
