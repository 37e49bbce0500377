"""A deadline that comes, or a cancel, while a call is under way: final at once, the call cut off and accounted for."""

import psycopg

from tests.acceptance.conftest import System, questions


def test_a_cancel_or_deadline_during_a_call_ends_the_call(system: System) -> None:
    late, _ = system.submit(questions(3), deadline="2999-01-01T00:00:00Z")
    unwanted, _ = system.submit(questions(3))
    scheduled, _ = system.submit([{**job, "scheduled_at": "2999-01-01T00:00:00Z"} for job in questions(2)])
    system.start_worker(slots=10, extractive_latency_s=600)
    system.until(lambda: system.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") == 6, what="calls")

    with psycopg.connect(system.database_url) as connection:
        # A worker that starts slowly must not miss its calls, so the deadline comes when they are made.
        connection.execute("UPDATE job SET deadline = now() WHERE batch_id = %s", (late,))
    cancelled = system.with_ledger(lambda ledger: ledger.actions.cancel_batch(unwanted, "ada"))
    assert len(cancelled) == 3
    assert len(system.with_ledger(lambda ledger: ledger.actions.cancel_batch(scheduled, "ada"))) == 2
    system.until_final(8)

    assert system.rows("SELECT DISTINCT state FROM job WHERE batch_id = %s", late) == [("expired",)]
    assert system.rows("SELECT DISTINCT state FROM job WHERE batch_id <> %s", late) == [("cancelled",)]
    system.until(
        lambda: system.scalar("SELECT count(*) FROM attempt WHERE closed_at IS NULL") == 0, what="calls cut off"
    )
    # Each call was made once, and what it may have cost is on its attempt.
    assert system.rows("SELECT outcome, count(*), count(cost_usd) FROM attempt GROUP BY 1") == [("unknown", 6, 6)]
    assert system.scalar("SELECT sum(reserved_usd) FROM batch") == 0
