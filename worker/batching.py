"""Sends rows of many callers together, urgent ones first, with one policy for what fails."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, TypeVar

from tasks.errors import LedgerError, ServiceUnavailable, Unstorable

log = logging.getLogger(__name__)

BATCH_ROWS = 50
"""Rows a send. Measured with the ledger: 65 us a row in batches of 50, 56 us in batches of 200, 1,192 us alone."""

BATCH_WAIT = timedelta(milliseconds=10)
"""Longest time that the first row of a batch waits for others."""

QUIET_WAITS = 5
"""Waits without a send after which an eager batcher sends the first row at once: there are none to wait for."""

IN_FLIGHT = 2
"""Sends under way at once; while all are busy, rows collect."""

RETRY_PAUSE = timedelta(seconds=1)
"""Pause of a send that failed before its rows are sent again."""

Row = TypeVar("Row")
Answer = TypeVar("Answer")
Result = TypeVar("Result")

Send = Callable[[Sequence[Row]], Awaitable[Sequence[Answer] | None]]
"""Sends rows and answers each, in order; None: there is nothing to answer."""


class OnError(Enum):
    """The policy for the rows of a send that failed."""

    RETRY = auto()
    """Send them again until it succeeds. A row at fault (``Unstorable``, or a defect of ours) fails alone: its batch is
    halved until the row is alone, and the error is raised to its caller."""

    WAIT = auto()
    """The same while a service is unavailable; any other error of the ledger is raised to each caller, who can do without."""

    RAISE = auto()
    """Raise the error to each caller."""

    LEAVE = auto()
    """Log the error and forget them: a sweep finds them again."""


@dataclass(slots=True, eq=False)
class _Entry(Generic[Row, Answer]):
    """A row, and where its caller waits for the answer."""

    row: Row
    done: asyncio.Future[Answer] | None
    urgent: bool = False

    def answer(self, answer: Answer) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(answer)

    def fail(self, error: BaseException) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # a caller that was cancelled does not ask for it

    @property
    def abandoned(self) -> bool:
        return self.done is not None and self.done.cancelled()


class Batcher(Generic[Row, Answer]):
    """Sends rows in batches of up to ``rows``, ``wait`` after the first at the latest; belongs to one event loop.

    Urgent rows stand in a line of their own: they wait for no others, go with no others, and have one send beyond ``in_flight``.

    Args:
        name: of the rows, for the log.
        send: sends a batch.
        on_error: the policy for a batch that can't be sent.
        rows: most rows of a batch.
        wait: longest wait for a batch to fill.
        in_flight: most sends at once.
        room: most rows that wait or are under way; ``add`` forgets what comes beyond it.
        eager: after a quiet time the first row does not wait, only what comes after it.
    """

    def __init__(
        self,
        name: str,
        send: Send[Row, Answer],
        *,
        on_error: OnError = OnError.RETRY,
        rows: int = BATCH_ROWS,
        wait: timedelta = BATCH_WAIT,
        in_flight: int = IN_FLIGHT,
        room: int | None = None,
        eager: bool = False,
    ) -> None:
        self._overdue = False
        """What waits was to be sent, and no send was free."""
        self._started_at = -math.inf
        self._name = name
        self._send_rows = send
        self._on_error = on_error
        self._rows = rows
        self._size = rows
        """Rows of the next batch: halved by a batch that is to be sent again, doubled by one that was sent."""
        self._wait_s = wait.total_seconds()
        self._quiet_s = QUIET_WAITS * self._wait_s if eager else math.inf
        self._free = in_flight
        self._urgent_free = 1
        self._room = room
        self._sending = 0
        self._overflow = 0
        """Rows that found no room since there was some."""
        self._waiting: deque[_Entry[Row, Answer]] = deque()
        self._urgent: deque[_Entry[Row, Answer]] = deque()
        self._is_urgent_due = False
        """Urgent rows are sent in the next turn of the loop, with those that come in this one."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, row: Row, *, urgent: bool = False) -> Answer:
        """Send a row with others; returns its answer. An urgent row goes at once.

        With ``OnError.RAISE`` a cancelled caller takes its row back; otherwise the row is sent all the same.
        """
        done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._enqueue(_Entry(row, done, urgent))
        return await (done if self._on_error is OnError.RAISE else asyncio.shield(done))

    def add(self, row: Row, *, urgent: bool = False) -> None:
        """Send a row with others; returns at once. Without room the row is left to the sweep."""
        if self._room is not None and self._rows_held >= self._room:
            if not self._overflow:
                log.warning("%d %s wait already: further ones are left to the sweep", self._room, self._name)
            self._overflow += 1
            return
        self._enqueue(_Entry(row, None, urgent))

    @property
    def _rows_held(self) -> int:
        return len(self._waiting) + len(self._urgent) + self._sending

    def _enqueue(self, entry: _Entry[Row, Answer]) -> None:
        loop = asyncio.get_running_loop()
        if entry.urgent:
            self._urgent.append(entry)
            if not self._is_urgent_due:
                self._is_urgent_due = True
                loop.call_soon(self._start_due_urgent)
            return
        self._waiting.append(entry)
        if len(self._waiting) >= self._size:
            self._start()
        elif self._timer is None and not self._overdue:
            at_once = loop.time() - self._started_at > self._quiet_s
            self._timer = loop.call_later(0 if at_once else self._wait_s, self._start)

    def _start(self) -> None:
        """Start sends while some are free; called when a batch is full, or its time is up."""
        self._start_urgent()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free and (batch := self._take(self._waiting)):
            self._free -= 1
            self._started_at = asyncio.get_running_loop().time()
            self._begin(batch)
        self._overdue = bool(self._waiting)

    def _start_due_urgent(self) -> None:
        self._is_urgent_due = False
        self._start_urgent()

    def _start_urgent(self) -> None:
        """Start sends of urgent rows, first the one in reserve for them."""
        while (self._urgent_free or self._free) and (batch := self._take(self._urgent)):
            by_reserve = bool(self._urgent_free)
            if by_reserve:
                self._urgent_free -= 1
            else:
                self._free -= 1
            self._begin(batch, by_reserve=by_reserve)

    def _begin(self, batch: list[_Entry[Row, Answer]], *, by_reserve: bool = False) -> None:
        self._sending += len(batch)
        task = asyncio.get_running_loop().create_task(self._send_batch(batch), name=f"send {self._name}")
        self._tasks.add(task)
        task.add_done_callback(partial(self._send_ended, len(batch), by_reserve=by_reserve))

    def _take(self, entries: deque[_Entry[Row, Answer]]) -> list[_Entry[Row, Answer]]:
        batch: list[_Entry[Row, Answer]] = []
        while entries and len(batch) < self._size:
            entry = entries.popleft()
            if not entry.abandoned:
                batch.append(entry)
        return batch

    def _send_ended(self, rows: int, task: asyncio.Task[None], *, by_reserve: bool) -> None:
        self._tasks.discard(task)
        if by_reserve:
            self._urgent_free += 1
        else:
            self._free += 1
        self._sending -= rows
        if self._overflow:
            log.warning("%d %s were left to the sweep", self._overflow, self._name)
            self._overflow = 0
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("sending %s broke", self._name, exc_info=error)
        # Rows whose time is not up wait on: sent with every end of a send, they would go in ones and twos.
        is_due = self._overdue or self._timer is None or len(self._waiting) >= self._size
        if task.cancelling():  # by the end of the loop, which would destroy another task unawaited
            return
        if is_due:
            self._start()
        else:
            self._start_urgent()

    async def _send_batch(self, batch: list[_Entry[Row, Answer]]) -> None:
        try:
            answers = await self._send_rows([entry.row for entry in batch])
            pairs: list[tuple[_Entry[Row, Any], Any]] = list(
                zip(batch, [None] * len(batch) if answers is None else answers, strict=True)
            )
        except Exception as error:  # noqa: BLE001 - the policy decides
            await self._failed(batch, error)
        except BaseException as error:
            for entry in batch:
                entry.fail(error)
            raise
        else:
            self._size = min(self._rows, 2 * self._size)
            for entry, answer in pairs:
                entry.answer(answer)

    async def _failed(self, batch: list[_Entry[Row, Answer]], error: Exception) -> None:
        if self._on_error is OnError.LEAVE:
            self._leave(batch, error)
        elif self._on_error is not OnError.RAISE and self._may_succeed_later(error):
            await self._send_later(batch, error)
        elif len(batch) > 1 and self._may_be_one_row(error):
            middle = len(batch) // 2
            await self._send_batch(batch[:middle])
            await self._send_batch(batch[middle:])
        else:
            for entry in batch:
                entry.fail(error)

    def _may_succeed_later(self, error: Exception) -> bool:
        by_the_ledger = isinstance(error, LedgerError) and not isinstance(error, Unstorable)
        return isinstance(error, ServiceUnavailable) or (by_the_ledger and self._on_error is OnError.RETRY)

    def _may_be_one_row(self, error: Exception) -> bool:
        by_the_ledger = isinstance(error, LedgerError) and not isinstance(error, Unstorable)
        return self._on_error is not OnError.RAISE and not by_the_ledger

    def _leave(self, batch: list[_Entry[Row, Answer]], error: Exception) -> None:
        if isinstance(error, ServiceUnavailable):
            log.info("%d %s are left to the sweep: %s", len(batch), self._name, error)
        else:
            log.error("%d %s could not be sent; the sweep will", len(batch), self._name, exc_info=error)

    async def _send_later(self, batch: list[_Entry[Row, Answer]], error: Exception) -> None:
        """Queue rows again, behind the others and in smaller batches: one that is refused for ever holds up no other."""
        log.warning("%d %s wait for the ledger: %s", len(batch), self._name, error)
        self._size = max(1, len(batch) // 2)
        for entry in batch:
            (self._urgent if entry.urgent else self._waiting).append(entry)
        await asyncio.sleep(RETRY_PAUSE.total_seconds())

    async def close(self, within: timedelta | None = None) -> None:
        """Send what waits, and return when nothing is left; what is left after ``within`` is cut off."""
        until = None if within is None else asyncio.get_running_loop().time() + within.total_seconds()
        self._start()
        while self._tasks:
            remaining = None if until is None else until - asyncio.get_running_loop().time()
            if remaining is not None and remaining <= 0:
                await self._cut_off()
                return
            await asyncio.wait(self._tasks, timeout=remaining)
            # Done callbacks, which start the next send, run on the loop's next turn.
            await asyncio.sleep(0)
            self._start()

    async def _cut_off(self) -> None:
        log.warning("%d %s are left to the sweep: the time to send them is up", self._rows_held, self._name)
        self._waiting.clear()
        self._urgent.clear()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks, timeout=1.0)
            await asyncio.sleep(0)
