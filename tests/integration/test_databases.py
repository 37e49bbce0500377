"""A database lent to tests is as new each time, whatever the test before did to it."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from tests import databases
from tests.contract.situations import submit_and_take
from tests.databases import Pool
from tests.servers import Servers, advance_clock
from worker.ledger.postgres import PostgresLedger
from worker.ledger.schema_version import migrate


@pytest.fixture
def pool(servers: Servers) -> Pool:
    """Nothing lent so far; the template is that of all tests."""
    return Pool(servers.admin_url, migrate_only, template=servers.databases.prepare())


def migrate_only(database_url: str) -> None:
    migrate(database_url)


def fill(url: str) -> None:
    async def work() -> None:
        async with PostgresLedger(url, connections=1) as ledger:
            await submit_and_take(ledger)

    asyncio.run(work())


def run(statement: str) -> Callable[[str], None]:
    def change(url: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())

    return change


@pytest.mark.parametrize("truncation_bytes", [databases.TRUNCATION_BYTES, 0])
def test_rows_and_sessions_are_gone_and_the_database_is_the_same(
    pool: Pool, truncation_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "TRUNCATION_BYTES", truncation_bytes)
    with pool.lend() as first:
        fill(first)
        leftover = psycopg.connect(first)
        leftover.execute("SELECT FROM job FOR UPDATE")
    with pool.lend() as second:
        assert second == first
        with psycopg.connect(second) as connection:
            assert connection.execute("SELECT count(*) FROM job").fetchone() == (0,)
            assert connection.execute("SELECT count(*) FROM batch").fetchone() == (0,)
            assert connection.execute("SELECT count(last_value) FROM pg_sequences").fetchone() == (0,)
        fill(second)
    with pytest.raises(psycopg.OperationalError):
        leftover.execute("SELECT 1")
    leftover.close()


@pytest.mark.parametrize(
    "change",
    [
        run("DROP FUNCTION nightdesk_now CASCADE"),
        run("CREATE TABLE more (id int)"),
        run("ALTER TABLE job ADD COLUMN more int"),
        run("DROP INDEX job_custom_id"),
        run("DROP TABLE alembic_version"),
        run("UPDATE alembic_version SET version_num = '9999'"),
        run(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$"
        ),
    ],
    ids=["no clock", "table", "column", "index", "no revision", "revision", "setting"],
)
def test_another_is_lent_when_more_than_rows_changed(pool: Pool, change: Callable[[str], None]) -> None:
    with pool.lend() as first:
        change(first)
    with pool.lend() as second:
        assert second != first
        fill(second)


def test_the_clock_is_set_back(pool: Pool) -> None:
    with pool.lend() as first:
        advance_clock(first, timedelta(hours=1))
        advance_clock(first, timedelta(hours=1))
    with pool.lend() as second:
        assert second == first
        with psycopg.connect(second) as connection:
            assert connection.execute("SELECT nightdesk_now() = now()").fetchone() == (True,)


def test_two_at_once_are_two(pool: Pool) -> None:
    with pool.lend() as first, pool.lend() as second:
        assert first != second
        fill(first)
        with psycopg.connect(second) as connection:
            assert connection.execute("SELECT count(*) FROM job").fetchone() == (0,)


def test_rows_that_the_migrations_write_stay(servers: Servers) -> None:
    def make(url: str) -> None:
        migrate(url)
        run("CREATE TABLE seed (id int GENERATED ALWAYS AS IDENTITY, word text)")(url)
        run("INSERT INTO seed (word) VALUES ('one'), ('two')")(url)

    pool = Pool(servers.admin_url, make)
    for _ in range(2):
        with pool.lend() as url, psycopg.connect(url) as connection:
            assert connection.execute("SELECT id, word FROM seed ORDER BY id").fetchall() == [(1, "one"), (2, "two")]
            connection.execute("DELETE FROM seed")
            connection.commit()
