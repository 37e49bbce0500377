"""Makes spans of jobs, calls and checks after they ended, for OpenTelemetry; loaded only where traces are switched on.

A span is made of what the journal stored, apart from the path of the job. Ids follow from the ids of job and attempt, so
that the workers of generate and check need to tell each other nothing.
"""

import threading
from collections.abc import Mapping, Sequence
from hashlib import sha256
from time import time
from uuid import UUID

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tasks.ports import ClosedAttempt, FinalFacts, Observation

Attributes = Mapping[str, str | bool | int | float | Sequence[str]]

PROVIDERS = {"gemini": "gcp.gemini"}
"""Names of the semantic conventions, where they differ from ours."""

CLOSING_S = 3.0

_SAMPLED, _SCALE = 1, 1 << 64
_SCOPE = InstrumentationScope("nightdesk", schema_url="https://opentelemetry.io/schemas/1.41.0")


class Spans:
    """Hands spans to a processor, which never waits: a full queue drops them."""

    def __init__(self, processor: SpanProcessor, *, ratio: float = 1.0) -> None:
        self._processor = processor
        self._ratio = ratio
        self._resource = Resource.create({"service.name": "nightdesk"})

    def add(self, observation: Observation) -> None:
        """Makes the spans of a job or call whose trace is sampled."""
        if isinstance(observation, FinalFacts):
            self._add_job(observation)
        elif isinstance(observation, ClosedAttempt) and observation.facts is not None:
            self._add_call(observation)

    def close(self) -> None:
        """Exports what waits, for some seconds; a collector that hangs is left to hang."""
        closing = threading.Thread(target=self._processor.shutdown, name="close traces", daemon=True)
        closing.start()
        closing.join(CLOSING_S)

    def _add_job(self, job: FinalFacts) -> None:
        trace = self._trace(job.job_id, job.traceparent)
        if trace is None:
            return
        trace_id, producer = trace
        ended_ns = int((job.ended_at or time()) * 1e9)
        root = _context(trace_id, _job_span(job.job_id, job.run))
        attributes: dict[str, str | bool | int | float | Sequence[str]] = {
            "nightdesk.job.id": str(job.job_id),
            "nightdesk.job.run": job.run,
            "nightdesk.job.state": job.state.value,
            **{f"nightdesk.job.{part}_ms": ms for part, ms in job.timing_ms.items()},
        }
        if job.outcome is not None:
            attributes["nightdesk.job.outcome"] = job.outcome.value
        if job.failure_kind is not None:
            attributes["error.type"] = job.failure_kind
        claims = {f"claims.{verdict}": number for verdict, number in (job.claims or {}).items()}
        figures = {**claims, "grounding_score": job.grounding_score, "confidence": job.confidence}
        check = {f"nightdesk.{name}": figure for name, figure in figures.items() if figure is not None}
        began_ns = ended_ns - int(job.timing_ms.get("total", 0.0) * 1e6)
        status = Status(StatusCode.ERROR, job.failure_kind) if job.failure_kind is not None else Status()
        self._end("nightdesk.job", root, producer, (began_ns, ended_ns), attributes | check, SpanKind.CONSUMER, status)
        if job.claims is not None:
            check_ns = int((job.timing_ms.get("postprocess", 0.0) + job.timing_ms.get("check", 0.0)) * 1e6)
            context = _context(trace_id, _check_span(job.job_id, job.run))
            self._end("nightdesk.check", context, root, (ended_ns - check_ns, ended_ns), check)

    def _add_call(self, closed: ClosedAttempt) -> None:
        facts = closed.facts
        assert facts is not None
        trace = self._trace(closed.job_id, facts.traceparent)
        if trace is None:
            return
        trace_id, _ = trace
        root = _context(trace_id, _job_span(closed.job_id, facts.run))
        ended_ns = int((facts.ended_at or time()) * 1e9)
        attributes: dict[str, str | bool | int | float | Sequence[str]] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDERS.get(facts.provider, facts.provider),
            "nightdesk.job.id": str(closed.job_id),
            "nightdesk.attempt.id": str(closed.id),
            "nightdesk.purpose": facts.purpose.value,
            "nightdesk.lane": facts.lane,
            "nightdesk.permit_wait_ms": facts.permit_wait_ms,
        }
        if facts.model:
            attributes["gen_ai.request.model"] = facts.model
        if closed.cost_usd is not None:
            attributes["nightdesk.cost_usd"] = float(closed.cost_usd)
        attributes |= self._of_answer(closed)
        status = Status()
        if closed.outcome != "ok":
            attributes["error.type"] = closed.outcome.removeprefix("error:")
            status = Status(StatusCode.ERROR, closed.outcome.removeprefix("error:"))
        name = f"chat {facts.model}" if facts.model else "chat"
        bounds = (ended_ns - int(facts.ms * 1e6), ended_ns)
        self._end(name, _context(trace_id, closed.id.bytes[-8:]), root, bounds, attributes, SpanKind.CLIENT, status)

    def _of_answer(self, closed: ClosedAttempt) -> Attributes:
        if closed.answer is None:
            return {}
        completion = closed.answer.completion
        attributes: dict[str, str | bool | int | float | Sequence[str]] = {
            "gen_ai.response.finish_reasons": (completion.finish_reason.value,),
        }
        if completion.snapshot.model_returned:
            attributes["gen_ai.response.model"] = completion.snapshot.model_returned
        if (usage := completion.usage) is not None:
            attributes["gen_ai.usage.input_tokens"] = usage.input_tokens
            attributes["gen_ai.usage.output_tokens"] = usage.output_tokens
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_input_tokens
            attributes["gen_ai.usage.cache_creation.input_tokens"] = usage.cache_write_tokens
            attributes["gen_ai.usage.reasoning.output_tokens"] = usage.reasoning_tokens
        return attributes

    def _trace(self, job_id: UUID, traceparent: str | None) -> tuple[int, SpanContext | None] | None:
        """The trace of a job and the producer's span in it; None where it is not sampled."""
        if (producer := producer_of(traceparent)) is not None:
            return (producer.trace_id, producer) if producer.trace_flags.sampled else None
        trace_id = int.from_bytes(sha256(job_id.bytes).digest()[:16])
        return (trace_id, None) if trace_id % _SCALE < self._ratio * _SCALE else None

    def _end(  # noqa: PLR0917 - the parts of a span
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        bounds_ns: tuple[int, int],
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        status: Status | None = None,
    ) -> None:
        self._processor.on_end(
            ReadableSpan(
                name,
                context,
                parent,
                self._resource,
                dict(attributes),
                kind=kind,
                status=status or Status(),
                start_time=bounds_ns[0],
                end_time=bounds_ns[1],
                instrumentation_scope=_SCOPE,
            )
        )


def producer_of(traceparent: str | None) -> SpanContext | None:
    """The producer's span by W3C Trace Context; None without one, or for ids of zeros, which the standard ignores."""
    if traceparent is None:
        return None
    version, trace_id, span_id, flags = traceparent.split("-")
    context = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))
    return context if context.is_valid and version != "ff" else None


def open_spans(ratio: float) -> Spans:
    """Spans that go to the collector of ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
    return Spans(BatchSpanProcessor(OTLPSpanExporter()), ratio=ratio)


def _context(trace_id: int, span_id: bytes) -> SpanContext:
    return SpanContext(trace_id, int.from_bytes(span_id), is_remote=False, trace_flags=TraceFlags(_SAMPLED))


def _job_span(job_id: UUID, run: int) -> bytes:
    return sha256(b"job" + job_id.bytes + bytes([run % 256])).digest()[:8]


def _check_span(job_id: UUID, run: int) -> bytes:
    return sha256(b"check" + job_id.bytes + bytes([run % 256])).digest()[:8]
