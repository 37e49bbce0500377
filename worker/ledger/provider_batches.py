"""Parked calls and provider batches: jobs become pending, calls become batches, and answers find their calls.

A response in a provider's background is a batch of one call, whose id is that of the attempt.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import orjson
from uuid_utils.compat import uuid7

from schemas.failure import Failure, FailureKind
from schemas.generation import WINDOWS, Lane
from schemas.states import JobState, Step
from tasks.ports import Advance, ClosedAttempt, NewAttempt, Purpose, UnreadableRow
from tasks.ports.remote_batches import (
    BatchTimes,
    Intent,
    OpenBatch,
    ParkedCall,
    PendingCall,
    RemoteCall,
    UnreadableCall,
    WaitingCalls,
)
from worker.ledger.database import TRANSACTION_S, Store, arrays, fields
from worker.ledger.queue import LEASED_JOBS, lease_terms, read_job

BODY_ROWS = 200
"""Bodies read in one statement."""

# Each row by its key, whatever the statistics say: the limit keeps the planner from another order of the joins. Jobs of one
# run and round are joined to all attempts of these otherwise, as soon as one of the tables was not analysed yet.
OPEN_ATTEMPT = "(SELECT run, round FROM attempt WHERE id = r.attempt_id AND closed_at IS NULL LIMIT 1)"
WAITING_JOB = "(SELECT FROM job WHERE id = r.job_id AND state = 'pending' AND (run, round) = (a.run, a.round) LIMIT 1)"

_PARK = """
WITH input AS (
    SELECT * FROM unnest(%(attempt_id)b::uuid[], %(job_id)b::uuid[], %(token)b::uuid[], %(provider)b::text[],
                         %(model)b::text[], %(body)b::bytea[], %(call)b::jsonb[], %(due_at)b::timestamptz[])
    AS d(attempt_id, job_id, token, provider, model, body, call, due_at)
), leased_job AS (
    SELECT j.id FROM job j JOIN input d ON d.job_id = j.id AND d.token = j.lease_token
    WHERE j.state = 'running' ORDER BY j.id FOR NO KEY UPDATE OF j
), parked_job AS (
    UPDATE job j SET state = 'pending', lease_token = NULL, lease_until = NULL, worker = NULL
    FROM leased_job l WHERE j.id = l.id RETURNING j.id
), parked_call AS (
    INSERT INTO provider_batch_call (attempt_id, job_id, provider, model, body_bytes, body, call, due_at)
    SELECT d.attempt_id, d.job_id, d.provider, d.model, length(d.body), d.body, d.call, d.due_at
    FROM input d JOIN parked_job p ON p.id = d.job_id
    RETURNING attempt_id
)
SELECT attempt_id FROM parked_call
-- An earlier try of this statement parked it, and its commit was not confirmed.
UNION SELECT attempt_id FROM provider_batch_call WHERE attempt_id = ANY(%(attempt_id)b::uuid[])
"""

_PARK_RESPONSES = """
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

# A batch that is cancelled for one deadline is cancelled for all its jobs: only those of about the same time share one.
_WAITING = """
SELECT provider, model, date_trunc('hour', due_at) AS due_hour, count(*) AS calls, sum(body_bytes)::int8 AS body_bytes,
       nightdesk_now() - max(parked_at) AS quiet, nightdesk_now() - min(parked_at) AS oldest,
       min(due_at) - nightdesk_now() AS due_in
FROM provider_batch_call WHERE provider_batch_id IS NULL AND NOT spilled
GROUP BY provider, model, due_hour
ORDER BY min(parked_at)
"""

_RECALL = """
UPDATE provider_batch_call SET spilled = true
WHERE provider_batch_id IS NULL AND NOT spilled AND provider = %(provider)s AND model = %(model)s
  AND due_at <= nightdesk_now() + %(within)s
RETURNING attempt_id
"""

# Of a batch that was cancelled for want of jobs nothing is learned; of one that was spilled, that it takes longer.
_TIMES = """
SELECT ended_at IS NOT NULL AS ended,
       extract(epoch FROM coalesce(spilled_at, ended_at, nightdesk_now()) - intended_at)::float8 AS seconds
FROM provider_batch
WHERE provider = %(provider)s AND model = %(model)s AND intended_at > nightdesk_now() - %(within)s
  AND lane = %(lane)s AND state IN ('open', 'collected') AND (cancelled_at IS NULL OR spilled_at IS NOT NULL)
ORDER BY intended_at DESC LIMIT %(limit)s
"""

