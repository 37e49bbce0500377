"""Keeps what a cancellation must not undo: an answer that comes together with it, and what is being written."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def answer_within(call: Coroutine[Any, Any, Result], within_s: float) -> Result:
    """Return what a call brings, or raise ``TimeoutError``; an answer that lies ready is never dropped.

    A cancellation in the same turn of the loop as the answer is taken back: what was paid for is kept first, and whoever
    stops the process, or took the job, sees to the rest. The call has a task of its own, for a cancellation would take the
    place of the answer in the task that it wakes.
    """
    calling = asyncio.ensure_future(call)
    try:
        await asyncio.wait({calling}, timeout=within_s)
    except asyncio.CancelledError:
        if not await _answered(calling):
            raise
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
        return calling.result()
    if not calling.done() and not await _answered(calling):
        raise TimeoutError
    return calling.result()


async def _answered(calling: "asyncio.Future[Any]") -> bool:
    """Give a call the turn that an answer needs which lies ready, then cut it off."""
    try:
        await asyncio.sleep(0)
    finally:
        calling.cancel()
    await asyncio.wait({calling})
    return not calling.cancelled() and calling.exception() is None


async def finish_first(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what some work returns; when cancelled meanwhile, raise that only when the work is done.

    A second cancellation ends the wait, not the work: with the ledger away a process must still come to its end.
    """
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        raise
