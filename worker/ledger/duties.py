"""The duties of dispatch: one worker leads; it promotes due jobs, and expires late ones."""

from datetime import timedelta
from uuid import UUID

from schemas.failure import FailureKind
from schemas.states import HeldReason, Step
from tasks.defaults import MAX_RESCUES
from tasks.ports import Outlook
from worker.ledger.actions import closing_statement
from worker.ledger.budgets import HAS_ROOM, BudgetRounds
from worker.ledger.call_windows import WINDOW_OVER, close_windows
from worker.ledger.database import Database, fields
from worker.ledger.fairness import FORGET_TURNS
from worker.ledger.fleet import PRESENT_FOR, known_steps
from worker.ledger.pages import (
    NOT_IN_QUARANTINE,
    change_by,
    isolate,
    paged,
    quarantine_for,
)
from worker.ledger.rescuing import rescue_lost
from worker.ledger.tenant_budgets import JOB_WAITS, PERIOD_OVER

PROMOTE_LOCK = 0x6E64_7072
REASSIGN_LOCK = 0x6E64_7361
"""Advisory lock keys: of all processes that do the same duty at once, one does it and the others pass."""

_DUE = f"""
SELECT j.id FROM job j JOIN batch b ON b.id = j.batch_id
WHERE j.state = 'scheduled' AND j.held_reason IS NULL AND j.scheduled_at <= nightdesk_now() AND NOT b.paused
  AND {NOT_IN_QUARANTINE}
ORDER BY j.scheduled_at LIMIT %(limit)s
"""

_PROMOTE = """
WITH due_job AS (
    SELECT j.id, CASE WHEN j.step = 'generate' AND b.opens_at > nightdesk_now() THEN b.opens_at END AS opens_at
    FROM job j JOIN batch b ON b.id = j.batch_id
    WHERE j.id = ANY(%(ids)b::uuid[]) AND j.state = 'scheduled' AND j.held_reason IS NULL
      AND j.scheduled_at <= nightdesk_now() AND NOT b.paused AND (SELECT pg_try_advisory_xact_lock(%(lock)s))
    ORDER BY j.id
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE job j SET state = CASE WHEN d.opens_at IS NULL THEN 'available' ELSE 'scheduled' END,
                 -- Due outside of the window of its batch: at the beginning of the next.
                 scheduled_at = coalesce(d.opens_at, j.scheduled_at),
                 available_at = CASE WHEN d.opens_at IS NULL THEN nightdesk_now() ELSE j.available_at END
FROM due_job d WHERE j.id = d.id
RETURNING j.id
"""
_PROMOTING = "promote"

_LATE = f"""
SELECT j.id, j.correction IS NOT NULL AS has_rounds FROM job j
WHERE j.deadline <= nightdesk_now() AND j.deadline IS NOT NULL AND j.finished_at IS NULL AND {NOT_IN_QUARANTINE}
ORDER BY j.deadline LIMIT %(limit)s
"""

# A row that another statement holds is left to the next tick.
_EXPIRE = closing_statement("""
    SELECT id FROM job
    WHERE id = ANY(%(ids)b::uuid[]) AND deadline <= nightdesk_now() AND finished_at IS NULL
    ORDER BY id FOR UPDATE SKIP LOCKED
""")

# A job with rounds has an answer: it returns to the best one, without a further call and without a deadline.
_SETTLE = """
WITH late_job AS (
    SELECT j.id FROM job j
    WHERE j.id = ANY(%(ids)b::uuid[]) AND j.deadline <= nightdesk_now() AND j.finished_at IS NULL
      AND jsonb_array_length(j.correction -> 'asks') > 0
    ORDER BY j.id FOR UPDATE SKIP LOCKED
), best_round AS (
    SELECT j.id, max((e.ask ->> 'round')::int2) FILTER (WHERE (e.ask ->> 'better')::bool) AS round
    FROM job j CROSS JOIN LATERAL jsonb_array_elements(j.correction -> 'asks') AS e(ask)
    WHERE j.id = ANY (ARRAY(SELECT id FROM late_job)) AND j.correction ->> 'given_up' IS NULL
    GROUP BY j.id
), settled_job AS (
    UPDATE job j
    SET state = 'available', round = b.round, deadline = NULL, available_at = nightdesk_now(), held_reason = NULL,
        step = CASE WHEN (r.head #> '{config,checkers}') @> '["local"]' THEN 'local' ELSE 'check' END,
        correction = j.correction || jsonb_build_object(
            'given_up', 'the deadline passed', 'previous', '', 'problems', '[]'::jsonb, 'asks', (
                SELECT jsonb_agg(e.ask || jsonb_build_object('won', (e.ask ->> 'round')::int2 = b.round) ORDER BY e.at)
                FROM jsonb_array_elements(j.correction -> 'asks') WITH ORDINALITY AS e(ask, at))),
        needs_usd = NULL, limited_ms = NULL, rescues = 0,
        lease_token = NULL, lease_until = NULL, worker = NULL
    FROM best_round b JOIN job_request r ON r.job_id = b.id
    WHERE j.id = b.id
    RETURNING j.id, j.run
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor) SELECT id, run, 'deadline', 'dispatch' FROM settled_job
), returning_job AS (
    -- On its way back to its best answer already.
    UPDATE job SET deadline = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM late_job)) AND id <> ALL (ARRAY(SELECT id FROM best_round))
    RETURNING id
)
SELECT id FROM settled_job UNION ALL SELECT id FROM returning_job
"""
_EXPIRED = {
    "state": "expired",
    "event": "expire",
    "actor": "dispatch",
    "message": "the deadline passed",
    "kind": FailureKind.EXPIRED.value,
}
_EXPIRING = "expire"

