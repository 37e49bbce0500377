"""Does the CPU work of checks where it is asked for."""

from collections.abc import Callable
from typing import TypeVar

from tasks.ports import CheckExecutor

Result = TypeVar("Result")


class Inline(CheckExecutor):
    """A ``CheckExecutor`` without processes, and without a limit from outside."""

    async def do(self, work: Callable[[], Result], *, tenant: str, urgent: bool = False) -> Result:
        """Do it at once."""
        return work()
