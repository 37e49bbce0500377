"""Starts, uses and ends the process that takes large submissions in."""

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from tasks.errors import ServiceUnavailable
from worker.cancellation import cancel
from worker.http.submission_child import frame, receive
from worker.local import Endpoints
from worker.settings import Settings

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Work = Callable[..., Coroutine[Any, Any, Result]]
"""A function of a module, called with the ledger and the settings of the process and further arguments."""

COMMAND = (sys.executable, "-m", "worker.http.submission_child")

START_BYTES = 200_000
"""Body from which the process is started: some milliseconds of reading."""

WAIT_BYTES = 1_000_000
"""Body from which a request waits for the process to start, which takes a second or two."""

IDLE_S = 600.0
"""Seconds without work after which the process ends: it takes some 100 MB."""

END_S = 10.0
"""Seconds that its end may take."""


class ProcessEnded(ServiceUnavailable):
    """The process ended amid its work, killed by the system perhaps; the work may have been committed."""


@dataclass(eq=False, slots=True)
class _Link:
    """One run of the process."""

    process: "subprocess.Popen[bytes]"
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    pending: "dict[int, asyncio.Future[Any]]" = field(default_factory=dict)
    reading: "asyncio.Task[None] | None" = None
    is_open: bool = True
    is_ready: bool = False
    """It has loaded its modules."""

    def close(self) -> None:
        """Lets the process end: it rolls back what is not committed."""
        self.is_open = False
        self.writer.close()

    def close_idle(self) -> None:
        """Does so unless there is work, which may have come since the last look."""
        if not self.pending:
            self.close()


class SubmissionProcess:
    """Runs work in a process of its own, which is started when there is some; belongs to the loop that answers."""

    def __init__(self, settings: Settings, where: Endpoints, *, probe_s: float) -> None:
        self._first = frame((settings, where, probe_s))
        self._numbers = count()
        self._turn = asyncio.Lock()
        self._link: _Link | None = None
        self._start: asyncio.Task[_Link] | None = None
        self._rest: asyncio.TimerHandle | None = None

    def takes(self, size: int) -> bool:
        """Tells whether a body of so many bytes belongs there; starts the process where the next one may."""
        self.prepare(size)
        is_ready = self._link is not None and self._link.is_open and self._link.is_ready
        return size >= WAIT_BYTES or (size >= START_BYTES and is_ready)

    def prepare(self, size: int) -> None:
        """Starts the process for a body that is about to come."""
        is_open = self._link is not None and self._link.is_open
        if size >= START_BYTES and not is_open and (self._start is None or self._start.done()):
            self._start = asyncio.create_task(self._opened(), name="start the submission process")

    async def run(self, work: Work[Result], *arguments: Any) -> Result:
        """The result of work there, or its error; cancelled with its caller. Raises ``ProcessEnded``."""
        link = await self._opened()
        number = next(self._numbers)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        link.pending[number] = future
        link.writer.write(frame((number, work, arguments)))
        try:
            return await future
        except asyncio.CancelledError:
            if link.is_open:
                link.writer.write(frame((number, None, ())))
            raise
        finally:
            link.pending.pop(number, None)
            self._await_work(link)

    async def close(self) -> None:
        """Ends the process."""
        if self._start is not None:
            await cancel(self._start)
        if self._rest is not None:
            self._rest.cancel()
        if self._link is not None and self._link.reading is not None:
            self._link.close()
            await self._link.reading

    async def _opened(self) -> _Link:
        async with self._turn:
            if self._link is None or not self._link.is_open:
                self._link = await self._open()
                self._await_work(self._link)
            return self._link

    async def _open(self) -> _Link:
        own, other = socket.socketpair()
        with other:
            process = await asyncio.to_thread(start_child, COMMAND, other)
        reader, writer = await asyncio.open_connection(sock=own)
        writer.write(self._first)
        link = _Link(process, reader, writer)
        link.reading = asyncio.create_task(self._read(link), name="read from the submission process")
        return link

    def _await_work(self, link: _Link) -> None:
        """Ends a process that has nothing to do for long."""
        if self._rest is not None:
            self._rest.cancel()
        self._rest = asyncio.get_running_loop().call_later(IDLE_S, link.close_idle)

    async def _read(self, link: _Link) -> None:
        """Passes on what the process answers, until it ends."""
        try:
            while True:
                number, result, error = await receive(link.reader)
                link.is_ready = True
                future = link.pending.get(number)
                if future is None or future.done():
                    continue
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
        except EOFError:
            await self._end(link)

    async def _end(self, link: _Link) -> None:
        was_closed = not link.is_open
        link.close()
        code = await asyncio.to_thread(_reap, link.process)
        if not was_closed:
            log.error("the process for large submissions ended (%s); the next one starts another", code)
        for future in link.pending.values():
            if not future.done():
                future.set_exception(ProcessEnded(f"the process for large submissions ended ({code})"))


def start_child(command: Sequence[str], connection: socket.socket) -> "subprocess.Popen[bytes]":
    """Starts the process with a connection as its standard input; what it logs goes where the service logs."""
    # In a group of its own: Ctrl-C at a terminal is for the service, which lets its requests end first.
    return subprocess.Popen(  # noqa: S603 - a module of ours
        command, stdin=connection.fileno(), stdout=subprocess.DEVNULL, process_group=0
    )


def _reap(process: "subprocess.Popen[bytes]") -> int:
    try:
        return process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
