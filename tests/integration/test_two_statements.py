"""A statement with one that goes before it: one transaction in one round trip, whole or not at all, and ended by the server if cut in two."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tasks.errors import Unstorable
from worker.ledger.database import TRANSACTION_TIMEOUT_FROM, Database

LOCK = "SELECT pg_advisory_xact_lock(4711)"
PAUSE = "INSERT INTO lane_pause (provider, lane, kind, why) VALUES ('some', 'standard', 'quota', 'test')"


@pytest.fixture(params=[TRANSACTION_TIMEOUT_FROM, 10**9], ids=["sent together", "one by one"])
def on_database(
    database_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Database], Awaitable[None]]], None]:
    """Runs work on a database, by the way for newer servers and by that for older ones."""
    monkeypatch.setattr("worker.ledger.database.TRANSACTION_TIMEOUT_FROM", request.param)

    def run(work: Callable[[Database], Awaitable[None]]) -> None:
        async def scenario() -> None:
            database = Database(database_url, size=1, repeats=True)
            await database.open()
            try:
                await work(database)
            finally:
                await database.close()

        asyncio.run(scenario())

    return run


def test_both_run_in_one_transaction(on_database: Callable[[Callable[[Database], Awaitable[None]]], None]) -> None:
    async def work(database: Database) -> None:
        own_locks = "SELECT count(*) AS locks FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711"
        for _ in range(2):
            (row,) = await database.rows(own_locks, first=(LOCK, ()))
            assert row.locks == 1
            (row,) = await database.rows(own_locks)
            assert row.locks == 0, "the transaction has ended"
            (row,) = await database.rows("SELECT current_setting('transaction_timeout') AS bound")
            assert row.bound == "0", "and its bound with it"

    on_database(work)


def test_an_error_of_the_second_takes_the_first_back(
    on_database: Callable[[Callable[[Database], Awaitable[None]]], None],
) -> None:
    async def work(database: Database) -> None:
        for _ in range(2):
            with pytest.raises(Unstorable, match="division by zero"):
                await database.rows("SELECT 1 / (SELECT count(*) - count(*) FROM job)", first=(PAUSE, ()))
            assert await database.rows("SELECT provider FROM lane_pause") == []
        assert len(await database.rows("SELECT 1 AS one", first=(PAUSE, ()))) == 1
        assert len(await database.rows("SELECT provider FROM lane_pause")) == 1

    on_database(work)
