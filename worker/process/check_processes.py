"""Processes that compute checks, each piece of work within a time limit that the system keeps: it ends the process.

A fork server, forked before the worker has threads, makes them, so that a new one is there at once and shares the memory of what
is loaded. They end with the worker, however it ends.
"""

import asyncio
import ctypes
import logging
import mmap
import os
import pickle
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tasks.errors import CheckEnded
from worker.cancellation import cancel

log = logging.getLogger(__name__)

Result = TypeVar("Result")

FIRST_LIMIT_S = 0.5
"""Seconds of CPU that a piece may take. What takes longer is tried again beside the others, within its whole limit."""

DIED = "the process that checked it died, perhaps for want of memory: see the log of the worker and of the system"
"""The reason of a piece that ended its process twice."""

PAUSE_S = 1.0
"""Seconds between two attempts to start a process."""

_TIME_UP = {signal.SIGPROF, signal.SIGALRM}
"""How the system ends a process whose piece took all its CPU, or all its time."""

_HEAD = 8
"""Bytes of the length before a message."""


def frame(message: Any) -> bytes:
    """A message as it goes over the socket of two processes of this program."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(content).to_bytes(_HEAD, "big") + content


class ForkServerEnded(Exception):
    """The process that forks others is gone: no check can be computed any more."""


# ---- in the processes ------------------------------------------------------------------------------------------------


def show_command(words: Sequence[str]) -> None:
    """Lets the process table show a command line, by which workers are recognised; raises ``OSError`` where it does not."""
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    # Fields 48 and 49 of proc(5): the memory that the command line is read from.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(field) for field in fields[45:47])
    if not 0 < len(text) <= end - start:
        raise OSError(f"a command line of {len(text)} bytes does not fit into {end - start}")
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)
    if not Path("/proc/self/cmdline").read_bytes().startswith(text):
        raise OSError("the process table does not show a changed command line")


class ForkServer:
    """A process that forks others from itself, on order.

    Args:
        prepare: called once, in this process, for what it computes is there in all others.
        begin: called in each forked process before its first work; what it raises is raised by the worker.
        count: number of processes.
    """

    def __init__(self, prepare: Callable[[], None], begin: Callable[[], None], count: int) -> None:
        self._prepare, self._begin = prepare, begin
        self.count = count
        self.started = mmap.mmap(-1, count)
        """By number of the process, 1 once it computes the piece that it was given."""
        self._control, other = socket.socketpair()
        self._ordering = threading.Lock()
        """Held from an order to its answer: a thread goes on when the task that waits for it is cancelled."""
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._control.close()
                self._serve(other)
            finally:
                os._exit(1)
        other.close()

    def fork(self, number: int, connection: socket.socket) -> int:
        """The id of a new process with this end of a connection; blocks for some milliseconds. Raises ``OSError``, ``ForkServerEnded``."""
        with self._ordering:
            with connection:
                socket.send_fds(self._control, [b"%d" % number], [connection.fileno()])
            answer = self._receive()
        if not answer.startswith(b"+"):
            raise OSError(answer.decode())
        return int(answer)

    def kill(self, pid: int) -> int:
        """Ends a process that this one forked; returns the signal that ended it, this or an earlier one, and 0 for none."""
        with self._ordering:
            self._control.send(b"-%d" % pid)
            return int(self._receive())

    def _receive(self) -> bytes:
        if not (answer := self._control.recv(64)):
            raise ForkServerEnded
        return answer

    def close(self) -> None:
        """Ends it, and with it all processes."""
        with suppress(OSError):
            # A thread that waits for an answer would keep the connection open, and both would wait for ever.
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _serve(self, control: socket.socket) -> None:
        with suppress(OSError):
            # A worker is recognised by its command line.
            show_command([sys.executable, "-m", __name__])
        self._prepare()
        # The worker decides about the end of these processes.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for number in _TIME_UP:
            signal.signal(number, signal.SIG_DFL)
        running: set[int] = set()
        try:
            # The worker may close the connection before it has an answer.
            with suppress(ConnectionError):
                self._obey(control, running)
        finally:
            for pid in running:
                os.kill(pid, signal.SIGKILL)

    def _obey(self, control: socket.socket, running: set[int]) -> None:
        """Forks and kills on order, until the worker closes the connection."""
        while True:
            message, descriptors, *_ = socket.recv_fds(control, 32, 1)
            if not message:
                return
            order = int(message)
            if order < 0:
                os.kill(-order, signal.SIGKILL)
                _, status = os.waitpid(-order, 0)
                running.discard(-order)
                control.send(b"%d" % os.WTERMSIG(status))
                continue
            (connection,) = descriptors
            try:
                pid = os.fork()
            except OSError as error:
                control.send(f"{error}".encode()[:64])
            else:
                if pid == 0:
                    # Its own end ends no other.
                    running.clear()
                    control.close()
                    self._work(order, socket.socket(fileno=connection))
                running.add(pid)
                control.send(b"+%d" % pid)
            os.close(connection)

    def _work(self, number: int, connection: socket.socket) -> None:
        """Computes pieces until the worker closes the connection; does not return."""
        try:
            with connection, connection.makefile("rwb") as stream:
                self._begin_with(stream)
                while head := stream.read(_HEAD):
                    cpu_s, most_s, piece = pickle.loads(stream.read(int.from_bytes(head, "big")))  # noqa: S301 - by the worker
                    self.started[number] = 1
                    signal.setitimer(signal.ITIMER_PROF, cpu_s)
                    signal.setitimer(signal.ITIMER_REAL, most_s)
                    answer = _answer(piece)
                    signal.setitimer(signal.ITIMER_PROF, 0)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    stream.write(frame(answer))
                    stream.flush()
        finally:
            os._exit(0)

    def _begin_with(self, stream: Any) -> None:
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - the worker raises it
            stream.write(frame(error))
            stream.flush()
            os._exit(1)
        stream.write(frame(None))
        stream.flush()


def _answer(piece: bytes) -> bytes:
    """The result of a piece of work, or its error."""
    try:
        work = pickle.loads(piece)  # noqa: S301 - by the worker
        return pickle.dumps((work(), None), pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        log.debug("a piece of a check broke", exc_info=True)
        try:
            answer = pickle.dumps((None, error))
            pickle.loads(answer)  # noqa: S301 - own
        except Exception:  # noqa: BLE001 - errors of others may refuse either
            answer = pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
        return answer


# ---- in the worker ---------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Piece:
    content: bytes
    tenant: str
    done: "asyncio.Future[bytes]"
    pid: int | None = None
    """Of the process that computes it now."""


@dataclass(slots=True)
class _Process:
    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, message: Any) -> bytes:
        """The answer to a message; raises ``EOFError`` when the process dies of it."""
        self.writer.write(frame(message))
        answer: bytes = await self.receive()
        return answer

    async def receive(self) -> Any:
        """The next message."""
        try:
            size = int.from_bytes(await self.reader.readexactly(_HEAD), "big")
            return pickle.loads(await self.reader.readexactly(size))  # noqa: S301 - by ``frame``
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise EOFError from error


class _Lines:
    """Pieces that wait, in a line for each tenant; the lines have their turns."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, deque[_Piece]] = {}

    def add(self, piece: _Piece) -> None:
        """Adds a piece behind the others of its tenant."""
        self._by_tenant.setdefault(piece.tenant, deque()).append(piece)

    def take(self) -> _Piece | None:
        """Removes the next piece; those that nobody waits for any more are dropped."""
        while self._by_tenant:
            tenant = next(iter(self._by_tenant))
            line = self._by_tenant.pop(tenant)
            piece = line.popleft()
            if line:
                self._by_tenant[tenant] = line
            if not piece.done.done():
                return piece
        return None


