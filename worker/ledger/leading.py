"""Lets one worker at a time lead the duties, by a short lease, and tells each worker which of them have work."""

from datetime import timedelta

from schemas.states import Step
from tasks.ports import Outlook
from worker.ledger.budgets import HAS_ROOM
from worker.ledger.database import Database
from worker.ledger.presence import known_steps
from worker.ledger.quarantine import NOT_IN_QUARANTINE

# The lease is written when it is free, ran out, or is half over; otherwise this only reads. A lease that ends far in the
# future was written before the database's clock was set back. A worker that reaches Redis takes over from one that does not.
_ATTEND = f"""
WITH mine AS (
    UPDATE dispatch SET leader = %(worker)s, leads_until = nightdesk_now() + %(lead_for)s,
                        leader_has_broker = coalesce(%(broker)s::boolean, true)
    WHERE leads_until IS NULL OR leads_until <= nightdesk_now() OR leads_until > nightdesk_now() + 2 * %(lead_for)s
       OR (leader = %(worker)s AND (leads_until <= nightdesk_now() + %(lead_for)s / 2
                                    OR leader_has_broker IS DISTINCT FROM coalesce(%(broker)s::boolean, true)))
       OR (%(broker)s::boolean AND NOT leader_has_broker)
    RETURNING leader
), standing AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM mine) OR (leader = %(worker)s AND leads_until > nightdesk_now()) AS leads,
           check_behind, leader_has_broker, republish_until IS NOT NULL AS republishing
    FROM dispatch
)
SELECT coalesce(s.leads, false) AS leads, now() - pg_postmaster_start_time() AS server_age, s.check_behind,
    NOT s.leader_has_broker AS without_broker,
    ARRAY(SELECT t.step FROM unnest(%(steps)s::text[]) AS t(step)
          WHERE EXISTS (SELECT FROM job j WHERE j.state = 'available' AND j.step = t.step)) AS available,
    s.leads AND s.republishing AS republishing,
    s.leads AND EXISTS (SELECT FROM job j WHERE j.finished_at IS NOT NULL AND j.result_published_at IS NULL
                        AND j.finished_at <= nightdesk_now() - %(older_than)s) AS unpublished,
    s.leads AND EXISTS (SELECT FROM job j WHERE j.state = 'scheduled' AND j.held_reason IS NULL
                        AND j.scheduled_at <= nightdesk_now() AND {NOT_IN_QUARANTINE}) AS due,
    s.leads AND EXISTS (SELECT FROM batch b WHERE b.least_needed_usd IS NOT NULL
                        AND (b.hold_from IS NOT NULL OR {HAS_ROOM})) AS unsettled,
    s.leads AND EXISTS (SELECT FROM job j WHERE j.deadline IS NOT NULL AND j.finished_at IS NULL
                        AND j.deadline <= nightdesk_now()) AS late,
    s.leads AND (EXISTS (SELECT FROM job j WHERE j.state = 'running' AND j.lease_until < nightdesk_now())
        OR EXISTS (SELECT FROM attempt a JOIN job j ON j.id = a.job_id
                   WHERE a.closed_at IS NULL AND j.finished_at IS NOT NULL)) AS lost,
    CASE WHEN s.leads THEN (SELECT count(*) FROM (
        SELECT FROM job j WHERE j.state = 'available' AND j.step IN ('check', 'local') LIMIT %(check_backlog)s + 1
    ) b) END AS checks
FROM standing s
"""

_RESIGN = "UPDATE dispatch SET leads_until = NULL WHERE leader = %(worker)s"

_NOTE_CHECK_BEHIND = "UPDATE dispatch SET check_behind = %(behind)s WHERE check_behind <> %(behind)s"


class Leading:
    """The verbs of the PostgreSQL ledger by which workers agree on who does the duties."""

    _db: Database

    async def attend(
        self,
        worker: str,
        lead_for: timedelta,
        publish_after: timedelta,
        check_backlog: int,
        *,
        broker: bool | None = None,
    ) -> Outlook:
        """See ``tasks.ports.Ledger.attend``."""
        given = {
            "worker": worker,
            "lead_for": lead_for,
            "broker": broker,
            "older_than": publish_after,
            "check_backlog": check_backlog,
            "steps": [step.value for step in Step],
            "duty": "promote",
        }
        (row,) = await self._db.rows(_ATTEND, given)
        behind = row.check_behind
        if row.leads and (row.checks > check_backlog) != behind:
            behind = not behind
            await self._db.rows(_NOTE_CHECK_BEHIND, {"behind": behind})
        return Outlook(
            leads=row.leads,
            server_age=row.server_age,
            check_behind=behind,
            without_broker=bool(row.without_broker) and not row.leads,
            available=known_steps(row.available),
            due=bool(row.due),
            unsettled=bool(row.unsettled),
            late=bool(row.late),
            lost=bool(row.lost),
            unpublished=bool(row.unpublished),
            republishing=bool(row.republishing),
        )

    async def resign(self, worker: str) -> None:
        """See ``tasks.ports.Ledger.resign``."""
        await self._db.rows(_RESIGN, {"worker": worker})
