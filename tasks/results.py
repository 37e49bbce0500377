"""Makes the audit record of a final job and the result that its producer gets, and answers by id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from schemas import CONTRACT_VERSION
from schemas.failure import Failure, FailureKind
from schemas.generation import OutputFormat
from schemas.grounding import Grounding
from schemas.model_call import Ask, Completion, Prompt
from schemas.record import GenerationRecord, JobResult, Quality, RecordStatus, TimingMs
from schemas.states import FINAL_STATES, JobState, Outcome
from tasks.answers.texts import fallback, in_format, without_answer
from tasks.errors import InputError
from tasks.ports import FinalJob, JobView, Lease, Leased, Reading

if TYPE_CHECKING:
    # Whoever reads results, or makes those of jobs without an answer, parses no answer.
    from tasks.answers.postprocess import Processed

COMPACT_BYTES = 64 * 1024
"""Most that a result in the result backend may hold; the whole is in the ledger."""

RECORD_STATUS: Mapping[Outcome, RecordStatus] = {
    Outcome.ANSWERED: RecordStatus.SUCCESS,
    Outcome.UNVERIFIED: RecordStatus.PARTIAL,
    Outcome.PARTIAL: RecordStatus.PARTIAL,
    Outcome.ABSTAINED: RecordStatus.SUCCESS,
    Outcome.NO_EVIDENCE: RecordStatus.SUCCESS,
    Outcome.REJECTED: RecordStatus.PARTIAL,
    Outcome.REFUSED: RecordStatus.FAILED,
}


@dataclass(frozen=True, slots=True)
class Findings:
    """The parts of a final job's record; the results of steps that did not run are None."""

    prompt: Prompt | None = None
    completion: Completion | None = None
    processed: "Processed | None" = None
    grounding: Grounding | None = None
    quality: Quality = field(default_factory=Quality)
    answer: str = ""
    failure: Failure | None = None
    asks: tuple[Ask, ...] | None = None


def completed(job: Leased, outcome: Outcome, findings: Findings, timing: TimingMs) -> FinalJob:
    """The final write of a job that completed with an outcome."""
    return FinalJob(job, JobState.COMPLETED, outcome, _record(job, RECORD_STATUS[outcome], findings, timing))


def failed(job: Leased, failure: Failure, timing: TimingMs, findings: Findings | None = None) -> FinalJob:
    """The final write of a job that failed."""
    paid = findings or Findings()
    final = Findings(
        prompt=paid.prompt,
        completion=paid.completion,
        answer=fallback(job.request, "rejected" if failure.kind is FailureKind.MISSING_CITATIONS else "failed"),
        failure=failure,
        quality=Quality(reasoning=failure.message),
    )
    return FinalJob(job, JobState.FAILED, None, _record(job, RecordStatus.FAILED, final, timing))


def worker_lost(job: Lease) -> Failure:
    """The failure of a job whose workers were lost too often, one after the other."""
    return Failure(
        kind=FailureKind.WORKER_LOST,
        message=f"its worker was lost {job.rescues} times while it had this job, which may be the cause; the events of the"
        " job name those workers, see what they logged last",
    )


def _record(job: Leased, status: RecordStatus, findings: Findings, timing: TimingMs) -> GenerationRecord:
    request, prompt, completion, processed = job.request, findings.prompt, findings.completion, findings.processed
    return GenerationRecord(
        job_id=job.job_id,
        run=job.run,
        tenant=job.tenant,
        message_id=request.message_id or str(job.job_id),
        retrieval_record_id=request.retrieval_record_id,
        trace_id=request.trace_id,
        request_id=request.request_id,
        contract_version=CONTRACT_VERSION,
        prompt_name=prompt.name if prompt else None,
        prompt_version=prompt.version if prompt else None,
        prompt_hash=prompt.template_sha256 if prompt else None,
        model_provider=completion.snapshot.provider if completion else None,
        model_name=(completion.snapshot.model_returned or completion.snapshot.model_asked) if completion else None,
        messages_snapshot=prompt.snapshot if prompt else None,
        provider_snapshot=completion.snapshot if completion else None,
        output_raw=completion.text if completion else request.response,
        output_structured=processed.structured if processed else None,
        canonical=processed.canonical if processed else None,
        answer=findings.answer,
        output_format=processed.output_format if processed else _format(request.config.output_format),
        citations=processed.citations if processed else (),
        grounding=findings.grounding,
        quality=findings.quality,
        status=status,
        error_message=findings.failure.message if findings.failure else None,
        failure=findings.failure,
        usage=completion.usage if completion else None,
        asks=findings.asks,
        timing_ms=timing,
        replay_of=job.replay.of if job.replay else None,
    )


def _format(requested: OutputFormat) -> OutputFormat:
    """The format of a text of ours: ``auto`` is decided by an answer, and there is none."""
    return OutputFormat.PLAIN if requested is OutputFormat.AUTO else requested


_NO_TIMES = dict.fromkeys(TimingMs.model_fields, 0.0)


def total_ms(job: Leased, since_lease_s: float, measured: Mapping[str, float]) -> TimingMs:
    """Completes a job's timings: the total by the ledger's clock, and its remainder for commits and hand-overs.

    Args:
        job: as leased; its age is by the ledger's clock.
        since_lease_s: seconds since, by this process's monotonic clock.
        measured: the milliseconds of each part but ``persist`` and ``total``; none for a part that did not occur.
    """
    total = job.age_ms + since_lease_s * 1000
    parts = _NO_TIMES | dict(measured)
    parts |= {"total": total, "persist": max(0.0, total - sum(parts.values()))}
    return TimingMs(**{name: round(ms, 3) for name, ms in parts.items()})


