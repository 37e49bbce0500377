"""Invariants of every ledger at every moment, each as a statement that finds the rows which break it.

Every verb is one transaction, so one snapshot shows no half-done work: whatever is found here is a defect or was made by
hand. The statements read whole tables; they are for ``nightdesk doctor --invariants``, not for a probe.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection

from schemas.states import FINAL_STATES, JobState, Step

SAMPLES = 5
"""Ids shown of what breaks an invariant."""

LONG_FINAL = timedelta(minutes=10)
"""Rescue closes what was left open of a job one minute after its end (``ABANDONED_AFTER``), where any worker runs."""

_STATES = sorted(state.value for state in JobState)
_FINAL = sorted(state.value for state in FINAL_STATES)


@dataclass(frozen=True, slots=True)
class Invariant:
    """One thing that must hold; ``broken`` is a query with a column ``id``, a row for each that breaks it."""

    name: str
    holds: str
    broken: str


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that does not hold: how many rows break it, and the ids of some."""

    name: str
    holds: str
    count: int
    samples: tuple[str, ...]


_JOBS = (
    Invariant(
        "job_state_known",
        "a job's state and step are known ones",
        "SELECT id FROM job WHERE state <> ALL(%(states)s) OR step <> ALL(%(steps)s)",
    ),
    Invariant(
        "job_final_iff_finished",
        "a job is in a final state if and only if it has a time of finishing",
        "SELECT id FROM job WHERE (state = ANY(%(final)s)) <> (finished_at IS NOT NULL)",
    ),
    Invariant(
        "job_outcome_iff_completed",
        "a job has an outcome if and only if it is completed",
        "SELECT id FROM job WHERE (state = 'completed') <> (outcome IS NOT NULL)",
    ),
    Invariant(
        "job_lease_iff_running",
        "a job has a lease, with its end, if and only if it is running",
        "SELECT id FROM job WHERE (state = 'running') <> (lease_token IS NOT NULL) "
        "OR (lease_token IS NULL) <> (lease_until IS NULL)",
    ),
    Invariant(
        "job_held_only_scheduled",
        "only a scheduled job is held",
        "SELECT id FROM job WHERE held_reason IS NOT NULL AND state <> 'scheduled'",
    ),
    Invariant(
        "job_published_only_final",
        "only a final job's result is published",
        "SELECT id FROM job WHERE result_published_at IS NOT NULL AND finished_at IS NULL",
    ),
    Invariant(
        "job_has_request",
        "every job has its request",
        "SELECT id FROM job j WHERE NOT EXISTS (SELECT FROM job_request r WHERE r.job_id = j.id)",
    ),
    Invariant(
        "job_has_batch",
        "every job belongs to a batch of its own tenant",
        "SELECT j.id FROM job j LEFT JOIN batch b ON b.id = j.batch_id WHERE b.id IS NULL OR b.tenant <> j.tenant",
    ),
    # Not "without gaps": bad lines keep their position, and so do jobs that an earlier submission had already.
    Invariant(
        "job_position_taken_once",
        "a position of a batch belongs to one job",
        "SELECT id FROM (SELECT id, position, count(*) OVER (PARTITION BY batch_id, position) AS n FROM job) j "
        "WHERE n > 1 OR position < 0",
    ),
    Invariant(
        "job_available_since",
        "a job that can be taken says since when",
        "SELECT id FROM job WHERE state = 'available' AND available_at IS NULL",
    ),
)

_RECORDS = (
    Invariant(
        "one_record_per_final_run",
        "a job has exactly one record for each run that became final, and none for one that did not",
        """
        SELECT j.id FROM job j LEFT JOIN LATERAL (
            SELECT count(*) FILTER (WHERE g.run BETWEEN 1 AND j.run - 1) AS earlier,
                   count(*) FILTER (WHERE g.run = j.run) AS latest,
                   count(*) FILTER (WHERE g.run NOT BETWEEN 1 AND j.run) AS others
            FROM generation_record g WHERE g.job_id = j.id
        ) r ON true
        WHERE r.earlier <> j.run - 1 OR r.others > 0
           OR r.latest <> CASE WHEN j.finished_at IS NULL THEN 0 ELSE 1 END
        """,
    ),
    Invariant(
        "record_says_what_the_job_says",
        "the record of a final run has failed if and only if the job did not complete, or was refused",
        """
        SELECT j.id FROM job j JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
        WHERE j.finished_at IS NOT NULL
          AND (j.state <> 'completed' OR j.outcome = 'refused') <> (g.status = 'failed')
        """,
    ),
    Invariant(
        "job_has_the_errors_of_its_record",
        "the errors that a final job counts are those of its record",
        """
        SELECT j.id FROM job j LEFT JOIN generation_record g
            ON g.job_id = j.id AND g.run = j.run AND j.finished_at IS NOT NULL
        WHERE coalesce(j.errors, '{}') <> coalesce(g.grounding -> 'errors', '{}')
        """,
    ),
    Invariant(
        "record_has_its_answer",
        "the answer that a record refers to is stored, and is one of its job",
        """
        SELECT g.job_id AS id FROM generation_record g LEFT JOIN completion c ON c.attempt_id = g.attempt_id
        WHERE g.attempt_id IS NOT NULL AND c.job_id IS DISTINCT FROM g.job_id
        """,
    ),
    Invariant(
        "record_has_job",
        "every record belongs to a job of its own tenant",
        """
        SELECT g.job_id AS id FROM generation_record g LEFT JOIN job j ON j.id = g.job_id
        WHERE j.id IS NULL OR j.tenant <> g.tenant
        """,
    ),
    Invariant(
        "event_run_exists",
        "every event names a run that its job has had",
        """
        SELECT e.id FROM job_event e LEFT JOIN job j ON j.id = e.job_id
        WHERE j.id IS NULL OR e.run NOT BETWEEN 1 AND j.run
        """,
    ),
)

