"""Gives each contract test a fresh ledger with a clock that can be set."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from tests.lent_ledger import KeptLedger
from tests.postgres import advance_clock, postgres_database_url
from tests.stub.server import Stub, running_stub
from worker.ledger.postgres import PostgresLedger

__all__ = ["postgres_database_url"]

Value = TypeVar("Value")


@dataclass
class Clock:
    """The clock of the ledger under test."""

    url: str
    advanced: timedelta = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.advanced

    async def advance(self, delta: timedelta) -> None:
        self.advanced += delta
        advance_clock(self.url, delta)


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