def view_of_final(final: FinalJob, at: datetime) -> JobView:
    """The view of a job just written, without reading it back."""
    job = final.job
    return JobView(
        job_id=job.job_id,
        batch_id=job.batch_id,
        tenant=job.tenant,
        position=job.position,
        custom_id=job.custom_id,
        state=final.state,
        step=job.step,
        run=job.run,
        round=job.round,
        outcome=final.outcome,
        held_reason=None,
        created_at=job.created_at,
        scheduled_at=job.created_at,
        started_at=None,
        finished_at=at,
        published_at=None,
        cost_usd=job.cost_usd,
        request=job.request,
        record=final.record,
        replay_of=final.record.replay_of,
    )


def compact_final(final: FinalJob) -> bytes:
    """The compact result of a job that is about to be written."""
    return compact(result_of(view_of_final(final, datetime.now(UTC))))


def result_of(view: JobView) -> JobResult:
    """The whole result of a job for its producer; final or not."""
    record = view.record
    erased = () if view.erased_at is None else (f"erased on {view.erased_at:%Y-%m-%d %H:%M} UTC",)
    notes = erased if view.unreadable is None else (*erased, view.unreadable)
    result = JobResult(
        job_id=view.job_id,
        custom_id=view.custom_id,
        position=view.position,
        batch_id=view.batch_id,
        message_id=None if erased else view.request.message_id or str(view.job_id),
        trace_id=None if erased else view.request.trace_id,
        state=view.state,
        outcome=view.outcome,
        held_reason=view.held_reason,
        query="" if erased else view.request.query,
        warnings=notes,
        sources_provided=len(view.request.context),
        cost_usd=view.cost_usd,
        metadata=view.request.metadata,
        replay_of=view.replay_of,
    )
    if record is None:
        return result
    parts = {name: getattr(record, name) for name in _OF_RECORD} | dict(record.quality)
    if record.grounding:
        parts |= {name: getattr(record.grounding, name) for name in _OF_GROUNDING}
    parts |= {
        "response": record.answer if erased else _answer_text(view, record.answer),
        "warnings": (*notes, *record.quality.warnings),
        "structured": record.output_structured,
        "asks": record.asks or (),
    }
    return result.model_copy(update=parts).with_derived()


_OF_RECORD = ("output_format", "citations", "usage", "prompt_version", "timing_ms", "provider_snapshot", "failure")
_OF_GROUNDING = ("grounding_score", "confidence", "decided", "claims", "values")


def _answer_text(view: JobView, answer: str) -> str:
    """The answer, or in place of an empty one a text that says how the job ended."""
    if answer.strip() or view.state not in FINAL_STATES:
        return answer
    return without_answer(view.request, view.state)


_NOT_COMPACT: dict[str, Any] = {
    "timing_ms": True,
    "provider_snapshot": True,
    "claims": {"__all__": {"evidence", "reused_from"}},
    "values": {"__all__": {"evidence"}},
}


def compact(result: JobResult) -> bytes:
    """The result as stored in the result backend, as JSON.

    Leaves out evidence, snapshot and timings; what is still over 64 KB loses its claims, then its metadata and
    citations, then the end of its response, and says so by ``truncated``.
    """
    encoded = result.model_dump_json(exclude=_NOT_COMPACT).encode()
    return encoded if len(encoded) <= COMPACT_BYTES else _shorten(result)


def _shorten(result: JobResult) -> bytes:
    for smaller in (
        {"claims": (), "values": (), "structured": None},
        {"citations": (), "metadata": {}, "query": result.query[:1000]},
        {"response": _beginning(result), "reasoning": result.reasoning[:1000], "warnings": ()},
    ):
        result = result.model_copy(update={**smaller, "truncated": True})
        encoded = result.model_dump_json(exclude=_NOT_COMPACT).encode()
        if len(encoded) <= COMPACT_BYTES:
            break
    return encoded


def _beginning(result: JobResult) -> str:
    """The first 8,000 characters of a response; of JSON as an object that says so."""
    beginning = result.response[:8000]
    return in_format(beginning, "truncated", result.output_format or OutputFormat.PLAIN)


# ---- answers by id ---------------------------------------------------------------------------------------------------


MOST_IDS = 1_000
"""Ids a call may ask for at once."""


def parse_job_ids(raw: Sequence[Any]) -> list[UUID]:
    """Reads job ids; raises ``InputError`` naming the one that is not a UUID."""
    if len(raw) > MOST_IDS:
        raise InputError(f"{len(raw)} ids asked for, at most {MOST_IDS} at once", field="job_ids")
    ids = []
    for index, value in enumerate(raw):
        if (job_id := parse_job_id(value)) is None:
            raise InputError(f"{value!r} is not a job id", field=f"job_ids.{index}")
        ids.append(job_id)
    return ids


def parse_job_id(value: Any) -> UUID | None:
    """Reads a job id; None for what is no UUID."""
    try:
        return UUID(str(value))
    except ValueError:
        return None


async def poll(reading: Reading, ids: Sequence[UUID]) -> list[JobResult | None]:
    """The jobs' results as they stand now, in the order asked; None for an id that names no job."""
    results = {stored.result.job_id: stored.result for stored in await reading.results(ids)}
    return [results.get(job_id) for job_id in ids]
