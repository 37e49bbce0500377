"""The route of chat completions in the form of OpenAI's API: the order of a response, and its answer, by other names."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from tasks.errors import InputError, NightdeskError
from tasks.ports import JobView
from tasks.results import result_of
from worker.http.dependencies import ServiceOf, Submitter, departure_of
from worker.http.documents import OPENAI_PROBLEMS
from worker.http.jobs import IdempotencyKey, TraceParent
from worker.http.openai_responses import EVENT_HEADERS, EVENTS, final_view, submit_order, wait_for
from worker.http.problems import Problem, invalid, problem_of
from worker.http.response_document import document_of
from worker.http.response_events import pieces_of
from worker.http.response_order import NOTE
from worker.http.service import Service
from worker.http.shares import Caller

router = APIRouter(prefix="/openai/v1/chat/completions", tags=["openai"], responses=OPENAI_PROBLEMS)

_SAME = ("model", "metadata", "temperature", "top_p", "stream", "sources", "config", "priority")
"""Parameters that a response has, too."""

_NAMES = {
    "input": "messages",
    "max_output_tokens": "max_completion_tokens",
    "reasoning.effort": "reasoning_effort",
    "text.format.schema": "response_format.json_schema.schema",
    "text.format.type": "response_format.type",
    "text.format": "response_format",
}
"""Names of the parameters of a response in a chat."""
_FREE = (None, "auto", "none")
"""Choices that leave it to the model whether a function is called."""
_PARAMETER = re.compile("|".join(map(re.escape, _NAMES)))

_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object", "properties": {"messages": {}, "model": {}}}}},
    }
}


def response_order_of(raw: Any) -> Any:
    """The order of a response that a chat is; raises ``Problem`` that names the parameter of the chat."""
    if not isinstance(raw, dict):
        return raw
    if raw.get("n") not in {None, 1}:
        raise invalid("there is one answer to a question; leave it out", "n")
    form, function = _form(raw)
    order = {
        **{name: raw[name] for name in _SAME if name in raw},
        "input": raw.get("messages"),
        "max_output_tokens": raw.get("max_completion_tokens") or raw.get("max_tokens"),
        "reasoning": {"effort": raw.get("reasoning_effort")},
        "text": {"format": form},
        "function": function,
    }
    return {name: value for name, value in order.items() if value is not None}


def _form(raw: dict[str, Any]) -> tuple[Any, str | None]:
    """The form of the answer: by ``response_format``, or the arguments of the one function that must be called."""
    tools, form = raw.get("tools"), raw.get("response_format")
    if tools:
        match tools:
            case [{"function": {"name": str(name), "parameters": schema}}] if raw.get("tool_choice") not in _FREE:
                return {"type": "json_schema", "schema": schema}, name
        detail = "is taken here for the form of the answer alone: one function, which tool_choice requires"
        raise invalid(detail, "tools")
    if isinstance(form, dict) and isinstance(form.get("json_schema"), dict):
        form = {"type": form.get("type"), **form["json_schema"]}
    return form, None


@router.post("", response_model=None, openapi_extra=_BODY)
async def create(
    request: Request,
    service: ServiceOf,
    caller: Submitter,
    idempotency_key: IdempotencyKey = None,
    traceparent: TraceParent = None,
) -> Response:
    """Answer one question from its sources, as `/openai/v1/responses` does. The answer comes when it is checked."""
    with_usage = False

    def read(raw: Any) -> Any:
        nonlocal with_usage
        options = raw.get("stream_options") if isinstance(raw, dict) else None
        with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        return response_order_of(raw)

    try:
        order, view = await submit_order(request, service, caller, idempotency_key, traceparent, read)
    except (InputError, Problem) as error:
        problem = error if isinstance(error, Problem) else problem_of(error)
        if problem.field is not None:
            problem.field = _PARAMETER.sub(lambda name: _NAMES[name[0]], problem.field, count=1)
        problem.detail = _PARAMETER.sub(lambda name: _NAMES[name[0]], problem.detail, count=1)
        raise problem from error
    if order.stream:
        lines = _lines(service, caller, view, with_usage=with_usage)
        return StreamingResponse(lines, headers=EVENT_HEADERS, media_type=EVENTS)
    view = await final_view(service, caller, view, departure_of(request))
    headers = {"Cache-Control": "private, no-store"}
    return Response(orjson.dumps(completion_of(view)), headers=headers, media_type="application/json")


def completion_of(view: JobView) -> dict[str, Any]:
    """A final job as a chat completion; raises ``Problem`` where there is no answer, for a chat has no failed state."""
    document = document_of(view, result_of(view))
    if document["status"] != "completed":
        error = document["error"] or {"code": "server_error", "message": f"the job is {view.state.value}"}
        status = 422 if error["code"] == "invalid_prompt" else 500
        # Sent again it would be another order, and paid for again.
        raise Problem(status, "failed", "Failed", error["message"], headers={"X-Should-Retry": "false"})
    (part,) = document["output"][0]["content"]
    usage, note = document["usage"], view.request.metadata.get(NOTE)
    function = note.get("function") if isinstance(note, dict) else None
    text, refusal = part.get("text"), part.get("refusal")
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": refusal, "annotations": _cited(part)}
    if function is not None and text is not None:
        call = {"id": f"call_{view.job_id.hex}", "type": "function"}
        message |= {"content": None, "tool_calls": [{**call, "function": {"name": function, "arguments": text}}]}
    finish = "tool_calls" if "tool_calls" in message else "stop"
    return {
        "id": f"chatcmpl_{view.job_id.hex}",
        "object": "chat.completion",
        "created": document["created_at"],
        "model": document["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {
            "prompt_tokens": usage["input_tokens"],
            "prompt_tokens_details": usage["input_tokens_details"],
            "completion_tokens": usage["output_tokens"],
            "completion_tokens_details": usage["output_tokens_details"],
            "total_tokens": usage["total_tokens"],
            "cost_usd": usage["cost_usd"],
        },
        "metadata": document["metadata"],
        "nightdesk": document["nightdesk"],
    }


def _cited(part: dict[str, Any]) -> list[dict[str, Any]]:
    """The citations: a chat knows those of pages alone, so each source has an address, where need be an empty one."""
    return [
        {
            "type": "url_citation",
            "url_citation": {"url": "", "title": each.get("filename"), **each, "type": "url_citation"},
        }
        for each in part.get("annotations", ())
    ]


async def _lines(service: Service, caller: Caller, view: JobView, *, with_usage: bool) -> AsyncIterator[bytes]:
    """The chunks of a chat: its text comes once it is checked, in pieces."""
    try:
        async for final in wait_for(service, caller, view.job_id, float("inf")):
            if final is None:
                yield b": still here\n\n"
                continue
            for chunk in _chunks(completion_of(final), with_usage=with_usage):
                yield b"data: %s\n\n" % orjson.dumps(chunk)
            yield b"data: [DONE]\n\n"
            return
        problem = Problem(503, "unavailable", "Unavailable", "the service stops; the job goes on")
    except (NightdeskError, Problem) as error:
        problem = error if isinstance(error, Problem) else problem_of(error)
    yield b"data: %s\n\n" % bytes(problem.openai_response().body)


def _chunks(completion: dict[str, Any], *, with_usage: bool) -> Iterator[dict[str, Any]]:
    (choice,) = completion["choices"]
    message = choice["message"]
    head = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    name = "refusal" if message["refusal"] is not None else "content"
    deltas: list[dict[str, Any]] = [{"role": "assistant", name: ""}]
    deltas += [{name: piece} for piece in pieces_of(message[name] or "")]
    if calls := message.get("tool_calls"):
        deltas.append({"tool_calls": [{"index": 0, **calls[0]}]})
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last = {"index": 0, "delta": {"annotations": message["annotations"]}, "finish_reason": choice["finish_reason"]}
    yield {**head, "choices": [last], "metadata": completion["metadata"], "nightdesk": completion["nightdesk"]}
    if with_usage:
        yield {**head, "choices": [], "usage": completion["usage"]}
