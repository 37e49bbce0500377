"""Processes that compute checks, each piece of work within a time limit that works from outside: its process is killed.

A fork server, forked before the worker has threads, makes them, so that a new one is there at once and shares the memory of what
is loaded. They end with the worker, however it ends.
"""

import asyncio
import ctypes
import logging
import math
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
from time import monotonic
from typing import Any, TypeVar

import psutil

from tasks.errors import CheckEnded
from worker.cancellation import cancel

log = logging.getLogger(__name__)

Result = TypeVar("Result")

BUNDLE = 10
"""Pieces that a process is given at once: to hand over one alone costs as much as to hand over ten."""

BUNDLE_BYTES = 500_000
"""Bytes of such pieces together, unless it is one."""

BUNDLE_S = 0.25
"""Seconds after which a process returns what it has, and leaves the rest of its bundle to others."""

FIRST_LIMIT_S = 0.5
"""Seconds of CPU that a bundle may take. What takes longer is tried again alone, beside the others and within its whole limit."""

GRACE_S = 5.0
"""Seconds after which the system ends a process that nobody ended: all that could are gone."""

DIED = "the process that checked it died, perhaps for want of memory: see the log of the worker and of the system"
"""The reason of a piece that ended its process twice."""

PAUSE_S = 1.0
"""Seconds between two attempts to start a process."""

_NOT_BEGUN = 255
"""In place of a piece: the process did not read its bundle."""

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
        self.progress = mmap.mmap(-1, count)
        """The place of the piece that a process computes in its bundle, by number of the process."""
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

    def kill(self, pid: int) -> None:
        """Ends a process that this one forked; returns when it is gone."""
        with self._ordering:
            self._control.send(b"-%d" % pid)
            self._receive()

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
                os.waitpid(-order, 0)
                running.discard(-order)
                control.send(b"done")
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
        """Computes bundles until the worker closes the connection; does not return."""
        try:
            with connection, connection.makefile("rwb") as stream:
                self._begin_with(stream)
                while head := stream.read(_HEAD):
                    self.progress[number] = 0
                    seconds, pieces = pickle.loads(stream.read(int.from_bytes(head, "big")))  # noqa: S301 - by the worker
                    stream.write(frame(self._compute(number, pieces, seconds)))
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

    def _compute(self, number: int, pieces: Sequence[bytes], seconds: float) -> list[bytes]:
        """The results of the first pieces, as many as there is time for."""
        answers: list[bytes] = []
        until = monotonic() + BUNDLE_S
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_S)
        for place, piece in enumerate(pieces):
            self.progress[number] = place
            answers.append(_answer(piece))
            if monotonic() >= until:
                break
        signal.setitimer(signal.ITIMER_REAL, 0)
        return answers


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
    urgent: bool
    done: "asyncio.Future[bytes]"
    call: "asyncio.Task[list[bytes]] | None" = None
    """Computes it, with the others of its bundle."""
    bundle: "Sequence[_Piece]" = ()
    is_again: bool = False
    """It ended a process, or took too long, and is tried alone."""


@dataclass(slots=True)
class _Process:
    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def cpu_s(self) -> float:
        """Seconds of CPU that it used so far."""
        try:
            return sum(psutil.Process(self.pid).cpu_times()[:2])
        except psutil.NoSuchProcess:
            return math.inf

    async def ask(self, message: Any) -> list[bytes]:
        """The answer to a bundle; raises ``EOFError`` when the process dies of it."""
        self.writer.write(frame(message))
        answers: list[bytes] = await self.receive()
        return answers

    async def receive(self) -> Any:
        """The next message."""
        try:
            size = int.from_bytes(await self.reader.readexactly(_HEAD), "big")
            return pickle.loads(await self.reader.readexactly(size))  # noqa: S301 - by ``frame``
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.writer.close()
            raise EOFError from error


