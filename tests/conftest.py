"""Fixtures for every tier: a scrubbed environment, and real servers started only when a test asks for them."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.seeded_homes import share_seed
from tests.servers import Servers, running_servers

share_seed()
for name in [name for name in os.environ if name.startswith("NIGHTDESK_") and not name.startswith("NIGHTDESK_TEST_")]:
    del os.environ[name]
for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GEMINI_API_KEY"):
    os.environ.pop(name, None)

# Shells start what goes to the background with SIGINT ignored, and children inherit that: the tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tables, templates and parsers load at their first use, which is slow on a busy machine; time limits have their own tests.
settings.register_profile("nightdesk", deadline=None)
settings.load_profile("nightdesk")


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
