"""Statements that count in a new budget of a key what its jobs cost before."""

COUNT_EARLIER = """
WITH new_period AS (
    SELECT id, begins_at FROM budget_period WHERE id = ANY(%(id)b::uuid[]) AND begins_at <= nightdesk_now()
), call AS (
    SELECT a.id, p.id AS period_id, a.reserved_usd, a.cost_usd, a.closed_at IS NULL AS is_open, a.outcome
    FROM new_period p JOIN job j ON j.key_id = %(key_id)s JOIN attempt a ON a.job_id = j.id AND a.opened_at >= p.begins_at
), named_attempt AS (
    -- A call that is open, or whose outcome may become known, is settled in it, too.
    UPDATE attempt a SET budget_periods = a.budget_periods || c.period_id
    FROM call c WHERE a.id = c.id AND (c.is_open OR c.outcome = 'unknown')
)
UPDATE budget_period p SET
    reserved_usd = coalesce((SELECT sum(reserved_usd) FROM call WHERE is_open), 0),
    -- Of jobs that were pruned their batch has the cost.
    spent_usd = coalesce((SELECT sum(cost_usd) FROM call), 0)
        + (SELECT coalesce(sum(pruned_usd), 0) FROM batch WHERE key_id = %(key_id)s AND created_at >= p.begins_at)
FROM new_period n WHERE p.id = n.id
"""
"""Counts the calls of a key's jobs since the beginning of its present period, if that is one of those named: a new one."""

LOCK_CALLS_OUT = "LOCK TABLE budget_period IN EXCLUSIVE MODE"
"""Goes before: every statement that opens or closes a call names the table, so none is in between while they are counted."""
