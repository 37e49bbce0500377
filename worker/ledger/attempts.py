"""Opens attempts before their calls and closes them after: where money, answers and progress are written."""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson

from schemas.states import JobState
from tasks.calls.response_cache import MOST_FAILED
from tasks.errors import LedgerError, LedgerUnavailable
from tasks.ports import (
    ClosedAttempt,
    NewAttempt,
    OnLost,
    Opened,
)
from worker.ledger.budgets import HAS_ROOM_NOW, fund
from worker.ledger.database import Database, First, Store, arrays, columns_of
from worker.ledger.packing import split_completion
from worker.ledger.pages import lock_batches, lock_periods, pay_periods
from worker.ledger.tenant_budgets import HAS_LINE, OWNERS_WITH_ROOM, Owner, fund_owner
from worker.settings import worker_name

# Of a row d that has terms for sharing, and its job j: the newest answer that it may take.
SHAREABLE = """
    SELECT a.id AS from_id, a.job_id AS from_job, a.closed_at AS answered_at, c.finish_reason, c.parsed, c.frame
    FROM attempt a JOIN completion c ON c.attempt_id = a.id JOIN job o ON o.id = a.job_id
    WHERE a.share_key = d.share_key AND a.outcome = 'ok' AND a.closed_at > nightdesk_now() - d.share_within
      AND c.won AND c.finish_reason = 'stop' AND o.tenant = j.tenant
    ORDER BY a.closed_at DESC LIMIT 1
"""

# Of the same: since when a call is under way that it may wait for. Where one was answered, what came can't be taken
# (it was refused, or cut off), or it would have been.
UNDER_WAY = f"""
    SELECT min(a.opened_at) FILTER (WHERE a.closed_at IS NULL AND a.provider_batch_id IS NULL
                                      AND a.opened_at > nightdesk_now() - d.share_wait) AS since
    FROM attempt a JOIN job o ON o.id = a.job_id
    WHERE a.share_key = d.share_key AND a.job_id <> j.id AND o.tenant = j.tenant
      AND d.share_wait > interval '0' AND (j.deadline IS NULL OR j.deadline > nightdesk_now() + d.share_wait)
      AND (a.closed_at IS NULL OR a.closed_at > nightdesk_now() - d.share_within)
    HAVING count(*) FILTER (WHERE a.closed_at IS NULL AND a.provider_batch_id IS NULL
                              AND a.opened_at > nightdesk_now() - d.share_wait) > 0
       AND count(*) FILTER (WHERE a.outcome = 'ok') = 0
       AND count(*) FILTER (WHERE a.spent OR a.outcome = 'unknown') < {MOST_FAILED}
"""


_LOCK = """
WITH identical AS MATERIALIZED (SELECT pg_advisory_xact_lock(key) FROM unnest(%(keys)b::int8[]) AS key)
SELECT FROM job WHERE id = ANY(%(jobs)b::uuid[]) AND (SELECT count(*) FROM identical) IS NOT NULL
ORDER BY id FOR NO KEY UPDATE
"""


log = logging.getLogger(__name__)

