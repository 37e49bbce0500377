"""A submission of a few jobs writes the same rows in one statement as a large one does by COPY."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from tasks.ports import NewBatch, NewJob, Receipt
from tests.builders import make_batch, make_config, make_jobs, make_request
from worker.ledger import submission
from worker.ledger.postgres import PostgresLedger

SOON = datetime.now(UTC) + timedelta(hours=1)
PAST = SOON - timedelta(days=1)
OWN = {"id", "batch_id", "job_id", "tenant", "created_at", "scheduled_at", "available_at"}
"""Columns with ids of a batch and its jobs, and with the time of the submission."""


def jobs(tenant: str) -> list[NewJob]:
    """Jobs that differ in each column, of a tenant."""
    return make_jobs(
        make_request("plain?"),
        make_request("urgent?", priority=3),
        make_request("named?", custom_id="a", idempotency_key="key", message_id="m"),
        make_request("later?", scheduled_at=SOON, deadline=SOON + timedelta(hours=1)),
        make_request("long ago?", scheduled_at=PAST),
        make_request("packed?", context=["The desk opens at nine. " * 200] * 3, config=make_config(temperature=0.5)),
        make_request("checked?", check_only=True, answer="The desk opens at nine."),
        tenant=tenant,
    )


def batches(**changes: Any) -> tuple[NewBatch, NewBatch]:
    return make_batch("few", key="night", **changes), make_batch("many", key="night", **changes)


def submit(database_url: str, batch: NewBatch, rows: list[NewJob]) -> Receipt:
    async def scenario() -> Receipt:
        async with PostgresLedger(database_url, connections=1) as ledger:
            return await ledger.submission.submit(batch, [rows])

    return asyncio.run(scenario())


def stored(database_url: str, batch: NewBatch) -> list[dict[str, Any]]:
    """All rows of a batch without what is its own, and whether times are those of the submission."""
    query = """
    SELECT to_jsonb(b) AS batch, to_jsonb(j) AS job, to_jsonb(r) AS request, j.created_at = b.created_at AS at_once,
           j.available_at = j.created_at AS is_ready, j.scheduled_at - j.created_at < interval '1 second' AS is_due
    FROM batch b JOIN job j ON j.batch_id = b.id JOIN job_request r ON r.job_id = j.id WHERE b.id = %s ORDER BY j.position
    """
    with psycopg.connect(database_url, row_factory=dict_row) as connection:
        rows = connection.execute(query, (batch.id,)).fetchall()
    for row in rows:
        for table in ("batch", "job", "request"):
            row[table] = {column: value for column, value in row[table].items() if column not in OWN}
    return rows


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"not_before": SOON, "deadline": SOON + timedelta(days=1)},
        {"name": "night", "max_cost_usd": Decimal("1.5"), "defaults": {"mode": "short"}, "estimate": {"jobs": 7}},
    ],
)
def test_both_ways_write_the_same_rows(
    database_url: str, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    few, many = batches(**changes)
    receipts = [submit(database_url, few, few_jobs := jobs("few"))]
    monkeypatch.setattr(submission, "is_small", lambda *_: False)
    receipts.append(submit(database_url, many, many_jobs := jobs("many")))

    assert stored(database_url, few) == stored(database_url, many)
    assert len(stored(database_url, few)) == 7
    for receipt, rows in zip(receipts, (few_jobs, many_jobs), strict=True):
        assert receipt.job_ids == tuple(job.id for job in rows)
    ready = [[receipt.job_ids.index(job_id) for job_id in receipt.available] for receipt in receipts]
    assert ready[0] == ready[1]


def test_a_few_new_jobs_take_one_statement(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> Receipt:
        raise AssertionError("written by COPY")

    monkeypatch.setattr(submission, "_write", refuse)
    batch = make_batch("few")
    assert submit(database_url, batch, jobs("few")).batch_id == batch.id
