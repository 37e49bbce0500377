"""A connection that nobody answers on any more is hung up, and the next one works."""

import asyncio

import psycopg
import pytest

from tasks.errors import LedgerUnavailable
from tests.deadlines import until
from tests.faults.proxy import running_proxy
from worker.ledger import database
from worker.ledger.database import Database


def test_a_statement_without_an_answer_ends(database_url: str) -> None:
    async def scenario(url: str) -> None:
        database = Database(url, size=2)
        await database.open()
        try:
            assert await database.rows("SELECT 1", within_s=30)
            proxy.stall()
            waiting = asyncio.create_task(database.rows("SELECT 1", within_s=0.5))
            assert await asyncio.to_thread(proxy.swallowed.wait, 10)
            proxy.heal()
            with pytest.raises(LedgerUnavailable):
                await waiting
            assert (await database.rows("SELECT 2 AS two"))[0].two == 2
        finally:
            await database.close()

    with running_proxy(database_url) as proxy:
        asyncio.run(scenario(proxy.url))


async def test_a_transaction_that_is_cut_in_two_is_ended_by_the_server(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LEAST_BOUND_S", 1.0)

    connected = Database(database_url, size=2)
    await connected.open()
    try:
        async with connected.connection() as connection:
            if connection.info.server_version < database.TRANSACTION_TIMEOUT_FROM:
                pytest.skip("this PostgreSQL can't end transactions by time: see the test below")
        lock = ("SELECT pg_advisory_xact_lock(%s)", (7,))
        # The rest of what was sent together arrives late: with the lock held, and nothing for the server to do.
        with pytest.raises(LedgerUnavailable):
            await connected.rows("SELECT pg_sleep(%s)", (30,), first=lock, within_s=1)
        assert await connected.rows("SELECT pg_advisory_xact_lock(7)", within_s=10), "the lock is free again"
        bound = "SELECT current_setting('transaction_timeout') AS bound"
        assert (await connected.rows(bound, first=lock, within_s=90))[0].bound == "90s"
        assert (await connected.rows(bound))[0].bound == "0", "only of that transaction"
    finally:
        await connected.close()


_WAITERS = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 8 AND NOT granted"


def test_an_older_server_ends_a_transaction_whose_client_is_gone(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "TRANSACTION_TIMEOUT_FROM", 990_000)
    monkeypatch.setattr(
        database, "SESSION_OPTIONS", database.SESSION_OPTIONS.replace("session_timeout=60s", "session_timeout=1s")
    )

    async def scenario(url: str) -> None:
        connected = Database(url, size=2)
        await connected.open()
        try:
            # The first statement waits for a lock until the network is silent, so its answer gets lost.
            holder = psycopg.connect(database_url)
            holder.execute("SELECT pg_advisory_xact_lock(8)")
            lock = ("SELECT pg_advisory_xact_lock(8)", ())
            waiting = asyncio.create_task(connected.rows("SELECT pg_advisory_xact_lock(9)", first=lock, within_s=2))
            assert await asyncio.to_thread(until, lambda: holder.execute(_WAITERS).fetchone(), 10)
            proxy.stall()
            holder.close()
            assert await asyncio.to_thread(proxy.swallowed.wait, 10), "the answer to the first statement got lost"
            proxy.heal()
            later = "SELECT pg_try_advisory_lock(9) AS free, pg_advisory_lock(8)"
            assert (await connected.rows(later, within_s=10))[0].free, "the second statement was never sent"
            with pytest.raises(LedgerUnavailable):
                await waiting
        finally:
            await connected.close()

    with running_proxy(database_url) as proxy:
        asyncio.run(scenario(proxy.url))
