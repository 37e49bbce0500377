"""The audit record of a final job, and the result that a producer polls."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from pydantic import Field

from schemas.answer import CanonicalAnswer, Citation
from schemas.base import Contract
from schemas.failure import Failure
from schemas.generation import OutputFormat
from schemas.grounding import Claim, Grounding, Value
from schemas.model_call import Ask, MessagesSnapshot, ProviderSnapshot, Usage, Usd
from schemas.states import JobState, Outcome


class RecordStatus(StrEnum):
    """The three-way status of a record."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"


class TimingMs(Contract):
    """The time of a job by phase, in milliseconds.

    ``total`` runs from acceptance to the final write. ``persist`` is the remainder after all other phases: the
    ledger's commits and the transfers between processes. The five waits are separate from the work.
    """

    queue: float = Field(default=0.0, description="waiting for a worker, both steps")
    prompt: float = 0.0
    llm: float = Field(default=0.0, description="the winning call")
    postprocess: float = 0.0
    check: float = 0.0
    persist: float = Field(default=0.0, description="remainder of the total: commits, transfers, holds")
    total: float = 0.0
    retry_wait: float = Field(default=0.0, description="failed attempts and the backoff after them")
    limiter_wait: float = Field(default=0.0, description="waiting for permits, with a lease or sent away")
    share_wait: float = Field(default=0.0, description="waiting for the answer of an identical request")
    provider_batch_wait: float = 0.0
    background_wait: float = Field(default=0.0, description="a response in the provider's background was under way")


class Quality(Contract):
    """The documented heuristics beside the check, and the warnings for a person."""

    answer_quality: float | None = Field(default=None, ge=0, le=1)
    sufficient_context: bool | None = None
    reasoning: str = ""
    abstain_reason: str | None = None
    warnings: tuple[str, ...] = ()


class GenerationRecord(Contract):
    """The audit record of one final run of a job; every column of the table ``generation_record`` and no other."""

    job_id: UUID
    run: int
    tenant: str
    message_id: str
    retrieval_record_id: str | None = None
    trace_id: str | None = None
    request_id: str | None = None
    contract_version: int
    prompt_name: str | None = None
    prompt_version: str | None = None
    prompt_hash: str | None = None
    model_provider: str | None = None
    model_name: str | None = None
    messages_snapshot: MessagesSnapshot | None = None
    provider_snapshot: ProviderSnapshot | None = None
    output_raw: str | None = None
    output_structured: dict[str, Any] | None = None
    canonical: CanonicalAnswer | None = Field(default=None, description="canonical form of the answer")
    answer: str = ""
    output_format: OutputFormat
    citations: tuple[Citation, ...] = ()
    grounding: Grounding | None = None
    quality: Quality = Field(default_factory=Quality)
    status: RecordStatus
    error_message: str | None = None
    failure: Failure | None = None
    usage: Usage | None = None
    asks: tuple[Ask, ...] | None = Field(default=None, description="the rounds of a job that had several; else null")
    timing_ms: TimingMs = Field(default_factory=TimingMs)
    created_at: datetime | None = Field(default=None, description="set by the ledger")
    replay_of: UUID | None = Field(default=None, description="the job that this one asks again")


class JobResult(Contract):
    """The result of a job, final or not. All positions are half-open, in Unicode code points."""

    job_id: UUID
    custom_id: str | None = None
    position: int
    batch_id: UUID
    message_id: str | None = Field(default=None, description="as handed in, else the job id")
    trace_id: str | None = Field(default=None, description="as handed in")
    state: JobState
    outcome: Outcome | None = None
    held_reason: str | None = None
    query: str = ""
    response: str = ""
    output_format: OutputFormat | None = None
    citations: tuple[Citation, ...] = ()
    sources_used: tuple[str, ...] = Field(default=(), description="chunk ids that are cited")
    sources_provided: int = 0
    grounding_score: float | None = None
    confidence: float | None = None
    decided: dict[str, int] = Field(default_factory=dict)
    answer_quality: float | None = None
    sufficient_context: bool | None = None
    reasoning: str = ""
    abstain_reason: str | None = None
    warnings: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    values: tuple[Value, ...] = Field(
        default=(), description="the leaves of structured for a caller's own output_schema"
    )
    structured: dict[str, Any] | None = None
    tokens_used: int | None = None
    usage: Usage | None = None
    cost_usd: Usd | None = Field(default=None, description="of all calls; null where the price of one is unknown")
    asks: tuple[Ask, ...] = Field(default=(), description="the rounds of a job that had several, in order")
    prompt_version: str | None = Field(default=None, description="of the template whose answer this is")
    shared_from: UUID | None = Field(default=None, description="origin of a shared answer; this job made no call")
    replay_of: UUID | None = Field(default=None, description="the job that this one asks again")
    latency_ms: float | None = Field(default=None, description="from acceptance to the final write")
    timing_ms: TimingMs | None = None
    provider_snapshot: ProviderSnapshot | None = None
    failure: Failure | None = None
    metadata: dict[str, Any] = Field(default_factory=dict, description="metadata of the request")
    truncated: bool = Field(default=False, description="the compact form was cut to fit; poll for the whole")

    def with_derived(self) -> "JobResult":
        """Fills the fields that are made of others."""
        usage, snapshot, timing = self.usage, self.provider_snapshot, self.timing_ms
        shared = snapshot.shared_from if snapshot else None
        return self.model_copy(
            update={
                "sources_used": tuple(dict.fromkeys(citation.chunk_id for citation in self.citations)),
                "tokens_used": usage.input_tokens + usage.output_tokens if usage else None,
                "shared_from": shared.job_id if shared else None,
                "latency_ms": timing.total if timing else None,
            }
        )
