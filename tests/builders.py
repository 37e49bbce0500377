"""Builders of the values that pass through the ports, each valid as it comes and changed by keyword."""

import hashlib
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from schemas import CONTRACT_VERSION
from schemas.failure import Failure, FailureKind
from schemas.generation import AnswerProtocol, OutputFormat
from schemas.job import GenerationConfig, JobRequest, SourceContext
from schemas.model_call import (
    Completion,
    FinishReason,
    Message,
    MessagesSnapshot,
    Prompt,
    ProviderSnapshot,
    Role,
    SourcePart,
    TextPart,
    Usage,
    hash_messages,
)
from schemas.record import GenerationRecord, RecordStatus
from schemas.states import JobState, Outcome, Step
from tasks.estimates.estimate import first_lease
from tasks.ports import (
    Advance,
    CacheLookup,
    ClosedAttempt,
    FinalJob,
    Leased,
    LeaseKey,
    NewAttempt,
    NewBatch,
    NewJob,
    Purpose,
    ShareTerms,
    StoredAnswer,
    StoredCompletion,
)
from tasks.prompting.messages import render

SOURCE = "The night desk takes the day's copy, checks it, and has it ready by morning."
SHARED_REQUEST = b"the same"
"""Hash of what identical calls ask, unless given."""
ANSWER = "It has the copy ready by morning [1]."


def new_id() -> UUID:
    """A time-ordered id, as the code makes them."""
    return uuid7()


# ---- what comes in ---------------------------------------------------------------------------------------------


def make_request(query: str = "When is the copy ready?", **changes: Any) -> JobRequest:
    """A question with one source."""
    changes.setdefault("context", (SourceContext(content=SOURCE),))
    return JobRequest(query=query, **changes)


def make_config(**changes: Any) -> GenerationConfig:
    """The default config with changes."""
    return GenerationConfig(**changes)


def make_batch(tenant: str = "desk", **changes: Any) -> NewBatch:
    """A batch without key, window, deadline or budget."""
    changes.setdefault("id", new_id())
    return NewBatch(tenant=tenant, **changes)


def make_job(request: JobRequest | None = None, *, position: int = 0, tenant: str = "desk", **changes: Any) -> NewJob:
    """A job of a request; what the request says of ids, times and priority is taken over as ``submit`` does."""
    request = request or make_request(f"Question {position}?")
    document = request.model_dump_json().encode()
    fields: dict[str, Any] = {
        "id": new_id(),
        "step": request.config.check_step if request.check_only else Step.GENERATE,
        "request": document,
        "request_hash": hashlib.sha256(document).digest(),
        "contract_version": CONTRACT_VERSION,
        "custom_id": request.custom_id,
        "message_id": request.message_id,
        "idempotency_key": request.idempotency_key,
        "priority": request.priority,
        "scheduled_at": request.scheduled_at,
        "deadline": request.deadline,
    }
    return NewJob(position=position, tenant=tenant, **{**fields, **changes})


def make_jobs(*requests: JobRequest, tenant: str = "desk") -> list[NewJob]:
    """A job per request, positions counted from 0."""
    return [make_job(request, position=position, tenant=tenant) for position, request in enumerate(requests)]


# ---- attempts --------------------------------------------------------------------------------------------------


def lease_for_check(request: JobRequest, completion: Completion) -> Leased:
    """The lease of a job for its check: of this completion, or of the answer that its request supplies."""
    stored = None
    if not request.check_only:
        stored = StoredCompletion(new_id(), completion, render(request, completion.protocol), {"llm": 0.01})
    lease = first_lease(new_id(), request, make_batch())
    return replace(lease, step=request.config.check_step, stored=stored, attempts=int(stored is not None))


def lease_key(leased: Leased) -> LeaseKey:
    """The key of a lease."""
    return LeaseKey(leased.job_id, leased.token)


def make_attempt(leased: Leased, purpose: Purpose | None = None, **changes: Any) -> NewAttempt:
    """The next attempt of a leased job, for the purpose of its step unless given; no reservation unless given."""
    usual = Purpose.GENERATE if leased.step is Step.GENERATE else Purpose.JUDGE
    fields: dict[str, Any] = {
        "id": new_id(),
        "token": leased.token,
        "run": leased.run,
        "round": leased.round,
        "number": leased.attempts + 1,
        "lane": "standard",
        "provider": "fake",
        "model": "fake-1",
        "request_hash": hashlib.sha256(str(leased.job_id).encode()).digest(),
    }
    return NewAttempt(
        job_id=leased.job_id,
        batch_id=leased.batch_id,
        purpose=purpose or usual,
        **{**fields, **changes},
    )


def make_terms(what: str = "the same", *, within_s: float = 3_600, wait_s: float = 300) -> ShareTerms:
    """Terms for sharing; ``what`` says which calls are identical."""
    key = hashlib.sha256(what.encode()).digest()
    return ShareTerms(key, timedelta(seconds=within_s), timedelta(seconds=wait_s))


def make_wanted(leased: Leased, share: ShareTerms | None = None, **changes: Any) -> CacheLookup:
    """A look for the answer of an identical call, from a job whose prompt is its own."""
    fields: dict[str, Any] = {
        "attempt": make_attempt(leased, share=share or make_terms(), request_hash=SHARED_REQUEST),
        "prompt": make_prompt("Its own question?"),
        "snapshot": {"parameters_sent": {"max_tokens": 7}, "rate_limits": {}},
        "timing_ms": {"queue": 1.5, "llm": 0.0, "share_wait": 20.0},
        "then": leased.request.config.check_step,
    }
    return CacheLookup(**{**fields, **changes})


