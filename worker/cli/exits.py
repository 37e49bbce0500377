"""Ends commands: the exit codes, the one place that maps errors to them, and an orderly end on Ctrl-C and SIGTERM."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from typer import Abort

from tasks.errors import (
    ConfigurationError,
    InputError,
    LedgerError,
    NightdeskError,
    NotFound,
    ServiceUnavailable,
    Unstorable,
)
from worker.cli.terminal import INTERRUPTED
from worker.local import LocalServerError

OK = 0
"""All jobs are final and none failed."""
INCOMPLETE = 1
"""Some jobs failed, were cancelled, expired, are held or not final yet."""
BAD_INPUT = 2
"""The input, the command line or a setting is wrong; nothing of it was done, or the message says what was."""
UNREACHABLE = 3
"""A service that is needed can't be reached or can't serve."""


class OutputFailed(ServiceUnavailable):
    """The results could not be written down; they still are in the ledger."""


def exit_code_of(error: Exception) -> int | None:
    """The exit code for an error; None when it is a defect of ours and deserves its traceback."""
    if isinstance(error, InputError | ConfigurationError | NotFound | Unstorable):
        return BAD_INPUT
    if isinstance(error, ServiceUnavailable | LedgerError | LocalServerError):
        return UNREACHABLE
    if isinstance(error, NightdeskError):
        return INCOMPLETE
    if isinstance(error, Abort):
        return INTERRUPTED
    # Errors of the command line itself bring their own code and can show themselves.
    own: int | None = getattr(error, "exit_code", None)
    return own if hasattr(error, "format_message") else None


Result = TypeVar("Result")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_interruptible(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs work to its end; a signal cancels it, so that its clean-up runs, and becomes ``KeyboardInterrupt``."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    interrupted = False

    async def main() -> Result:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        # Not a handler of the loop's: what comes while the loop ends, or is closed already, would be lost.
        def interrupt(*_: object) -> None:
            nonlocal interrupted
            interrupted = True
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

        for number, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, interrupt)
        return await work

    try:
        result = asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if interrupted:
        raise KeyboardInterrupt
    return result
