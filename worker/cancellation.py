"""Ends a background task for certain, keeps cancellations that libraries lose, and waits for an event for a bounded time."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

CANCEL_AGAIN_S = 1.0
"""Seconds a cancelled task may take to end before it is cancelled again."""


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancels a task until it has ended; raises its error.

    Once is not enough: ``asyncio.wait_for`` of Python 3.11, part of the wait for a pooled connection,
    swallows a cancellation that comes together with its result.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
    if not task.cancelled():
        task.result()


def lost_cancellation() -> Callable[[], None]:
    """The function that raises a cancellation of the running task that comes from here on and is lost, as ``cancel`` tells."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()

    def require() -> None:
        if task.cancelling() > before:
            raise asyncio.CancelledError

    return require


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Waits for an event, at most so long; tells whether it came."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False
