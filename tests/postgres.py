"""A fresh database for a test, which refuses every state change outside the table of edges."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.servers import Servers, advance_clock

__all__ = ["advance_clock", "everything_in", "postgres_database_url", "until_one_waits"]


def everything_in(database_url: str) -> str:
    """All rows of all tables as text, bytes as what they spell."""
    notices = []
    with psycopg.connect(database_url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert {"job", "attempt", "completion", "generation_record", "job_event"} <= {name for (name,) in tables}
        for (name,) in tables:
            for row in connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name))):
                notices += [bytes(v).decode(errors="replace") if isinstance(v, bytes) else repr(v) for v in row]
    return "\n".join(notices)


async def until_one_waits(database_url: str) -> None:
    """Return once a session of the database waits for a lock."""
    waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    async with asyncio.timeout(30), await psycopg.AsyncConnection.connect(database_url, autocommit=True) as watcher:
        while not (await watcher.execute(waits)).rowcount:
            await watcher.execute("SELECT pg_sleep(0.02)")


@pytest.fixture
def postgres_database_url(servers: Servers) -> Iterator[str]:
    """An empty, migrated, guarded database."""
    with servers.database(guarded=True) as url:
        yield url
