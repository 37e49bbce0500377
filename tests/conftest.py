"""Fixtures for every tier: a scrubbed environment, and real servers started only when a test asks for them."""

import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.fixtures import FuncFixtureInfo
from hypothesis import settings

from tests.run_directory import exclusive, share_directory
from tests.servers import Servers, running_servers

_TESTS = Path(__file__).parent

share_directory()
for name in [name for name in os.environ if name.startswith("NIGHTDESK_") and not name.startswith("NIGHTDESK_TEST_")]:
    del os.environ[name]
for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GEMINI_API_KEY"):
    os.environ.pop(name, None)

# Shells start what goes to the background with SIGINT ignored, and children inherit that: the tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tables, templates and parsers load at their first use, which is slow on a busy machine; time limits have their own tests.
settings.register_profile("nightdesk", deadline=None)
settings.load_profile("nightdesk")


_LONG = ("acceptance", "integration", "contract/test_ledger_machine.py")
"""Tests that start processes and wait for them, or take many steps: seconds each, where others take a fraction of one."""
_LONGEST = (
    "test_faults.py",
    "test_postgres_restarted.py",
    "test_run_with_silent_connections.py",
    "test_submit_over_redis.py",
)
"""Files whose tests wait out what they break: up to half a minute."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """In a new clone, let the first process of a parallel run compile the tests, and the others read what it wrote."""
    if "PYTEST_XDIST_WORKER" in os.environ and not sys.dont_write_bytecode and not _is_compiled():
        with exclusive("bytecode"):
            if not _is_compiled():
                return (yield)
    return (yield)


def _is_compiled() -> bool:
    return any((_TESTS / "contract" / "__pycache__").glob("test_*-pytest-*.pyc"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each process of a parallel run a share of the long tests first, and short ones to end with.

    Processes take work from each other while they have some: a long test that comes last keeps all others waiting.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes == 1:
        return
    groups: dict[str, list[pytest.Item]] = {}
    short = []
    for item in items:
        if str(item.path.relative_to(_TESTS)).startswith(_LONG):
            groups.setdefault(_group(item), []).append(item)
        else:
            short.append(item)
    shares: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for group in sorted(groups.values(), key=lambda group: group[0].path.name not in _LONGEST):
        min(shares, key=len).extend(group)
    remaining = len(items)
    items.clear()
    for process, share in enumerate(shares):  # the cuts are those of xdist's schedule
        size = remaining // (processes - process)
        remaining -= size
        room = max(0, size - len(share))
        items += share + short[:room]
        del short[:room]
    items += short


def _group(item: pytest.Item) -> str:
    """The tests that stay together: those of a module with a fixture that they share."""
    info: FuncFixtureInfo = getattr(item, "_fixtureinfo")  # noqa: B009 - no public way to a fixture's scope
    scopes = {definition.scope for definitions in info.name2fixturedefs.values() for definition in definitions}
    return str(item.path) if "module" in scopes else item.nodeid


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """One PostgreSQL and one Valkey for the whole test process."""
    with running_servers() as servers:
        yield servers


@pytest.fixture
def database_url(servers: Servers) -> Iterator[str]:
    """An empty, migrated database."""
    with servers.database() as url:
        yield url
