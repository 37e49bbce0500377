"""Ends a background task for certain."""

import asyncio
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
