"""Errors of PostgreSQL as the ledger's callers see them: only a bad value is the row's fault, all else is tried again."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from tasks.errors import LedgerError, LedgerUnavailable, SchemaMismatch, Unstorable
from worker.ledger.database import Database
from worker.ledger.schema_version import migrate


def on_database(database_url: str, work: Callable[[Database], Awaitable[None]], size: int = 1) -> None:
    async def scenario() -> None:
        database = Database(database_url, size=size)
        await database.open()
        try:
            await work(database)
        finally:
            await database.close()

    asyncio.run(scenario())


def change(database_url: str, statement: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(statement.encode())


def test_a_read_only_server_is_unavailable_and_its_connection_is_not_used_again(database_url: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    change(database_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")

    async def work(database: Database) -> None:
        with pytest.raises(LedgerUnavailable, match="read-only"):
            await database.rows("DELETE FROM lane_pause")
        with pytest.raises(LedgerUnavailable, match="read-only"):
            async with database.connection() as connection, connection.transaction():
                await connection.execute("DELETE FROM lane_pause")
        # The window closes: a session that began inside it stays read-only for good, so a new one is needed.
        await asyncio.to_thread(change, database_url, f"ALTER DATABASE {name} RESET default_transaction_read_only")
        with suppress(LedgerUnavailable):
            # The one connection of the pool may have been made inside the window.
            await database.rows("DELETE FROM lane_pause")
        assert await database.rows("DELETE FROM lane_pause RETURNING provider") == []

    on_database(database_url, work)


def test_texts_are_read_whatever_encoding_the_role_or_database_names(database_url: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    change(database_url, f"ALTER DATABASE {name} SET client_encoding = 'SQL_ASCII'")

    async def work(database: Database) -> None:
        (row,) = await database.rows("SELECT 'fünf €'::text AS content")
        assert row.content == "fünf €"

    on_database(database_url, work)


def test_times_that_python_has_not_are_read_as_the_last_and_the_first(database_url: str) -> None:
    async def work(database: Database) -> None:
        rows = await database.rows(
            "SELECT unnest('{infinity,20000-01-01,-infinity,0044-03-15 BC,2026-11-22}'::timestamptz[]) AS at"
        )
        assert [row.at.year for row in rows] == [9998, 9998, 2, 2, 2026]

    on_database(database_url, work)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("SELECT 1 / 0", Unstorable),
        ("INSERT INTO lane_pause (provider) VALUES (NULL)", Unstorable),
        ("SELECT * FROM no_such_table", SchemaMismatch),
        ("SELECT no_such_column FROM job", SchemaMismatch),
        ("SELECT no_such_function()", SchemaMismatch),
        ("DO $$ BEGIN RAISE internal_error; END $$", LedgerUnavailable),
        ("DO $$ BEGIN RAISE disk_full; END $$", LedgerUnavailable),
        ("DO $$ BEGIN RAISE lock_not_available; END $$", LedgerUnavailable),
        ("DO $$ BEGIN RAISE deadlock_detected; END $$", LedgerUnavailable),
        ("DO $$ BEGIN RAISE serialization_failure; END $$", LedgerUnavailable),
        ("DO $$ BEGIN RAISE feature_not_supported; END $$", LedgerUnavailable),
        ("DO $$ BEGIN RAISE in_failed_sql_transaction; END $$", LedgerUnavailable),
        ("DO $$ BEGIN RAISE query_canceled; END $$", LedgerUnavailable),
        ("DO $$ BEGIN RAISE SQLSTATE 'ZZ123'; END $$", LedgerUnavailable),
        ("DO $$ BEGIN RAISE insufficient_privilege; END $$", LedgerUnavailable),
        ("SELEC 1", LedgerError),
    ],
)
def test_each_error_says_what_is_to_be_done(database_url: str, statement: str, error: type[Exception]) -> None:
    async def work(database: Database) -> None:
        with pytest.raises(error) as raised:
            await database.rows(statement)
        assert isinstance(raised.value, Unstorable) == (error is Unstorable)
        with pytest.raises(error):
            async with database.connection() as connection, connection.transaction():
                await connection.execute(statement.encode())
        assert (await database.rows("SELECT 2 AS two"))[0].two == 2

    on_database(database_url, work)


def test_a_lost_race_is_run_again_at_once(database_url: str) -> None:
    change(database_url, "CREATE SEQUENCE tries")
    change(
        database_url,
        "CREATE FUNCTION third_time() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE n bigint := nextval('tries'); "
        "BEGIN IF n < 3 THEN RAISE deadlock_detected; END IF; RETURN n; END $$",
    )

    async def work(database: Database) -> None:
        assert (await database.rows("SELECT third_time() AS n"))[0].n == 3

    on_database(database_url, work)


def test_of_several_hosts_the_one_that_takes_writes_is_used(database_url: str) -> None:
    parts = urlsplit(database_url)
    login, _, server = parts.netloc.rpartition("@")
    several = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:1,{server}"))
    assert migrate(several)[0] is not None

    async def work(database: Database) -> None:
        await database.rows("DELETE FROM lane_pause")

    on_database(several, work)

    name = psycopg.conninfo.conninfo_to_dict(database_url)["dbname"]
    change(database_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(LedgerUnavailable) as refused:
        on_database(several, work)
    assert f"127.0.0.1:1,{server}" in str(refused.value)
    assert login.rpartition(":")[2] not in str(refused.value)


async def test_an_opening_that_is_cancelled_leaves_no_task_that_could_keep_its_loop(database_url: str) -> None:
    connected, admitted = asyncio.Event(), asyncio.Event()

    async def wait(_: object) -> None:
        connected.set()
        await admitted.wait()

    opening = asyncio.create_task(Database(database_url, size=1, admit=wait).open())
    await connected.wait()
    opening.cancel()
    admitted.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with asyncio.timeout(10):
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})


@pytest.mark.parametrize("turns", range(5))
async def test_a_cancellation_that_comes_with_a_connection_is_not_lost(database_url: str, turns: int) -> None:
    """``turns`` of the loop lie between the return of the only connection and the cancellation of who waits for it."""
    database = Database(database_url, size=1)
    await database.open()

    async def use() -> None:
        async with database.connection():
            await asyncio.Event().wait()

    async with database.connection():
        using = asyncio.create_task(use())
        await _pass(turns=20)  # it waits for the connection
    await _pass(turns)
    using.cancel()
    await asyncio.wait([using], timeout=5)
    assert using.cancelled()
    await database.close()


async def _pass(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
