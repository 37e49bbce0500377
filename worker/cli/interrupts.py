"""Runs asynchronous work so that Ctrl-C and SIGTERM end it in an orderly way."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_interruptible(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs work to its end; a signal cancels it, so that its clean-up runs, and becomes ``KeyboardInterrupt``."""
    before = {number: signal.getsignal(number) for number in _ENDING}

    async def main() -> Result:
        task = asyncio.current_task()
        assert task is not None
        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
