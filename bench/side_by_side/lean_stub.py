"""Serves chat completions after a fixed or lognormal time, at some 0.05 ms of CPU a call, and counts the calls in flight."""

import argparse
import asyncio
import math
import random
import re
import sys
from pathlib import Path

import orjson

CASE = re.compile(rb"\(case (\d{6})\)")
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
SIGMA = 0.5
"""Of the logarithm of a lognormal latency: the slowest of a hundred calls takes three times the median."""


class Provider:
    """Answers by case number.

    Attributes:
        most: the largest number of calls in flight at once since it was last asked.
    """

    def __init__(self, answers: list[list[tuple[int, str]]], latency_s: float, *, lognormal: bool) -> None:
        self._texts = [(_body(_segments(quotes)), _body(_markers(quotes))) for quotes in answers]
        self._latency_s = latency_s
        self._lognormal = lognormal
        self._random = random.Random(7)
        self.calls = 0
        self.in_flight = 0
        self.most = 0

    def latency(self) -> float:
        """Seconds until the next answer; a lognormal one has the fixed one as its mean."""
        if not self._lognormal:
            return self._latency_s
        return self._random.lognormvariate(math.log(self._latency_s) - SIGMA**2 / 2, SIGMA)

    def answer(self, body: bytes) -> bytes:
        """The response to a request body."""
        case = CASE.search(body)
        # curator first asks with an empty request, for the limits in its headers.
        structured, plain = self._texts[int(case[1]) if case else 0]
        return structured if b'"json_schema"' in body else plain

    def statistics(self) -> bytes:
        """Calls, and the most in flight since the last request for it."""
        body = orjson.dumps({"calls": self.calls, "most_in_flight": self.most})
        self.most = self.in_flight
        return body


def _segments(quotes: list[tuple[int, str]]) -> str:
    segments = [{"text": quote, "citations": [{"source": source, "quote": quote}]} for source, quote in quotes]
    return orjson.dumps({"sufficient": True, "segments": segments}).decode()


def _markers(quotes: list[tuple[int, str]]) -> str:
    return " ".join(f"{quote[:-1]} [{source}]{quote[-1]}" for source, quote in quotes)


def _body(text: str) -> bytes:
    return orjson.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_795_000_000,
            "model": "stand-in",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 5_000, "completion_tokens": 300, "total_tokens": 5_300},
        }
    )


class Connection(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, one request at a time."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers when the request is whole."""
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0:
            return
        length = LENGTH.search(self._received, 0, head)
        end = head + 4 + (int(length[1]) if length else 0)
        if len(self._received) < end:
            return
        body = bytes(self._received[head + 4 : end])
        asked_for_statistics = self._received.startswith(b"GET /statistics")
        del self._received[:end]
        provider = self._provider
        if asked_for_statistics:
            self._send(provider.statistics())
            return
        provider.calls += 1
        provider.in_flight += 1
        provider.most = max(provider.most, provider.in_flight)
        asyncio.get_running_loop().call_later(provider.latency(), self._answer, body)

    def _answer(self, body: bytes) -> None:
        self._provider.in_flight -= 1
        self._send(self._provider.answer(body))

    def _send(self, body: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
            self._transport.write(head + body)


async def _serve(provider: Provider, host: str) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Connection(provider), host, 0, backlog=4096)
    sys.stdout.write(f"http://{host}:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    """Prints the address, and serves until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--latency", type=float, default=1.0, help="seconds")
    parser.add_argument("--lognormal", action="store_true")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    options = parser.parse_args()
    provider = Provider(orjson.loads(options.answers.read_bytes()), options.latency, lognormal=options.lognormal)
    asyncio.run(_serve(provider, options.host))


if __name__ == "__main__":
    main()
