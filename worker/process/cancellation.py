"""Ends a background task for certain."""

import asyncio
from typing import Any

CANCEL_AGAIN_S = 1.0
"""Seconds a cancelled task may take to end before it is cancelled again."""


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended; raises what it ended with.

    Once is not enough: ``asyncio.wait_for`` of Python 3.11, which waiting for a pooled connection goes through,
    swallows a cancellation that comes together with what it waits for.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_AGAIN_S)
    if not task.cancelled():
        task.result()
