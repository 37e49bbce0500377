"""Does small pieces of thinking on one CPU thread, several in one hop: what comes while a hop runs goes with the next."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

Thought = TypeVar("Thought")
_Waiting = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Bundles:
    """Bundles of up to ``most`` pieces, in the order they came; a hop costs about as much as a small piece itself.

    What a piece raises is raised to whoever asked for it, and to nobody else.
    """

    def __init__(self, cpu: Executor, most: int) -> None:
        self._cpu = cpu
        self._most = most
        self._waiting: deque[_Waiting] = deque()
        self._hopping: asyncio.Task[None] | None = None

    async def do(self, think: Callable[[], Thought]) -> Thought:
        """Think on the CPU thread; returns what came of it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Thought] = loop.create_future()
        self._waiting.append((think, future))
        if self._hopping is None:
            self._hopping = loop.create_task(self._hop(), name="think")
        return await future

    async def _hop(self) -> None:
        loop = asyncio.get_running_loop()
        taken: list[_Waiting] = []
        try:
            while self._waiting:
                taken = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
                # Whoever was cut off meanwhile wants nothing any more.
                taken = [(think, future) for think, future in taken if not future.done()]
                results = await loop.run_in_executor(self._cpu, _all, [think for think, _ in taken])
                for (_, future), (value, error) in zip(taken, results, strict=True):
                    if future.done():
                        continue
                    if error is None:
                        future.set_result(value)
                    else:
                        future.set_exception(error)
        except BaseException as error:
            # The thread is gone: the process ends.
            for _, future in (*taken, *self._waiting):
                if not future.done():
                    future.set_exception(RuntimeError(f"no more thinking: {error}"))
            self._waiting.clear()
            raise
        finally:
            self._hopping = None


def _all(thinks: Sequence[Callable[[], Any]]) -> list[tuple[Any, Exception | None]]:
    return [_one(think) for think in thinks]


def _one(think: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return think(), None
    except Exception as error:  # noqa: BLE001 - handed on to whoever asked
        return None, error