def make_prompt(query: str = "When is the copy ready?", source: str = SOURCE) -> Prompt:
    """A rendered prompt that shows one source, with the hash that proves it."""
    messages = (
        Message(role=Role.SYSTEM, parts=(TextPart(text="Answer from the sources only."),)),
        Message(
            role=Role.USER,
            parts=(SourcePart(source_index=0, start=0, end=len(source)), TextPart(text=f"\n\n{query}")),
        ),
    )
    proof = hash_messages([(message.role, message.text([source])) for message in messages])
    snapshot = MessagesSnapshot(messages=messages, shown=(0,), protocol=AnswerProtocol.MARKERS, sha256=proof)
    return Prompt(name="grounded", version="1", template_sha256="0" * 64, snapshot=snapshot)


def make_completion(text: str = ANSWER, **changes: Any) -> Completion:
    """A complete answer of the fake provider, priced at 0.002 USD."""
    fields: dict[str, Any] = {
        "finish_reason": FinishReason.STOP,
        "protocol": AnswerProtocol.MARKERS,
        "usage": Usage(input_tokens=100, output_tokens=10),
        "cost_usd": Decimal("0.002"),
        "snapshot": ProviderSnapshot(provider="fake", model_asked="fake-1", model_returned="fake-1"),
    }
    return Completion(text=text, **{**fields, **changes})


def make_answer(text: str = ANSWER, **changes: Any) -> StoredAnswer:
    """A completion with its raw bytes and its prompt."""
    completion = make_completion(text, **changes)
    return StoredAnswer(raw=completion.text.encode(), completion=completion, prompt=make_prompt())


def closed_ok(leased: Leased, attempt: NewAttempt, text: str = ANSWER, **changes: Any) -> ClosedAttempt:
    """The attempt got an answer, at the completion's price unless ``cost_usd`` is given; the job stays where it is."""
    answer = changes.pop("answer", None) or make_answer(text)
    changes.setdefault("cost_usd", answer.completion.cost_usd)
    changes.setdefault("timing_ms", {"llm": 12.5})
    return _closed(leased, attempt, outcome="ok", spent=False, answer=answer, **changes)


def closed_error(
    leased: Leased, attempt: NewAttempt, kind: FailureKind = FailureKind.OVERLOADED, **changes: Any
) -> ClosedAttempt:
    """The attempt failed and counts towards ``max_attempts`` unless ``spent`` says otherwise."""
    changes.setdefault("spent", True)
    changes.setdefault("cost_usd", Decimal(0))
    changes.setdefault("failure", Failure(kind=kind, message="the provider said no", attempt=attempt.number))
    return _closed(leased, attempt, outcome=f"error:{kind.value}", **changes)


def closed_unknown(leased: Leased, attempt: NewAttempt, **changes: Any) -> ClosedAttempt:
    """Nobody knows what became of the call."""
    changes.setdefault("spent", False)
    kind = FailureKind.UNKNOWN_OUTCOME
    changes.setdefault("failure", Failure(kind=kind, message="no answer came", attempt=attempt.number))
    return _closed(leased, attempt, outcome="unknown", **changes)


def _closed(leased: Leased, attempt: NewAttempt, **fields: Any) -> ClosedAttempt:
    return ClosedAttempt(
        id=attempt.id, job_id=leased.job_id, token=leased.token, step=leased.step, **{"opening": attempt, **fields}
    )


def to_check(leased: Leased) -> Advance:
    """On to the check, in the same round."""
    return Advance(state=JobState.AVAILABLE, step=leased.request.config.check_step, round=leased.round)


def later(leased: Leased, **changes: Any) -> Advance:
    """Back to ``scheduled`` for the step and round the job is in."""
    return Advance(state=JobState.SCHEDULED, **{"step": leased.step, "round": leased.round, **changes})


# ---- finals ----------------------------------------------------------------------------------------------------


def make_record(leased: Leased, **changes: Any) -> GenerationRecord:
    """A successful record of a leased job."""
    fields: dict[str, Any] = {
        "message_id": leased.request.message_id or str(leased.job_id),
        "contract_version": CONTRACT_VERSION,
        "model_provider": "fake",
        "model_name": "fake-1",
        "answer": ANSWER,
        "output_raw": ANSWER,
        "output_format": OutputFormat.MARKDOWN,
        "status": RecordStatus.SUCCESS,
    }
    return GenerationRecord(job_id=leased.job_id, run=leased.run, tenant=leased.tenant, **{**fields, **changes})


def make_final(leased: Leased, **changes: Any) -> FinalJob:
    """A completed, answered job."""
    record = changes.pop("record", None) or make_record(leased)
    fields: dict[str, Any] = {"state": JobState.COMPLETED, "outcome": Outcome.ANSWERED, **changes}
    return FinalJob(leased, record=record, **fields)


def make_failed(leased: Leased, kind: FailureKind = FailureKind.ATTEMPTS_SPENT, **changes: Any) -> FinalJob:
    """A failed job with its failure in the record."""
    failure = Failure(kind=kind, message="no attempts left")
    record = make_record(
        leased,
        answer="",
        output_raw=None,
        status=RecordStatus.FAILED,
        error_message=failure.message,
        failure=failure,
    )
    return make_final(leased, **{"state": JobState.FAILED, "outcome": None, "record": record, **changes})