# Its stages:
#   input, window_now, leased_call     the calls to open; what forbids each: lease lost, answered, a call like it, window closed
#   room ... allotment                 the money of each batch and budget, and which calls fit into it, in order
#   allocation ... held_job            what fits; what does not, and whether its job waits for money
#   started_job ... new_attempt        what is written for a call that fits; the last SELECT says what became of each
_OPEN = (
    """
WITH RECURSIVE input AS (
    -- Repeated: an earlier try wrote it, and its commit was not confirmed.
    SELECT d.*, EXISTS (SELECT FROM attempt a WHERE a.id = d.id) AS repeated
    FROM unnest(%(id)b::uuid[], %(job_id)b::uuid[], %(batch_id)b::uuid[], %(token)b::uuid[], %(run)b::int2[],
                         %(round)b::int2[], %(purpose)b::text[], %(number)b::int2[], %(lane)b::text[],
                         %(provider)b::text[], %(model)b::text[], %(request_hash)b::bytea[], %(reserved_usd)b::numeric(14,8)[],
                         %(share_key)b::bytea[], %(share_within)b::interval[], %(share_wait)b::interval[],
                         %(required)b::bool[])
    WITH ORDINALITY
    AS d(id, job_id, batch_id, token, run, round, purpose, number, lane, provider, model, hash, reserve,
         share_key, share_within, share_wait, required, ord)
), window_now AS MATERIALIZED (
    -- Once a batch, not once a call.
    SELECT b.id, CASE WHEN b.closes_at <= nightdesk_now() THEN b.reopens_at ELSE b.opens_at END AS opens_at
    FROM batch b WHERE b.id = ANY(%(batch_id)b::uuid[]) AND (b.opens_at IS NOT NULL OR b.closes_at IS NOT NULL)
), leased_call AS (
    SELECT d.*, j.needs_usd, j.tenant, j.key_id,
           EXISTS (SELECT FROM completion c WHERE c.job_id = d.job_id AND c.run = d.run AND c.round = d.round
                                              AND c.purpose = d.purpose AND c.won) AS answered,
           CASE WHEN d.share_key IS NULL THEN false ELSE EXISTS ("""
    + SHAREABLE
    + """) OR EXISTS ("""
    + UNDER_WAY
    + """)
           END AS duplicate,
           -- What is in the midst of a call may end.
           coalesce(w.opens_at > nightdesk_now(), false) AND NOT EXISTS (
               SELECT FROM attempt a WHERE a.job_id = d.job_id AND a.lease_token = d.token AND a.closed_at IS NULL) AS closed,
           w.opens_at
    FROM input d JOIN job j ON j.id = d.job_id AND j.lease_token = d.token AND j.state = 'running'
                           AND j.lease_until > nightdesk_now()
    LEFT JOIN window_now w ON w.id = d.batch_id
    -- Of a rescue, a cancel and this one goes first; the others see what it did.
    ORDER BY j.id FOR NO KEY UPDATE OF j
), room AS ("""
    + lock_batches(
        "SELECT batch_id FROM leased_call WHERE NOT (answered OR repeated OR duplicate OR closed) AND reserve > 0",
        "b.id, b.max_cost_usd - b.reserved_usd - b.spent_usd AS usd",
    )
    + """
), period AS ("""
    + lock_periods(
        """p.live AND p.begins_at <= nightdesk_now() AND p.tenant = ANY (ARRAY(
            SELECT tenant FROM leased_call WHERE NOT (answered OR repeated OR duplicate OR closed) AND reserve > 0))
           AND (p.key_id IS NULL OR p.key_id = ANY (ARRAY(SELECT key_id FROM leased_call)))""",
        "room",
        # One that is over, while no later one is known, has nothing left.
        "p.id, p.budget_id, p.ends_at, p.tenant, p.key_id, CASE WHEN p.ends_at > nightdesk_now() "
        "THEN p.max_cost_usd - p.reserved_usd - p.spent_usd ELSE 0 END AS usd, p.short AND "
        + HAS_LINE
        + " AS has_line",
    )
    + """
), candidate_call AS (
    SELECT o.*, o.needs_usd IS NULL AND o.purpose = 'generate' AND o.round = 0 AS is_new FROM leased_call o WHERE NOT (o.answered OR o.repeated OR o.duplicate OR o.closed)
), ceiling AS (
    -- Those of each call: of its batch, and of the periods of its tenant and of its key. Where a line waits for these, a new job joins
    -- it: else what the first one waits for would be taken by whoever comes. In a batch those that did not begin are held with it.
    SELECT c.id, c.ord, c.reserve, r.id AS ceiling_id, r.usd, true AS of_batch, false AS of_key
    FROM candidate_call c JOIN room r ON r.id = c.batch_id WHERE c.reserve > 0 AND r.usd IS NOT NULL
    UNION ALL
    SELECT c.id, c.ord, c.reserve, p.id, CASE WHEN c.is_new AND p.has_line THEN 0 ELSE p.usd END, false, p.key_id IS NOT NULL
    FROM candidate_call c JOIN period p ON p.tenant = c.tenant AND (p.key_id IS NULL OR p.key_id = c.key_id) WHERE c.reserve > 0
), short_ceiling AS (
    SELECT ceiling_id, usd, row_number() OVER (ORDER BY ceiling_id) AS number
    FROM ceiling GROUP BY ceiling_id, usd HAVING sum(reserve) > usd
), competing_call AS (
    SELECT c.id, c.reserve, row_number() OVER (ORDER BY c.ord) AS place, array_agg(s.number) AS numbers,
           min(s.number) FILTER (WHERE c.of_batch) AS batch_number, array_agg(s.number) FILTER (WHERE c.of_key) AS key_numbers
    FROM ceiling c JOIN short_ceiling s ON (s.ceiling_id, s.usd) = (c.ceiling_id, c.usd) GROUP BY c.id, c.ord, c.reserve
), allotment AS (
    -- Where there is no room for all, one after the other, from all ceilings or none: what does not fit leaves its room to
    -- the next.
    SELECT 0::bigint AS place, NULL::uuid AS id, ARRAY(SELECT usd FROM short_ceiling ORDER BY number) AS rooms, false AS fits,
           false AS fits_batch, false AS fits_key
    WHERE EXISTS (SELECT FROM short_ceiling)
    UNION ALL
    SELECT r.place, r.id,
           CASE WHEN e.fits THEN ARRAY(
               SELECT CASE WHEN n = ANY (r.numbers) THEN usd - r.reserve ELSE usd END
               FROM unnest(f.rooms) WITH ORDINALITY AS left_over(usd, n) ORDER BY n) ELSE f.rooms END,
           e.fits, r.batch_number IS NULL OR f.rooms[r.batch_number] >= r.reserve,
           NOT EXISTS (SELECT FROM unnest(r.key_numbers) AS n WHERE f.rooms[n] < r.reserve)
    FROM allotment f JOIN competing_call r ON r.place = f.place + 1
    CROSS JOIN LATERAL (SELECT NOT EXISTS (
        SELECT FROM unnest(r.numbers) AS n WHERE f.rooms[n] < r.reserve) AS fits) e
), allocation AS (
    SELECT a.*, coalesce(f.fits, true) AS fits, coalesce(f.fits_batch, true) AS fits_batch,
           coalesce(f.fits_key, true) AS fits_key
    FROM candidate_call a LEFT JOIN allotment f ON f.id = a.id
), refused_call AS (
    -- A second round has an answer already: its worker goes on with that one. So it does without a call that is not required.
    SELECT f.* FROM allocation f
    WHERE NOT f.fits AND f.required AND f.purpose IN ('generate', 'judge')
      AND NOT EXISTS (SELECT FROM allocation o WHERE o.job_id = f.job_id AND o.fits)
      AND NOT EXISTS (SELECT FROM attempt a
                      WHERE a.job_id = f.job_id AND a.lease_token = f.token AND a.closed_at IS NULL)
), on_hold AS (
    SELECT job_id, CASE WHEN NOT fits_batch THEN 'budget' WHEN NOT fits_key THEN 'key_budget' ELSE 'tenant_budget' END AS held_reason,
           reserve AS needs_usd,
           nightdesk_now() AS scheduled_at, ARRAY(
               -- The budgets that refused it; one that is over bounds nothing any more.
               SELECT p.budget_id FROM allotment f CROSS JOIN short_ceiling s
               JOIN ceiling c ON c.id = f.id AND (c.ceiling_id, c.usd) = (s.ceiling_id, s.usd) JOIN period p ON p.id = c.ceiling_id
               WHERE f.id = r.id AND f.rooms[s.number] < c.reserve AND p.ends_at > nightdesk_now()) AS short_of
    FROM refused_call r
    UNION ALL
    -- Outside of the window of its batch a job waits for the next one.
    SELECT DISTINCT job_id, NULL, NULL::numeric, opens_at, NULL::uuid[] FROM leased_call
    WHERE closed AND NOT (answered OR repeated OR duplicate)
), held_job AS (
    -- One update for both: each opens every index of the jobs, also where nothing is held.
    UPDATE job j SET state = 'scheduled', held_reason = h.held_reason, needs_usd = h.needs_usd, scheduled_at = h.scheduled_at,
                     short_of = h.short_of, lease_token = NULL, lease_until = NULL, worker = NULL
    FROM on_hold h WHERE j.id = h.job_id
    RETURNING j.id, j.run, j.batch_id, j.needs_usd, j.held_reason, j.scheduled_at
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, CASE WHEN held_reason IS NULL THEN 'window' ELSE 'budget' END, 'worker',
           CASE WHEN held_reason IS NULL THEN jsonb_build_object('opens_at', scheduled_at)
                ELSE jsonb_build_object('held_reason', held_reason, 'needs_usd', needs_usd) END
    FROM held_job
), started_job AS (
    -- What was promised to it is reserved now.
    UPDATE job j SET needs_usd = NULL FROM allocation f WHERE f.fits AND f.needs_usd IS NOT NULL AND j.id = f.job_id
), reservation AS (
    UPDATE batch b SET reserved_usd = b.reserved_usd + s.usd, least_needed_usd = least(b.least_needed_usd, s.least_usd),
                       hold_from = CASE WHEN b.least_needed_usd IS NULL AND s.least_usd IS NOT NULL THEN 0
                                        ELSE b.hold_from END
    FROM (SELECT batch_id, coalesce(sum(reserve) FILTER (WHERE fits), 0) AS usd,
                 min(reserve) FILTER (WHERE job_id IN (SELECT id FROM held_job WHERE held_reason = 'budget')) AS least_usd
          FROM allocation WHERE reserve > 0 GROUP BY batch_id) s
    WHERE b.id = s.batch_id AND (s.usd > 0 OR s.least_usd IS NOT NULL)
), period_reservation AS (
    UPDATE budget_period p SET reserved_usd = p.reserved_usd + s.usd, short = p.short OR s.refused
    FROM (SELECT c.ceiling_id, coalesce(sum(c.reserve) FILTER (WHERE a.fits), 0) AS usd,
                 bool_or(a.job_id IN (SELECT id FROM held_job WHERE held_reason IN ('key_budget', 'tenant_budget')))
                     AND c.ceiling_id IN (SELECT ceiling_id FROM short_ceiling) AS refused
          FROM ceiling c JOIN allocation a ON a.id = c.id WHERE NOT c.of_batch GROUP BY c.ceiling_id) s
    WHERE p.id = s.ceiling_id AND (s.usd > 0 OR s.refused)
), new_attempt AS (
    INSERT INTO attempt (id, job_id, run, round, purpose, number, lane, provider, model, request_hash, lease_token,
                         reserved_usd, share_key, budget_periods)
    SELECT id, job_id, run, round, purpose, number, lane, provider, model, hash, token, reserve, share_key,
           CASE WHEN reserve > 0 THEN nullif(ARRAY(
               SELECT p.id FROM period p WHERE p.tenant = a.tenant AND (p.key_id IS NULL OR p.key_id = a.key_id)), '{}') END
    FROM allocation a WHERE fits
    RETURNING id
)
SELECT CASE WHEN p.id IS NOT NULL OR o.repeated THEN 'opened' WHEN d.repeated THEN 'stale' WHEN o.id IS NULL THEN 'lost'
            WHEN o.answered THEN 'answered' WHEN o.duplicate THEN 'duplicate'
            WHEN d.job_id IN (SELECT id FROM held_job) THEN 'on_hold' ELSE 'over_budget' END AS status
FROM input d LEFT JOIN leased_call o ON o.id = d.id LEFT JOIN new_attempt p ON p.id = d.id
ORDER BY d.ord
"""
)