class CheckProcesses:
    """``tasks.ports.CheckExecutor`` by processes of a fork server; belongs to one event loop.

    Args:
        server: forks the processes. With two or more, one is never given what takes long.
        limit_s: seconds that a piece may take; then its process is ended, and ``CheckEnded`` raised.
        reason: says why, of a piece that took longer.
        dead: called when no process can be had any more.
    """

    def __init__(self, server: ForkServer, limit_s: float, reason: str, dead: Callable[[], None]) -> None:
        self._server = server
        self._limit_s = limit_s
        self._first_s = limit_s if server.count == 1 else min(FIRST_LIMIT_S, limit_s)
        self._reason = reason
        self._dead = dead
        self._urgent, self._bulk = _Lines(), _Lines()
        self._again = _Lines()
        """Pieces that ended a process, or took too long, and are tried once more."""
        self._changed = asyncio.Event()
        self._forking = asyncio.Lock()
        self._processes: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Starts the processes; raises what their beginning raises, and ``OSError``."""
        for number in range(self._server.count):
            task = asyncio.create_task(self._keep(number, await self._fork(number)), name=f"checks {number}")
            task.add_done_callback(self._note_end)
            self._processes.append(task)

    async def do(self, work: Callable[[], Result], *, tenant: str, urgent: bool = False) -> Result:
        """See ``tasks.ports.CheckExecutor``."""
        content = pickle.dumps(work, pickle.HIGHEST_PROTOCOL)
        piece = _Piece(content, tenant, asyncio.get_running_loop().create_future())
        self._enqueue(piece, self._urgent if urgent else self._bulk)
        try:
            answer = await piece.done
        except asyncio.CancelledError:
            if piece.pid is not None:
                os.kill(piece.pid, signal.SIGKILL)
            raise
        result, error = pickle.loads(answer)  # noqa: S301 - by ``_answer``
        if error is not None:
            raise error
        value: Result = result
        return value

    async def close(self) -> None:
        """Ends the processes, whatever they do."""
        for process in self._processes:
            await cancel(process)
        await asyncio.to_thread(self._server.close)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.critical("%s broke", task.get_name(), exc_info=task.exception())
            self._dead()

    def _enqueue(self, piece: _Piece, lines: _Lines) -> None:
        lines.add(piece)
        self._changed.set()

    async def _keep(self, number: int, process: _Process) -> None:
        """Keeps one process at work; a new one takes the place of one that was ended."""
        slow: _Lines | None = None
        try:
            while True:
                piece, lines = await self._next(number, slow)
                ended_by = await self._compute(
                    number, process, piece, self._limit_s if lines is self._again else self._first_s
                )
                slow = lines if ended_by is not None or lines is self._again else None
                if ended_by is not None:
                    if not self._server.started[number]:
                        self._enqueue(piece, lines)
                    elif not piece.done.done():
                        self._blame(piece, lines, took_long=ended_by in _TIME_UP)
                    process = await self._fork_again(number)
        finally:
            process.writer.close()

    async def _next(self, number: int, slow: _Lines | None) -> tuple[_Piece, _Lines]:
        """The next piece of a process, and its lines; the ``slow`` ones, which took its time just now, come last."""
        # The first process takes nothing that took long.
        order = [self._urgent, self._bulk]
        if number or self._server.count == 1:
            order.insert(1, self._again)
        while True:
            for lines in sorted(order, key=lambda lines: lines is slow):
                if (piece := lines.take()) is not None:
                    return piece, lines
            self._changed.clear()
            await self._changed.wait()

    async def _compute(self, number: int, process: _Process, piece: _Piece, seconds: float) -> int | None:
        """Computes a piece; the signal that ended its process, None where it goes on."""
        self._server.started[number] = 0
        piece.pid = process.pid
        try:
            answer = await process.ask((seconds, self._limit_s, piece.content))
        except EOFError:
            piece.pid = None
            process.writer.close()
            async with self._forking:
                return await asyncio.to_thread(self._server.kill, process.pid)
        piece.pid = None
        if not piece.done.done():
            piece.done.set_result(answer)
        return None

    def _blame(self, piece: _Piece, lines: _Lines, *, took_long: bool) -> None:
        """Ends a piece that ended its process, or took its whole time; another one has a second try."""
        if lines is self._again or (took_long and self._first_s == self._limit_s):
            piece.done.set_exception(CheckEnded(self._reason if took_long else DIED))
        else:
            self._enqueue(piece, self._again)

    async def _fork_again(self, number: int) -> _Process:
        """A process in place of another, once the system has one."""
        while True:
            try:
                return await self._fork(number)
            except ForkServerEnded:
                raise
            except Exception:
                log.exception("no process for checks can be started; the next try is in %.0f s", PAUSE_S)
                await asyncio.sleep(PAUSE_S)

    async def _fork(self, number: int) -> _Process:
        own, other = socket.socketpair()
        own.setblocking(False)
        # Whoever is cancelled before the server has its end leaves none behind.
        with other:
            streams = await asyncio.open_connection(sock=own)
            try:
                async with self._forking:
                    pid = await asyncio.to_thread(self._server.fork, number, other)
                process = _Process(pid, *streams)
                if (error := await process.receive()) is None:
                    return process
            except BaseException:
                streams[1].close()
                raise
        process.writer.close()
        raise error
