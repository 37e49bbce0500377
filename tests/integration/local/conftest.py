"""Homes for the embedded servers: each is removed afterwards, with its processes."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.local.actions import query, valkey
from tests.left_homes import remove, watch
from tests.run_directory import parent_of_homes
from tests.seeded_homes import seed
from worker.local import LocalOptions, start


def _open_directory() -> Path:
    # Not tmp_path: as root that one lies below a 0700 directory, which is a case of its own (test_accounts).
    path = Path(tempfile.mkdtemp(prefix="nightdesk-test-", dir=parent_of_homes()))
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def options() -> Iterator[LocalOptions]:
    shared_root = _open_directory()
    yield LocalOptions(shared_root=shared_root / "nightdesk")
    shutil.rmtree(shared_root)


@pytest.fixture
def new_home(options: LocalOptions) -> Iterator[Callable[[str], Path]]:
    base = _open_directory()
    homes: list[Path] = []

    def make(name: str) -> Path:
        homes.append(base / name)
        watch(homes[-1])
        return homes[-1]

    yield make
    for home in homes:
        remove(home, options)
    shutil.rmtree(base)


@pytest.fixture
def home(new_home: Callable[[str], Path]) -> Path:
    return new_home("home")


@pytest.fixture
def seeded_home(new_home: Callable[[str], Path]) -> Path:
    """A home that was started before: saves an initdb where the first start isn't the subject."""
    home = new_home("seeded")
    seed(home, durable=True)
    return home


@pytest.fixture(scope="package")
def _long_lived_home(options: LocalOptions) -> Iterator[Path]:
    base = _open_directory()
    watch(base / "home")
    seed(base / "home", durable=True)
    yield base / "home"
    remove(base / "home", options)
    shutil.rmtree(base)


@pytest.fixture
def running_home(_long_lived_home: Path, options: LocalOptions) -> Path:
    """A home whose servers run and are empty, for tests that leave it usable, running or not: saves an initdb each."""
    endpoints = start(_long_lived_home, options)
    query(endpoints.database_url, "DROP TABLE IF EXISTS kept")
    with valkey(endpoints.redis_url) as client:
        client.flushall()
    return _long_lived_home
