"""Operations without a command line: progress and warnings come by callbacks, also while Redis is unreachable."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tasks.errors import InputError
from tests.contract.situations import submit_many
from tests.lent_ledger import KeptLedger
from tests.servers import Servers
from worker.ledger.pages import PAGE_ROWS
from worker.local import Endpoints
from worker.operations import content_removal, job_changes
from worker.operations.audit import find_job
from worker.operations.content_removal import ErasureScope
from worker.operations.operator import JobPages, Operator
from worker.settings import Settings

NOWHERE = "redis://127.0.0.1:1/0"

Scenario = Callable[[Operator, list[str]], Awaitable[None]]


def operate(database_url: str, redis_url: str, scenario: Scenario) -> None:
    async def work() -> None:
        warnings: list[str] = []
        async with KeptLedger(database_url) as ledger:
            where = Endpoints(database_url, redis_url)
            await scenario(Operator("ada", Settings(), where, ledger, warnings.append), warnings)

    asyncio.run(work())


def test_a_batch_is_cancelled_and_retried_in_pages_that_are_counted(database_url: str, servers: Servers) -> None:
    async def scenario(operator: Operator, warnings: list[str]) -> None:
        receipt = await submit_many(operator.ledger, PAGE_ROWS + 1)
        progress: list[tuple[int, int | None]] = []

        def pages() -> JobPages:
            return JobPages(lambda pages: progress.append((pages.jobs, pages.total)))

        cancelled = await job_changes.cancel(operator, receipt.batch_id, pages())
        assert set(cancelled) == set(receipt.job_ids)
        assert progress == [(PAGE_ROWS, PAGE_ROWS + 1), (PAGE_ROWS + 1, PAGE_ROWS + 1)]
        retried = await job_changes.retry(operator, [receipt.batch_id], pages())
        assert set(retried) == set(receipt.job_ids)
        assert progress[2:] == progress[:2]
        detail = await find_job(operator.ledger, receipt.batch_id, "0")
        assert [event["kind"] for event in detail.events if event["actor"] == "ada"] == ["cancel", "retry"]
        assert warnings == []

    operate(database_url, servers.redis_url, scenario)


def test_content_is_erased_while_redis_is_unreachable_with_one_warning(database_url: str) -> None:
    async def scenario(operator: Operator, warnings: list[str]) -> None:
        receipt = await submit_many(operator.ledger, PAGE_ROWS + 1)
        scope = ErasureScope(batch=receipt.batch_id)
        with pytest.raises(InputError, match=f"{PAGE_ROWS + 1} of {PAGE_ROWS + 1} jobs not final: "):
            await content_removal.survey(operator, scope, cancel=False)
        assert await content_removal.survey(operator, scope, cancel=True) == PAGE_ROWS + 1

        done = await content_removal.erase(operator, scope, JobPages(), cancel=True)

        assert (done.erased, done.not_final, done.sealed) == (PAGE_ROWS + 1, 0, 1)
        assert done.redis_unreachable
        assert len(warnings) == 1
        assert "results and streamed texts stay there" in warnings[0]

    operate(database_url, NOWHERE, scenario)