# Whoever asks knows the workers of some seconds ago: the ledger looks again.
_REASSIGN = """
WITH unserved_job AS (
    SELECT id FROM job
    WHERE state = 'available' AND step = %(step)s AND available_at <= nightdesk_now() - %(wait)s
      AND (SELECT pg_try_advisory_xact_lock(%(lock)s))
      AND NOT EXISTS (SELECT FROM worker WHERE %(step)s = ANY (steps) AND seen_at > nightdesk_now() - %(present_for)s)
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), moved_job AS (
    UPDATE job j SET step = %(to)s
    WHERE j.id = ANY (ARRAY(SELECT id FROM unserved_job))
    RETURNING j.id, j.run
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, 'unserved', 'dispatch', jsonb_build_object('step', %(step)s::text, 'to', %(to)s::text) FROM moved_job
)
SELECT id FROM moved_job
"""

# Changes that commit meanwhile stay beside the sums. A batch is one fold's, by the lock on all of its rows.
_FOLD = """
WITH old_row AS (
    DELETE FROM job_count WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM job_count WHERE folded = ANY ('{false,true}') AND batch_id IN (
            SELECT batch_id FROM (SELECT batch_id FROM job_count WHERE NOT folded LIMIT %(rows)s) c)
        FOR UPDATE SKIP LOCKED))
    RETURNING *
), new_row AS (
    INSERT INTO job_count (batch_id, state, outcome, held_reason, unpublished, jobs, folded)
    SELECT batch_id, state, outcome, held_reason, unpublished, sum(jobs), true FROM old_row
    GROUP BY 1, 2, 3, 4, 5 HAVING sum(jobs) <> 0
), settled_batch AS (
    SELECT batch_id FROM old_row GROUP BY batch_id
    HAVING coalesce(sum(jobs) FILTER (WHERE state IN ('available', 'pending', 'running', 'scheduled')), 0) = 0
), callback_due AS (
    -- The look for settled batches goes by the rows that this one takes away.
    UPDATE callback SET next_at = nightdesk_now()
    WHERE batch_id IN (SELECT batch_id FROM settled_batch) AND settled_at IS NULL AND ended_at IS NULL
)
SELECT count(*) AS rows FROM old_row
"""

FOLD_FROM = 500
"""Rows of changed counts before they are folded: a status reads this many more at the most, in less than a millisecond."""

REFRESH_ROWS, GROWN_ROWS = 1_000, 50_000
"""Changed rows after which the statistics of a table that had none are refreshed, and from how many on that is left to autovacuum."""

_GROWING_TABLES = (
    "{batch,job,job_request,job_count,attempt,completion,judge_verdict,generation_record,provider_batch_call}"
)

# Autovacuum looks once a minute at best, in which a table grows from nothing to 50,000 rows. A planner that takes it for empty
# reads all of it where it would read a row by its key. Of another owner's tables the statistics can't be refreshed; large ones are
# described well enough until autovacuum comes.
OUTGROWN = f"""(
    SELECT relname FROM pg_class
    WHERE oid = ANY ('{_GROWING_TABLES}'::regclass[]) AND reltuples < {GROWN_ROWS}
      AND pg_stat_get_mod_since_analyze(oid) > {REFRESH_ROWS} + greatest(reltuples, 0)
      AND pg_has_role(relowner, 'USAGE')
) g"""

