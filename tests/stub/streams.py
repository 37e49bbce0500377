"""The stub's answers as server-sent events, in the shapes of the three makers, and what can go wrong in a stream."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import orjson
from aiohttp import web

Act = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]

_PIECE = re.compile(r"\s*\S+|\s+$")


def pieces(text: str) -> list[str]:
    """Words with the white space before them; together they are the text."""
    return _PIECE.findall(text)


def _event(value: dict[str, Any], *, named: bool = False) -> bytes:
    name = b"event: " + value["type"].encode() + b"\n" if named else b""
    return name + b"data: " + orjson.dumps(value) + b"\n\n"


def response_events(answer: dict[str, Any]) -> Iterator[bytes]:
    """The events of ``POST /v1/responses``."""
    first_state = {**answer, "status": "in_progress", "output": [], "usage": None}
    yield _event({"type": "response.created", "sequence_number": 0, "response": first_state}, named=True)
    for at, item in enumerate(answer["output"]):
        for part_at, part in enumerate(item.get("content") or ()):
            where = {"item_id": item["id"], "output_index": at, "content_index": part_at, "sequence_number": 1}
            kind = "output_text" if part["type"] == "output_text" else "refusal"
            for piece in pieces(part.get("text") or part.get("refusal") or ""):
                yield _event({"type": f"response.{kind}.delta", **where, "delta": piece, "logprobs": []}, named=True)
    ending = "completed" if answer["status"] == "completed" else answer["status"]
    yield _event({"type": f"response.{ending}", "sequence_number": 2, "response": answer}, named=True)


def chat_events(answer: dict[str, Any]) -> Iterator[bytes]:
    """The chunks of ``POST /v1/chat/completions`` with ``include_usage``."""
    frame = {name: answer[name] for name in ("id", "created", "model", "service_tier")}
    frame["object"] = "chat.completion.chunk"
    choice = answer["choices"][0]

    def chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
        return _event({**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], "usage": None})

    yield chunk({"role": "assistant", "content": ""})
    for name in ("content", "refusal"):
        for piece in pieces(choice["message"].get(name) or ""):
            yield chunk({name: piece})
    yield chunk({}, choice["finish_reason"])
    yield _event({**frame, "choices": [], "usage": answer["usage"]})
    yield b"data: [DONE]\n\n"


def message_events(answer: dict[str, Any]) -> Iterator[bytes]:
    """The events of ``POST /v1/messages``."""
    usage = answer["usage"]
    first_state = {
        **answer,
        "content": [],
        "stop_reason": None,
        "stop_details": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield _event({"type": "message_start", "message": first_state}, named=True)
    yield _event({"type": "ping"}, named=True)
    for at, block in enumerate(answer["content"]):
        empty: dict[str, Any] = {}
        if block["type"] == "text":
            empty = {"text": "", "citations": [] if block.get("citations") else None}
        start = {"type": "content_block_start", "index": at, "content_block": {**block, **empty}}
        yield _event(start, named=True)
        deltas = [{"type": "citations_delta", "citation": citation} for citation in block.get("citations") or ()]
        deltas += [{"type": "text_delta", "text": piece} for piece in pieces(block.get("text") or "")]
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": at, "delta": delta}, named=True)
        yield _event({"type": "content_block_stop", "index": at}, named=True)
    delta = {name: answer[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
    final_usage = {"output_tokens": usage["output_tokens"], "output_tokens_details": usage["output_tokens_details"]}
    yield _event({"type": "message_delta", "delta": delta, "usage": {"input_tokens": None, **final_usage}}, named=True)
    yield _event({"type": "message_stop"}, named=True)


EVENTS: dict[str, Callable[[dict[str, Any]], Iterator[bytes]]] = {
    "/v1/responses": response_events,
    "/v1/chat/completions": chat_events,
    "/v1/messages": message_events,
}


async def stream(
    request: web.Request, answer: dict[str, Any], headers: dict[str, str], *, pause_s: float = 0
) -> web.StreamResponse:
    """Send all events, with a pause before each."""
    response = await _open_stream(request, headers)
    with suppress(ConnectionError):
        for event in EVENTS[request.path](answer):
            await asyncio.sleep(pause_s)
            await response.write(event)
        await response.write_eof()
    return response


async def _open_stream(request: web.Request, headers: dict[str, str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream", **headers})
    await response.prepare(request)
    return response


# ---- faults ----------------------------------------------------------------------------------------------------

_ID = {"x-request-id": "req_broken", "request-id": "req_broken"}

ERRORS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"type": "error", "code": "server_error", "message": "fell over", "param": None},
    "/v1/chat/completions": {"error": {"message": "fell over", "type": "server_error", "code": "server_error"}},
    "/v1/messages": {"type": "error", "error": {"type": "overloaded_error", "message": "fell over"}},
}
"""An error in the midst of a stream, as each maker words it."""


def broken(how: str, after: int = 4) -> Act:
    """Send so many events and then: ``disconnect``, ``truncate`` (a clean end), ``malformed``, ``error`` or ``stall``."""

    async def act(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        response = await _open_stream(request, _ID)
        for _, event in zip(range(after), EVENTS[request.path](answer), strict=False):
            await response.write(event)
        assert request.transport is not None
        if how == "disconnect":
            request.transport.abort()
        elif how == "malformed":
            await response.write(b'event: content_block_delta\ndata: {"half": \n\n')
        elif how == "error":
            await response.write(_event(ERRORS[request.path], named="type" in ERRORS[request.path]))
        elif how == "stall":
            with suppress(ConnectionError):
                await asyncio.sleep(60)
        return response

    return act


def not_streamed() -> Act:
    """Answer whole, as a server does that knows no streams."""

    async def act(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        return web.json_response(answer)

    return act
