"""Many jobs ask the same: each request is paid for once, every job has its own checked answer and says whose it took."""

from collections import Counter
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from schemas.record import JobResult
from tasks.results import poll
from tests.acceptance.conftest import System, questions
from tests.stub.server import Stub, running_stub
from worker.ledger.postgres import PostgresLedger

DISTINCT = 6
OFTEN = 4
JOBS = DISTINCT * OFTEN


def asked_often() -> list[dict[str, Any]]:
    """Each question four times, as jobs of different producers would be: ids and metadata of their own."""
    return [
        {**job, "custom_id": f"{job['custom_id']}-{turn}", "metadata": {"turn": turn}}
        for turn in range(OFTEN)
        for job in questions(DISTINCT)
    ]


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Any:
    with running_stub(latency_s=0.5) as stub:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        yield stub


def results(system: System, ids: list[UUID]) -> list[JobResult]:
    async def work(ledger: PostgresLedger) -> list[JobResult]:
        return [result for result in await poll(ledger.reading, ids) if result is not None]

    return system.with_ledger(work)


def test_each_distinct_request_is_called_once(system: System, stub: Stub) -> None:
    settings = {"provider": "openai", "slots": 40, "share_answers": '["default"]'}
    _, ids = system.submit(asked_often())
    for _ in range(2):
        system.start_worker(**settings)
    system.until_final(JOBS)

    assert sum(stub.calls.values()) == len(stub.calls) == DISTINCT
    all_results = results(system, ids)
    paid = {result.job_id: result for result in all_results if result.shared_from is None}
    assert len(paid) == DISTINCT
    for result in all_results:
        assert result.outcome is not None
        assert (result.cost_usd or Decimal(0)) > 0 if result.shared_from is None else result.cost_usd == 0
        its = paid[result.shared_from or result.job_id]
        assert (result.query, result.response, result.outcome, result.claims) == (
            its.query,
            its.response,
            its.outcome,
            its.claims,
        )
        if result.shared_from is not None:
            assert (result.tokens_used, result.timing_ms.llm if result.timing_ms else None) == (0, 0)
    assert Counter(result.query for result in paid.values()) == Counter(job["query"] for job in questions(DISTINCT))
    spent = sum((result.cost_usd or Decimal(0) for result in paid.values()), Decimal(0))
    assert system.scalar("SELECT spent_usd FROM batch") == spent
    assert system.with_ledger(lambda ledger: ledger.inspection.violations()) == []

    # A retry wants a new answer.
    assert len(system.with_ledger(lambda ledger: ledger.actions.retry(ids[-1:], "test"))) == 1
    system.until(
        lambda: system.scalar("SELECT count(*) FROM generation_record WHERE run = 2") == 1, what="a second run"
    )
    assert sum(stub.calls.values()) == DISTINCT + 1
