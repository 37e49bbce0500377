"""Rows that PostgreSQL copies out: whole and in order, an error of any moment as of a statement, and never half a page left behind."""

import asyncio

import pytest

from tasks.errors import SchemaMismatch, Unstorable
from tests.integration.test_database_errors import on_database
from worker.ledger.database import Database

_SLEEPING = """
SELECT pid FROM pg_stat_activity
WHERE starts_with(query, 'COPY (SELECT pg_sleep') AND state = 'active' AND datname = current_database()
"""

LONG = 3_000
"""Characters: the driver reads 16 KB at a time, which end amid a row."""


def text_of(row: memoryview) -> str | None:
    """The only field of a row."""
    length = int.from_bytes(row[2:6], signed=True)
    return None if length < 0 else str(row[6 : 6 + length], "utf-8")


@pytest.mark.parametrize("count", [0, 1, 2_000])
def test_rows_come_whole_and_in_order(database_url: str, count: int) -> None:
    async def work(database: Database) -> None:
        rows = await database.copied_rows(
            f"SELECT n || repeat('é', {LONG}) FROM generate_series(1, {count}) n ORDER BY n"
        )
        assert [text_of(row) for row in rows] == [f"{number + 1}{'é' * LONG}" for number in range(count)]
        assert [text_of(row) for row in await database.copied_rows("SELECT NULL::text")] == [None]

    on_database(database_url, work)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT no_such_column FROM job", SchemaMismatch),
        ("SELECT 1 / 0", Unstorable),
        (f"SELECT repeat('x', {LONG} / (1000 - n)) FROM generate_series(1, 2000) n", Unstorable),
    ],
)
def test_an_error_before_or_amid_the_rows_is_that_of_a_statement(
    database_url: str, query: str, error: type[Exception]
) -> None:
    async def work(database: Database) -> None:
        with pytest.raises(error):
            await database.copied_rows(query)
        assert [text_of(row) for row in await database.copied_rows("SELECT 'next'")] == ["next"]

    on_database(database_url, work)


def test_a_reader_that_gives_up_leaves_its_connection_to_no_other(database_url: str) -> None:
    async def work(database: Database) -> None:
        reading = asyncio.create_task(database.copied_rows("SELECT pg_sleep(60)::text"))
        while not await database.rows(_SLEEPING):
            pass
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert [text_of(row) for row in await database.copied_rows("SELECT 'next'")] == ["next"]
        assert await database.rows(_SLEEPING) == []

    on_database(database_url, work, size=2)
