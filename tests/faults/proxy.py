"""A TCP proxy on loopback that can stop forwarding without closing anything, or answer in the name of a Redis that refuses."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

LOGIN = {b"AUTH": b"+OK", b"SELECT": b"+OK", b"CLIENT": b"+OK", b"HELLO": b"%1\r\n+proto\r\n:3"}
"""Replies to commands that a Redis obeys while it refuses the others."""


class Proxy:
    """Forwards to a server's URL; ``url`` is the same with the proxy's port."""

    def __init__(self, target_url: str) -> None:
        self._parts = urlsplit(target_url)
        self._stalled = False
        self._refusal = b""
        self._obeyed: dict[bytes, bytes] = {}
        self._silent: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.url = ""
        self.swallowed = threading.Event()
        """Set once something was sent that went nowhere."""

    async def start(self) -> None:
        """Listen."""
        self._loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        login, at, _ = self._parts.netloc.rpartition("@")
        self.url = urlunsplit(self._parts._replace(netloc=f"{login}{at}127.0.0.1:{port}"))

    def stall(self) -> None:
        """From now on nothing passes, and no one is told; connections of this time never come back to life."""
        self._stalled = True

    def refuse(self, error: str, *, logins: bool = True, pings: bool = False) -> None:
        """Cut all connections; new ones get this error reply of Redis to each command, but for logins and pings as wanted."""
        self._obeyed = (LOGIN if logins else {}) | ({b"PING": b"+PONG"} if pings else {})
        self._refusal = f"-{error}".encode()
        self._loop.call_soon_threadsafe(self._cut_all)

    def serve_again(self) -> None:
        """Ends the refusals; connections of this time are cut."""
        self._refusal = b""
        self._loop.call_soon_threadsafe(self._cut_all)

    def _cut_all(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()

    def silence(self, port: int) -> None:
        """From now on nothing passes on the connection that the server knows by this client port."""
        self._silent.add(port)

    def heal(self) -> None:
        """New connections pass again."""
        self._stalled = False

    def lead_to(self, target_url: str) -> None:
        """New connections lead to another server."""
        self._parts = urlsplit(target_url)

    async def stop(self) -> None:
        """Close everything."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self._stalled:
            return
        if self._refusal:
            await self._say_no(reader, writer)
            return
        try:
            there, here = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        except OSError:
            writer.close()
            return
        self._writers.append(here)
        port = here.get_extra_info("sockname")[1]
        self._silent.discard(port)
        for source, sink in ((reader, here), (there, writer)):
            task = asyncio.get_running_loop().create_task(self._forward(source, sink, port))
            self._tasks.add(task)

    async def _say_no(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readline():
                words = []
                for _ in range(int(head[1:])):
                    size = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(size + 2))[:size].upper())
                writer.write(self._obeyed.get(words[0], self._refusal) + b"\r\n")
                await writer.drain()
        writer.close()

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, port: int) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65_536):
                if self._stalled or port in self._silent:
                    self.swallowed.set()
                    return
                sink.write(data)
                await sink.drain()
        # Also after a reset: only what was stalled may stay open in silence.
        sink.close()


@contextmanager
def running_proxy(target_url: str) -> Iterator[Proxy]:
    """A proxy on a loop in a thread of its own."""
    proxy = Proxy(target_url)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxy", daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(10)
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
