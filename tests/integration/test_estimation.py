"""Estimates over PostgreSQL: averages of earlier calls, stored answers, refused lines."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from schemas.model_call import Usage
from schemas.states import Step
from tasks.ports import Purpose
from tests.builders import (
    closed_ok,
    make_answer,
    make_attempt,
    make_batch,
    make_completion,
    make_prompt,
    make_request,
    to_check,
)  # fmt: skip
from tests.contract.situations import submit, take, take_one
from tests.lent_ledger import KeptLedger
from worker.cli.commands.cost_estimate import show_estimation
from worker.ledger.postgres import PostgresLedger
from worker.operations.estimation import estimate_submission, to_json
from worker.operations.file_intake import InputOrder
from worker.operations.file_submission import Submission
from worker.settings import Settings

CALLS = 30
USAGE = Usage(input_tokens=90, output_tokens=40, cached_input_tokens=45)


def scenario(database_url: str, work: Callable[[PostgresLedger], Awaitable[None]]) -> None:
    async def run() -> None:
        async with KeptLedger(database_url) as ledger:
            await work(ledger)

    asyncio.run(run())


async def answered(ledger: PostgresLedger, tenant: str, count: int = CALLS, **config: Any) -> UUID:
    """A batch whose jobs have an answer each."""
    batch = make_batch(tenant)
    receipt = await submit(ledger, *(make_request(f"Question {n}?", config=config) for n in range(count)), batch=batch)
    prompt = make_prompt()
    prompt = prompt.model_copy(
        update={
            "name": "grounded",
            "snapshot": prompt.snapshot.model_copy(update={"prompt_tokens": 100, "counted_by": "estimate"}),
        }
    )
    for leased in await take(ledger, receipt.job_ids):
        attempt = make_attempt(leased, provider="extractive", model="extractive-5")
        await ledger.attempts.open_attempts([attempt])
        answer = replace(make_answer(), completion=make_completion(usage=USAGE), prompt=prompt)
        await ledger.attempts.close_attempts([closed_ok(leased, attempt, answer=answer, then=to_check(leased))])
    assert receipt.batch_id is not None
    return receipt.batch_id


def submission_of(path: Path, settings: Settings, **batch: Any) -> Submission:
    return Submission(InputOrder([str(path)], batch), settings)


def test_averages_are_those_of_the_tenant_or_of_one_batch(database_url: str) -> None:
    async def work(ledger: PostgresLedger) -> None:
        batch_id = await answered(ledger, "desk")
        await answered(ledger, "other", 3)
        (past,) = (await ledger.history.past("desk")).calls
        assert (past.provider, past.model, past.prompt, past.calls) == ("extractive", "extractive-5", "grounded", CALLS)
        assert (past.output_tokens, past.input_tokens, past.cached) == (40 * CALLS, 90 * CALLS, 45 * CALLS)
        assert (past.counted, past.billed) == (100 * CALLS, 90 * CALLS)
        assert (past.usd, past.further_usd, past.asks_more) == (pytest.approx(0.002 * CALLS), 0, False)
        await answered(ledger, "desk", 2, escalate=["extractive"])
        assert sorted((each.calls, each.asks_more) for each in (await ledger.history.past("desk")).calls) == [
            (2, True),
            (CALLS, False),
        ]
        (trial,) = (await ledger.history.past("desk", batch_id)).calls
        assert trial.calls == CALLS

    scenario(database_url, work)


def test_what_followed_an_answer_counts_with_it(database_url: str) -> None:
    async def work(ledger: PostgresLedger) -> None:
        batch_id = await answered(ledger, "desk", 1)
        (job,) = [view.job_id async for view in ledger.reading.batch_views(batch_id)]
        leased = await take_one(ledger, job, Step.CHECK)
        attempt = make_attempt(leased, purpose=Purpose.JUDGE)
        await ledger.attempts.open_attempts([attempt])
        await ledger.attempts.close_attempts([closed_ok(leased, attempt, answer=make_answer())])
        (past,) = (await ledger.history.past("desk", batch_id)).calls
        assert (past.calls, past.usd, past.further_usd) == (1, pytest.approx(0.002), pytest.approx(0.002))

    scenario(database_url, work)


def test_a_file_is_estimated_by_earlier_answers_and_nothing_is_written(database_url: str, tmp_path: Path) -> None:
    async def work(ledger: PostgresLedger) -> None:
        await answered(ledger, "default")
        lines = [
            json.dumps({"query": f"Why {n}?", "context": ["The desk takes the copy of the day."]}) for n in range(7)
        ]
        lines += ["{", json.dumps({"query": "Why?", "context": []}), json.dumps({"query": "?", "idempotency_key": "k"})]
        path = tmp_path / "in.jsonl"
        path.write_text("\n".join(lines))
        batches = len(await ledger.reading.batches(10))
        done = to_json(await estimate_submission(submission_of(path, Settings(provider="extractive")), ledger))
        assert len(await ledger.reading.batches(10)) == batches
        assert (done["lines"], done["jobs"], done["calls"]) == (10, 9, 7)
        assert [line["where"] for line in done["refused"]] == [f"{path}, line 8"]
        assert done["no_call"] == {"no_evidence": 2}
        (row,) = done["models"]
        assert (row["output_tokens"]["usual"], row["output_from"]) == (7 * 40, f"{CALLS} earlier calls")
        await submit(ledger, make_request(idempotency_key="k"), batch=make_batch("default"))
        again = to_json(await estimate_submission(submission_of(path, Settings(provider="extractive")), ledger))
        assert (again["jobs"], again["known_jobs"]) == (8, 1)

    scenario(database_url, work)


def test_a_lane_that_ends_beyond_the_deadline_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"query": "Why?", "context": ["The desk takes the copy of the day."]}))
    now = datetime.now(UTC)

    def late_s(lane: str, deadline: datetime, **options: str) -> float | None:
        fields = {"defaults": {"lane": lane}, "deadline": deadline.isoformat(), **options}
        submission = submission_of(path, Settings(provider="openai"), **fields)
        estimation = asyncio.run(estimate_submission(submission, None))
        show_estimation(estimation, as_json=False)
        return estimation.late_s

    hour = timedelta(hours=1)
    assert late_s("provider_batch", now + 2 * hour) == pytest.approx(22 * 3_600, abs=600)
    assert "beyond the deadline: jobs that are not final then expire" in " ".join(capsys.readouterr().out.split())
    assert late_s("provider_batch", now + 40 * hour, not_before=(now + 20 * hour).isoformat()) is not None
    assert late_s("provider_batch", now + 48 * hour) is None
    assert late_s("auto", now + 2 * hour) is None
    assert "beyond the deadline" not in capsys.readouterr().out.rpartition("cost")[2]


def test_a_judge_that_rides_in_a_batch_reads_what_came_back_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"query": "Why?", "context": ["The desk takes the copy of the day."]}))
    defaults = {"lane": "provider_batch", "checkers": ["structure", "lexical", "judge"], "judge": "openai"}

    def seconds(settings: Settings) -> float:
        estimate = asyncio.run(estimate_submission(submission_of(path, settings, defaults=defaults), None)).estimate
        assert estimate.seconds is not None
        return estimate.seconds.usual

    alone = seconds(Settings(provider="openai", judge_lane="standard"))
    assert seconds(Settings(provider="openai")) == 2 * alone