# The lease is written when it is free, ran out, or is half over; otherwise this only reads. A lease that ends far in the
# future was written before the database's clock was set back. A worker that reaches Redis takes over from one that does not.
_ATTEND = f"""
WITH lead AS (
    UPDATE dispatch SET leader = %(worker)s, leads_until = nightdesk_now() + %(lead_for)s,
                        leader_has_broker = coalesce(%(broker)s::boolean, true)
    WHERE %(may_lead)s AND (leads_until IS NULL OR leads_until <= nightdesk_now()
       OR leads_until > nightdesk_now() + 2 * %(lead_for)s
       OR (leader = %(worker)s AND (leads_until <= nightdesk_now() + %(lead_for)s / 2
                                    OR leader_has_broker IS DISTINCT FROM coalesce(%(broker)s::boolean, true)))
       OR (%(broker)s::boolean AND NOT leader_has_broker))
    RETURNING leader
), lead_state AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM lead) OR coalesce(leader = %(worker)s AND leads_until > nightdesk_now(), false) AS leads,
           check_behind, leader_has_broker, republish_until IS NOT NULL AS republishing
    FROM dispatch
)
SELECT s.leads, now() - pg_postmaster_start_time() AS server_age, s.check_behind,
    NOT s.leader_has_broker AS without_broker,
    ARRAY(SELECT t.step FROM unnest(%(steps)s::text[]) AS t(step)
          WHERE EXISTS (SELECT FROM job j WHERE j.state = 'available' AND j.step = t.step)) AS available,
    s.leads AND s.republishing AS republishing,
    s.leads AND EXISTS (SELECT FROM job j WHERE j.finished_at IS NOT NULL AND j.result_published_at IS NULL
                        AND j.finished_at <= nightdesk_now() - %(older_than)s) AS unpublished,
    s.leads AND EXISTS (SELECT FROM job j WHERE j.state = 'scheduled' AND j.held_reason IS NULL
                        AND j.scheduled_at <= nightdesk_now() AND {NOT_IN_QUARANTINE}) AS due,
    s.leads AND (EXISTS (SELECT FROM batch b WHERE b.least_needed_usd IS NOT NULL
                         AND (b.hold_from IS NOT NULL OR {HAS_ROOM})) OR {PERIOD_OVER} OR {JOB_WAITS}) AS unsettled,
    s.leads AND {WINDOW_OVER} AS window_over,
    s.leads AND EXISTS (SELECT FROM job_count WHERE NOT folded OFFSET %(fold_from)s) AS unfolded,
    s.leads AND EXISTS (SELECT FROM {OUTGROWN}) AS outgrown,
    s.leads AND EXISTS (SELECT FROM job j WHERE j.deadline IS NOT NULL AND j.finished_at IS NULL
                        AND j.deadline <= nightdesk_now()) AS late,
    s.leads AND (EXISTS (SELECT FROM job j WHERE j.state = 'running' AND j.lease_until < nightdesk_now())
        OR EXISTS (SELECT FROM attempt a JOIN job j ON j.id = a.job_id
                   WHERE a.closed_at IS NULL AND a.provider_batch_id IS NULL AND j.finished_at IS NOT NULL)) AS lost,
    CASE WHEN s.leads THEN (SELECT count(*) FROM (
        SELECT FROM job j WHERE j.state = 'available' AND j.step IN ('check', 'local') LIMIT %(check_backlog)s + 1
    ) b) END AS checks
FROM lead_state s
"""

_URGENT_WAITS = """
SELECT EXISTS (
    SELECT FROM unnest(ARRAY['generate', 'check']) AS t(step)
    WHERE EXISTS (
        SELECT FROM job j WHERE j.state = 'available' AND j.step = t.step AND j.priority > 0
          AND j.available_at < nightdesk_now() - %(older_than)s
    )
) AS waits
"""

_RESIGN = "UPDATE dispatch SET leads_until = NULL WHERE leader = %(worker)s"

_NOTE_CHECK_BEHIND = "UPDATE dispatch SET check_behind = %(behind)s WHERE check_behind <> %(behind)s"


