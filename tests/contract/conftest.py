"""Gives each contract test a fresh ledger with a clock that can be set."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from tests.lent_ledger import KeptLedger
from tests.postgres import postgres_database_url
from tests.servers import set_clock
from tests.stub.server import Stub, running_stub
from worker.ledger.postgres import PostgresLedger

__all__ = ["postgres_database_url"]

Value = TypeVar("Value")

SLOWER = 1_000
"""Times that the ledger's clock under test is slower than the machine's."""


class Clock:
    """The clock of the ledger under test. By itself it hardly moves: on a slow machine, too, only a test lets time pass."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._began = datetime.now(UTC)
        self._advanced = timedelta(0)
        self._set()

    def now(self) -> datetime:
        return self._began + (datetime.now(UTC) - self._began) / SLOWER + self._advanced

    async def advance(self, delta: timedelta) -> None:
        self._advanced += delta
        self._set()

    def _set(self) -> None:
        began, advanced = f"timestamptz '{self._began}'", f"interval '{self._advanced.total_seconds()} s'"
        set_clock(self._database_url, f"{began} + (now() - {began}) / {SLOWER} + {advanced}")


class Runner(asyncio.Runner):
    """A runner that leaves SIGINT to Python.

    To handle it, asyncio compares its own handler with enum members after each run. The comparison fails, and its error
    spells the whole result out: half of the time of tests that run thousands of verbs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._variables = copy_context()

    def run(self, coro: Coroutine[Any, Any, Value], *, context: Context | None = None) -> Value:
        loop = self.get_loop()
        return loop.run_until_complete(loop.create_task(coro, context=context or self._variables))


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test: fixtures and test body share it."""
    with Runner() as runner:
        yield runner


@pytest.fixture
def ledger(postgres_database_url: str, runner: asyncio.Runner) -> PostgresLedger:
    """A ledger over an empty database."""
    return KeptLedger(postgres_database_url)


@pytest.fixture
def clock(postgres_database_url: str) -> Clock:
    return Clock(postgres_database_url)


@pytest.fixture(scope="module")
def module_stub() -> Iterator[Stub]:
    """The stub of the makers' servers for the tests of one file."""
    with running_stub() as stub:
        yield stub


@pytest.fixture
def stub(module_stub: Stub) -> Stub:
    """The file's stub without acts, requests and counts of earlier tests."""
    for earlier in (module_stub.acts, module_stub.requests, module_stub.calls):
        earlier.clear()
    module_stub.remote.reset()
    return module_stub
