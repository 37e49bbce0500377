import asyncio

import pytest

from tests.virtual_time import VirtualTimeLoop
from worker import cancellation


def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    swallowed = []

    async def stubborn() -> None:
        for number in range(3):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(number)
        await asyncio.Event().wait()

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        await cancellation.cancel(task)
        return task

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(main()).cancelled()
    assert swallowed == [0, 1, 2]


def test_a_broken_task_logs_its_error() -> None:
    async def broken() -> None:
        raise ValueError("its own")

    async def main() -> None:
        task = asyncio.create_task(broken())
        await asyncio.sleep(0)
        await cancellation.cancel(task)

    with pytest.raises(ValueError, match="its own"):
        asyncio.run(main())