_CALLS = (
    Invariant(
        "attempt_closed_iff_outcome",
        "an attempt is closed if and only if it has an outcome",
        "SELECT id FROM attempt WHERE (closed_at IS NULL) <> (outcome IS NULL)",
    ),
    Invariant(
        "attempt_run_exists",
        "every attempt belongs to a run that its job has had",
        """
        SELECT a.id FROM attempt a LEFT JOIN job j ON j.id = a.job_id
        WHERE j.id IS NULL OR a.run NOT BETWEEN 1 AND j.run OR a.round < 0
        """,
    ),
    Invariant(
        "no_open_attempt_of_a_job_long_final",
        "no call is open of a job that has been final for ten minutes",
        """
        SELECT a.id FROM attempt a JOIN job j ON j.id = a.job_id
        WHERE a.closed_at IS NULL AND a.provider_batch_id IS NULL
          AND j.finished_at < nightdesk_now() - %(long_final)s
        """,
    ),
    Invariant(
        "completion_has_attempt",
        "every stored answer belongs to an attempt, of the same job, run, round and purpose",
        """
        SELECT c.attempt_id AS id FROM completion c LEFT JOIN attempt a ON a.id = c.attempt_id
        WHERE a.id IS NULL
           OR (a.job_id, a.run, a.round, a.purpose) IS DISTINCT FROM (c.job_id, c.run, c.round, c.purpose)
        """,
    ),
    Invariant(
        "one_winner",
        "of the answers to one question (job, run, round and purpose) one is taken",
        """
        SELECT attempt_id AS id FROM (
            SELECT attempt_id, count(*) OVER (PARTITION BY job_id, run, round, purpose) AS n FROM completion WHERE won
        ) c WHERE n > 1
        """,
    ),
    Invariant(
        "winner_is_whole",
        "an answer that was taken came whole, by an attempt that ended well",
        """
        SELECT c.attempt_id AS id FROM completion c JOIN attempt a ON a.id = c.attempt_id
        WHERE c.won AND (a.outcome IS DISTINCT FROM 'ok' OR c.finish_reason = 'interrupted')
        """,
    ),
    Invariant(
        "verdict_in_its_own_batch",
        "what a batch remembers of a judge was said to a job of that batch, in an answer that came whole",
        """
        SELECT v.attempt_id AS id FROM judge_verdict v
        LEFT JOIN completion c ON c.attempt_id = v.attempt_id LEFT JOIN job j ON j.id = c.job_id
        WHERE j.batch_id IS DISTINCT FROM v.batch_id OR c.purpose <> 'judge' OR c.finish_reason = 'interrupted'
        """,
    ),
    # Of an erased job nothing is left of the answers nor of what was asked.
    Invariant(
        "paid_answer_is_kept",
        "an attempt that ended well has its answer stored, and one of them was taken",
        """
        SELECT a.id FROM attempt a
        WHERE a.outcome = 'ok' AND length(a.request_hash) > 0 AND (
            NOT EXISTS (SELECT FROM completion c WHERE c.attempt_id = a.id)
            OR NOT EXISTS (SELECT FROM completion c WHERE c.job_id = a.job_id AND c.run = a.run
                                                      AND c.round = a.round AND c.purpose = a.purpose AND c.won))
        """,
    ),
    Invariant(
        "answered_job_has_answer",
        "a job that waits for its check has an answer to check: its own or one that was paid for",
        """
        SELECT j.id FROM job j JOIN job_request r ON r.job_id = j.id
        WHERE j.step <> 'generate' AND j.finished_at IS NULL AND r.head ->> 'response' IS NULL
          AND NOT EXISTS (SELECT FROM completion c
                          WHERE c.job_id = j.id AND c.won AND c.purpose <> 'judge'
                            AND (c.run = j.run OR (j.recheck IS NOT NULL AND c.run < j.run)))
        """,
    ),
    Invariant(
        "shared_answer_was_paid_by_another",
        "an answer that was taken instead of a call is that of a call which another job of the tenant made for the same",
        """
        SELECT a.id FROM attempt a JOIN job j ON j.id = a.job_id
        JOIN attempt p ON p.id = a.shared_from JOIN job o ON o.id = p.job_id
        WHERE o.id = j.id OR o.tenant <> j.tenant OR p.shared_from IS NOT NULL OR p.outcome IS DISTINCT FROM 'ok'
           OR (a.request_hash <> p.request_hash AND length(a.request_hash) > 0 AND length(p.request_hash) > 0)
        """,
    ),
    Invariant(
        "erased_answer_is_not_shared",
        "no call of an erased job is there to be shared",
        "SELECT a.id FROM attempt a JOIN job j ON j.id = a.job_id WHERE a.share_key IS NOT NULL AND j.erased_at IS NOT NULL",
    ),
)

