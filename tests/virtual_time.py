"""Virtual time: an event loop whose clock moves on by itself where nothing but timers is left to wait for."""

import asyncio
import selectors
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import pytest


class _Idle(selectors.DefaultSelector):
    """Waits for no timer: the time until the next one has passed at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(None if timeout is None else 0)
        if timeout and not events:
            self.now += timeout
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop with such a clock, for what waits for no thread, process or server."""

    def __init__(self) -> None:
        self._idle = _Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.now


def replace_clock(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float], *modules: ModuleType) -> None:
    """Let modules that read ``monotonic``, by its name or as the default of a parameter, read another clock."""
    for module in modules:
        real: Any = vars(module)["monotonic"]
        monkeypatch.setattr(module, "monotonic", clock)
        for kind in vars(module).values():
            begin = (
                vars(kind).get("__init__") if isinstance(kind, type) and kind.__module__ == module.__name__ else None
            )
            if isinstance(begin, FunctionType) and real in (begin.__defaults__ or ()):
                monkeypatch.setattr(
                    begin, "__defaults__", tuple(clock if each is real else each for each in begin.__defaults__ or ())
                )
