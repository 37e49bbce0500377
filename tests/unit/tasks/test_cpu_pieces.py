"""Pieces of CPU work: on a thread several share a hop; on the loop they take its quiet turns, and none waits for ever."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.scheduling import cpu_pieces
from tasks.scheduling.cpu_pieces import CpuBatcher, LoopPieces
from tasks.scheduling.loop_turns import LoopTurns
from tasks.scheduling.urgency import Urgency


class Counted(Executor):
    """One thread that counts the hops to it."""

    def __init__(self) -> None:
        self.hops: list[int] = []
        self._cpu = ThreadPoolExecutor(1)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.hops.append(len(args[0]))
        return self._cpu.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        self._cpu.shutdown(wait, cancel_futures=cancel_futures)


def test_pieces_that_come_together_share_a_hop_and_each_has_its_own_end() -> None:
    async def scenario() -> None:
        cpu = Counted()
        batcher = CpuBatcher(cpu, 10)

        results = await asyncio.gather(*(batcher.do(lambda number=number: 60 // number) for number in range(25)),
                                       return_exceptions=True)  # fmt: skip

        assert isinstance(results[0], ZeroDivisionError)
        assert results[1:] == [60 // number for number in range(1, 25)]
        assert cpu.hops == [10, 10, 5]
        cpu.shutdown()

    asyncio.run(scenario())


def test_the_piece_of_a_cancelled_caller_is_not_done_and_the_others_go_on() -> None:
    async def scenario() -> None:
        gate = threading.Event()
        cpu = ThreadPoolExecutor(1)
        batcher = CpuBatcher(cpu, 1)
        first = asyncio.create_task(batcher.do(gate.wait))
        ran: list[str] = []
        second = asyncio.create_task(batcher.do(lambda: ran.append("second")))
        third = asyncio.create_task(batcher.do(lambda: ran.append("third")))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.set()
        await asyncio.gather(first, third)
        assert ran == ["third"]
        cpu.shutdown()

    asyncio.run(scenario())


def test_a_thread_that_is_gone_is_an_error_of_every_caller() -> None:
    async def scenario() -> None:
        cpu = ThreadPoolExecutor(1)
        cpu.shutdown()
        with pytest.raises(RuntimeError):
            await asyncio.wait_for(CpuBatcher(cpu, 10).do(lambda: 1), 5)

    asyncio.run(scenario())


def test_the_loop_has_its_turn_between_two_pieces() -> None:
    async def scenario() -> None:
        pieces, order = LoopPieces(), []

        async def tick() -> None:
            while len(order) < 6:
                order.append("turn")
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        await asyncio.gather(*(pieces.do(lambda: order.append("piece")) for _ in range(3)))
        await ticking
        assert "piece,piece" not in ",".join(order)

    asyncio.run(scenario())


def test_an_urgent_piece_goes_first() -> None:
    async def scenario() -> None:
        pieces, order = LoopPieces(), []
        bulk = [asyncio.ensure_future(pieces.do(lambda: order.append("bulk"))) for _ in range(3)]
        await asyncio.sleep(0)
        await pieces.do(lambda: order.append("urgent"), urgent=True)
        await asyncio.gather(*bulk)
        assert (order.index("urgent"), pieces.waiting) == (0, 0)

    asyncio.run(scenario())


def test_a_piece_that_breaks_breaks_alone() -> None:
    async def scenario() -> None:
        pieces = LoopPieces()
        done = await asyncio.gather(pieces.do(lambda: 1 // 0), pieces.do(lambda: 2), return_exceptions=True)
        assert isinstance(done[0], ZeroDivisionError)
        assert (done[1], pieces.waiting) == (2, 0)

    asyncio.run(scenario())


class Clock:
    """Seconds that only pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_pieces_wait_while_a_call_is_on_its_way_and_go_on_when_it_is_sent() -> None:
    async def scenario() -> None:
        pieces, order = LoopPieces(clock=Clock()), []
        with pieces.hold():
            with pieces.hold():
                check = asyncio.ensure_future(pieces.do(lambda: order.append("check")))
                pieces.add(lambda: order.append("prompt"))
                for _ in range(20):
                    await asyncio.sleep(0)
            for _ in range(20):
                await asyncio.sleep(0)
            assert (order, pieces.waiting) == ([], 2)
            await pieces.do(lambda: order.append("urgent"), urgent=True)
        await asyncio.wait_for(check, 5)
        assert order == ["urgent", "prompt", "check"]

    asyncio.run(scenario())


def test_a_piece_that_waited_long_is_done_although_calls_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_pieces, "PATIENCE_S", 0.02)

    async def scenario() -> None:
        pieces = LoopPieces()
        with pieces.hold():
            assert await asyncio.wait_for(asyncio.gather(*(pieces.do(lambda: 1) for _ in range(5))), 5) == [1] * 5
            early = asyncio.Event()
            pieces.add(early.set)
            await asyncio.wait_for(early.wait(), 5)

    asyncio.run(scenario())