_CLOSE = (
    """
WITH input AS (
    SELECT * FROM unnest(%(id)b::uuid[], %(job_id)b::uuid[], %(token)b::uuid[], %(step)b::text[], %(outcome)b::text[],
                         %(spent)b::bool[], %(request_id)b::text[], %(usage)b::jsonb[], %(cost_usd)b::numeric(14,8)[],
                         %(timing)b::jsonb[], %(failure)b::jsonb[], %(finish)b::text[],
                         %(parsed)b::jsonb[], %(prompt)b::jsonb[], %(frame)b::bytea[], %(next_state)b::text[], %(next_step)b::text[],
                         %(next_round)b::int2[], %(delay)b::interval[], %(next_held)b::text[], %(event)b::text[])
    AS d(id, job_id, token, step, outcome, spent, request_id, usage, cost, timing, failure, finish, parsed, prompt, frame,
         next_state, next_step, next_round, delay, next_held, event)
), closing AS (
    -- One row a closing, by index.
    SELECT d.*, a.run, a.round, a.purpose, j.batch_id, a.budget_periods,
           -- Only what is open, or closed as unknown and now known, changes: closing again is harmless.
           a.closed_at IS NULL OR (a.outcome = 'unknown' AND d.outcome <> 'unknown') AS changes,
           -- What a stream brought before its worker lost the lease comes after the rescue closed the attempt.
           a.outcome = 'unknown' AND d.outcome = 'unknown'
               AND NOT EXISTS (SELECT FROM completion c WHERE c.attempt_id = a.id) AS leaves,
           -- Nor does the answer of a model without a price, or with tokens that do not add up, come free under a ceiling.
           CASE WHEN d.outcome = 'unknown' THEN a.reserved_usd ELSE coalesce(d.cost, nullif(a.reserved_usd, 0)) END AS charge,
           CASE WHEN a.closed_at IS NULL THEN coalesce(a.reserved_usd, 0) ELSE 0 END AS released_usd,
           coalesce(a.cost_usd, 0) AS charged_before_usd,
           d.next_state IS NOT NULL AND j.step = d.step
               AND ((j.state = 'running' AND j.lease_token = d.token)
                    -- Of a parked call: its job waits for this attempt alone.
                    OR (j.state = 'pending' AND (j.run, j.round, d.token) = (a.run, a.round, a.lease_token)
                        AND NOT EXISTS (SELECT FROM attempt n WHERE n.job_id = a.job_id AND n.run = a.run
                                                                AND n.opened_at > a.opened_at AND n.closed_at IS NULL))) AS moves,
           d.next_state = 'running' AND j.state = 'pending' AS leases,
           -- An answer that came before counts: the job goes on with it, whatever became of this call.
           EXISTS (SELECT FROM completion c WHERE c.job_id = a.job_id AND c.run = a.run AND c.round = a.round
                                              AND c.purpose = a.purpose AND c.won) AS has_winner,
           -- The answer that the job is held for.
           a.outcome = 'unknown' AND d.outcome = 'ok' AND j.state = 'scheduled' AND j.held_reason = 'unknown_outcome'
               AND (j.run, j.round, j.step) = (a.run, a.round, d.step) AS frees,
           -- However late an answer comes: of a job that was erased its cost is kept, and no word of it.
           j.erased_at IS NOT NULL AS erased
    FROM input d JOIN attempt a ON a.id = d.id JOIN job j ON j.id = a.job_id
    ORDER BY j.id FOR NO KEY UPDATE OF j, a
), settlement AS (
    SELECT *, CASE WHEN changes THEN coalesce(charge, 0) - charged_before_usd ELSE 0 END AS spent_usd,
           moves AND next_state = 'running' AND NOT has_winner AS keeps,
           CASE WHEN next_state = 'running' AND has_winner THEN 'available' ELSE next_state END AS new_state
    FROM closing
), closed_attempt AS (
    UPDATE attempt a SET closed_at = nightdesk_now(), outcome = e.outcome, spent = e.spent, usage = e.usage,
                         provider_request_id = e.request_id, cost_usd = e.charge, timing_ms = e.timing,
                         failure = CASE WHEN e.erased THEN e.failure || '{"message": "[erased]"}' ELSE e.failure END
    FROM settlement e WHERE a.id = e.id AND e.changes
), new_completion AS (
    INSERT INTO completion (attempt_id, job_id, run, round, purpose, won, finish_reason, parsed, prompt, frame)
    SELECT e.id, e.job_id, e.run, e.round, e.purpose,
           e.outcome = 'ok' AND NOT e.has_winner, e.finish, e.parsed, e.prompt, e.frame
    FROM settlement e WHERE (e.changes OR e.leaves) AND e.parsed IS NOT NULL AND NOT e.erased
    -- The whole answer, late, takes the place of the part that a broken stream left.
    ON CONFLICT (attempt_id) DO UPDATE
    SET won = excluded.won, stored_at = nightdesk_now(), finish_reason = excluded.finish_reason,
        parsed = excluded.parsed, prompt = excluded.prompt, frame = excluded.frame
), batch_sum AS (
    SELECT batch_id, sum(released_usd) AS released, sum(spent_usd) AS spent
    FROM settlement WHERE changes GROUP BY batch_id
), locked_batch AS ("""
    + lock_batches("SELECT batch_id FROM batch_sum WHERE released <> 0 OR spent <> 0")
    + """
), paid_batch AS (
    UPDATE batch b SET reserved_usd = b.reserved_usd - d.released, spent_usd = b.spent_usd + d.spent
    FROM locked_batch p JOIN batch_sum d ON d.batch_id = p.id
    WHERE b.id = p.id
    RETURNING b.id, """
    + HAS_ROOM_NOW
    + """ AS has_room
), """
    + pay_periods(
        "SELECT p.id, e.released_usd, e.spent_usd FROM settlement e CROSS JOIN unnest(e.budget_periods) AS p(id) WHERE e.changes",
        "locked_batch",
    )
    + """
    RETURNING p.tenant, p.key_id, p.max_cost_usd - p.reserved_usd - p.spent_usd AS usd, p.reserved_usd
), moved_job AS (
    UPDATE job j
    SET cost_usd = j.cost_usd + m.spent_usd,
        state = CASE WHEN m.moves THEN m.new_state WHEN m.frees AND NOT p.paused THEN 'available' ELSE j.state END,
        step = CASE WHEN m.moves THEN m.next_step ELSE j.step END,
        round = CASE WHEN m.moves THEN m.next_round ELSE j.round END,
        scheduled_at = CASE WHEN m.moves AND m.next_state = 'scheduled' THEN nightdesk_now() + m.delay
                            ELSE j.scheduled_at END,
        -- In a batch that is paused a job goes on only when the batch does.
        held_reason = CASE WHEN m.moves THEN m.next_held WHEN m.frees AND p.paused THEN 'batch_paused'
                           WHEN m.frees THEN NULL ELSE j.held_reason END,
        available_at = CASE WHEN m.frees OR (m.moves AND m.new_state = 'available') THEN nightdesk_now()
                            ELSE j.available_at END,
        limited_ms = CASE WHEN m.moves AND m.next_step <> j.step THEN NULL ELSE j.limited_ms END,
        rescues = CASE WHEN m.moves AND (m.next_step, m.next_round) <> (j.step, j.round) THEN 0 ELSE j.rescues END,
        lease_token = CASE WHEN m.moves AND NOT m.keeps THEN NULL WHEN m.moves AND m.leases THEN m.token
                           ELSE j.lease_token END,
        lease_until = CASE WHEN m.moves AND NOT m.keeps THEN NULL
                           -- To end the job at once; nobody renews this lease.
                           WHEN m.moves AND m.leases THEN nightdesk_now() + %(lease_for)s
                           ELSE j.lease_until END,
        worker = CASE WHEN m.moves AND NOT m.keeps THEN NULL ELSE j.worker END
    FROM settlement m
    LEFT JOIN LATERAL (SELECT paused FROM batch WHERE m.frees AND id = m.batch_id) p ON true
    WHERE j.id = m.job_id AND (m.moves OR m.frees OR m.spent_usd <> 0)
    RETURNING j.id, j.run, m.moves, m.keeps, m.next_state, m.frees, m.event, m.delay, m.next_held, m.failure
), event AS (
    INSERT INTO job_event (job_id, run, kind, actor, detail)
    SELECT id, run, event, 'worker',
           jsonb_build_object('delay_s', extract(epoch FROM delay), 'held_reason', next_held, 'failure', failure)
    FROM moved_job WHERE moves AND event IS NOT NULL
    UNION ALL
    SELECT id, run, 'release', 'worker', '{"held_reason": "unknown_outcome"}'::jsonb FROM moved_job WHERE frees
)
SELECT id, false AS is_batch, NULL AS tenant FROM moved_job WHERE moves AND (keeps OR next_state <> 'running')
UNION ALL SELECT id, true, NULL FROM paid_batch WHERE has_room
UNION ALL SELECT key_id, false, tenant FROM ("""
    + OWNERS_WITH_ROOM
    + """) t
-- What the ledger has no attempt of is neither done nor lost to another worker.
UNION ALL SELECT d.id, NULL, NULL FROM input d WHERE NOT EXISTS (SELECT FROM closing c WHERE c.id = d.id)
"""
)

