"""Small pieces of thinking on one thread: in bundles, each with its own end."""

import asyncio
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from tasks.bundling import Bundles


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


def test_what_comes_together_goes_together_and_each_gets_its_own() -> None:
    async def story() -> None:
        cpu = Counted()
        bundles = Bundles(cpu, 10)

        results = await asyncio.gather(*(bundles.do(lambda number=number: 60 // number) for number in range(25)),
                                       return_exceptions=True)  # fmt: skip

        assert isinstance(results[0], ZeroDivisionError)
        assert results[1:] == [60 // number for number in range(1, 25)]
        assert cpu.hops == [10, 10, 5]
        cpu.shutdown()

    asyncio.run(story())


def test_whoever_is_cut_off_is_left_out_and_the_others_go_on() -> None:
    async def story() -> None:
        gate = threading.Event()
        cpu = ThreadPoolExecutor(1)
        bundles = Bundles(cpu, 1)
        first = asyncio.create_task(bundles.do(gate.wait))
        ran: list[str] = []
        second = asyncio.create_task(bundles.do(lambda: ran.append("second")))
        third = asyncio.create_task(bundles.do(lambda: ran.append("third")))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.set()
        await asyncio.gather(first, third)
        assert ran == ["third"]
        cpu.shutdown()

    asyncio.run(story())
