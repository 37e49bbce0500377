"""Starts, uses and ends the process that takes large submissions in."""

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from tasks.errors import ServiceUnavailable
from worker.cancellation import cancel
from worker.http.bulk_loop import OF_ONE
from worker.http.submission_child import CONNECTIONS, frame, receive
from worker.http.turns import Turns
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

START_S = 60.0
"""Seconds that its start may take."""

SILENCE_S = 180.0
"""Seconds without a message after which it counts as hung; the lines of 1 GB keep it silent for a tenth of that."""

BEATS = 20
"""Signs of life that it gives in that time."""

RETRY_S = 60.0
"""Seconds between two attempts to start it."""

AT_ONCE = CONNECTIONS - 1
"""Submissions that it writes at once; one connection is for short statements."""


_NOT_STARTED = (
    "the process for large submissions can't be started: %s. A thread takes them in, which slows polls; the next try is "
    "in %.0f s. See whether memory or the number of processes is at its limit"
)

_HUNG = "the process for large submissions gave no sign of life for %.0f s and is killed; senders are told to try again"


class NotStarted(Exception):
    """The process can't be started now; it was ordered nothing."""


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

    def pass_on(self, number: int, result: Any, error: Exception | None) -> None:
        """Ends the wait for some work; a sign of life is of none."""
        future = self.pending.get(number)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def close(self) -> None:
        """Lets the process end: it rolls back what is not committed."""
        self.is_open = False
        self.writer.close()

    def close_idle(self) -> None:
        """Does so unless there is work, which may have come since the last look."""
        if not self.pending:
            self.close()


class SubmissionProcess:
    """Runs work in a process of its own, which is started when there is some; belongs to the loop that answers.

    It gets orders once it has loaded its modules: where it ends before, the work can be done elsewhere.
    """

    def __init__(self, settings: Settings, where: Endpoints, *, probe_s: float) -> None:
        self._first = frame((settings, where, probe_s, SILENCE_S / BEATS))
        self._numbers = count()
        self._turn = asyncio.Lock()
        self._turns = Turns(AT_ONCE, OF_ONE)
        self._link: _Link | None = None
        self._start: asyncio.Task[None] | None = None
        self._retry_at = 0.0
        self._rest: asyncio.TimerHandle | None = None

    def takes(self, size: int) -> bool:
        """Tells whether a body of so many bytes belongs there; starts the process where the next one may."""
        self.prepare(size)
        return (size >= WAIT_BYTES and not self._rests()) or (size >= START_BYTES and self._is_open())

    def prepare(self, size: int) -> None:
        """Starts the process for a body that is about to come."""
        is_starting = self._start is not None and not self._start.done()
        if size >= START_BYTES and not self._is_open() and not is_starting and not self._rests():
            self._start = asyncio.create_task(self._try_start(), name="start the submission process")

    def _is_open(self) -> bool:
        return self._link is not None and self._link.is_open

    def _rests(self) -> bool:
        """Tells that a start failed a moment ago."""
        return not self._is_open() and asyncio.get_running_loop().time() < self._retry_at

    async def _try_start(self) -> None:
        with suppress(NotStarted):  # the log tells of it
            await self._opened()

    async def run(self, tenant: str, work: Work[Result], *arguments: Any) -> Result:
        """The result of a tenant's work there, or its error; cancelled with its caller. Raises ``NotStarted``, ``ProcessEnded``."""
        async with self._turns.take(tenant):
            return await self._run(await self._opened(), work, arguments)

    async def _run(self, link: _Link, work: Work[Result], arguments: tuple[Any, ...]) -> Result:
        number = next(self._numbers)
        order = frame((number, work, arguments))
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        link.pending[number] = future
        link.writer.write(order)
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
            if self._link is not None and self._link.is_open:
                return self._link
            if self._rests():
                raise NotStarted
            try:
                self._link = await self._open()
            except (OSError, RuntimeError, subprocess.SubprocessError, EOFError) as error:
                self._retry_at = asyncio.get_running_loop().time() + RETRY_S
                log.error(_NOT_STARTED, str(error) or f"no answer in {START_S:.0f} s", RETRY_S)  # noqa: TRY400 - told whole
                raise NotStarted from error
            self._await_work(self._link)
            return self._link

    async def _open(self) -> _Link:
        """A process that has loaded its modules."""
        own, other = socket.socketpair()
        try:
            with other:
                process = await asyncio.to_thread(start_child, COMMAND, other)
        except BaseException:
            own.close()
            raise
        reader, writer = await asyncio.open_connection(sock=own)
        link = _Link(process, reader, writer)
        try:
            writer.write(self._first)
            async with asyncio.timeout(START_S):
                await receive(reader)
        except EOFError:
            link.close()
            raise EOFError(f"it ended at its start ({await asyncio.to_thread(_reap, process)})") from None
        except BaseException:
            link.close()
            process.kill()
            await asyncio.to_thread(_reap, process)
            raise
        link.reading = asyncio.create_task(self._read(link), name="read from the submission process")
        return link

    def _await_work(self, link: _Link) -> None:
        """Ends a process that has nothing to do for long."""
        if self._rest is not None:
            self._rest.cancel()
        self._rest = asyncio.get_running_loop().call_later(IDLE_S, link.close_idle)

    async def _read(self, link: _Link) -> None:
        """Passes on what the process answers, until it ends; ends it where nothing more can come."""
        try:
            while True:
                async with asyncio.timeout(SILENCE_S):
                    message = await receive(link.reader)
                link.pass_on(*message)
        except EOFError:
            pass
        except TimeoutError:
            log.error(_HUNG, SILENCE_S)  # noqa: TRY400 - told whole
            link.process.kill()
        except Exception:
            log.exception("an answer of the process for large submissions can't be read; it is killed")
            link.process.kill()
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