# A ledger that lost its last commits has neither the attempt nor the lease of the job. Both come back, and the money is reserved
# anew, so that the close that follows finds what it would have found.
_PUT_BACK = (
    """
WITH input AS (
    SELECT * FROM unnest(%(id)b::uuid[], %(job_id)b::uuid[], %(token)b::uuid[], %(run)b::int2[], %(round)b::int2[],
                         %(purpose)b::text[], %(number)b::int2[], %(lane)b::text[], %(provider)b::text[], %(model)b::text[],
                         %(request_hash)b::bytea[], %(reserved_usd)b::numeric(14,8)[], %(share_key)b::bytea[])
    AS d(id, job_id, token, run, round, purpose, number, lane, provider, model, hash, reserve, share_key)
), lost_attempt AS (
    SELECT d.*, j.batch_id, j.tenant, j.key_id,
           j.state = 'available' AND (j.run, j.round) = (d.run, d.round) AND (j.step = 'generate') = (d.purpose <> 'judge') AS leases
    FROM input d JOIN job j ON j.id = d.job_id
    WHERE NOT EXISTS (SELECT FROM attempt a WHERE a.id = d.id)
    ORDER BY j.id FOR NO KEY UPDATE OF j
), locked_batch AS ("""
    + lock_batches("SELECT batch_id FROM lost_attempt WHERE reserve > 0")
    + """
), period AS ("""
    + lock_periods(
        """p.live AND p.begins_at <= nightdesk_now() AND p.tenant = ANY (ARRAY(SELECT tenant FROM lost_attempt WHERE reserve > 0))
           AND (p.key_id IS NULL OR p.key_id = ANY (ARRAY(SELECT key_id FROM lost_attempt)))""",
        "locked_batch",
        "p.id, p.tenant, p.key_id",
    )
    + """
), reservation AS (
    UPDATE batch b SET reserved_usd = b.reserved_usd + s.usd
    FROM locked_batch l
    JOIN (SELECT batch_id, sum(reserve) AS usd FROM lost_attempt WHERE reserve > 0 GROUP BY batch_id) s ON s.batch_id = l.id
    WHERE b.id = l.id
), period_reservation AS (
    UPDATE budget_period p SET reserved_usd = p.reserved_usd + s.usd
    FROM (SELECT l.id, sum(d.reserve) AS usd
          FROM period l JOIN lost_attempt d ON d.tenant = l.tenant AND (l.key_id IS NULL OR l.key_id = d.key_id)
          WHERE d.reserve > 0 GROUP BY l.id) s
    WHERE p.id = s.id
), new_attempt AS (
    INSERT INTO attempt (id, job_id, run, round, purpose, number, lane, provider, model, request_hash, lease_token,
                         reserved_usd, share_key, budget_periods)
    SELECT id, job_id, run, round, purpose, number, lane, provider, model, hash, token, reserve, share_key,
           CASE WHEN reserve > 0 THEN nullif(ARRAY(
               SELECT p.id FROM period p WHERE p.tenant = d.tenant AND (p.key_id IS NULL OR p.key_id = d.key_id)), '{}') END
    FROM lost_attempt d
)
UPDATE job j SET state = 'running', lease_token = d.token, lease_until = nightdesk_now() + %(lease_for)s,
                 worker = %(worker)s, started_at = coalesce(j.started_at, nightdesk_now())
FROM (SELECT DISTINCT ON (job_id) job_id, token FROM lost_attempt WHERE leases ORDER BY job_id, id) d WHERE j.id = d.job_id
"""
)