class PostgresDuties:
    """Statements of the worker that leads, each under an advisory lock of its own: each changes due jobs, at most ``limit`` of them."""

    def __init__(self, database: Database, shares: str) -> None:
        self._db = database
        self._shares = shares
        self._budgets = BudgetRounds(database)

    async def promote(self, limit: int) -> int:
        """Make due, unheld scheduled jobs available; returns how many."""
        due = await self._db.column(_DUE, {"limit": limit, "duty": _PROMOTING})
        change, refuse = change_by(self._db, _PROMOTE, {"lock": PROMOTE_LOCK}), quarantine_for(self._db, _PROMOTING)
        return sum([len(await isolate(page, change, refuse)) for page in paged(due)])

    async def expire(self, limit: int) -> list[UUID]:
        """Finish jobs past their deadline as ``expired`` with a record; returns their ids.

        One that was asked again has an answer: it returns to the check of its best one, and loses its deadline.
        """
        late = await self._db.rows(_LATE, {"limit": limit, "duty": _EXPIRING})
        settle, expire = change_by(self._db, _SETTLE, {}), change_by(self._db, _EXPIRE, _EXPIRED)
        refuse = quarantine_for(self._db, _EXPIRING)
        rounds = [row.id for row in late if row.has_rounds]
        settled = {job_id for page in paged(rounds) for job_id in await isolate(page, settle, refuse)}
        rest = [row.id for row in late if row.id not in settled]
        return [job_id for page in paged(rest) for job_id in await isolate(page, expire, refuse)]

    async def reassign(self, step: Step, to: Step, wait: timedelta, limit: int) -> list[UUID]:
        """Leave jobs that were available for a step for so long to another one, with an event ``unserved``; returns the ids.

        None while a worker is known to serve the step.
        """
        parameters = {
            "step": step.value,
            "to": to.value,
            "wait": wait,
            "limit": limit,
            "lock": REASSIGN_LOCK,
            "present_for": PRESENT_FOR,
        }
        return await self._db.column(_REASSIGN, parameters)

    async def attend(
        self,
        worker: str,
        lead_for: timedelta,
        publish_after: timedelta,
        check_backlog: int,
        *,
        broker: bool | None = None,
        may_lead: bool = True,
    ) -> Outlook:
        """Take or renew the lead of the duties if it is free or this worker's; returns which duties have work.

        Args:
            worker: its name.
            lead_for: how long it leads unless it attends again.
            publish_after: how old a final job is before its result counts as unpublished.
            check_backlog: answers that may wait for their check before no more are to be generated.
            broker: whether this worker reaches Redis, if it knows. One that does takes over from one that does not.
            may_lead: False: only returns what there is to know.
        """
        parameters = {
            "worker": worker,
            "lead_for": lead_for,
            "broker": broker,
            "may_lead": may_lead,
            "older_than": publish_after,
            "check_backlog": check_backlog,
            "steps": [step.value for step in Step],
            "duty": "promote",
            "fold_from": FOLD_FROM,
        }
        (row,) = await self._db.rows(_ATTEND, parameters)
        behind = row.check_behind
        if row.leads and (row.checks > check_backlog) != behind:
            behind = not behind
            await self._db.rows(_NOTE_CHECK_BEHIND, {"behind": behind})
        return Outlook(
            **fields(
                row, "leads", "server_age", "due", "unsettled", "window_over", "unfolded", "outgrown", "late", "lost"
            ),
            **fields(row, "unpublished", "republishing"),
            check_behind=behind,
            without_broker=bool(row.without_broker) and not row.leads,
            available=known_steps(row.available),
        )

    async def urgent_waits(self, older_than: timedelta) -> bool:
        """True if an urgent job was available for so long."""
        return bool(await self._db.value(_URGENT_WAITS, {"older_than": older_than}))

    async def resign(self, worker: str) -> None:
        """Let another worker lead at once, if this one does."""
        await self._db.rows(_RESIGN, {"worker": worker})

    async def close_windows(self) -> int:
        """Note the next window of batches whose window is over, and have their jobs wait for it; returns how many jobs.

        No call begins outside of a window in any case; this keeps jobs from being leased only to learn so.
        """
        return await close_windows(self._db)

    async def settle_budgets(self, rows: int) -> int:
        """Let jobs go on that wait for money, as far as there is some; returns how many jobs were changed.

        In a batch without money hold those that did not begin, ``rows`` at a time: no call of theirs could be paid for.
        Closing an attempt lets jobs go on by itself; this is for what a crash left undone.
        """
        return await self._budgets.settle(rows)

    async def refresh_statistics(self) -> list[str]:
        """Have the database count again the tables that have more than doubled since it did; returns their names."""
        tables = await self._db.column(f"SELECT relname AS name FROM {OUTGROWN} ORDER BY 1")
        if tables:
            # Of the ledger's own tables: no name comes from outside.
            await self._db.rows(f"ANALYZE (SKIP_LOCKED) {', '.join(tables)}")
        return tables

    async def fold_counts(self, rows: int) -> int:
        """Sum up changes of the batches' counts, from about so many; no count differs. Returns how many rows it read."""
        return int(await self._db.value(_FOLD, {"rows": rows}))

    async def forget_turns(self) -> None:
        """Delete the turns of tenants that have nothing to wait for."""
        await self._db.rows(FORGET_TURNS, {"shares": self._shares})

    async def rescue(self, limit: int, unknown_reason: HeldReason | None, max_rescues: int = MAX_RESCUES) -> list[UUID]:
        """Take jobs whose lease ran out from their holders.

        Closes their open attempts as ``unknown`` and makes the jobs available, or holds those that had an open
        attempt when ``unknown_reason`` is given. A job without an answer that was rescued ``max_rescues`` times in this
        step and round fails instead (one with an answer, ``LAST_RESCUES`` later: its worker ends it before that).
        Returns the job ids. Closes also what a worker that died left open of
        jobs that have been final for a minute (cancelled or expired during a call).
        """
        return await rescue_lost(self._db, limit, unknown_reason, max_rescues)
