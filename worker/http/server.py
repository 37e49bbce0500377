"""Runs the application with uvicorn: limits on connections and headers, and an orderly stop."""

import asyncio
import logging
import re
import resource
import socket
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Network, ip_address
from typing import Any, cast
from uuid import uuid4

import uvicorn
import uvloop
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tasks.errors import ConfigurationError
from worker.http.dependencies import DEPARTURE
from worker.http.entrance import IS_BUSY
from worker.http.problems import REQUEST_ID, Problem
from worker.process.garbage import spare_the_modules
from worker.settings import Settings

log = logging.getLogger(__name__)

HEADER_BYTES = 32_768
"""Most of the address and all headers of a request."""

HEADERS_S = 15.0
"""Seconds that the headers of a request may take, from the connection or its first byte on."""

REST_S = 30.0
"""Seconds that the rest of a body may take once the request is answered."""

KEEP_ALIVE_S = 75
"""Seconds that a connection may be idle; longer than a load balancer in front usually keeps it."""

NEWCOMERS = 100
"""Connections and requests beyond the bounds that are only about to be known: a burst of callers."""

OTHER_FILES = 256 + 2 * NEWCOMERS
"""Files for all else: connections to the servers, bodies on disk, libraries."""

DRAIN_S = 30
"""Seconds that requests may take to end after SIGTERM; those that wait for jobs end at once."""


NO_SNIFFING = ("X-Content-Type-Options", "nosniff")
"""Stands in every answer: no browser takes the text of strangers for a page or a script."""


ID_HEADER = b"x-request-id"
"""Stands in every answer: by it a caller and the log speak of the same request."""

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
"""An id of a caller, or of a proxy in front, that is taken over."""


_of_protocol = logging.getLogger("nightdesk.protocol")
# uvicorn warns of each piece of garbage and each upgrade, without an address or a bound: whoever sends them filled the log.
_of_protocol.setLevel(logging.ERROR)


class HeaderTooLarge(Exception):
    """The address and the headers are larger than is read; makes the parser end."""


class GuardedProtocol(HttpToolsProtocol):
    """Bounds idle connections, requests in progress, the size of headers and the time they take; answers what is no request.

    uvicorn itself waits for headers without end, its own answers are plain text, and its only bound on connections refuses whoever comes
    last, whoever holds the others.
    """

    most_idle = 0
    """Connections without a request in progress."""
    most_in_progress = 0
    """Requests, those too whose caller is not known yet."""

    _departure: asyncio.Future[None]
    address = ""
    has_asked = False
    idle_since = 0.0
    _header_bytes = 0
    _unread_bytes = 0
    """That came since the parser last told of something: it collects a header until its end, each piece anew."""
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first request."""
        self.logger = _of_protocol
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self.address = _address_of(self.client[0]) if self.client else ""
        self._departure = self.loop.create_future()
        self._wait(HEADERS_S)
        if len(self.connections) - len(self.tasks) > self.most_idle:
            self._make_room()

    def _make_room(self) -> None:
        """Ends an idle connection: one of the address that has most of them, which never sent a request if there is such, the oldest."""
        idle = [c for c in self.connections if isinstance(c, GuardedProtocol) and c is not self and c.is_idle()]
        if not idle:
            return
        by_address = Counter(each.address for each in idle)
        min(idle, key=lambda each: (-by_address[each.address], each.has_asked, each.idle_since)).transport.abort()

    def is_idle(self) -> bool:
        """Tells that no request is in progress: none came yet, or all are answered."""
        return self.cycle is None or (self.cycle.response_complete and not self.pipeline)

    def data_received(self, data: bytes) -> None:
        """Reads on, unless a header has no end in sight."""
        if self._unread_bytes > HEADER_BYTES:
            if not self.transport.is_closing():
                self.send_400_response("")
            return
        self._unread_bytes += len(data)
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Begins to wait for the headers of a request."""
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)[DEPARTURE] = self._departure
        self._header_bytes = 0
        self._wait(HEADERS_S, self._give_up)

    def on_url(self, url: bytes) -> None:
        """Counts a piece of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Counts a header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Ends the wait, and begins to answer."""
        self._end_wait()
        self._unread_bytes = 0
        request_id = _id_of(self.headers)
        scope = cast("dict[str, Any]", self.scope)
        scope[REQUEST_ID] = request_id.decode()
        if len(self.tasks) >= self.most_in_progress:
            scope[IS_BUSY] = True
        super().on_headers_complete()
        # Its task has not begun yet.
        cycle: RequestResponseCycle = self.cycle
        cycle.default_headers = [*cycle.default_headers, (ID_HEADER, request_id)]

    def on_body(self, body: bytes) -> None:
        """Takes a piece of a body."""
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Waits for the next request where this one is answered already: uvicorn itself does so for those alone that it reads."""
        if self.cycle.response_complete:
            self._wait(KEEP_ALIVE_S)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Reads the rest of a body for a while, so that its sender comes to read the answer, such as a 401."""
        super().on_response_complete()
        self.has_asked, self.idle_since = True, self.loop.time()
        if self.cycle.more_body and self.cycle.response_complete and not self.transport.is_closing():
            self._wait(REST_S)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the text of uvicorn
        """Answers what the parser can't read."""
        if max(self._header_bytes, self._unread_bytes) > HEADER_BYTES:
            detail = f"the address and the headers are larger than {HEADER_BYTES:,} bytes; send less"
            problem = Problem(431, "headers-too-large", "Headers too large", detail)
        else:
            detail = "this is no valid HTTP/1.1 request; check the method, the headers and the length of the body"
            problem = Problem(400, "invalid-http", "Invalid HTTP", detail)
        answer = problem.answer(getattr(self, "url", b"").decode("latin-1"))
        head = (
            f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}\r\nconnection: close\r\n".encode()
        )
        sniffing, request_id = ": ".join(NO_SNIFFING).encode() + b"\r\n", _id_of([])
        fields = sniffing + ID_HEADER + b": " + request_id + b"\r\n"
        fields += b"".join(name + b": " + value + b"\r\n" for name, value in answer.raw_headers)
        self.transport.write(head + fields + b"\r\n" + bytes(answer.body))
        self.transport.close()
        self._note(f"answered {answer.status_code}", request_id.decode())

    def _note(self, why: str, request_id: str | None = None) -> None:
        """Logs what is no request: no route ever sees it."""
        application: Any = self.config.app
        address = self.client[0] if self.client else "an unknown address"
        application.state.service.access.refusals.tell("unreadable HTTP", address, why, request_id)

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the wait, and those of its requests for jobs."""
        self._end_wait()
        if not self._departure.done():
            self._departure.set_result(None)
        super().connection_lost(exc)

    def _count(self, size: int) -> None:
        self._unread_bytes = 0
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES:
            raise HeaderTooLarge

    def _wait(self, seconds: float, give_up: Callable[[], None] | None = None) -> None:
        self._end_wait()
        self._patience = self.loop.call_later(seconds, give_up or self.transport.abort)

    def _give_up(self) -> None:
        self._note(f"its headers did not end in {HEADERS_S:.0f} s")
        self.transport.abort()

    def _end_wait(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None


def _id_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    """The id of a request: the one that it brings, where that is sane, else a new one."""
    value = next((value for name, value in headers if name == ID_HEADER), b"")
    return value if _SANE_ID.fullmatch(value) else f"req_{uuid4().hex}".encode()


def _address_of(host: str) -> str:
    """The address of a peer; of IPv6 the network alone, as one machine has all addresses of that."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv4Address) or address.ipv4_mapped is not None:
        return host
    return str(IPv6Network((address, 64), strict=False))


