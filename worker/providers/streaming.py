"""Common part of streaming adapters: collect the events of an answer, and keep the received part of a broken one."""

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Protocol

import httpx2

from schemas.failure import FailureKind
from schemas.model_call import FinishReason
from tasks.answers.parse import storable
from tasks.errors import ProviderError
from tasks.ports import Answered, Call, Listener
from worker.providers.adapter import SHAPELESS, Adapter, Reading, Received
from worker.providers.failures import request_id
from worker.providers.whole_calls import CallLimit, options_of

EVENT_STREAM = "text/event-stream"

_OF_THE_WIRE = frozenset({"content-encoding", "content-length", "transfer-encoding"})
"""Headers about the transfer, which do not hold for the stored bytes."""


class EventStream(Protocol):
    """Events of ``openai.AsyncStream`` and ``anthropic.AsyncStream`` as JSON values."""

    response: httpx2.Response

    def __aiter__(self) -> AsyncIterator[object]:
        """Iterates over the events in order; raises the SDK's errors, and errors that escape it."""
        ...

    async def close(self) -> None:
        """Releases the connection."""
        ...


class Collector(Protocol):
    """Builds the body of an answer from its events, in the form of the same answer fetched whole."""

    @property
    def body(self) -> dict[str, Any]:
        """The body so far."""
        ...

    @property
    def complete(self) -> bool:
        """True once the stream marked the end of the answer."""
        ...

    def add(self, event: dict[str, Any]) -> str:
        """Adds the next event and returns its text, or nothing. Raises ``SHAPELESS`` for missing keys."""
        ...


class Recording(httpx2.AsyncByteStream):
    """Passes the bytes of a response on and keeps them; the SDKs' own streams keep none."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response
        self._stream = response.stream
        self._bytes = bytearray()
        response.stream = self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterates over the bytes in order of arrival."""
        assert isinstance(self._stream, httpx2.AsyncByteStream)
        async for piece in self._stream:
            self._bytes += piece
            yield piece

    async def aclose(self) -> None:
        """Closes the response under it."""
        assert isinstance(self._stream, httpx2.AsyncByteStream)
        await self._stream.aclose()

    def response(self) -> httpx2.Response:
        """Response with the body so far, in the form of one fetched whole."""
        headers = [(name, value) for name, value in self._response.headers.multi_items() if name not in _OF_THE_WIRE]
        return httpx2.Response(self._response.status_code, headers=headers, content=bytes(self._bytes))


class StreamingAdapter(Adapter):
    """An adapter that also streams, through the vendor's own stream class."""

    stream_class: ClassVar[Any]
    """The SDK's public stream, of plain JSON values."""

    @abstractmethod
    def collector(self) -> Collector:
        """Makes a collector of a stream's events, so that ``read`` parses streamed answers, too."""

    async def call(self, call: Call, listener: Listener | None = None) -> Answered:
        """See ``tasks.ports.Provider``."""
        if call.stream:
            return await Streaming(self, call, listener).answer()
        return await super().call(call)

    def received(self, call: Call, response: httpx2.Response) -> Received:
        """See ``Adapter.received``; a server that only streams answers a call without ``stream`` in events, too."""
        if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
            return super().received(call, response)
        events = self.collector()
        for line in response.content.decode(errors="replace").splitlines():
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or data in {"", "[DONE]"}:
                continue
            try:
                events.add(json.loads(data))
            except (*SHAPELESS, RecursionError):
                raise self.failures.bad_answer(response, "events of an unknown shape") from None
        if not events.complete:
            raise self.failures.bad_answer(response, "events without an end")
        return Received(call, response, response.content, events.body, damaged=False)

    async def open(self, call: Call) -> EventStream:
        """Sends a streamed request; returns when the answer's headers are there, raises the SDK's errors."""
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
    """One streamed call: reads the events, keeps the bytes, and has the received part when it breaks.

    Its total time is bounded like that of any call, so a stall is, too.
    """

    def __init__(self, adapter: StreamingAdapter, call: Call, listener: Listener | None) -> None:
        self._adapter = adapter
        self._call = call
        self._listener = listener
        self._events = adapter.collector()
        self._recording: Recording | None = None
        self._texts: list[str] = []
        if listener is not None:
            listener.so_far = self._so_far

    async def answer(self) -> Answered:
        """Fetches the whole answer; raises ``ProviderError``, also for a stream without an end mark."""
        try:
            async with CallLimit(self._call.timeout_s):
                stream = await self._adapter.open(self._call)
                self._recording = Recording(stream.response)
                try:
                    whole = await self._read_events(stream)
                finally:
                    await stream.close()
        except ProviderError:
            raise
        except Exception as error:  # noqa: BLE001 - the SDKs let errors of three libraries through
            if not self._events.complete:
                raise self._translate(error) from None
            # The whole answer is here and paid for; only the end of the connection is missing.
            whole = self._received()
        answered = self._adapter.answered(whole)
        rest = answered.completion.text.removeprefix("".join(self._texts))
        if len(rest) + sum(map(len, self._texts)) == len(answered.completion.text):
            # Some servers put text into the last event alone.
            self._emit(rest)
        return answered

    async def _read_events(self, stream: EventStream) -> Received:
        response = stream.response
        if not response.headers.get("content-type", "").startswith(EVENT_STREAM):
            # A server that knows no streams answers whole.
            await response.aread()
            return self._adapter.received(self._call, response)
        async for event in stream:
            # Thousands may come at once; the other calls have their turns between them.
            await asyncio.sleep(0)
            if not isinstance(event, dict):
                raise self._adapter.failures.bad_answer(self._received_response(), "an event that is no object")
            try:
                self._emit(storable(self._events.add(event)))
            except SHAPELESS as error:
                problem = f"an event of an unknown shape ({type(error).__name__})"
                raise self._adapter.failures.bad_answer(self._received_response(), problem) from None
        if not self._events.complete:
            problem = "broke off its answer: the stream ended without an end mark"
            raise self._adapter.failures.error(
                FailureKind.UNKNOWN_OUTCOME, problem, response.headers, status_code=response.status_code
            )
        return self._received()

    def _emit(self, text: str) -> None:
        if text:
            self._texts.append(text)
            if self._listener is not None:
                self._listener.on_text(text)

    def _received_response(self) -> httpx2.Response:
        assert self._recording is not None
        return self._recording.response()

    def _received(self) -> Received:
        response = self._received_response()
        return Received(self._call, response, response.content, self._events.body, damaged=False)

    def _translate(self, error: Exception) -> ProviderError:
        """Translates an error: before the first event as of any call, later as of this stream."""
        failures = self._adapter.failures
        if self._recording is None:
            return self._adapter.translate(error, self._adapter.address, self._call.request)
        body = getattr(error, "body", None)
        if body is not None:
            return failures.in_answer(self._received_response(), body)
        translated = self._adapter.translate(error)
        translated.provider_request_id = translated.provider_request_id or request_id(self._received_response().headers)
        return translated

    def _so_far(self) -> Answered | None:
        """Received part as an interrupted answer without a price; None before the first byte."""
        if self._recording is None:
            return None
        received = self._received()
        if not received.raw:
            return None
        model = received.value.get("model")
        reading = Reading(
            text="".join(self._texts),
            finish_reason=FinishReason.INTERRUPTED,
            model=model if isinstance(model, str) else None,
            usage=None,
        )
        completion = self._adapter.completion(received, reading)
        return Answered(received.raw, completion.model_copy(update={"cost_usd": None}))
