"""Opening an attempt against whoever takes the job away in the same moment: one of the two wins, and both know who."""

import asyncio
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from schemas.states import HeldReason
from tasks.ports import Leased, Opened
from tests.builders import make_attempt
from tests.contract.situations import LEASE, submit_and_take
from tests.postgres import until_one_waits
from tests.servers import advance_clock
from worker.ledger.postgres import PostgresLedger

_CANCEL = "UPDATE job SET state = 'cancelled', finished_at = now(), lease_token = NULL, lease_until = NULL"
_RESCUE = "UPDATE job SET state = 'available', available_at = now(), lease_token = NULL, lease_until = NULL"


@pytest.mark.parametrize("taken_by", [_CANCEL, _RESCUE], ids=["cancel", "rescue"])
def test_an_opening_sees_the_change_that_it_waited_for(database_url: str, taken_by: str) -> None:
    async def scenario(ledger: PostgresLedger, leased: Leased) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as other:
            await other.execute(taken_by.encode())
            opening = asyncio.create_task(ledger.attempts.open_attempts([make_attempt(leased)]))
            await until_one_waits(database_url)
            await other.commit()

        assert await opening == [Opened.LOST]
        assert (await ledger.reading.job_detail(leased.job_id)).attempts == ()

    asyncio.run(_over(database_url, scenario))


def test_a_rescue_passes_over_a_job_during_the_opening_of_its_attempt(database_url: str) -> None:
    async def scenario(ledger: PostgresLedger, leased: Leased) -> None:
        async with await psycopg.AsyncConnection.connect(database_url) as other:
            await other.execute("SELECT FROM job FOR NO KEY UPDATE")
            await asyncio.to_thread(advance_clock, database_url, 2 * LEASE)
            assert await ledger.duties.rescue(10, HeldReason.UNKNOWN_OUTCOME) == []

        assert await ledger.duties.rescue(10, None) == [leased.job_id]

    asyncio.run(_over(database_url, scenario))


async def _over(database_url: str, scenario: Callable[[PostgresLedger, Leased], Awaitable[None]]) -> None:
    async with PostgresLedger(database_url, connections=2) as ledger:
        await scenario(ledger, await submit_and_take(ledger))