def test_a_piece_for_a_later_call_is_dropped_by_its_key() -> None:
    async def scenario() -> None:
        pieces, order = LoopPieces(), []
        for key in "abc":
            pieces.add(partial(order.append, key), key)
        pieces.drop("b")
        pieces.drop("none of them")
        await pieces.do(partial(order.append, "later"))
        assert order == ["a", "c", "later"]
        # The turn of a piece that was dropped alone comes all the same.
        pieces.add(partial(order.append, "d"), "d")
        pieces.drop("d")
        assert not pieces.waiting
        assert await pieces.do(lambda: 1) == 1
        assert order == ["a", "c", "later"]

    asyncio.run(scenario())


def test_a_busy_loop_does_the_pieces_that_waited_long_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock = Clock()
        pieces, order = LoopPieces(clock=clock), []

        async def work() -> None:
            while True:
                # Each turn takes longer than a quiet one.
                clock.now += 0.01
                await asyncio.sleep(0)

        working = asyncio.ensure_future(work())
        first = asyncio.ensure_future(pieces.do(partial(order.append, clock.now)))
        await asyncio.wait_for(first, 5)
        assert clock.now >= cpu_pieces.PATIENCE_S
        assert clock.now < cpu_pieces.PATIENCE_S + 0.1
        working.cancel()

    asyncio.run(scenario())


def test_pieces_stand_in_the_line_of_bulk_steps_while_something_urgent_is_in_hand() -> None:
    async def scenario() -> list[str]:
        # By this clock each turn is a long one, so that one step begins in it.
        turns, order = LoopTurns(Urgency(1), partial(next, count())), []
        pieces = LoopPieces(turns)
        for _ in range(3):
            turns.add(partial(order.append, "step"))
            pieces.add(partial(order.append, "piece"))
        while len(order) < 6:
            before = len(order)
            await asyncio.sleep(0)
            assert len(order) <= before + 1
        return order

    assert asyncio.run(asyncio.wait_for(scenario(), 5)) == ["step", "piece", "step", "step", "piece", "piece"]


def test_a_piece_that_breaks_does_not_keep_the_others_from_their_turn() -> None:
    async def scenario() -> None:
        pieces, errors = LoopPieces(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
        pieces.add(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
        assert await asyncio.wait_for(pieces.do(lambda: 2), 5) == 2
        assert [type(error) for error in errors] == [ZeroDivisionError]

    asyncio.run(scenario())


class Mixture:
    """Pieces of all kinds, with calls on their way and callers that give up; notes what was done."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.urgency = Urgency()
        self.pieces = LoopPieces(LoopTurns(self.urgency), self.clock)
        self.done: dict[str, list[int]] = {"check": [], "urgent": [], "prompt": []}
        self.due: dict[str, list[int]] = {"check": [], "urgent": [], "prompt": []}
        """Those that must be done."""
        self._callers: list[tuple[str, int, asyncio.Future[None]]] = []
        self._holds: list[AbstractContextManager[None]] = []

    def check(self) -> None:
        self._do("check")

    def urgent(self) -> None:
        self._do("urgent")

    def _do(self, kind: str) -> None:
        number = len(self._callers)
        work = self.pieces.do(partial(self.done[kind].append, number), urgent=kind == "urgent")
        self._callers.append((kind, number, asyncio.ensure_future(work)))
        self.due[kind].append(number)

    def prompt(self) -> None:
        self.due["prompt"].append(len(self.due["prompt"]))
        self.pieces.add(partial(self.done["prompt"].append, self.due["prompt"][-1]))

    def cancel(self) -> None:
        if self._callers and self._callers[-1][2].cancel():
            kind, number, _ = self._callers[-1]
            self.due[kind] = [other for other in self.due[kind] if other != number]

    def hold(self) -> None:
        self._holds.append(self.pieces.hold())
        self._holds[-1].__enter__()

    def release(self) -> None:
        if self._holds:
            self._holds.pop().__exit__(None, None, None)

    def wait(self) -> None:
        self.clock.now += 0.1

    def hurry(self) -> None:
        self.urgency.count += 1

    def rest(self) -> None:
        self.urgency.count = 0

    async def end(self) -> None:
        while self._holds:
            self.release()
        async with asyncio.timeout(5):
            await asyncio.gather(*(caller for *_, caller in self._callers), return_exceptions=True)
            while self.pieces.waiting:  # noqa: ASYNC110 - pieces have no event
                await asyncio.sleep(0)


STEPS = [Mixture.check, Mixture.urgent, Mixture.prompt, Mixture.cancel, Mixture.hold, Mixture.release, Mixture.wait,
         Mixture.hurry, Mixture.rest]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2)), max_size=60))
def test_every_piece_is_done_once_and_in_order_whatever_holds_them(
    steps: list[tuple[Callable[[Mixture], None], int]],
) -> None:
    async def scenario() -> None:
        mixture = Mixture()
        for step, turns in steps:
            step(mixture)
            for _ in range(turns):
                await asyncio.sleep(0)
        await mixture.end()
        for kind, due in mixture.due.items():
            done = mixture.done[kind]
            assert done == sorted(set(done))
            assert set(due) <= set(done)

    asyncio.run(scenario())