# Of responses in the background thousands are open at a time: those that ended tell the usual time, the oldest the delay.
_RESPONSE_TIMES = """
SELECT true AS ended, extract(epoch FROM coalesce(spilled_at, ended_at) - intended_at)::float8 AS seconds
FROM (SELECT * FROM provider_batch
      WHERE provider = %(provider)s AND model = %(model)s AND lane = %(lane)s AND state = 'collected'
        AND intended_at > nightdesk_now() - %(within)s AND (cancelled_at IS NULL OR spilled_at IS NOT NULL)
      ORDER BY intended_at DESC LIMIT 10 * %(limit)s) e
UNION ALL
SELECT false, extract(epoch FROM nightdesk_now() - intended_at)::float8
FROM (SELECT * FROM provider_batch
      WHERE provider = %(provider)s AND model = %(model)s AND lane = %(lane)s AND state = 'open'
        AND intended_at > nightdesk_now() - %(within)s
      ORDER BY intended_at LIMIT %(limit)s) o
"""

TIMES_WITHIN, TIMES_OF = timedelta(days=7), 20
"""Age and number of the batches whose times are observed: a provider's bad night is forgotten after a week."""

_INTEND = """
WITH waiting_call AS (
    SELECT attempt_id, job_id, sum(body_bytes + %(overhead)s) OVER (ORDER BY attempt_id) AS bytes,
           body_bytes + %(overhead)s AS own_bytes, due_at
    FROM (SELECT attempt_id, job_id, body_bytes, due_at FROM provider_batch_call
          WHERE provider_batch_id IS NULL AND provider = %(provider)s AND model = %(model)s AND NOT spilled
            AND date_trunc('hour', due_at) IS NOT DISTINCT FROM %(due_hour)s::timestamptz
          ORDER BY attempt_id LIMIT %(max_calls)s) c
), chosen AS (
    -- A body that alone is too large goes alone: the provider says so.
    SELECT j.id AS job_id, w.attempt_id, w.own_bytes, w.due_at
    FROM waiting_call w CROSS JOIN LATERAL (SELECT run, round FROM attempt WHERE id = w.attempt_id AND closed_at IS NULL LIMIT 1) a
    JOIN job j ON j.id = w.job_id AND j.state = 'pending' AND (a.run, a.round) = (j.run, j.round)
    WHERE w.bytes <= %(max_bytes)s OR w.bytes = w.own_bytes
    ORDER BY j.id FOR NO KEY UPDATE OF j SKIP LOCKED
), intent AS (
    INSERT INTO provider_batch (id, provider, model, lane, state, calls, body_bytes, due_at, next_at)
    SELECT %(id)s, %(provider)s, %(model)s, %(lane)s, 'intended', n, bytes, due_at, nightdesk_now() + %(keep_for)s
    FROM (SELECT count(*) AS n, sum(own_bytes)::int8 AS bytes, min(due_at) AS due_at FROM chosen) c WHERE n > 0
    RETURNING id, provider, model, calls, intended_at, body_bytes, spilled_at
), sent_call AS (
    UPDATE provider_batch_call r SET provider_batch_id = i.id FROM chosen c, intent i
    WHERE r.attempt_id = c.attempt_id
), sent_attempt AS (
    UPDATE attempt a SET provider_batch_id = i.id FROM chosen c, intent i WHERE a.id = c.attempt_id
)
SELECT *, interval '0' AS age FROM intent
"""

# One worker writes intents at a time: two would take each other's calls, and make two small batches.
_ONE_INTENT = ("SELECT pg_advisory_xact_lock(%(key)s)", {"key": 0x6E64_6C61})

_BODIES = """
SELECT attempt_id, body FROM provider_batch_call
WHERE provider_batch_id = %(id)s AND attempt_id > %(after)s AND body IS NOT NULL ORDER BY attempt_id LIMIT %(limit)s
"""

