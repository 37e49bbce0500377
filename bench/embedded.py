"""Embedded servers for a measurement, in a home that is removed with them."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.left_homes import remove
from worker import local
from worker.ledger.schema_version import migrate


@dataclass(frozen=True)
class Servers:
    """Running servers with a migrated ledger, and the environment of workers that use them."""

    home: Path
    endpoints: local.Endpoints
    environment: dict[str, str]


@contextmanager
def embedded_servers() -> Iterator[Servers]:
    """Starts the servers; stops and removes them afterwards."""
    with tempfile.TemporaryDirectory(prefix="nightdesk-bench-") as directory, ExitStack() as stack:
        home = Path(directory) / "home"
        endpoints = local.start(home)
        stack.callback(remove, home)
        stack.callback(local.stop, home)
        migrate(endpoints.database_url)
        environment = {
            **os.environ,
            "NIGHTDESK_HOME": str(home),
            "NIGHTDESK_DATABASE_URL": endpoints.database_url,
            "NIGHTDESK_REDIS_URL": endpoints.redis_url,
            "NIGHTDESK_DRAIN_S": "1",
        }
        yield Servers(home, endpoints, environment)
