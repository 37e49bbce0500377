"""Fixtures for the unit tests of the worker."""

import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The command line sets what is its process's to set."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    signals = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "5")
    monkeypatch.setenv("NIGHTDESK_HOME", str(tmp_path / "home"))
    yield
    root.handlers[:] = handlers
    for number, handler in signals.items():
        signal.signal(number, handler)