_CREATED = """
WITH created AS (
    UPDATE provider_batch SET remote_id = %(remote_id)s, created_at = nightdesk_now(), state = 'open',
                              next_at = nightdesk_now() + %(look_after)s
    WHERE id = %(id)s AND state = 'intended'
      AND NOT EXISTS (SELECT FROM provider_batch o WHERE o.remote_id = %(remote_id)s AND o.provider = provider_batch.provider)
    RETURNING id
), sent_body AS (
    UPDATE provider_batch_call r SET body = NULL FROM created c WHERE r.provider_batch_id = c.id
)
SELECT id FROM created
"""


def _take_due(lanes: str) -> str:
    return f"""
WITH due AS (
    SELECT id, nightdesk_now() - next_at AS overdue FROM provider_batch
    WHERE {lanes} AND ended_at IS NULL AND next_at <= nightdesk_now()
      -- What another worker can look after is left to it.
      AND (provider <> ALL (%(unserved)b::text[]) OR next_at <= nightdesk_now() - %(keep_for)s)
    ORDER BY next_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
)
UPDATE provider_batch b SET next_at = nightdesk_now() + %(keep_for)s, looks = b.looks + 1
FROM due WHERE b.id = due.id
RETURNING b.id, b.provider, b.model, b.lane, b.calls, b.intended_at, nightdesk_now() - b.intended_at AS age, b.remote_id, b.looks,
          b.cancelled_at IS NOT NULL AS cancelled, b.body_bytes, b.spilled_at, b.due_at - nightdesk_now() AS due_in, due.overdue,
          coalesce((b.detail #>> '{{trouble,looks}}')::int, 0) AS failed_looks,
          coalesce(nightdesk_now() - (b.detail #>> '{{trouble,since}}')::timestamptz, '0') AS failing_for,
          NOT EXISTS (SELECT FROM attempt WHERE id = b.id AND closed_at IS NULL) AS closed,
          EXISTS (SELECT FROM provider_batch_call r CROSS JOIN LATERAL {OPEN_ATTEMPT} a CROSS JOIN LATERAL {WAITING_JOB} j
                  WHERE r.provider_batch_id = b.id) AS has_jobs
"""


# Each by the index of its own.
_TAKE_DUE_BATCHES, _TAKE_DUE_RESPONSES = map(_take_due, ("lane = 'provider_batch'", "lane <> 'provider_batch'"))