class _Lines:
    """Pieces that wait, in a line for each tenant; the lines have their turns."""

    def __init__(self) -> None:
        self._by_tenant: dict[str, deque[_Piece]] = {}

    def add(self, piece: _Piece) -> None:
        """Adds a piece behind the others of its tenant."""
        self._by_tenant.setdefault(piece.tenant, deque()).append(piece)

    def put_back(self, piece: _Piece) -> None:
        """Adds a piece before the others of its tenant."""
        self._by_tenant.setdefault(piece.tenant, deque()).appendleft(piece)

    def take(self, most: int) -> list[_Piece]:
        """Removes the pieces of the next bundle: of one tenant alone, for the first of them may take all its time."""
        pieces: list[_Piece] = []
        size = 0
        while self._by_tenant and not pieces:
            tenant = next(iter(self._by_tenant))
            line = self._by_tenant.pop(tenant)
            while line and len(pieces) < most and (not pieces or size + len(line[0].content) <= BUNDLE_BYTES):
                piece = line.popleft()
                if not piece.done.done():
                    pieces.append(piece)
                    size += len(piece.content)
            if line:
                self._by_tenant[tenant] = line
        return pieces


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
        self._count = count = server.count
        self._limit_s = limit_s
        self._first_s = limit_s if count == 1 else min(FIRST_LIMIT_S, limit_s)
        self._bundle = 1 if count == 1 else BUNDLE
        self._reason = reason
        self._dead = dead
        self._urgent, self._bulk = _Lines(), _Lines()
        self._again = _Lines()
        """Pieces that are tried once more, alone."""
        self._changed = asyncio.Event()
        self._forking = asyncio.Lock()
        self._processes: list[asyncio.Task[None]] = []
        self._last: list[_Lines | None] = [None] * count
        """By process, the lines that come last next time: its last bundle was of these, and took long."""

    async def start(self) -> None:
        """Starts the processes; raises what their beginning raises, and ``OSError``."""
        for number in range(self._count):
            task = asyncio.create_task(self._keep(number, await self._fork(number)), name=f"checks {number}")
            task.add_done_callback(self._note_end)
            self._processes.append(task)

    async def do(self, work: Callable[[], Result], *, tenant: str, urgent: bool = False) -> Result:
        """See ``tasks.ports.CheckExecutor``."""
        content = pickle.dumps(work, pickle.HIGHEST_PROTOCOL)
        piece = _Piece(content, tenant, urgent, asyncio.get_running_loop().create_future())
        self._lines_of(piece).add(piece)
        self._changed.set()
        try:
            answer = await piece.done
        except asyncio.CancelledError:
            if piece.call is not None and all(each.done.done() for each in piece.bundle):
                piece.call.cancel()
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

    async def _keep(self, number: int, process: _Process) -> None:
        """Keeps one process at work; a new one takes the place of one that was ended."""
        try:
            while True:
                pieces, seconds = await self._next(number)
                if not await self._compute(number, process, pieces, seconds):
                    process.writer.close()
                    async with self._forking:
                        await asyncio.to_thread(self._server.kill, process.pid)
                    process = await self._fork_again(number)
        finally:
            process.writer.close()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.critical("%s broke", task.get_name(), exc_info=task.exception())
            self._dead()

    async def _next(self, number: int) -> tuple[list[_Piece], float]:
        """The next bundle of a process, and its time limit."""
        while True:
            for lines in self._order(number):
                takes_long = lines is self._again
                if pieces := lines.take(1 if takes_long else self._bundle):
                    self._last[number] = lines if takes_long else None
                    return pieces, self._limit_s if takes_long else self._first_s
            self._changed.clear()
            await self._changed.wait()
            # What came in the same turn of the loop goes together.
            await asyncio.sleep(0)

    def _order(self, number: int) -> list[_Lines]:
        """The lines in the order in which a process takes from them; the first process takes nothing that took long."""
        order = [self._urgent, self._bulk] if number == 0 < self._count - 1 else [self._urgent, self._again, self._bulk]
        return sorted(order, key=lambda lines: lines is self._last[number])

    def _lines_of(self, piece: _Piece) -> _Lines:
        return self._urgent if piece.urgent else self._bulk

    async def _compute(self, number: int, process: _Process, pieces: Sequence[_Piece], seconds: float) -> bool:
        """Computes a bundle; False if its process was ended, or died."""
        self._server.progress[number] = _NOT_BEGUN
        call = asyncio.create_task(process.ask((self._limit_s, [piece.content for piece in pieces])))
        for piece in pieces:
            piece.call, piece.bundle = call, pieces
        used_s, until = process.cpu_s(), monotonic() + self._limit_s
        try:
            await asyncio.wait((call,), timeout=seconds)
            # On a busy machine a second of its time may be a fraction of it.
            while not call.done() and monotonic() < until and process.cpu_s() - used_s < seconds:
                await asyncio.wait((call,), timeout=seconds)
        except asyncio.CancelledError:
            call.cancel()
            raise
        if call.done() and not call.cancelled() and call.exception() is None:
            self._answer(pieces, call.result())
            return True
        if not call.cancelled():
            died = call.done()
            if not died:
                call.cancel()
                await asyncio.wait((call,))
            place = self._server.progress[number]
            if died and place == _NOT_BEGUN:
                # It was dead before.
                self._put_back(pieces)
                return False
            culprit = pieces[0 if place == _NOT_BEGUN else place]
            if not culprit.done.done():
                self._blame(culprit, died=died, within_s=seconds)
            self._last[number] = (
                self._again if culprit.is_again and seconds > self._first_s else self._lines_of(culprit)
            )
            pieces = [piece for piece in pieces if piece is not culprit]
        self._put_back(pieces)
        return False

    def _answer(self, pieces: Sequence[_Piece], answers: Sequence[bytes]) -> None:
        for piece, answer in zip(pieces, answers, strict=False):
            if not piece.done.done():
                piece.done.set_result(answer)
        self._put_back(pieces[len(answers) :])

    def _put_back(self, pieces: Sequence[_Piece]) -> None:
        for piece in reversed(pieces):
            if not piece.done.done():
                (self._again if piece.is_again else self._lines_of(piece)).put_back(piece)
        self._changed.set()

    def _blame(self, piece: _Piece, *, died: bool, within_s: float) -> None:
        """Ends a piece that ended its process, or took too long; at its first try it has another one, alone."""
        if piece.is_again or not (died or within_s < self._limit_s or len(piece.bundle) > 1):
            piece.done.set_exception(CheckEnded(DIED if died else self._reason))
            return
        piece.is_again = True
        self._again.add(piece)
        self._changed.set()

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
