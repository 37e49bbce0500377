"""The routes of completions in the form of OpenAI's API: the order of a response, and its answer, by other names."""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import APIRouter
from fastapi.responses import Response, StreamingResponse

from schemas.job import Sampling
from tasks.errors import InputError, NightdeskError
from tasks.ports import JobView
from tasks.raw_jobs.conversation import printed_messages
from tasks.results import result_of
from worker.http.documents import OPENAI_PROBLEMS, PRIVATE, body_of, json_answer
from worker.http.jobs import Envelope, EnvelopeOf
from worker.http.openai_responses import EVENT_HEADERS, EVENTS, final_view, submit_order, wait_for
from worker.http.problems import Problem, invalid, problem_from
from worker.http.response_document import call_id, called_by, document_of, part_of
from worker.http.response_events import pieces_of
from worker.http.response_order import NAMED, NO_LOGPROBS, sources_in
from worker.http.service import Service
from worker.http.shares import Caller

router = APIRouter(prefix="/openai/v1", tags=["openai"], responses=OPENAI_PROBLEMS)

_SAME = (
    "model",
    "metadata",
    "temperature",
    "stream",
    "tool_choice",
    "config",
    "priority",
    "top_logprobs",
    *Sampling.model_fields,
)
"""Parameters that a response has, too."""

_BODY = body_of({"type": "object", "properties": {"model": {}}})


@dataclass(frozen=True, slots=True)
class Form:
    """The differences between the two APIs of completions."""

    names: dict[str, str]
    """Its names for the parameters of a response."""
    read: Callable[[Any], Any]
    """Makes the order of a response of its order."""
    show: Callable[[JobView], dict[str, Any]]
    """Shows a final job; raises ``Problem`` where there is no answer."""
    chunks: Callable[[dict[str, Any]], Iterator[dict[str, Any]]]
    """Takes what it shows apart for a stream."""

    def renamed(self, error: InputError | Problem) -> Problem:
        """The problem, with its own names of the parameters at fault."""
        problem, pattern = problem_from(error), f"{NAMED}(?:{'|'.join(map(re.escape, self.names)) or '$^'})"

        def name(text: str) -> str:
            return re.sub(pattern, lambda match: self.names[match[0]], text)

        problem.field = problem.field and name(problem.field)
        problem.detail = name(problem.detail)
        return problem


_ONE_ANSWER = "there is one answer to a question; leave it out, or send 1"
_NOT_TAKEN = {
    "n": _ONE_ANSWER,
    "best_of": _ONE_ANSWER,
    "logprobs": NO_LOGPROBS,
    "logit_bias": "not every model weighs tokens; say in instructions what to avoid",
    "functions": "it is the older form of tools; use these, with a tool_choice that requires the function",
    "audio": "the answer is a text; leave it out",
    "echo": "the answer is a text of its own; leave it out",
    "suffix": "the answer is a text of its own; leave it out",
    "web_search_options": "an answer rests on the sources of its request alone; send them in it",
}
"""Parameters that would change the answer, with the reason why they are refused; of completions, ``logprobs=0`` asks for some, too."""


def _order_of_chat(raw: Any) -> Any:
    """The order of a response that a chat is; raises ``Problem`` that names the parameter of the chat."""
    if not isinstance(raw, dict):
        return raw
    _require_plain(raw)
    tools, most = raw.get("tools"), raw.get("max_completion_tokens")
    order = {
        **{name: raw[name] for name in _SAME if name in raw},
        "input": raw.get("messages"),
        "sources": sources_in(raw),
        "max_output_tokens": raw.get("max_tokens") if most is None else most,
        "reasoning": {"effort": raw.get("reasoning_effort")},
        "text": {"format": _unfolded(raw.get("response_format"), "json_schema")},
        "tools": [_unfolded(tool, "function") for tool in tools] if isinstance(tools, list) else tools,
    }
    return {name: value for name, value in order.items() if value is not None}


def _require_plain(raw: dict[str, Any]) -> None:
    for name, value in raw.items():
        if name in _NOT_TAKEN and (value or type(value) is int) and (value, _NOT_TAKEN[name]) != (1, _ONE_ANSWER):
            raise invalid(f"not taken, as {_NOT_TAKEN[name]}", name)


def _unfolded(value: Any, name: str) -> Any:
    """A value as a response has it, without the level that a chat puts around its parts."""
    parts = value.get(name) if isinstance(value, dict) else None
    return {"type": value["type"], **parts} if isinstance(parts, dict) and "type" in value else value


def _order_of_text(raw: Any) -> Any:
    """The order of a response that a prompt is: a chat, or else one question."""
    if not isinstance(raw, dict):
        return raw
    match raw.get("prompt"):
        case str(prompt) | [str(prompt)]:
            return _order_of_chat({**raw, "messages": printed_messages(prompt)})
    raise invalid("must be one text; send each question by itself, or all as a batch", "prompt")


@router.post("/chat/completions", openapi_extra=_BODY)
async def create(envelope: EnvelopeOf) -> Response:
    """Answer one question from its sources, as `/openai/v1/responses` does. The answer comes when it is checked."""
    return await _answer(CHAT, envelope)


@router.post("/completions", openapi_extra=_BODY)
async def complete(envelope: EnvelopeOf) -> Response:
    """Answer a prompt that is one question, from `sources`; for clients that know no chat."""
    return await _answer(_TEXT, envelope)


