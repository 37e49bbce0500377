"""Responses in a provider's background: their ids, the moments to look after them, and their ends, page by page.

Each is a provider batch of one call, whose id is that of the attempt.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from schemas.generation import Lane
from schemas.states import Step
from tasks.ports.remote_batches import ParkedCall, PendingCall, UnreadableCall
from tasks.ports.remote_responses import OpenResponse, ResponseLoad
from worker.ledger.database import Store, arrays
from worker.ledger.provider_batches import OPEN_ATTEMPT, PENDING, WAITING_JOB, pending_call
from worker.ledger.queue import lease_terms

FIRST_LOOK = timedelta(seconds=2)
"""Pause before the first look: some answers are short."""

_PARK = """
WITH input AS (
    SELECT d.*, a.opened_at
    FROM unnest(%(attempt_id)b::uuid[], %(job_id)b::uuid[], %(token)b::uuid[], %(provider)b::text[], %(model)b::text[],
                %(bytes)b::int4[], %(call)b::jsonb[], %(due_at)b::timestamptz[], %(lane)b::text[], %(remote_id)b::text[])
    AS d(attempt_id, job_id, token, provider, model, bytes, call, due_at, lane, remote_id)
    JOIN attempt a ON a.id = d.attempt_id
), leased_job AS (
    SELECT j.id FROM job j JOIN input d ON d.job_id = j.id AND d.token = j.lease_token
    WHERE j.state = 'running' ORDER BY j.id FOR NO KEY UPDATE OF j
), parked_job AS (
    UPDATE job j SET state = 'pending', lease_token = NULL, lease_until = NULL, worker = NULL
    FROM leased_job l WHERE j.id = l.id
), response AS (
    INSERT INTO provider_batch (id, provider, model, lane, remote_id, state, calls, body_bytes, intended_at, created_at, due_at, next_at)
    SELECT attempt_id, provider, model, lane, remote_id, 'open', 1, bytes, opened_at, nightdesk_now(), due_at,
           nightdesk_now() + %(first_look)s
    FROM input ON CONFLICT DO NOTHING
    RETURNING id
), parked_call AS (
    INSERT INTO provider_batch_call (attempt_id, job_id, provider_batch_id, provider, model, body_bytes, call, due_at)
    SELECT d.attempt_id, d.job_id, d.attempt_id, d.provider, d.model, d.bytes, d.call, d.due_at
    FROM input d JOIN response r ON r.id = d.attempt_id
), sent_attempt AS (
    UPDATE attempt a SET provider_batch_id = a.id FROM response r WHERE a.id = r.id
)
SELECT attempt_id FROM input
"""

_TAKE_DUE = f"""
WITH due AS (
    SELECT id, nightdesk_now() - next_at AS overdue FROM provider_batch
    WHERE lane <> 'provider_batch' AND ended_at IS NULL AND next_at <= nightdesk_now()
      -- What another worker can look after is left to it.
      AND (provider <> ALL (%(unserved)b::text[]) OR next_at <= nightdesk_now() - %(keep_for)s)
    ORDER BY next_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE provider_batch b SET next_at = nightdesk_now() + %(keep_for)s, looks = b.looks + 1
FROM due WHERE b.id = due.id
RETURNING b.id, b.remote_id, b.provider, b.model, b.lane, nightdesk_now() - b.intended_at AS age, b.looks,
          b.cancelled_at IS NOT NULL AS cancelled, b.spilled_at IS NOT NULL AS spilled, b.due_at - nightdesk_now() AS due_in,
          due.overdue, NOT EXISTS (SELECT FROM attempt WHERE id = b.id AND closed_at IS NULL) AS closed,
          EXISTS (SELECT FROM provider_batch_call r CROSS JOIN LATERAL {OPEN_ATTEMPT} a CROSS JOIN LATERAL {WAITING_JOB} j
                  WHERE r.attempt_id = b.id) AS has_job
"""

_PUT_OFF = """
UPDATE provider_batch b SET next_at = nightdesk_now() + d.pause
FROM unnest(%(ids)b::uuid[], %(pauses)b::interval[]) AS d(id, pause) WHERE b.id = d.id AND b.ended_at IS NULL
"""

_LOADS = """
SELECT provider, model, count(*) AS calls, sum(body_bytes)::int8 AS body_bytes FROM provider_batch
WHERE lane <> 'provider_batch' AND ended_at IS NULL AND due_at IS NOT NULL GROUP BY provider, model
"""

_NOTE_SPILLED = """
UPDATE provider_batch SET spilled_at = coalesce(spilled_at, nightdesk_now()) WHERE id = ANY(%(ids)b::uuid[])
"""

_NOTE_CANCELLED = "UPDATE provider_batch SET cancelled_at = nightdesk_now() WHERE id = ANY(%(ids)b::uuid[])"

_END = """
WITH ended_response AS (
    UPDATE provider_batch b SET state = 'collected', ended_at = nightdesk_now()
    WHERE b.id = ANY(%(ids)b::uuid[]) AND b.ended_at IS NULL
      AND NOT EXISTS (SELECT FROM attempt WHERE id = b.id AND closed_at IS NULL)
    RETURNING b.id
), ended_call AS (
    DELETE FROM provider_batch_call r USING ended_response e WHERE r.attempt_id = e.id
)
SELECT id FROM ended_response
"""


class PostgresResponses(Store):
    """Open responses, each method one transaction."""

    async def park(self, calls: Sequence[ParkedCall]) -> set[UUID]:
        """Write the ids of responses and make their jobs pending; returns the attempts whose responses are known now.

        A response whose job was taken away meanwhile is written too, so that it is cancelled and paid for.
        """
        parameters = {
            **arrays(calls, "attempt_id", "job_id", "token", "provider", "model", "due_at", "lane", "remote_id"),
            "bytes": [len(call.body) for call in calls],
            "call": [call.document.decode() for call in calls],
            "first_look": FIRST_LOOK,
        }
        return set(await self._db.column(_PARK, parameters))

    async def take_due(self, limit: int, keep_for: timedelta, unserved: Collection[str] = ()) -> Sequence[OpenResponse]:
        """The responses that are due to be looked after; others leave them alone for ``keep_for``.

        Those of ``unserved`` providers only once no other worker took them for so long.
        """
        rows = await self._db.rows(_TAKE_DUE, {"limit": limit, "keep_for": keep_for, "unserved": list(unserved)})
        return [OpenResponse(**{**row._asdict(), "lane": Lane(row.lane)}) for row in rows]

    async def put_off(self, pauses: Mapping[UUID, timedelta]) -> None:
        """Look after responses again later."""
        if pauses:
            await self._db.rows(_PUT_OFF, {"ids": list(pauses), "pauses": list(pauses.values())})

    async def loads(self) -> Mapping[tuple[str, str], ResponseLoad]:
        """By provider and model the open responses that may have to be moved."""
        return {
            (row.provider, row.model): ResponseLoad(row.calls, row.body_bytes) for row in await self._db.rows(_LOADS)
        }

    async def note_spilled(self, ids: Sequence[UUID]) -> None:
        """Write that they are to end for the deadline of their jobs, before the provider is asked to."""
        await self._note(_NOTE_SPILLED, ids)

    async def note_cancelled(self, ids: Sequence[UUID]) -> None:
        """Write that the provider was asked to end them."""
        await self._note(_NOTE_CANCELLED, ids)

    async def _note(self, statement: str, ids: Sequence[UUID]) -> None:
        if ids:
            await self._db.rows(statement, {"ids": list(ids)})

    async def pending(self, ids: Sequence[UUID]) -> Sequence[PendingCall | UnreadableCall]:
        """Those whose attempts are still open."""
        parameters: dict[str, Any] = {"batch_id": None, "ids": list(ids), **lease_terms(Step.GENERATE)}
        return [pending_call(row) for row in await self._db.rows(PENDING, parameters)]

    async def end(self, ids: Sequence[UUID]) -> set[UUID]:
        """End those whose attempts are closed; returns them."""
        return set(await self._db.column(_END, {"ids": list(ids)}))
