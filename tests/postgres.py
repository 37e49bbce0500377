"""A fresh PostgreSQL ledger for a test."""

from collections.abc import Iterator

import pytest

from tests.servers import Servers, advance_clock
from worker.ledger.postgres import PostgresLedger

__all__ = ["advance_clock", "make_postgres_ledger", "postgres_database_url"]


@pytest.fixture
def postgres_database_url(servers: Servers) -> Iterator[str]:
    """A fresh, migrated database."""
    with servers.database() as url:
        yield url


def make_postgres_ledger(database_url: str) -> PostgresLedger:
    """A ledger to be opened (``async with``) on the loop that uses it."""
    return PostgresLedger(database_url, connections=3)