_DELETED = """
SELECT d.id FROM unnest(%(ids)b::uuid[], %(batch_ids)b::uuid[], %(job_ids)b::uuid[]) AS d(id, batch_id, job_id)
WHERE EXISTS (SELECT FROM batch WHERE id = d.batch_id) AND NOT EXISTS (SELECT FROM job WHERE id = d.job_id)
"""


class PostgresAttempts(Store):
    """Attempts as one statement for opening and one for closing; ``lease_for`` is how long a lease lasts that a close begins."""

    def __init__(self, database: Database, lease_for: timedelta) -> None:
        super().__init__(database)
        self._lease_for = lease_for

    async def open_attempts(self, attempts: Sequence[NewAttempt]) -> list[Opened]:
        """Write attempts before their calls; one status per attempt, in order. Reserves budget in the same statement.

        Only under a lease that holds: of a rescue, a cancel and this, whichever comes first wins. In order, what does not
        fit into a budget leaves its room to the next; its job is held (``ON_HOLD``) until money comes back or the budget is
        raised. A call that reserves nothing always fits.
        Of identical calls that may wait for each other (``share.wait``) one is opened, also when they come at once.
        """
        first = first_of_each(attempts)
        if not first:
            return []
        chosen = [attempts[at] for at in first]
        parameters = {
            **attempt_columns(chosen),
            **arrays(chosen, "batch_id", "reserved_usd", "required"),
        }
        rows = await self._db.rows(_OPEN, parameters, first=locks_of(chosen))
        opened = {at: Opened(row.status) for at, row in zip(first, rows, strict=True)}
        return [opened.get(at, Opened.DUPLICATE) for at in range(len(attempts))]

    async def close_attempts(self, closed: Sequence[ClosedAttempt], on_lost: OnLost | None = None) -> set[UUID]:
        """Close attempts, store answers, charge budgets, and advance jobs; returns the job ids that advanced.

        A late answer releases the job that is held for its unknown outcome. The first completion of a (run, round, purpose)
        wins; a later one is stored beside it. Closing again is harmless: only an open or ``unknown`` attempt changes.

        An attempt that the ledger does not know is put back first, see ``put_back``. Paid ones of which it does not know the job either,
        though nobody deleted it, go to ``on_lost``; by default they are logged.
        """
        advanced: set[UUID] = set()
        with_room: set[UUID] = set()
        owners: set[Owner] = set()
        unknown: list[ClosedAttempt] = []
        for wave in _one_per_job(closed):
            rows = await self._db.rows(_CLOSE, self._closing(wave))
            if missing := _without_attempt(wave, rows):
                first = self._putting_back([item.opening for item in missing if item.opening is not None])
                again = await self._db.rows(_CLOSE, self._closing(missing), first=first)
                unknown += _without_attempt(missing, again)
                rows += again
            for row in rows:
                if row.tenant is not None:
                    owners.add(Owner(row.tenant, row.id))
                elif row.is_batch is not None:
                    (with_room if row.is_batch else advanced).add(row.id)
        if with_room or owners:
            await self._fund(with_room, owners)
        if lost := await self._lost(unknown):
            (on_lost or _log_lost)(lost)
        return advanced

    async def put_back(self, attempts: Sequence[NewAttempt]) -> None:
        """Open attempts again that a ledger lost with its last commits, and lease their jobs again where these are available.

        Known attempts stay as they are; those of unknown jobs are passed over. No budget refuses them: the calls were made.
        """
        if attempts:
            await self._db.rows(*self._putting_back(attempts))

    async def _lost(self, unknown: Sequence[ClosedAttempt]) -> list[ClosedAttempt]:
        """Paid calls among those without an attempt whose jobs nobody deleted: a deleted job leaves its batch."""
        paid = [item for item in unknown if item.answer is not None or item.cost_usd or item.outcome == "unknown"]
        if not paid:
            return []
        parameters = {
            "ids": [item.id for item in paid],
            "batch_ids": [item.opening.batch_id if item.opening is not None else None for item in paid],
            "job_ids": [item.job_id for item in paid],
        }
        deleted = set(await self._db.column(_DELETED, parameters))
        if deleted:
            log.warning("what came of %d calls is dropped: their jobs were deleted", len(deleted))
        return [item for item in paid if item.id not in deleted]

    def _closing(self, closed: Sequence[ClosedAttempt]) -> dict[str, Any]:
        return {**_closing_columns(closed), "lease_for": self._lease_for}

    def _putting_back(self, attempts: Sequence[NewAttempt]) -> First:
        columns = {**attempt_columns(attempts), **arrays(attempts, "reserved_usd")}
        return _PUT_BACK, {**columns, "worker": worker_name(), "lease_for": self._lease_for}

    async def _fund(self, batch_ids: Collection[UUID], owners: Collection[Owner]) -> None:
        try:
            if batch_ids:
                await fund(self._db, sorted(batch_ids))
            for owner in owners:
                await fund_owner(self._db, owner)
        except (LedgerUnavailable, LedgerError) as error:
            # What was closed is committed, and the duty looks again within a second.
            number = len(batch_ids) + len(owners)
            log.warning(
                "jobs of %d batches, tenants or keys that wait for money are left to dispatch: %s", number, error
            )


