"""The process that takes large submissions in, beside the one that answers: validation in Python would keep every poll waiting."""

import asyncio
import os
import pickle
import signal
import socket
import sys
import traceback
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Any

import uvloop

from worker.cancellation import cancel
from worker.ledger.outage import Outage
from worker.ledger.postgres import PostgresLedger
from worker.process.garbage import spare_the_modules
from worker.process.logs import configure_logging, passwords_of
from worker.settings import use_own_templates

CONNECTIONS = 4
"""To PostgreSQL: one for each submission that is written at once, and one for short statements."""

NICENESS = 5
"""Polls go first where no core is free for both."""

READY = -1
"""Number of the message that the process has started."""

ALIVE = -2
"""Number of a message that its loop runs."""

ORDERED = ("worker.operations.body_submission", "worker.operations.uploaded_batches")
"""Modules of the work that is ordered here: loaded before the first order."""

_HEAD_BYTES = 8


def frame(message: Any) -> bytes:
    """A message as it goes over the socket of the two processes, which nobody else reaches."""
    content = pickle.dumps(message)
    return len(content).to_bytes(_HEAD_BYTES, "big") + content


async def receive(reader: asyncio.StreamReader) -> Any:
    """The next message; raises ``EOFError`` once the other process has ended."""
    try:
        size = int.from_bytes(await reader.readexactly(_HEAD_BYTES), "big")
        return pickle.loads(await reader.readexactly(size))  # noqa: S301 - written by the other half of this program
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise EOFError from error


class _Child:
    """Runs what the service orders, until that has ended."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._stack = AsyncExitStack()
        self._turn = asyncio.Lock()
        self._ledger: PostgresLedger | None = None

    async def run(self) -> None:
        """Takes orders; the end of the service, however it came, ends everything and rolls back what is not committed."""
        self._settings, self._where, probe_s, beat_s = await receive(self._reader)
        configure_logging(self._settings.log_level, passwords_of(self._where.database_url, self._where.redis_url))
        use_own_templates(self._settings)
        async with self._stack:
            self._writer.write(frame((READY, None, None)))
            self._stack.push_async_callback(cancel, asyncio.create_task(self._beat(beat_s)))
            self._outage = await self._stack.enter_async_context(Outage(self._where.database_url, probe_s=probe_s))
            try:
                while True:
                    number, function, arguments = await receive(self._reader)
                    if function is None:
                        if number in self._tasks:
                            self._tasks[number].cancel()
                    else:
                        self._tasks[number] = asyncio.create_task(self._do(number, function, arguments))
            except EOFError:
                for task in list(self._tasks.values()):
                    await cancel(task)

    async def _beat(self, every_s: float) -> None:
        """Tells that the loop runs, until cancelled."""
        while True:
            await asyncio.sleep(every_s)
            self._writer.write(frame((ALIVE, None, None)))

    async def _do(self, number: int, function: Any, arguments: tuple[Any, ...]) -> None:
        try:
            answer = frame((number, await function(await self._opened(), self._settings, *arguments), None))
        except Exception as error:  # noqa: BLE001 - it is raised where the work was ordered
            answer = frame((number, None, _portable(error)))
        finally:
            del self._tasks[number]
        self._writer.write(answer)

    async def _opened(self) -> PostgresLedger:
        """The ledger, opened at the first need: PostgreSQL may be away when this process starts."""
        async with self._turn:
            if self._ledger is None:
                ledger = PostgresLedger(self._where.database_url, connections=CONNECTIONS, outage=self._outage)
                self._ledger = await self._stack.enter_async_context(ledger)
        return self._ledger


def _portable(error: Exception) -> Exception:
    """The error as the other process can raise it, with its traceback as a note."""
    error.add_note("".join(traceback.format_exception(error)))
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - own
    except Exception:  # noqa: BLE001 - of any kind, then its text alone
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


async def _main(connection: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=connection)
    await _Child(reader, writer).run()


def main() -> None:
    """Runs the process; its standard input is a socket to the service."""
    # The service decides about the end, and lets its requests end first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    for module in ORDERED:
        import_module(module)
    spare_the_modules()
    connection = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(connection))


if __name__ == "__main__":
    main()