_MONEY = (
    Invariant(
        "job_cost_is_the_sum",
        "a job has cost what its attempts have cost",
        """
        SELECT j.id FROM job j
        LEFT JOIN (SELECT job_id, sum(cost_usd) AS usd FROM attempt GROUP BY job_id) a ON a.job_id = j.id
        WHERE j.cost_usd <> coalesce(a.usd, 0)
        """,
    ),
    Invariant(
        "batch_spent_is_the_sum",
        "a batch has spent what the attempts of its jobs have cost, those of pruned jobs included",
        """
        SELECT b.id FROM batch b
        LEFT JOIN (SELECT j.batch_id, sum(a.cost_usd) AS usd FROM attempt a JOIN job j ON j.id = a.job_id
                   GROUP BY j.batch_id) s ON s.batch_id = b.id
        WHERE b.spent_usd <> b.pruned_usd + coalesce(s.usd, 0)
        """,
    ),
    Invariant(
        "batch_reserved_is_the_sum",
        "a batch has reserved what the open attempts of its jobs have reserved",
        """
        SELECT b.id FROM batch b
        LEFT JOIN (SELECT j.batch_id, sum(a.reserved_usd) AS usd FROM attempt a JOIN job j ON j.id = a.job_id
                   WHERE a.closed_at IS NULL GROUP BY j.batch_id) s ON s.batch_id = b.id
        WHERE b.reserved_usd <> coalesce(s.usd, 0)
        """,
    ),
    Invariant(
        "budget_period_is_the_sum",
        "a period of a budget has reserved and spent what the attempts that name it have",
        # Of an attempt that was pruned its period still has the cost.
        """
        SELECT p.id FROM budget_period p
        LEFT JOIN (SELECT u.id, sum(a.reserved_usd) FILTER (WHERE a.closed_at IS NULL) AS reserved, sum(a.cost_usd) AS spent
                   FROM attempt a CROSS JOIN unnest(a.budget_periods) AS u(id) GROUP BY u.id) s ON s.id = p.id
        WHERE p.reserved_usd <> coalesce(s.reserved, 0) OR p.spent_usd < coalesce(s.spent, 0)
        """,
    ),
    Invariant(
        "unknown_is_charged_at_worst",
        "an attempt with an unknown outcome is charged at its reserve",
        "SELECT id FROM attempt WHERE outcome = 'unknown' AND cost_usd IS DISTINCT FROM reserved_usd",
    ),
    Invariant(
        "money_not_negative",
        "no attempt costs or reserves less than nothing",
        "SELECT id FROM attempt WHERE cost_usd < 0 OR reserved_usd < 0",
    ),
    Invariant(
        "shared_answer_is_free",
        "an answer that was taken instead of a call has cost nothing and used nothing",
        "SELECT id FROM attempt WHERE shared_from IS NOT NULL AND (outcome IS DISTINCT FROM 'ok' OR spent "
        "OR cost_usd IS DISTINCT FROM 0 OR reserved_usd <> 0 OR usage IS NOT NULL)",
    ),
)

_COUNTS = (
    Invariant(
        "counts_are_those_of_the_jobs",
        "the stored counts of a batch, which its status shows, are those of its jobs",
        """
        SELECT batch_id AS id FROM (
            SELECT batch_id, state, outcome, held_reason, unpublished, jobs FROM job_count
            UNION ALL
            SELECT batch_id, state, outcome, held_reason, finished_at IS NOT NULL AND result_published_at IS NULL, -1 FROM job
        ) c
        GROUP BY batch_id, state, outcome, held_reason, unpublished HAVING sum(jobs) <> 0
        """,
    ),
)

INVARIANTS: tuple[Invariant, ...] = (*_JOBS, *_RECORDS, *_CALLS, *_MONEY, *_COUNTS)


async def find_violations(connection: AsyncConnection[Any]) -> list[Violation]:
    """Check all invariants over a connection whose rows are named tuples."""
    parameters = {
        "states": _STATES,
        "final": _FINAL,
        "steps": [step.value for step in Step],
        "long_final": LONG_FINAL,
    }
    violations = []
    for invariant in INVARIANTS:
        statement = (
            f"SELECT count(*) AS n, (array_agg(id::text ORDER BY id::text))[1:{SAMPLES}] AS samples "
            f"FROM ({invariant.broken}) broken"
        )
        row = await (await connection.execute(statement.encode(), parameters)).fetchone()
        assert row is not None
        if row.n:
            violations.append(Violation(invariant.name, invariant.holds, int(row.n), tuple(row.samples)))
    return violations
