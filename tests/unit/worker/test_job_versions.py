"""The versions of jobs that polls ask for together."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from tasks.errors import NotFound
from worker.ledger.database import Database
from worker.ledger.tenancy import Tenancy


class Rows:
    """A database that knows one job, and gives the rows in an order of its own."""

    def __init__(self, job_id: UUID) -> None:
        self.job_id = job_id
        self.statements = 0

    async def rows(self, _: str, parameters: dict[str, Any]) -> list[Any]:
        self.statements += 1
        rows = [
            SimpleNamespace(
                ord=number, id=candidate, batch_id=candidate, state="available", run=1, round=0, step="generate", outcome=None,
                held_reason=None, finished_at=None, erased_at=None, cost_usd=0, result_bytes=None, request_bytes=9,
            )
            for number, candidate in enumerate(parameters["ids"], start=1)
            if candidate == self.job_id
        ]  # fmt: skip
        return rows[::-1]


def test_versions_come_in_the_order_asked_by_one_statement() -> None:
    database = Rows(uuid4())
    tenancy = Tenancy(cast("Database", database))
    owned = [(uuid4(), "default"), (database.job_id, "default"), (uuid4(), "other"), (database.job_id, "default")]

    versions = asyncio.run(tenancy.jobs(owned))

    assert [version.job_id if version else None for version in versions] == [
        None,
        database.job_id,
        None,
        database.job_id,
    ]
    assert database.statements == 1


def test_a_job_that_is_not_the_tenants_is_not_found() -> None:
    database = Rows(uuid4())
    with pytest.raises(NotFound, match="no job"):
        asyncio.run(Tenancy(cast("Database", database)).job(uuid4(), "default"))
