"""Bounds the time of a check, which ends by itself between two steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """Time limit of a check, and the reason in its record when it took longer; 0 s: nothing is searched."""

    seconds: float
    reason: str = ""

    @property
    def message(self) -> str:
        """The reason, which names the setting unless there is another one."""
        return self.reason or (
            f"it took longer than {self.seconds:g} s (NIGHTDESK_CHECK_TIMEOUT_S); give fewer or shorter sources,"
            " or raise it and recheck"
        )


class OutOfTime(Exception):
    """The check took longer than it may."""


_END: ContextVar[tuple[float, str] | None] = ContextVar("end of the check", default=None)


@contextmanager
def within(limit: TimeLimit) -> Iterator[None]:
    """Bound what is done in the block; the block ends by itself, nothing cuts it off."""
    token = _END.set((monotonic() + limit.seconds, limit.message))
    try:
        yield
    finally:
        _END.reset(token)


def ensure_time() -> None:
    """Raise ``OutOfTime`` if the time of the block is up; without a limit there is always time."""
    end = _END.get()
    if end is not None and monotonic() >= end[0]:
        raise OutOfTime(end[1])