_PUT_OFF = """
UPDATE provider_batch b SET next_at = nightdesk_now() + d.pause,
    detail = coalesce(%(detail)s::jsonb || jsonb_strip_nulls(jsonb_build_object('trouble', detail -> 'trouble')), detail)
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

_NOTE_TROUBLE = """
UPDATE provider_batch SET next_at = nightdesk_now() + %(look_after)s, detail = detail || jsonb_build_object(
    'trouble', jsonb_build_object(
        'cause', %(cause)s::text, 'looks', coalesce((detail #>> '{trouble,looks}')::int, 0) + 1,
        'since', coalesce(detail #>> '{trouble,since}', nightdesk_now()::text)))
WHERE id = %(id)s AND ended_at IS NULL
"""

_PENDING = (
    """
WITH new_lease AS (
    SELECT j.id, j.batch_id, j.tenant, j.key_id, j.position, j.custom_id, j.step, j.run, j.round, j.priority, j.created_at,
           j.rescues, j.request_bytes, coalesce(j.started_at, j.created_at) AS started_at, j.available_at, j.limited_ms, j.deadline,
           j.cost_usd, j.correction, j.recheck, j.replay_of, p.id AS parked_id, p.run AS parked_run, p.round AS parked_round,
           p.purpose AS parked_purpose, p.number AS parked_number, p.lane, p.provider, p.model, p.request_hash,
           p.lease_token, p.reserved_usd, r.call, nightdesk_now() - r.parked_at AS parked_for
    FROM unnest(%(ids)b::uuid[]) AS d(attempt_id)
    CROSS JOIN LATERAL (SELECT * FROM provider_batch_call WHERE attempt_id = d.attempt_id LIMIT 1) r
    CROSS JOIN LATERAL (SELECT * FROM attempt WHERE id = r.attempt_id AND closed_at IS NULL LIMIT 1) p
    CROSS JOIN LATERAL (SELECT * FROM job WHERE id = r.job_id LIMIT 1) j
    WHERE r.provider_batch_id = coalesce(%(batch_id)s::uuid, r.attempt_id)
)"""
    + LEASED_JOBS
)

_UNANSWERED = f"""
SELECT r.attempt_id FROM provider_batch_call r CROSS JOIN LATERAL {OPEN_ATTEMPT} a
WHERE r.provider_batch_id = %(id)s ORDER BY r.attempt_id LIMIT %(limit)s
"""

_END = """
WITH ended_batch AS (
    UPDATE provider_batch SET state = %(state)s, ended_at = nightdesk_now() WHERE id = %(id)s AND ended_at IS NULL
    RETURNING id
)
DELETE FROM provider_batch_call r USING ended_batch b WHERE r.provider_batch_id = b.id
"""

_END_RESPONSES = """
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

_WITHDRAWN = """
SELECT r.attempt_id, r.job_id, a.lease_token, a.number, a.round, j.step,
       a.closed_at IS NULL AND j.state = 'pending' AND (a.run, a.round) = (j.run, j.round) AS recalled
FROM provider_batch_call r
CROSS JOIN LATERAL (SELECT * FROM attempt WHERE id = r.attempt_id LIMIT 1) a
CROSS JOIN LATERAL (SELECT state, step, run, round FROM job WHERE id = r.job_id LIMIT 1) j
WHERE r.provider_batch_id IS NULL
  AND (r.spilled OR a.closed_at IS NOT NULL OR j.state <> 'pending' OR (a.run, a.round) <> (j.run, j.round))
LIMIT %(limit)s
"""

FIRST_LOOK = timedelta(seconds=2)
"""Pause before the first look at a response: some answers are short."""

ROW_OVERHEAD = 256
"""Bytes of a row beside its body, in the forms of both providers."""


class PostgresRemoteBatches(Store):
    """Parked calls, provider batches and open responses, each method one transaction."""

    async def park(self, calls: Sequence[ParkedCall]) -> set[UUID]:
        """Make jobs pending that are still leased under their token; returns the attempts that are parked now."""
        parameters = {
            **arrays(calls, "attempt_id", "job_id", "token", "provider", "model", "body", "due_at"),
            "call": [call.document.decode() for call in calls],
        }
        return set(await self._db.column(_PARK, parameters))

    async def park_responses(self, calls: Sequence[ParkedCall]) -> set[UUID]:
        """Write the ids of responses and make their jobs pending; returns the attempts whose responses are known now.

        A response whose job was taken away meanwhile is written too, so that it is cancelled and paid for.
        """
        parameters = {
            **arrays(calls, "attempt_id", "job_id", "token", "provider", "model", "due_at", "lane", "remote_id"),
            "bytes": [len(call.body) for call in calls],
            "call": [call.document.decode() for call in calls],
            "first_look": FIRST_LOOK,
        }
        return set(await self._db.column(_PARK_RESPONSES, parameters))

    async def waiting(self) -> Sequence[WaitingCalls]:
        """The parked calls that were not sent yet, the oldest first."""
        return [WaitingCalls(**row._asdict()) for row in await self._db.rows(_WAITING)]

    async def recall(self, waiting: WaitingCalls, within: timedelta) -> None:
        """Keep those calls out of any batch whose deadline is ``within`` this time; ``withdrawn`` has them then."""
        # Under the lock of the intents: a call is either in a batch, or recalled.
        parameters = {"provider": waiting.provider, "model": waiting.model, "within": within}
        await self._db.rows(_RECALL, parameters, first=_ONE_INTENT)

    async def times(self, provider: str, model: str, lane: Lane) -> BatchTimes:
        """The times of a model's last batches, or responses in the background."""
        parameters = {
            "provider": provider,
            "model": model,
            "lane": lane.value,
            "within": TIMES_WITHIN,
            "limit": TIMES_OF,
        }
        rows = await self._db.rows(_RESPONSE_TIMES if lane in WINDOWS else _TIMES, parameters)
        ended, running = ([row.seconds for row in rows if row.ended is state] for state in (True, False))
        return BatchTimes(ended, running)

    async def intend(
        self,
        provider: str,
        model: str,
        due_hour: datetime | None = None,
        *,
        max_calls: int,
        max_bytes: int,
        keep_for: timedelta,
    ) -> Intent | None:
        """Write the intent of a batch with as many parked calls as fit; no other worker touches it for ``keep_for``."""
        parameters = {
            "id": uuid7(),
            "provider": provider,
            "model": model,
            "due_hour": due_hour,
            "lane": Lane.PROVIDER_BATCH.value,
            "max_calls": max_calls,
            "max_bytes": max_bytes,
            "overhead": ROW_OVERHEAD,
            "keep_for": keep_for,
        }
        rows = await self._db.rows(_INTEND, parameters, first=_ONE_INTENT, within_s=TRANSACTION_S)
        return _intent(rows[0]) if rows else None

    async def calls(self, batch_id: UUID) -> AsyncIterator[RemoteCall]:
        """The calls of an intent."""
        after = UUID(int=0)
        while rows := await self._db.rows(_BODIES, {"id": batch_id, "after": after, "limit": BODY_ROWS}):
            for row in rows:
                yield RemoteCall(row.attempt_id, row.body)
            after = rows[-1].attempt_id

    async def note_created(self, batch_id: UUID, remote_id: str, look_after: timedelta) -> bool:
        """Write the remote id; False if the batch has one already, or the id is another's."""
        parameters = {"id": batch_id, "remote_id": remote_id, "look_after": look_after}
        return bool(await self._db.rows(_CREATED, parameters, within_s=TRANSACTION_S))

    async def take_due(
        self, limit: int, keep_for: timedelta, unserved: Collection[str] = (), *, responses: bool = False
    ) -> list[OpenBatch]:
        """The batches, or the responses, that are due to be looked after; others leave them alone for ``keep_for``.

        Those of ``unserved`` providers only once no other worker took them for so long.
        """
        statement = _TAKE_DUE_RESPONSES if responses else _TAKE_DUE_BATCHES
        rows = await self._db.rows(statement, {"limit": limit, "keep_for": keep_for, "unserved": list(unserved)})
        names = (
            "remote_id",
            "looks",
            "has_jobs",
            "cancelled",
            "due_in",
            "overdue",
            "failed_looks",
            "failing_for",
            "closed",
        )
        return [OpenBatch(_intent(row, Lane(row.lane)), **fields(row, *names)) for row in rows]

    async def put_off(self, pauses: Mapping[UUID, timedelta], detail: Mapping[str, Any] | None = None) -> None:
        """Look after batches again later."""
        if pauses:
            document = None if detail is None else orjson.dumps(detail).decode()
            parameters = {"ids": list(pauses), "pauses": list(pauses.values()), "detail": document}
            await self._db.rows(_PUT_OFF, parameters)

    async def loads(self) -> dict[tuple[str, str], tuple[int, int]]:
        """By provider and model the number and the bytes of the open responses that may have to be moved."""
        return {(row.provider, row.model): (row.calls, row.body_bytes) for row in await self._db.rows(_LOADS)}

    async def note_trouble(self, batch_id: UUID, look_after: timedelta, cause: str) -> None:
        """Look after a batch again later, because a look failed; people see the cause."""
        await self._db.rows(_NOTE_TROUBLE, {"id": batch_id, "look_after": look_after, "cause": cause})

    async def note_progress(self, batch_id: UUID) -> None:
        """Write that a look at it succeeded after some that failed."""
        await self._db.rows(
            "UPDATE provider_batch SET detail = detail - 'trouble' WHERE id = %(id)s AND detail ? 'trouble'",
            {"id": batch_id},
        )

    async def note_spilled(self, ids: Sequence[UUID]) -> None:
        """Write that they are to end for the deadline of their jobs, before the provider is asked to."""
        if ids:
            await self._db.rows(_NOTE_SPILLED, {"ids": list(ids)})

    async def note_cancelled(self, ids: Sequence[UUID]) -> None:
        """Write that the provider was asked to end them."""
        if ids:
            await self._db.rows(_NOTE_CANCELLED, {"ids": list(ids)})

    async def remote_ids(self, provider: str) -> frozenset[str]:
        """The remote ids of the batches that are known."""
        statement = "SELECT remote_id FROM provider_batch WHERE provider = %(provider)s AND remote_id IS NOT NULL"
        return frozenset(await self._db.column(statement, {"provider": provider}))

    async def attempt_ids(self, batch_id: UUID) -> frozenset[str]:
        """The ids of a batch's attempts."""
        statement = "SELECT attempt_id FROM provider_batch_call WHERE provider_batch_id = %(id)s"
        return frozenset(str(row.attempt_id) for row in await self._db.rows(statement, {"id": batch_id}))

    async def pending(
        self, attempt_ids: Sequence[UUID], batch_id: UUID | None = None
    ) -> Sequence[PendingCall | UnreadableCall]:
        """Those calls that are still open; of a batch, or each a response."""
        parameters = {"batch_id": batch_id, "ids": list(attempt_ids), **lease_terms(Step.GENERATE)}
        return [_pending_call(row) for row in await self._db.rows(_PENDING, parameters)]

    async def unanswered(self, batch_id: UUID, limit: int) -> Sequence[UUID]:
        """Attempts of a batch that are still open."""
        return await self._db.column(_UNANSWERED, {"id": batch_id, "limit": limit})

    async def end(self, batch_id: UUID, state: str) -> None:
        """End a batch (``collected``, ``refused``, ``abandoned``), and forget its calls."""
        await self._db.rows(_END, {"id": batch_id, "state": state}, within_s=TRANSACTION_S)

    async def end_responses(self, ids: Sequence[UUID]) -> set[UUID]:
        """End responses whose attempts are closed; returns them."""
        return set(await self._db.column(_END_RESPONSES, {"ids": list(ids)}))

    async def withdrawn(self, limit: int) -> Sequence[ClosedAttempt]:
        """The close of each parked call that is not to be sent: no job waits for it any more, or it was recalled.

        The close of a recalled call moves its job on.
        """
        return [_withdrawn(row) for row in await self._db.rows(_WITHDRAWN, {"limit": limit})]

    async def forget(self, attempt_ids: Sequence[UUID]) -> None:
        """Remove parked calls that were not sent."""
        await self._db.rows(
            "DELETE FROM provider_batch_call WHERE attempt_id = ANY(%(ids)b::uuid[]) AND provider_batch_id IS NULL",
            {"ids": list(attempt_ids)},
        )


def _intent(row: Any, lane: Lane = Lane.PROVIDER_BATCH) -> Intent:
    return Intent(
        **fields(row, "id", "provider", "model", "calls", "intended_at", "age", "body_bytes"),
        spilled=row.spilled_at is not None,
        lane=lane,
    )


def _withdrawn(row: Any) -> ClosedAttempt:
    recalled = "the call was taken back before it was sent: no batch would end before the job's deadline"
    step = Step(row.step)
    message = recalled if row.recalled else "its job ended before the call was sent"
    return ClosedAttempt(
        row.attempt_id,
        row.job_id,
        row.lease_token,
        step,
        f"error:{FailureKind.CANCELLED.value}",
        spent=False,
        failure=Failure(kind=FailureKind.CANCELLED, message=message, attempt=row.number),
        cost_usd=Decimal(0),
        then=Advance(JobState.SCHEDULED, step, row.round, event="spill") if row.recalled else None,
    )


def _pending_call(row: Any) -> PendingCall | UnreadableCall:
    """A parked call with its job, of a row."""
    attempt = _attempt(row)
    job = read_job(row, row.lease_token)
    if isinstance(job, UnreadableRow):
        return UnreadableCall(job, attempt, Step(row.step))
    if not isinstance(row.call, dict):
        return UnreadableCall(UnreadableRow(row.id, "the document of its call is no object"), attempt, Step(row.step))
    return PendingCall(job, attempt, row.call, row.parked_for.total_seconds() * 1000)


def _attempt(row: Any) -> NewAttempt:
    return NewAttempt(
        **fields(row, "batch_id", "lane", "provider", "model", "reserved_usd"),
        id=row.parked_id,
        job_id=row.id,
        token=row.lease_token,
        run=row.parked_run,
        round=row.parked_round,
        purpose=Purpose(row.parked_purpose),
        number=row.parked_number,
        request_hash=bytes(row.request_hash),
    )
