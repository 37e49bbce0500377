"""A folder in which a page of the docs is followed."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forking import REPOSITORY
from tests.left_homes import remove


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not tmp_path: as root that one lies below a 0700 directory, and the servers' data would be put elsewhere.
    with tempfile.TemporaryDirectory(prefix="nightdesk-tutorial-") as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "examples").symlink_to(REPOSITORY / "examples")
        try:
            yield path
        finally:
            remove(path / ".nightdesk")
