"""Sends calls whose answer comes whole, over aiohttp, each with the head that the vendor's SDK writes for it."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any, Protocol
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
import orjson
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict
from yarl import URL

from schemas.generation import WINDOWS
from tasks.ports import READ_FIRST_S, STALL_S, Call

MOST_CONNECTIONS = 21_000
"""Above a process's slots, 20,000 at most and a fiftieth of urgent jobs: the slots limit the calls, never the pool."""

CONNECT_S = 10.0
"""Seconds to wait for a connection; the SDKs' own is 5, too little for a burst of hundreds of new TLS connections."""

KEPT_S = 3.0
"""Seconds that a free connection is kept: fewer than the 5 after which uvicorn (so vLLM) and Node close theirs.

The SDKs' own is 5 too. A request sent at the moment the server closes is lost without an answer: nobody knows if it is
paid for, and it is asked again.
"""

POOL = httpx2.Limits(max_connections=MOST_CONNECTIONS, keepalive_expiry=KEPT_S)
"""Connections of an SDK's own client."""

MOST_WHOLE_BYTES = 16_000_000
"""Of an answer, unpacked: several times the longest of a model; read whole it takes many times its size."""

MOST_STREAMED_BYTES = 32_000_000
"""The same in events, each of which has some hundred bytes for a token."""

MOST_ERROR_BYTES = 100_000
"""Of an answer with an error status; the rest of it is not read."""

MOST_HEADS = 64
"""Heads to remember; jobs may name any number of time limits."""

_OF_THE_BODY = frozenset({"host", "content-length"})
"""Headers that aiohttp writes itself."""


EARLIER_S = 0.001
"""Timers that are due run in the order of their times."""


class SdkClient(Protocol):
    """The documented raw requests of ``AsyncOpenAI`` and ``AsyncAnthropic``."""

    async def post(self, path: str, *, cast_to: Any, content: bytes, options: Any) -> Any:
        """Sends one request with the SDK's credentials, headers and errors."""
        ...

    async def close(self) -> None:
        """Closes the connections."""
        ...


