"""Does small pieces of CPU work: on a thread, several a hop, or on the event loop between its other work."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from tasks.scheduling.batching import Batcher, OnError
from tasks.scheduling.loop_turns import LoopTurns

Result = TypeVar("Result")

QUIET_TURN_S = 0.0001
"""A turn of the loop that takes longer did something."""

PATIENCE_S = 0.25
"""Seconds that a piece waits for a quiet turn; after that it is done in the next one."""


class CpuBatcher:
    """Does small pieces of CPU work on one thread, several a hop: what comes while a hop runs goes with the next.

    A hop costs about as much as a small piece. An error of a piece is raised to its caller alone, and a piece whose caller
    was cancelled before its hop is not done.
    """

    def __init__(self, cpu: Executor, most: int) -> None:
        self._cpu = cpu
        self._batches = Batcher[Callable[[], Any], tuple[Any, Exception | None]](
            "pieces of CPU work", self._run, on_error=OnError.RAISE, rows=most, wait=timedelta(0), in_flight=1
        )

    async def do(self, work: Callable[[], Result], *, urgent: bool = False) -> Result:
        """Do a piece of work on the CPU thread, an urgent one in the next hop; returns its result."""
        result, error = await self._batches.send(work, urgent=urgent)
        if error is not None:
            raise error
        value: Result = result
        return value

    async def _run(self, pieces: Sequence[Callable[[], Any]]) -> list[tuple[Any, Exception | None]]:
        return await asyncio.get_running_loop().run_in_executor(self._cpu, _do_all, pieces)


class LoopPieces(CpuBatcher):
    """Does small pieces of CPU work on the event loop itself, one a turn, so that I/O has its turn between them.

    For pieces shorter than a hop to another thread is worth: two threads of one process compute in turns anyway. What leads
    to the next call goes first, for a slot waits for it: a piece takes a quiet turn, in which the loop has nothing else to
    do, while nobody holds the pieces. One that waited for ``PATIENCE_S`` takes any turn, so a busy loop does one a turn. While
    something urgent is in hand, pieces stand in the line of the other bulk steps.
    """

    def __init__(self, turns: LoopTurns | None = None, clock: Callable[[], float] = perf_counter) -> None:
        self._turns = turns or LoopTurns()
        self._clock = clock
        self._urgent: deque[Callable[[], None]] = deque()
        self._urgent_turn_is_due = False
        self._early: dict[Hashable, _Piece] = {}
        """By key, in their order."""
        self._pieces: deque[_Piece] = deque()
        self._holders = 0
        self._turn_is_due = False
        self._turn_began = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Pieces that were not begun."""
        return len(self._urgent) + len(self._early) + len(self._pieces)

    async def do(self, work: Callable[[], Result], *, urgent: bool = False) -> Result:
        """Do a piece of work in a later turn of the loop, an urgent one before all others; returns its result."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        piece = partial(_finish, work, done)
        if urgent:
            self._urgent.append(piece)
            self._ask_urgent()
        else:
            self._pieces.append(_Piece(self._clock(), piece))
            self._ask()
        return await done

    def add(self, work: Callable[[], None], key: Hashable = None) -> None:
        """Do a piece of work for a later call, before those without urgency; by its key it can be dropped."""
        self._early[object() if key is None else key] = _Piece(self._clock(), work)
        self._ask()

    def drop(self, key: Hashable) -> None:
        """Forget a piece that is not needed any more, if it was not done: a busy loop may never come to it."""
        self._early.pop(key, None)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keeps pieces waiting meanwhile: a call is on its way, and each of its turns would wait for one."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if self._bulk_waits:
                self._ask()

    def _ask_urgent(self) -> None:
        if not self._urgent_turn_is_due:
            self._urgent_turn_is_due = True
            asyncio.get_running_loop().call_soon(self._urgent_turn)

    def _urgent_turn(self) -> None:
        self._urgent_turn_is_due = False
        try:
            self._urgent.popleft()()
        finally:
            if self._urgent:
                self._ask_urgent()

    @property
    def _bulk_waits(self) -> bool:
        return bool(self._early or self._pieces)

    def _ask(self) -> None:
        """Ask for a turn of the loop, unless one is to come; while pieces are held, for one when the first is overdue."""
        if self._turn_is_due:
            return
        loop = asyncio.get_running_loop()
        now = self._clock()
        if self._holders and (wait_s := self._wait_s(now)) > 0:
            if self._timer is None:
                self._timer = loop.call_later(wait_s, self._end_wait)
            return
        self._turn_is_due, self._turn_began = True, now
        if self._turns.urgency.count:
            self._turns.add(self._granted_turn)
        else:
            loop.call_soon(self._turn)

    def _wait_s(self, now: float) -> float:
        """Seconds until the first piece is overdue."""
        firsts = [*islice(self._early.values(), 1), *islice(self._pieces, 1)]
        return min(piece.since for piece in firsts) + PATIENCE_S - now

    def _end_wait(self) -> None:
        self._timer = None
        if self._bulk_waits:
            self._ask()

    def _granted_turn(self) -> None:
        """Do a piece now: it has its place among the bulk steps of this turn."""
        self._turn_began = self._clock()
        self._turn()

    def _turn(self) -> None:
        self._turn_is_due = False
        try:
            if (work := self._next()) is not None:
                work()
        finally:
            if self._bulk_waits:
                self._ask()

    def _next(self) -> Callable[[], None] | None:
        """Take the piece to do in this turn of the loop, if any; none in one with an urgent piece."""
        if self._urgent:
            return None
        now = self._clock()
        if self._pieces and now - self._pieces[0].since >= PATIENCE_S:
            return self._pieces.popleft().work
        early = next(iter(self._early), None)
        if early is not None and now - self._early[early].since >= PATIENCE_S:
            return self._early.pop(early).work
        if self._holders or now - self._turn_began > QUIET_TURN_S:
            return None
        if early is not None:
            return self._early.pop(early).work
        # None where all that waited when the turn was asked for were dropped.
        return self._pieces.popleft().work if self._pieces else None


class _Piece(NamedTuple):
    since: float
    work: Callable[[], None]


def _finish(work: Callable[[], Result], done: "asyncio.Future[Result]") -> None:
    if done.cancelled():
        return
    result, error = _do(work)
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


def _do_all(pieces: Sequence[Callable[[], Any]]) -> list[tuple[Any, Exception | None]]:
    return [_do(piece) for piece in pieces]


def _do(piece: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return piece(), None
    except Exception as error:  # noqa: BLE001 - raised to its caller
        return None, error
