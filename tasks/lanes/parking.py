"""Parks calls in the ledger that are answered later, and reads them again."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

import orjson

from schemas.failure import Failure, FailureKind
from schemas.generation import WINDOWS, AnswerProtocol, Lane
from schemas.model_call import MessagesSnapshot, Prompt, hash_messages
from schemas.states import JobState
from tasks.calls.paid_call import OpenCall, PlannedCall
from tasks.ports import Advance, Call, ClosedAttempt, Journal, Leased, NewAttempt, Permit, Provider, Purpose
from tasks.ports.remote_batches import ParkedCall, PendingCall

log = logging.getLogger(__name__)

Park = Callable[[ParkedCall], Awaitable[bool]]
"""Makes a job pending whose call waits for its answer; False if it was taken away meanwhile."""


@dataclass(slots=True)
class Parking:
    """Makes jobs pending whose attempt is open."""

    park_for_batch: Park
    park_response: Park
    journal: Journal

    async def park(
        self, paid: OpenCall, timing_ms: Mapping[str, float], misses: Sequence[str], remote_id: str | None = None
    ) -> None:
        """Parks a call for a batch, or one whose response has this id.

        An attempt whose job was taken away meanwhile is closed where nothing was sent.
        """
        call, attempt = paid.plan.call, paid.attempt
        row = ParkedCall(
            attempt.id,
            attempt.job_id,
            attempt.token,
            call.provider,
            call.model or "",
            call.body,
            document_of(call, timing_ms, misses, paid.plan.lane_reason),
            _moves_by(paid.job) if leaves_for_deadline(paid.job, attempt) else None,
            call.lane,
            remote_id,
        )
        if remote_id is not None:
            if not await self.park_response(row):
                log.error("the response %s of job %s could not be noted: its attempt is gone", remote_id, row.job_id)
        elif not await self.park_for_batch(row):
            failure = Failure(kind=FailureKind.CANCELLED, message="its job was taken away before the call was sent")
            await self.journal.close_attempt(
                ClosedAttempt(
                    attempt.id,
                    attempt.job_id,
                    attempt.token,
                    paid.job.step,
                    f"error:{failure.kind.value}",
                    spent=False,
                    failure=failure,
                    cost_usd=Decimal(0),
                    opening=attempt,
                )
            )
        self.journal.hand_over(attempt.id)


def leaves_for_deadline(job: Leased, attempt: NewAttempt) -> bool:
    """True if a parked call moves to another lane before its job's deadline.

    A job that names its lane stays in it; its judge does not: there is an answer already, which is not to expire.
    """
    return job.request.config.lane is Lane.AUTO or attempt.purpose is Purpose.JUDGE


def _moves_by(job: Leased) -> datetime | None:
    """The deadline of a job, or the end of the last window before it: outside of that none is called at once either."""
    return None if job.deadline is None else job.deadline - job.window_gap


def document_of(
    call: Call, timing_ms: Mapping[str, float], misses: Sequence[str], lane_reason: str | None = None
) -> bytes:
    """A call without its body and its job's request, and what its record is to say, as JSON."""
    return orjson.dumps(
        {
            "protocol": call.protocol.value,
            "timeout_s": call.timeout_s,
            "endpoint": call.endpoint,
            "prompt": call.prompt.model_dump(mode="json"),
            "parameters_sent": call.parameters_sent,
            "parameters_dropped": call.parameters_dropped,
            "timing_ms": dict(timing_ms),
            "fallback_from": list(misses),
            "lane_reason": lane_reason,
        }
    )


def call_of(pending: PendingCall) -> Call:
    """The call of a document; that of an erased job has an empty prompt, and only its cost is of use."""
    document, attempt = pending.document, pending.attempt
    protocol = AnswerProtocol(document["protocol"])
    return Call(
        provider=attempt.provider,
        model=attempt.model,
        lane=attempt.lane,
        protocol=protocol,
        body=b"",
        request_hash=attempt.request_hash,
        timeout_s=float(document["timeout_s"]),
        reserve_usd=attempt.reserved_usd,
        prompt=_prompt(document.get("prompt"), protocol),
        request=pending.job.request,
        parameters_sent=dict(document.get("parameters_sent") or {}),
        parameters_dropped=dict(document.get("parameters_dropped") or {}),
        endpoint=document["endpoint"],
    )


def _prompt(document: Any, protocol: AnswerProtocol) -> Prompt:
    if document is not None:
        return Prompt.model_validate(document)
    empty = MessagesSnapshot(messages=(), shown=(), protocol=protocol, sha256=hash_messages(()))
    return Prompt(name="erased", version="0", template_sha256="", snapshot=empty)


# ---- closes ----


def open_call(pending: PendingCall, provider: Provider) -> OpenCall:
    """The parked call as the call at once that it stands for."""
    attempt, call = pending.attempt, call_of(pending)
    permit = Permit(attempt.id, attempt.provider, attempt.model or "", attempt.lane, (), 0.0, 0.0)
    return OpenCall(pending.job, PlannedCall(provider, call), attempt, permit, pending.parked_ms)


def timing_ms(pending: PendingCall) -> dict[str, float]:
    """The timings of a job whose call was parked."""
    wait = "background_wait" if pending.attempt.lane in WINDOWS else "provider_batch_wait"
    return {**pending.document.get("timing_ms", {}), wait: round(pending.parked_ms, 3)}


def under_lease(pending: PendingCall) -> Advance:
    """Takes the job itself, under the token of its call, to end it."""
    return Advance(JobState.RUNNING, pending.job.step, pending.job.round)


def taken_back(pending: PendingCall) -> ClosedAttempt:
    """A second close of an attempt whose answer can't be stored: it only takes the job."""
    job, attempt = pending.job, pending.attempt
    outcome = f"error:{FailureKind.UNSTORABLE.value}"
    return ClosedAttempt(attempt.id, job.job_id, job.token, job.step, outcome, spent=True, then=under_lease(pending))