async def _answer(form: Form, envelope: Envelope) -> Response:
    body: Any = None

    def read(raw: Any) -> Any:
        nonlocal body
        body = raw
        return form.read(raw)

    try:
        order, view = await submit_order(envelope, read)
    except (InputError, Problem) as error:
        raise form.renamed(error) from error
    if order.stream:
        options = body.get("stream_options")
        with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        lines = _lines(form, envelope.service, envelope.caller, view, with_usage=with_usage)
        return StreamingResponse(lines, headers=EVENT_HEADERS, media_type=EVENTS)
    return json_answer(form.show(await final_view(envelope, view)), headers=PRIVATE)


def completion_of(view: JobView) -> dict[str, Any]:
    """A final job as a chat completion; raises ``Problem`` where there is no answer, for a chat has no failed state."""
    result = result_of(view)
    document = document_of(view, result)
    if document["status"] != "completed":
        error = document["error"] or {"code": "server_error", "message": f"the job is {view.state.value}"}
        status = 422 if error["code"] == "invalid_prompt" else 500
        # Sent again it would be another order, and paid for again.
        raise Problem(status, "failed", "Failed", error["message"], headers={"X-Should-Retry": "false"})
    part, usage, function = part_of(view, result), document["usage"], called_by(view)
    text, refusal = part.get("text"), part.get("refusal")
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": refusal, "annotations": _cited(part)}
    if function is not None and text is not None:
        call = {"id": call_id(view.job_id), "type": "function"}
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


def _text_of(view: JobView) -> dict[str, Any]:
    """A final job as the completion of a text; raises ``Problem`` where there is no answer."""
    chat = completion_of(view)
    message = chat["choices"][0]["message"]
    text = message["content"] if message["refusal"] is None else message["refusal"]
    choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
    return {**chat, "id": f"cmpl_{view.job_id.hex}", "object": "text_completion", "choices": [choice]}


def _cited(part: dict[str, Any]) -> list[dict[str, Any]]:
    """The citations: a chat knows those of pages alone, so each source has an address, where need be an empty one."""
    return [
        {
            "type": "url_citation",
            "url_citation": {"url": "", "title": each.get("filename"), **each, "type": "url_citation"},
        }
        for each in part.get("annotations", ())
    ]


async def _lines(
    form: Form, service: Service, caller: Caller, view: JobView, *, with_usage: bool
) -> AsyncIterator[bytes]:
    """The chunks of a completion: its text comes once it is checked, in pieces."""
    try:
        async for final in wait_for(service, caller, view.job_id, float("inf")):
            if final is None:
                yield b": still here\n\n"
                continue
            completion = form.show(final)
            usage = {"choices": [], "usage": completion["usage"]}
            for chunk in (*form.chunks(completion), *([usage] if with_usage else ())):
                yield b"data: %s\n\n" % orjson.dumps({**{name: completion[name] for name in _HEAD}, **chunk})
            yield b"data: [DONE]\n\n"
            return
        problem = Problem(503, "unavailable", "Unavailable", "the service stops; the job goes on")
    except (NightdeskError, Problem) as error:
        problem = problem_from(error)
    yield b"data: %s\n\n" % bytes(problem.openai_response().body)


_HEAD = ("id", "object", "created", "model")
"""Parts of a completion that each chunk of it repeats."""
_LAST = ("metadata", "nightdesk")
"""Parts that its last chunk has."""


def _chunks_of_chat(completion: dict[str, Any]) -> Iterator[dict[str, Any]]:
    (choice,) = completion["choices"]
    message, head = choice["message"], {"object": "chat.completion.chunk"}
    name = "refusal" if message["refusal"] is not None else "content"
    deltas: list[dict[str, Any]] = [{"role": "assistant", name: ""}]
    deltas += [{name: piece} for piece in pieces_of(message[name] or "")]
    if calls := message.get("tool_calls"):
        deltas.append({"tool_calls": [{"index": 0, **calls[0]}]})
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    last = {"index": 0, "delta": {"annotations": message["annotations"]}, "finish_reason": choice["finish_reason"]}
    yield {**head, "choices": [last], **{name: completion[name] for name in _LAST}}


def _chunks_of_text(completion: dict[str, Any]) -> Iterator[dict[str, Any]]:
    (choice,) = completion["choices"]
    for piece in pieces_of(choice["text"]):
        yield {"choices": [{**choice, "text": piece, "finish_reason": None}]}
    yield {"choices": [{**choice, "text": ""}], **{name: completion[name] for name in _LAST}}


CHAT = Form(
    {
        "input": "messages",
        "instructions": "messages",
        "max_output_tokens": "max_completion_tokens",
        "reasoning.effort": "reasoning_effort",
        "text.format.schema": "response_format.json_schema.schema",
        "text.format.type": "response_format.type",
        "text.format": "response_format",
        "tools[0].parameters": "tools[0].function.parameters",
    },
    _order_of_chat,
    completion_of,
    _chunks_of_chat,
)


def _unchanged(raw: Any) -> Any:
    return raw


def _response_of(view: JobView) -> dict[str, Any]:
    return document_of(view, result_of(view))


RESPONSES = Form({}, _unchanged, _response_of, _chunks_of_text)
"""Their stream has events of its own."""
_TEXT = Form({"input": "prompt", "max_output_tokens": "max_tokens"}, _order_of_text, _text_of, _chunks_of_text)
