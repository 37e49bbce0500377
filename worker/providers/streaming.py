"""What the adapters over HTTP have in common when an answer is streamed: hear its events, keep what came when it breaks."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Protocol

import httpx2

from schemas.completion import FinishReason
from schemas.failure import FailureKind
from tasks.errors import ProviderError
from tasks.ports import Answered, Call, Listener
from worker.providers.adapter import SHAPELESS, Adapter, Reading, Received, options_of, storable
from worker.providers.failures import request_id

EVENT_STREAM = "text/event-stream"

_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers that say how the bytes travelled; of those kept they are no longer true."""


class EventStream(Protocol):
    """The part of ``openai.AsyncStream`` and ``anthropic.AsyncStream`` that is used: the events as JSON values."""

    response: httpx2.Response

    def __aiter__(self) -> AsyncIterator[object]:
        """The values of the events, in order; raises the SDK's errors, and what escapes it."""
        ...

    async def close(self) -> None:
        """Release the connection."""
        ...


class Collector(Protocol):
    """Puts the events of one stream together into the body that the same answer fetched whole would have had."""

    @property
    def body(self) -> dict[str, Any]:
        """The body as far as it came."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the stream said that the answer is at its end."""
        ...

    def add(self, event: dict[str, Any]) -> str:
        """Take the next event; the answer's text in it, or nothing. Raises what missing keys raise."""
        ...


class Recording(httpx2.AsyncByteStream):
    """Passes the bytes of a response on and keeps them; the SDKs' own streams keep none."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._stream = response.stream
        self._bytes = bytearray()
        response.stream = self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The bytes as they come."""
        assert isinstance(self._stream, httpx2.AsyncByteStream)
        async for piece in self._stream:
            self._bytes += piece
            yield piece

    async def aclose(self) -> None:
        """Close the response under it."""
        assert isinstance(self._stream, httpx2.AsyncByteStream)
        await self._stream.aclose()

    def response(self) -> httpx2.Response:
        """The response with what came of its body, to be read like one fetched whole."""
        headers = [(name, value) for name, value in self._response.headers.multi_items() if name not in _OF_THE_WIRE]
        return httpx2.Response(self._response.status_code, headers=headers, content=bytes(self._bytes))


class StreamingAdapter(Adapter):
    """An adapter that also streams, through the maker's own stream class."""

    stream_class: ClassVar[Any]
    """The SDK's public stream, of plain JSON values."""

    @abstractmethod
    def collector(self) -> Collector:
        """What puts the events of a stream together, so that ``read`` reads streamed answers, too."""

    async def call(self, call: Call, listener: Listener | None = None) -> Answered:
        """See ``tasks.ports.Provider``."""
        if call.stream:
            return await Streaming(self, call, listener).answer()
        return await super().call(call)

    async def open(self, call: Call) -> EventStream:
        """Send a streamed request; returns when the answer's headers are there, raises the SDK's errors."""
        # Of the overloads of ``post`` only the first fits one protocol for both SDKs.
        post: Any = self.client.post
        stream: EventStream = await post(
            self.path,
            cast_to=object,
            content=call.body,
            options=options_of(call),
            stream=True,
            stream_cls=self.stream_class,
        )
        return stream


class Streaming:
    """One streamed call: hears the events, keeps the bytes, and knows what came when it breaks.

    Its total time is bounded like that of any call, so a stall is, too.
    """

    def __init__(self, adapter: StreamingAdapter, call: Call, listener: Listener | None) -> None:
        self._adapter = adapter
        self._call = call
        self._listener = listener
        self._events = adapter.collector()
        self._recording: Recording | None = None
        self._heard: list[str] = []
        if listener is not None:
            listener.so_far = self._so_far

    async def answer(self) -> Answered:
        """The whole answer; raises ``ProviderError``, also for a stream that ends without saying so."""
        try:
            async with asyncio.timeout(self._call.timeout_s):
                stream = await self._adapter.open(self._call)
                self._recording = Recording(stream.response)
                try:
                    whole = await self._hear(stream)
                finally:
                    await stream.close()
        except ProviderError:
            raise
        except Exception as error:  # noqa: BLE001 - the SDKs let errors of three libraries through
            if not self._events.complete:
                raise self._translated(error) from None
            # All of the answer is here and paid for; only the end of the connection is not.
            whole = self._received()
        answered = self._adapter.answered(whole)
        rest = answered.completion.text.removeprefix("".join(self._heard))
        if len(rest) + sum(map(len, self._heard)) == len(answered.completion.text):
            # What a server puts into the last event alone.
            self._tell(rest)
        return answered

    async def _hear(self, stream: EventStream) -> Received:
        response = stream.response
        if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
            # A server that knows no streams answers whole.
            await response.aread()
            return self._adapter.received(self._call, response)
        async for event in stream:
            if not isinstance(event, dict):
                raise self._adapter.failures.bad_answer(self._came(), "an event that is no object")
            try:
                self._tell(storable(self._events.add(event))[0])
            except SHAPELESS as error:
                told = f"an event of an unknown shape ({type(error).__name__})"
                raise self._adapter.failures.bad_answer(self._came(), told) from None
        if not self._events.complete:
            told = "broke off its answer: the stream ended without saying so"
            raise self._adapter.failures.error(
                FailureKind.UNKNOWN_OUTCOME, told, response.headers, status_code=response.status_code
            )
        return self._received()

    def _tell(self, text: str) -> None:
        if text:
            self._heard.append(text)
            if self._listener is not None:
                self._listener.on_text(text)

    def _came(self) -> httpx2.Response:
        assert self._recording is not None
        return self._recording.response()

    def _received(self) -> Received:
        response = self._came()
        return Received(self._call, response, response.content, self._events.body, damaged=False)

    def _translated(self, error: Exception) -> ProviderError:
        """An error before the first event is one of any call; later it is one of this stream."""
        failures = self._adapter.failures
        if self._recording is None:
            return self._adapter.translate(error)
        body = getattr(error, "body", None)
        if body is not None:
            return failures.in_answer(self._came(), body)
        translated = self._adapter.translate(error)
        translated.provider_request_id = translated.provider_request_id or request_id(self._came().headers)
        return translated

    def _so_far(self) -> Answered | None:
        """What came, as an interrupted answer without a price; None before the first byte."""
        if self._recording is None:
            return None
        received = self._received()
        if not received.raw:
            return None
        model = received.value.get("model")
        reading = Reading(
            text="".join(self._heard),
            finish_reason=FinishReason.INTERRUPTED,
            model=model if isinstance(model, str) else None,
            usage=None,
        )
        return Answered(received.raw, self._adapter.completion(received, reading))