class Server(uvicorn.Server):
    """Tells when it listens; at its stop it first lets the requests end that wait for jobs."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Opens the service, then listens."""
        await super().startup(sockets)
        if self.started:
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops listening, ends the waits, lets the other requests end."""
        application: Any = self.config.app
        await application.state.service.watch.close()
        await super().shutdown(sockets)


def make_server(app: FastAPI, settings: Settings, on_started: Callable[[], None]) -> Server:
    """A server that is given its socket; its messages go to the log of the process."""
    most = settings.http_max_connections
    bounds = {"most_idle": most + NEWCOMERS, "most_in_progress": 2 * most + NEWCOMERS}
    protocol = type("Protocol", (GuardedProtocol,), bounds)
    return Server(
        uvicorn.Config(
            app,
            http=protocol,
            loop="uvloop",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=[NO_SNIFFING],
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=DRAIN_S,
        ),
        on_started,
    )


def listen(host: str, port: int) -> socket.socket:
    """Binds the socket before anything is opened; raises ``ConfigurationError``."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise ConfigurationError(
            f"can't listen on {host} port {port}: {error.strerror}; choose others with --host and --port"
        ) from error
    return listener


def _raise_file_limit(connections: int) -> int:
    """Lets the process have a file for each connection, idle or in use, and for its own to Redis; returns as many connections as it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 4 * connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    fitting = max(1, (soft - OTHER_FILES) // 4)
    log.warning(
        "this process may have %d files open, so it takes %d connections, not the %d of NIGHTDESK_HTTP_MAX_CONNECTIONS; raise "
        "'ulimit -n'", soft, fitting, connections,
    )  # fmt: skip
    return fitting


def serve(app: FastAPI, settings: Settings, listener: socket.socket, on_started: Callable[[], None]) -> None:
    """Answers requests until SIGTERM or SIGINT."""

    def begin() -> None:
        spare_the_modules()
        on_started()

    most = _raise_file_limit(settings.http_max_connections)
    server = make_server(app, settings.model_copy(update={"http_max_connections": most}), begin)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve([listener]))
