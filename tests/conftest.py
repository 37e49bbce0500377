"""Fixtures for every tier: a scrubbed environment, and real servers started only when a test asks for them."""

import asyncio
import gc
import inspect
import logging
import os
import shlex
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from pathlib import Path

import psycopg
import pytest
from _pytest.fixtures import FuncFixtureInfo
from execnet import XSpec
from hypothesis import settings
from psycopg import sql

from tests.deadlines import until
from tests.forking import socket_path, start_server
from tests.lent_ledger import lending
from tests.run_directory import exclusive, share_directory
from tests.servers import Servers, running_servers

_TESTS = Path(__file__).parent

gc.disable()  # until the tests are collected: imports make objects that stay, and looking at them takes seconds

share_directory()
for name in [name for name in os.environ if name.startswith("NIGHTDESK_") and not name.startswith("NIGHTDESK_TEST_")]:
    del os.environ[name]
for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GEMINI_API_KEY"):
    os.environ.pop(name, None)

# Shells start what goes to the background with SIGINT ignored, and children inherit that: the tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tables, templates and parsers load at their first use, which is slow on a busy machine; time limits have their own tests.
# The same examples in every run, so that none fails by chance; others, and more, by --hypothesis-profile=search.
settings.register_profile("nightdesk", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("search", deadline=None, derandomize=False, max_examples=1_000)
settings.load_profile("nightdesk")


_WAITING = ("acceptance", "integration")
"""Folders of tests that start processes and wait for them: seconds each, where others compute for a fraction of one."""
_LONGEST = (
    "test_faults.py",
    "test_ledger_machine.py",
    "test_postgres_restarted.py",
    "test_provider_batches_killed.py",
    "test_submit_over_redis.py",
    "test_urgent_workers.py",
    "test_worker_settings.py",
)
"""Files whose tests wait out what they break, or take many steps: up to half a minute."""
_MIXTURE = 0.8
"""The share of the other tests that run between waiting ones; a long test that came last would keep all others waiting."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: Sequence[XSpec]) -> None:
    """Let the processes of a parallel run be forks of one that has imported what they test."""
    if sys.platform == "linux":
        start_server()
        for spec in specs:
            spec.python = shlex.join([sys.executable, "-I", "-S", str(_TESTS / "fork_client.py"), str(socket_path())])


def pytest_collection_finish() -> None:
    """Keep the thousands of modules and tests out of every collection of garbage from here on; see the top."""
    gc.freeze()
    gc.enable()


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


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep together what shares a fixture of its module or folder: the processes of a parallel run take group by group."""
    info: FuncFixtureInfo | None = getattr(item, "_fixtureinfo", None)  # no public way to a fixture's scope
    scopes = {each.scope for each in chain(*(info.name2fixturedefs.values() if info else ()))}
    if "PYTEST_XDIST_WORKER" in os.environ and scopes & {"module", "package"}:
        item.add_marker(pytest.mark.xdist_group((item.path.parent if "package" in scopes else item.path).name))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the tests that wait over the others, the longest first: processes of a parallel run take the next one.

    Waiting tests side by side would leave the cores idle, and the others after them keep all processes busy.
    """
    if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) == 1:
        return
    waiting: dict[str, list[pytest.Item]] = {}
    other: dict[str, list[pytest.Item]] = {}
    for item in items:
        part = waiting if _is_waiting(item) else other
        mark = item.get_closest_marker("xdist_group")
        part.setdefault(mark.args[0] if mark else item.nodeid, []).append(item)
    groups = sorted(waiting.values(), key=lambda group: (group[0].path.name not in _LONGEST, -len(group)))
    step = len(other) * _MIXTURE / max(1, len(waiting))
    places = [*((step * place, group) for place, group in enumerate(groups)), *enumerate(other.values(), start=1)]
    items[:] = [item for _, group in sorted(places, key=lambda placed: placed[0]) for item in group]


def _is_waiting(item: pytest.Item) -> bool:
    return item.path.relative_to(_TESTS).parts[0] in _WAITING or item.path.name in _LONGEST


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """The level as it was: commands set one for their process, and other tests count the lines of theirs."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """One PostgreSQL and one Valkey for the whole test process."""
    with running_servers() as servers:
        yield servers


@pytest.fixture(autouse=True)
def lender(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lends a database to each ``LentLedger`` that the test makes; without one no server is started."""
    with lending(lambda: request.getfixturevalue("servers")):
        yield


@pytest.fixture
def durable(servers: Servers) -> Iterator[None]:
    """Lets PostgreSQL wait for the disk meanwhile: the doctor tells who does not."""
    with psycopg.connect(servers.admin_url, autocommit=True) as connection:
        before = connection.execute("SHOW fsync").fetchone()
        assert before is not None
        _set_fsync(connection, "on")
        yield
        _set_fsync(connection, before[0])


def _set_fsync(connection: psycopg.Connection, value: str) -> None:
    connection.execute(sql.SQL("ALTER SYSTEM SET fsync = {}").format(sql.Literal(value)))
    connection.execute("SELECT pg_reload_conf()")
    assert until(lambda: connection.execute("SHOW fsync").fetchone() == (value,), 10)


@pytest.fixture
def database_url(servers: Servers) -> Iterator[str]:
    """An empty, migrated database."""
    with servers.database() as url:
        yield url


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test on the loop of its ``runner`` fixture, or on one of its own; no plugin needed."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    runner: asyncio.Runner | None = pyfuncitem.funcargs.get("runner")
    (runner.run if runner else asyncio.run)(pyfuncitem.obj(**arguments))
    return True