class CallLimit:
    """Ends a block with ``TimeoutError`` when its seconds are over, as ``asyncio.timeout`` does.

    In a process that stood still until then the answer may lie in the socket: it gets ``READ_FIRST_S`` to be read.
    """

    __slots__ = ("_end", "_limit", "_look")

    def __init__(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._end = loop.time() + seconds
        self._limit = asyncio.timeout_at(self._end)
        self._look = loop.call_at(self._end - EARLIER_S, self._look_for_a_stall)

    def _look_for_a_stall(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._end > STALL_S:
            self._limit.reschedule(now + READ_FIRST_S)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._look.cancel()
        await self._limit.__aexit__(kind, error, trace)


class AnswerTooLarge(Exception):
    """An answer goes on beyond what is read: none of a model is that long."""


class BoundedBody(httpx2.AsyncByteStream):
    """The unpacked body of an answer, within a bound: a provider may send without end, or a gigabyte packed into a megabyte."""

    def __init__(self, response: httpx2.Response, most: int) -> None:
        self._packed = httpx2.Response(response.status_code, headers=response.headers, stream=response.stream)
        self._most = most
        self._is_error = response.is_error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterates over the bytes in order of arrival; raises ``AnswerTooLarge``."""
        size = 0
        async for piece in self._packed.aiter_bytes():
            size += len(piece)
            if self._is_error and size > MOST_ERROR_BYTES:
                yield piece[: MOST_ERROR_BYTES - size]
                return
            if size > self._most:
                raise AnswerTooLarge(f"more than {self._most:,} bytes")
            yield piece

    async def aclose(self) -> None:
        """Closes the answer under it."""
        await self._packed.aclose()


_FILES = ("/content", "/results")
"""Ends of the addresses of results of batches, which are read a row at a time."""


def client_of(sdk: Any) -> Any:
    """An HTTP client for an SDK, over aiohttp: the pool of the SDK's own slows down with the calls in flight."""
    return sdk.DefaultAioHttpClient(limits=POOL, verify=tls_context(), event_hooks={"response": [_bound_answer]})


async def _bound_answer(response: httpx2.Response) -> None:
    if response.request.method != "GET" or not response.request.url.path.endswith(_FILES):
        in_events = response.headers.get("content-type", "").startswith("text/event-stream")
        _bound(response, MOST_STREAMED_BYTES if in_events else MOST_WHOLE_BYTES)


def _bound(response: httpx2.Response, most: int) -> None:
    response.stream = BoundedBody(response, most)
    response.headers.pop("content-encoding", None)


class Body(aiohttp.BytesPayload):
    """A body that is sent once and not kept while its answer is awaited: aiohttp repeats no POST, and follows no redirect here."""

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """See ``aiohttp.Payload``."""
        whole, self._value = self._value, b""
        await writer.write(whole if content_length is None else whole[:content_length])


@dataclass(frozen=True, slots=True)
class Head:
    """The address, the headers and the time limits of a request."""

    url: URL
    headers: CIMultiDict[str]
    timeout: aiohttp.ClientTimeout


class WholeCalls:
    """Sends the calls of one adapter, on one event loop.

    To build a request anew takes the SDK 0.5 ms, and all that differs between two requests is the body. So the SDK
    writes a request once for each time limit, to a transport that sends nothing, and its head serves the next calls.

    Args:
        client: the SDK's.
        path: of the API, below the client's base URL.
        base_url: of the provider. A provider behind a proxy is called by the SDK's own transport.
    """

    def __init__(self, client: Any, path: str, base_url: str) -> None:
        self._client = client
        self._path = path
        self._proxied = _is_proxied(base_url)
        self._heads: dict[float, Head] = {}
        self._session: aiohttp.ClientSession | None = None

    async def post(self, call: Call) -> httpx2.Response:
        """Sends a call once and returns the answer, whatever its status; raises the errors of aiohttp and of the SDK."""
        if self._proxied:
            proxied: httpx2.Response = await self._send(self._client, call, _taken_body(call))
            return proxied
        head = self._heads.get(call.timeout_s) or await self._write_head(call)
        session = self._session or self._open(head.url)
        async with session.post(head.url, data=Body(_taken_body(call)), headers=head.headers, timeout=head.timeout,
                                allow_redirects=False) as answer:  # fmt: skip
            arriving = answer.content.iter_any()
            response = httpx2.Response(answer.status, headers=answer.raw_headers, content=arriving)
            _bound(response, MOST_WHOLE_BYTES)
            await response.aread()
        return response

    async def close(self) -> None:
        """Closes the connections; the SDK's client is its owner's to close."""
        if self._session is not None:
            await self._session.close()

    def _open(self, url: URL) -> aiohttp.ClientSession:
        secured: Any = tls_context() if url.scheme == "https" else True
        connector = aiohttp.TCPConnector(limit=MOST_CONNECTIONS, keepalive_timeout=KEPT_S, ssl=secured)
        # Bodies are decoded by httpx2, as they always were; cookies would go from one tenant's call to another's.
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        return self._session

    async def _write_head(self, call: Call) -> Head:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(_answer_nothing)) as nowhere:
            answer = await self._send(self._client.with_options(http_client=nowhere), call, b"{}")
        request = answer.request
        limits = request.extensions["timeout"]
        headers = [(name, value) for name, value in request.headers.multi_items() if name not in _OF_THE_BODY]
        head = Head(
            # A password in the address is in a header by now.
            URL(str(request.url), encoded=True).with_user(None),
            CIMultiDict(headers),
            aiohttp.ClientTimeout(sock_connect=limits["connect"], sock_read=limits["read"], connect=limits["pool"]),
        )
        if len(self._heads) >= MOST_HEADS:
            self._heads.clear()
        self._heads[call.timeout_s] = head
        return head

    async def _send(self, client: SdkClient, call: Call, body: bytes) -> httpx2.Response:
        answer: httpx2.Response = await client.post(
            self._path, cast_to=httpx2.Response, content=body, options=options_of(call)
        )
        return answer


class SignedCalls:
    """Sends the calls of one adapter by the SDK's own transport, which signs each of them, or puts a fresh token into it.

    Args:
        client: the SDK's; it may move a part of the body into the address.
        path: of the API, as the SDK knows it.
        token: a fresh one for each call; None: the client has its own way.
    """

    def __init__(self, client: Any, path: str, token: Callable[[], Awaitable[str]] | None = None) -> None:
        self._client = client
        self._path = path
        self._token = token

    async def post(self, call: Call) -> httpx2.Response:
        """Sends a call once and returns its answer; raises the errors of the SDK and of the credentials."""
        options = options_of(call)
        if self._token is not None:
            options["headers"]["Authorization"] = f"Bearer {await self._token()}"
        body = orjson.loads(_taken_body(call))
        answer: httpx2.Response = await self._client.post(
            self._path, cast_to=httpx2.Response, body=body, options=options
        )
        return answer

    async def close(self) -> None:
        """Nothing: the client is its owner's to close."""


def tls_context() -> ssl.SSLContext:
    """The TLS context of every client in this process: to read the certificates of the system takes some 20 ms each time."""
    return _read_certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@cache
def _read_certificates(file: str | None, directory: str | None) -> ssl.SSLContext:  # noqa: ARG001 - httpx2 reads both
    return httpx2.create_ssl_context()


def options_of(call: Call) -> dict[str, Any]:
    """Request options of the SDK beside the body."""
    timeout = httpx2.Timeout(call.timeout_s, connect=min(call.timeout_s, CONNECT_S))
    # A redirect would send the request a second time, perhaps to someone else.
    headers = {"content-type": "application/json"}
    if call.stream:
        # So that the bytes kept are those of the events, also where the stream breaks.
        headers["accept-encoding"] = "identity"
    return {"headers": headers, "timeout": timeout, "follow_redirects": False}


def _taken_body(call: Call) -> bytes:
    # The size of a response that is answered in the background is noted with its id.
    return call.body if call.lane in WINDOWS else call.take_body()


def _answer_nothing(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(200, json={}, request=request)


def _is_proxied(base_url: str) -> bool:
    """Tells whether the environment names a proxy for an address."""
    url = URL(base_url)
    proxies = getproxies()
    return bool(proxies.get(url.scheme) or proxies.get("all")) and not proxy_bypass(url.host or "")