def _without_attempt(closed: Sequence[ClosedAttempt], rows: Sequence[Any]) -> list[ClosedAttempt]:
    """Closings of which the rows of ``_CLOSE`` say that there is no attempt."""
    missing = {row.id for row in rows if row.is_batch is None}
    return [item for item in closed if item.id in missing]


def _log_lost(lost: Sequence[ClosedAttempt]) -> None:
    log.critical("the ledger knows nothing of %d paid calls: %s", len(lost), ", ".join(str(item.id) for item in lost))


def _one_per_job(closed: Sequence[ClosedAttempt]) -> Collection[list[ClosedAttempt]]:
    """Split so that no job is in a statement twice: one UPDATE changes a row only once."""
    waves: defaultdict[int, list[ClosedAttempt]] = defaultdict(list)
    closings_of: Counter[UUID] = Counter()
    for item in closed:
        waves[closings_of[item.job_id]].append(item)
        closings_of[item.job_id] += 1
    return waves.values()


def _closing_columns(closed: Sequence[ClosedAttempt]) -> dict[str, list[Any]]:
    answers = [c.answer for c in closed]
    none = (None, None, None)
    stored = [split_completion(a.completion, a.prompt, a.raw) if a else none for a in answers]
    thens = [c.then for c in closed]
    return {
        **arrays(closed, "id", "job_id", "token", "outcome", "spent", "cost_usd"),
        "step": [c.step.value for c in closed],
        "request_id": [_request_id(c) for c in closed],
        "usage": [
            a.completion.usage.model_dump_json() if a is not None and a.completion.usage is not None else None
            for a in answers
        ],
        "timing": [orjson.dumps(c.timing_ms).decode() if c.timing_ms else None for c in closed],
        "failure": [c.failure.model_dump_json() if c.failure else None for c in closed],
        "finish": [a.completion.finish_reason.value if a else None for a in answers],
        **columns_of(stored, "parsed", "prompt", "frame"),
        "next_state": [t.state.value if t else None for t in thens],
        "next_step": [t.step.value if t else None for t in thens],
        "next_round": [t.round if t else None for t in thens],
        "delay": [t.delay if t and t.state is JobState.SCHEDULED else None for t in thens],
        "next_held": [t.held_reason.value if t and t.held_reason else None for t in thens],
        "event": [t.event if t else None for t in thens],
    }


