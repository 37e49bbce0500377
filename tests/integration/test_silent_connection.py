"""A connection that nobody answers on any more is hung up, and the next one works."""

import asyncio

import pytest

from tasks.errors import LedgerUnavailable
from tests.faults.proxy import running_proxy
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
