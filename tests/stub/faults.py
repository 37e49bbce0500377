"""Provider faults, each as an act that the stub does instead of answering."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiohttp import web

from tests.stub.streams import stream

Act = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
"""Takes the request and the answer it would get."""


def changed(change: Callable[[dict[str, Any]], Any]) -> Act:
    """Answer, with the answer's JSON changed in place."""

    async def act(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        change(answer)
        if (await request.json()).get("stream"):
            return await stream(request, answer, {})
        return web.json_response(answer)

    return act


def status(code: int, body: dict[str, Any] | list[Any] | str, **headers: str) -> Act:
    """Answer with a status, a body and headers (``_`` for ``-``)."""
    header_fields = {name.replace("_", "-"): value for name, value in headers.items()}

    async def act(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        if not isinstance(body, str):
            return web.json_response(body, status=code, headers=header_fields)
        return web.Response(text=body, status=code, headers=header_fields, content_type="text/html")

    return act


def openai_error(code: int, name: str, message: str = "no", **headers: str) -> Act:
    """An error as OpenAI words it."""
    return status(code, {"error": {"message": message, "type": name, "param": None, "code": name}}, **headers)


def anthropic_error(code: int, kind: str, message: str = "no", error_code: str | None = None, **headers: str) -> Act:
    """An error as Anthropic words it."""
    details = {"details": {"error_code": error_code}} if error_code else {}
    error = {"type": kind, "message": message, **details}
    return status(code, {"type": "error", "error": error, "request_id": "req_1"}, **headers)


def raw(body: bytes, content_type: str = "application/json") -> Act:
    """Answer 200 with these bytes."""

    async def act(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        return web.Response(body=body, content_type=content_type)

    return act


def slow(seconds: float) -> Act:
    """Answer, but late."""

    async def act(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return web.json_response(answer)

    return act


async def drip(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
    """Send a byte now and then, so that no read ever times out."""
    response = web.StreamResponse(headers={"content-type": "application/json"})
    await response.prepare(request)
    with suppress(ConnectionError):
        for _ in range(100):
            await response.write(b" ")
            await asyncio.sleep(0.1)
    return response


def flood(
    piece: bytes, content_type: str = "application/json", code: int = 200, start: bytes = b"", pieces: int = 1_000
) -> Act:
    """Send a piece again and again, a thousand times at most."""

    async def act(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(status=code, headers={"content-type": content_type})
        await response.prepare(request)
        with suppress(ConnectionError):
            await response.write(start)
            for _ in range(pieces):
                await response.write(piece)
        return response

    return act


def packed(body: bytes) -> Act:
    """Answer 200 with these bytes, packed."""

    async def act(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        return web.Response(body=gzip.compress(body), headers=headers)

    return act


async def reset(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
    """Drop the connection after the request was read."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def truncated(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
    """Promise more bytes than are sent, and hang up."""
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "5000"})
    await response.prepare(request)
    await response.write(b'{"id": "half')
    assert request.transport is not None
    request.transport.close()
    return response


async def echo_key(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
    """Refuse the key and say which, as providers do: whole, and its end."""
    key = request.headers.get("authorization", "").removeprefix("Bearer ")
    message = f"Incorrect API key provided: {key[:9]}*****{key[-9:]}. Sent: {key}. Find yours at the console."
    body = {"error": {"message": message, "type": "invalid_request_error", "code": "invalid_api_key"}}
    return web.json_response(body, status=401)


HTML = "<html><body>502 from some proxy</body></html>"


async def in_events(request: web.Request, answer: dict[str, Any]) -> web.StreamResponse:
    """Answer in events, asked or not."""
    return await stream(request, answer, {})