def _request_id(closed: ClosedAttempt) -> str | None:
    request_id = closed.answer.completion.snapshot.request_id if closed.answer is not None else None
    return request_id or (closed.failure.provider_request_id if closed.failure else None)


def attempt_columns(attempts: Sequence[NewAttempt]) -> dict[str, list[Any]]:
    """Attempts as columns, with the terms of sharing; those are empty where a call shares nothing."""
    terms = [attempt.share for attempt in attempts]
    return {
        **arrays(
            attempts, "id", "job_id", "token", "run", "round", "number", "lane", "provider", "model", "request_hash"
        ),
        "purpose": [a.purpose.value for a in attempts],
        "share_key": [term.key if term else None for term in terms],
        "share_within": [term.within if term else None for term in terms],
        "share_wait": [term.wait if term else None for term in terms],
    }


def locks_of(attempts: Sequence[NewAttempt]) -> First:
    """Locks under which attempts are opened: first the advisory ones of identical calls, in one order, then their jobs.

    In a statement before the opening, so that it sees every answer that was written before a lock was free.
    """
    keys = {attempt.share.key for attempt in attempts if attempt.share is not None}
    return _LOCK, {
        "keys": sorted(int.from_bytes(key[:8], "big", signed=True) for key in keys),
        "jobs": [attempt.job_id for attempt in attempts],
    }


def first_of_each(attempts: Sequence[NewAttempt]) -> list[int]:
    """The places of those to be opened now: of identical ones that may wait for each other, the first."""
    keys: set[bytes] = set()
    first = []
    for at, attempt in enumerate(attempts):
        terms = attempt.share
        if terms is None or not terms.wait or terms.key not in keys:
            first.append(at)
        if terms is not None:
            keys.add(terms.key)
    return first
