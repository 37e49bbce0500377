"""The planner's statistics of tables that grow faster than autovacuum looks at them."""

import asyncio
from datetime import timedelta

import psycopg

from tasks.ports import Outlook
from tests.contract.situations import submit_many
from tests.deadlines import scale_to_load
from tests.lent_ledger import KeptLedger
from worker.ledger.duties import REFRESH_ROWS
from worker.ledger.postgres import PostgresLedger

_ANALYZED_WHILE_EMPTY = (
    "UPDATE pg_class SET relpages = 1, reltuples = 0 WHERE oid = ANY ('{job,job_request,attempt}'::regclass[])"
)
_ROWS = "SELECT reltuples FROM pg_class WHERE oid = 'job'::regclass"


async def _attend(ledger: PostgresLedger) -> Outlook:
    second = timedelta(seconds=1)
    return await ledger.duties.attend("w1", second, second, 10)


def test_tables_that_outgrew_their_statistics_are_counted_again(database_url: str) -> None:
    async def work() -> None:
        async with KeptLedger(database_url) as ledger:
            await ledger.duties.refresh_statistics()  # of rows that other tests left and took away
            await submit_many(ledger, REFRESH_ROWS // 2)
            assert "job" not in await ledger.duties.refresh_statistics()
            await submit_many(ledger, REFRESH_ROWS)
        # Its backend has reported what it wrote when it is gone.
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(_ANALYZED_WHILE_EMPTY)
        async with KeptLedger(database_url) as ledger:
            while not (await _attend(ledger)).outgrown:
                pass
            assert {"job", "job_request"} <= set(await ledger.duties.refresh_statistics())

            while (await _attend(ledger)).outgrown:
                await ledger.duties.refresh_statistics()

    asyncio.run(asyncio.wait_for(work(), scale_to_load(60)))
    with psycopg.connect(database_url) as connection:
        row = connection.execute(_ROWS).fetchone()
    assert row == (REFRESH_ROWS + REFRESH_ROWS // 2,)
