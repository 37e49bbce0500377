"""Shows a job as a response of OpenAI's API: the answer with its citations, usage, and the verdicts on its claims."""

from collections import Counter
from typing import Any
from uuid import UUID

import orjson

from schemas.answer import Citation
from schemas.failure import FailureKind
from schemas.grounding import Verdict
from schemas.job import JobRequest
from schemas.model_call import Usage, plain_usd
from schemas.record import JobResult
from schemas.states import JobState, Outcome
from tasks.answers.objects import violations
from tasks.ports import JobView
from worker.http.response_order import NOTE, OWN_MODEL

SUMMARY = "nightdesk_"
"""Beginning of the metadata that this service adds."""

_STATUS = {
    JobState.SCHEDULED: "queued",
    JobState.AVAILABLE: "queued",
    JobState.RUNNING: "in_progress",
    JobState.PENDING: "in_progress",
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
    JobState.EXPIRED: "failed",
}

_CODES = {
    FailureKind.RATE_LIMITED: "rate_limit_exceeded",
    FailureKind.INVALID_REQUEST: "invalid_prompt",
    FailureKind.CONTEXT_EXCEEDED: "invalid_prompt",
}


def _unmet(view: JobView, result: JobResult) -> tuple[str, ...]:
    """The faults of the object of an answer, where one was asked for; a client would take prose for it, and fail elsewhere."""
    if result.outcome is None or not result.outcome.has_answer:
        return ()
    return violations(view.request.config, result.structured)


def response_id(job_id: UUID) -> str:
    """The id of a response."""
    return f"resp_{job_id.hex}"


def call_id(job_id: UUID) -> str:
    """The id of the call of a function."""
    return f"call_{job_id.hex}"


def document_of(view: JobView, result: JobResult) -> dict[str, Any]:
    """A job as a response, as it stands."""
    request, stored, unmet = view.request, view.request.metadata.get(NOTE), _unmet(view, result)
    note: dict[str, Any] = stored if isinstance(stored, dict) else {}
    config, status = request.config, "failed" if unmet else _STATUS[view.state]
    ended = None if view.finished_at is None else view.finished_at.timestamp()
    snapshot = result.provider_snapshot
    answered = snapshot.model_returned or snapshot.model_asked if snapshot is not None else None
    return {
        "id": response_id(view.job_id),
        "object": "response",
        "created_at": int(view.created_at.timestamp()),
        "completed_at": int(ended) if ended is not None and status == "completed" else None,
        "status": status,
        "background": bool(note.get("background")),
        "error": {"code": "server_error", "message": "; ".join(unmet)} if unmet else _error(result),
        "incomplete_details": None,
        "instructions": request.system_instructions,
        "max_output_tokens": config.max_tokens,
        "model": answered or note.get("model") or OWN_MODEL,
        "output": [item_of(view, result)] if status == "completed" else [],
        "parallel_tool_calls": False,
        "previous_response_id": None,
        "reasoning": {"effort": config.reasoning_effort, "summary": None},
        "store": True,
        "temperature": config.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": "none",
        "tools": [],
        "top_p": None if config.sampling is None else config.sampling.top_p,
        "truncation": "disabled",
        "usage": _usage(result) if ended is not None else None,
        "user": None,
        "metadata": _metadata(request.metadata, result),
        "nightdesk": result.model_dump(mode="json") if ended is not None else None,
    }


def called_by(view: JobView) -> str | None:
    """The name of the function whose arguments the order asked for."""
    note = view.request.metadata.get(NOTE)
    return note.get("function") if isinstance(note, dict) else None


def item_of(view: JobView, result: JobResult) -> dict[str, Any]:
    """The answer as a message, or as the call of the function that the order requires."""
    part, function = part_of(view, result), called_by(view)
    if function is not None and part["type"] != "refusal":
        return {
            "id": f"fc_{result.job_id.hex}",
            "type": "function_call",
            "call_id": call_id(result.job_id),
            "name": function,
            "arguments": part["text"],
            "status": "completed",
        }
    return {
        "id": f"msg_{result.job_id.hex}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def part_of(view: JobView, result: JobResult) -> dict[str, Any]:
    """The answer as the part of a message: a text with annotations, the object that was asked for, or a refusal."""
    has_schema = view.request.config.output_schema is not None
    # A caller that asked for an object gets a refusal, and none of its own form.
    if result.outcome is Outcome.REFUSED or (has_schema and result.outcome and not result.outcome.has_answer):
        return {"type": "refusal", "refusal": result.response}
    if result.structured is not None:
        text = orjson.dumps(result.structured).decode()
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    annotations = [_annotation(citation, view.request) for citation in result.citations]
    return {"type": "output_text", "text": result.response, "annotations": annotations, "logprobs": []}


def _annotation(citation: Citation, request: JobRequest) -> dict[str, Any]:
    """A citation: its place is that of its marker, the quote and the place of the quote are of the source."""
    sources = request.context[citation.source_index : citation.source_index + 1]
    named = sources[0].metadata if sources else {}
    title, url = str(named.get("title") or citation.document_id), named.get("url")
    form = (
        {"type": "url_citation", "url": url, "title": title}
        if isinstance(url, str)
        else {"type": "file_citation", "index": citation.start_pos, "file_id": citation.chunk_id, "filename": title}
    )
    return {
        **form,
        "start_index": citation.start_pos,
        "end_index": citation.end_pos,
        "source_index": citation.source_index,
        "quote": citation.quoted_text,
        "source_start": citation.source_start,
        "source_end": citation.source_end,
        "page": citation.page,
        "verified": citation.verified,
    }


def _error(result: JobResult) -> dict[str, Any] | None:
    if result.state not in {JobState.FAILED, JobState.EXPIRED}:
        return None
    if result.failure is None:
        return {"code": "server_error", "message": "the deadline of the job passed"}
    return {"code": _CODES.get(result.failure.kind, "server_error"), "message": result.failure.message}


def _usage(result: JobResult) -> dict[str, Any]:
    usage = result.usage or Usage()
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "cost_usd": None if result.cost_usd is None else plain_usd(result.cost_usd),
    }


def _metadata(own: dict[str, Any], result: JobResult) -> dict[str, str]:
    """The caller's pairs, and for a final answer the verdicts in short."""
    pairs = {key: value for key, value in own.items() if isinstance(value, str)}
    if result.outcome is None:
        return pairs
    counts = Counter(claim.verdict for claim in result.claims)
    summary: dict[str, Any] = {
        "outcome": result.outcome.value,
        "confidence": result.confidence,
        "grounding_score": result.grounding_score,
        "claims": len(result.claims),
        **{verdict.value: counts[verdict] for verdict in Verdict if counts[verdict]},
        "cost_usd": None if result.cost_usd is None else plain_usd(result.cost_usd),
    }
    return {**pairs, **{f"{SUMMARY}{name}": str(value) for name, value in summary.items() if value is not None}}
