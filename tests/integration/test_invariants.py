"""Every invariant can fail: each is broken by SQL, behind the database's own constraints, and found by its name."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from psycopg import AsyncConnection
from psycopg.rows import namedtuple_row

from schemas.states import Step
from tasks.ports import CacheStatus
from tests.builders import closed_ok, make_attempt, make_request, make_terms, make_wanted, to_check
from tests.contract.situations import (
    ACTOR,
    checking,
    finish,
    finished,
    generate,
    open_one,
    store_judge_reply,
    submit,
    submit_and_take,
    take_one,
)
from tests.lent_ledger import KeptLedger
from tests.servers import Servers
from worker.ledger.invariants import INVARIANTS, Violation, find_violations
from worker.ledger.postgres import PostgresLedger

BREAKS: dict[str, str] = {
    "job_state_known": "UPDATE job SET state = 'lost' WHERE state = 'scheduled'",
    "job_final_iff_finished": "UPDATE job SET finished_at = now() WHERE state = 'running'",
    "job_outcome_iff_completed": "UPDATE job SET outcome = NULL WHERE state = 'completed'",
    "job_lease_iff_running": "UPDATE job SET lease_until = NULL WHERE state = 'running'",
    "job_held_only_scheduled": "UPDATE job SET held_reason = 'budget' WHERE state = 'running'",
    "job_published_only_final": "UPDATE job SET result_published_at = now() WHERE state = 'running'",
    "job_has_request": "DELETE FROM job_request WHERE job_id = (SELECT id FROM job WHERE state = 'running')",
    "job_has_batch": "UPDATE batch SET tenant = 'other' WHERE id IN (SELECT batch_id FROM job WHERE state = 'scheduled')",
    "job_position_taken_once": "UPDATE job SET position = -1 WHERE state = 'running'",
    "job_available_since": "UPDATE job SET available_at = NULL WHERE state = 'available'",
    "one_record_per_final_run": "DELETE FROM generation_record WHERE status = 'success'",
    "record_says_what_the_job_says": "UPDATE generation_record SET status = 'failed' WHERE status = 'success'",
    "job_has_the_errors_of_its_record": "UPDATE job SET errors = '{\"date\": 1}' WHERE state = 'completed'",
    "record_has_its_answer": "UPDATE generation_record SET attempt_id = gen_random_uuid() WHERE status = 'success'",
    "record_has_job": "UPDATE generation_record SET tenant = 'other' WHERE status = 'success'",
    "event_run_exists": "UPDATE job_event SET run = 7 WHERE kind = 'cancel'",
    "attempt_closed_iff_outcome": "UPDATE attempt SET closed_at = now() WHERE outcome IS NULL",
    "attempt_run_exists": "UPDATE attempt SET run = 0 WHERE outcome IS NULL",
    "no_open_attempt_of_a_job_long_final": "UPDATE job SET finished_at = now() - interval '1 h' WHERE state = 'cancelled'",
    "completion_has_attempt": "UPDATE completion SET purpose = 'judge'",
    "one_winner": "INSERT INTO completion SELECT (SELECT id FROM attempt WHERE outcome IS NULL LIMIT 1), job_id, run, "
    "round, purpose, won, stored_at, finish_reason, parsed, prompt, frame FROM completion LIMIT 1",
    "winner_is_whole": "UPDATE completion SET finish_reason = 'interrupted'",
    "verdict_in_its_own_batch": "UPDATE judge_verdict SET batch_id = gen_random_uuid()",
    "paid_answer_is_kept": "DELETE FROM completion",
    "answered_job_has_answer": "UPDATE completion SET won = false",
    "shared_answer_was_paid_by_another": "UPDATE attempt SET request_hash = 'x' WHERE shared_from IS NOT NULL",
    "erased_answer_is_not_shared": "UPDATE job SET erased_at = now() WHERE state = 'completed'",
    "job_cost_is_the_sum": "UPDATE job SET cost_usd = cost_usd + 0.01 WHERE state = 'completed'",
    "batch_spent_is_the_sum": "UPDATE batch SET spent_usd = spent_usd + 0.01",
    "batch_reserved_is_the_sum": "UPDATE batch SET reserved_usd = reserved_usd + 0.01",
    "budget_period_is_the_sum": "UPDATE budget_period SET reserved_usd = reserved_usd + 0.01",
    "unknown_is_charged_at_worst": "UPDATE attempt SET outcome = 'unknown', closed_at = now() WHERE outcome IS NULL",
    "money_not_negative": "UPDATE attempt SET cost_usd = -1 WHERE outcome = 'ok'",
    "shared_answer_is_free": "UPDATE attempt SET usage = '{}' WHERE shared_from IS NOT NULL",
    "counts_are_those_of_the_jobs": "UPDATE job_count SET jobs = jobs + 1",
}


async def every_state(ledger: PostgresLedger) -> None:
    """Jobs in every state that breaking needs: scheduled, available, running with a call, answered, final, retried, shared."""
    await ledger.budgets.set("desk", "day UTC", Decimal(1_000), ACTOR)
    paused = await submit(ledger)
    await ledger.actions.pause_batch(paused.batch_id, ACTOR, paused=True)
    await submit(ledger)
    await open_one(ledger, await submit_and_take(ledger))
    await generate(ledger, await submit_and_take(ledger))
    await finished(ledger)
    again = await finished(ledger, make_request("Once more?"))
    await ledger.actions.retry([again], ACTOR)
    await share(ledger)
    judged = await checking(ledger)
    await store_judge_reply(ledger, judged, "key")
    await finish(ledger, judged)
    cancelled = await submit_and_take(ledger)
    await open_one(ledger, cancelled)
    await ledger.actions.cancel([cancelled.job_id], ACTOR)


async def share(ledger: PostgresLedger) -> None:
    """Two jobs with one answer, the first of them final."""
    first = await submit_and_take(ledger)
    attempt = await open_one(ledger, first, share=make_terms())
    await ledger.attempts.close_attempts([closed_ok(first, attempt, then=to_check(first))])
    second = await submit_and_take(ledger)
    same = make_attempt(second, share=make_terms(), request_hash=attempt.request_hash)
    assert [share.status for share in await ledger.cache.share([make_wanted(second, attempt=same)])] == [
        CacheStatus.REUSED
    ]
    await finish(ledger, await take_one(ledger, first.job_id, Step.CHECK))


def ask(url: str, work: Callable[[PostgresLedger], Awaitable[object]]) -> object:
    async def opened() -> object:
        async with KeptLedger(url) as ledger:
            return await work(ledger)

    return asyncio.run(opened())


def violations(url: str) -> object:
    return ask(url, lambda ledger: ledger.inspection.violations())


@pytest.fixture(scope="module")
def populated(servers: Servers) -> Iterator[str]:
    """A database that may only be changed in transactions that are rolled back."""
    with servers.database() as url:
        ask(url, every_state)
        yield url


async def without_constraints(connection: AsyncConnection[Any]) -> None:
    """Take away what the database itself keeps, so that there is something to find."""
    violation_row = await connection.execute(
        "SELECT conrelid::regclass::text, conname FROM pg_constraint "
        "WHERE connamespace = 'public'::regnamespace AND contype IN ('c', 'f')"
    )
    for table, name in await violation_row.fetchall():
        await connection.execute(f'ALTER TABLE {table} DROP CONSTRAINT "{name}"'.encode())
    await connection.execute("DROP INDEX completion_winner")


async def broken(url: str, statement: str) -> tuple[int, list[Violation]]:
    """Rows changed, and what is found then; nothing of it stays."""
    async with await AsyncConnection.connect(url, row_factory=namedtuple_row) as connection:
        await without_constraints(connection)
        changed = (await connection.execute(statement.encode())).rowcount
        violations = await find_violations(connection)
        await connection.rollback()
    return changed, violations


def test_a_ledger_with_jobs_in_all_states_breaks_none(populated: str) -> None:
    assert violations(populated) == []


def test_every_invariant_is_broken_here() -> None:
    assert list(BREAKS) == [invariant.name for invariant in INVARIANTS]


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_invariant_is_named(populated: str, name: str) -> None:
    changed, violations = asyncio.run(broken(populated, BREAKS[name]))

    assert changed > 0, "nothing was there to be broken"
    by_name = {violation.name: violation for violation in violations}
    assert name in by_name
    assert by_name[name].count >= 1
    assert by_name[name].samples
