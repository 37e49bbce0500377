"""Gives a job a copy of the stored answer of an identical call, and a batch the verdicts that its judges gave before."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import orjson

from schemas.model_call import Usage
from tasks.ports import (
    CachedVerdict,
    CacheLookup,
    CacheResult,
    CacheStatus,
    NewVerdicts,
    UnreadableRow,
    VerdictQuery,
)
from worker.ledger.attempts import SHAREABLE, UNDER_WAY, attempt_columns
from worker.ledger.database import Store
from worker.ledger.packing import reply_text
from worker.ledger.stored_rows import read_row

_SHARE = f"""
WITH input AS (
    SELECT * FROM unnest(%(id)b::uuid[], %(job_id)b::uuid[], %(token)b::uuid[], %(run)b::int2[], %(round)b::int2[],
                         %(purpose)b::text[], %(number)b::int2[], %(lane)b::text[], %(provider)b::text[],
                         %(model)b::text[], %(request_hash)b::bytea[], %(share_key)b::bytea[], %(share_within)b::interval[],
                         %(share_wait)b::interval[], %(prompt)b::jsonb[], %(snapshot)b::jsonb[], %(timing)b::jsonb[], %(then)b::text[])
    WITH ORDINALITY
    AS d(id, job_id, token, run, round, purpose, number, lane, provider, model, hash, share_key, share_within,
         share_wait, prompt, snapshot, timing, next_step, ord)
), lookup AS (
    SELECT d.*, t.*, u.since, j.id IS NOT NULL AS leased,
           -- An earlier try wrote it, and its commit was not confirmed.
           EXISTS (SELECT FROM attempt a WHERE a.id = d.id) AS repeated
    FROM input d
    -- A job that has a lease is running. To say so would invite a plan that reads all that are.
    LEFT JOIN job j ON j.id = d.job_id AND j.lease_token = d.token AND j.step = 'generate'
    -- Where an answer of its own came late, that one is taken.
    LEFT JOIN completion w ON w.job_id = d.job_id AND w.run = d.run AND w.round = d.round AND w.purpose = d.purpose
         AND w.won
    LEFT JOIN LATERAL ({SHAREABLE}) t ON w.attempt_id IS NULL
    LEFT JOIN LATERAL ({UNDER_WAY}) u ON w.attempt_id IS NULL AND t.from_id IS NULL
), reuse AS (
    -- In id order, so that two groups never wait for each other.
    SELECT s.* FROM lookup s JOIN job j ON j.id = s.job_id AND j.lease_token = s.token
    WHERE s.from_id IS NOT NULL AND NOT s.repeated
    ORDER BY j.id FOR UPDATE OF j
), attempts AS (
    INSERT INTO attempt (id, job_id, run, round, purpose, number, lane, provider, model, request_hash, lease_token,
                         closed_at, outcome, cost_usd, timing_ms, shared_from)
    SELECT id, job_id, run, round, purpose, number, lane, provider, model, hash, token, nightdesk_now(), 'ok', 0,
           timing, from_id
    FROM reuse
), answers AS (
    INSERT INTO completion (attempt_id, job_id, run, round, purpose, won, finish_reason, frame, parsed, prompt)
    SELECT id, job_id, run, round, purpose, true, finish_reason, frame,
           -- Nothing was used for this job, and nothing paid.
           parsed || jsonb_build_object('usage', %(nothing)s::jsonb, 'cost_usd', '0', 'snapshot',
               (parsed -> 'snapshot') || snapshot || jsonb_build_object('shared_from', jsonb_build_object(
                   'job_id', from_job, 'attempt_id', from_id, 'answered_at', answered_at))),
           prompt
    FROM reuse
), moved_job AS (
    UPDATE job j SET state = 'available', step = t.next_step, rescues = 0, held_reason = NULL, needs_usd = NULL,
                     available_at = nightdesk_now(),
                     lease_token = NULL, lease_until = NULL, worker = NULL
    FROM reuse t WHERE j.id = t.job_id
    RETURNING j.id
)
SELECT CASE WHEN s.repeated OR m.id IS NOT NULL THEN 'reused' WHEN NOT s.leased THEN 'lost'
            WHEN s.since IS NOT NULL THEN 'under_way' ELSE 'none' END AS status,
       nightdesk_now() - s.since AS open_for
FROM lookup s LEFT JOIN moved_job m ON m.id = s.job_id
ORDER BY s.ord
"""

# A reply is sent once, however many of its claims are asked for.
_FIND_VERDICTS = """
WITH input AS (
    SELECT DISTINCT * FROM unnest(%(batch_id)b::uuid[], %(key)b::bytea[]) AS d(batch_id, key)
)
SELECT v.batch_id, c.attempt_id, c.job_id, c.frame,
       array_agg(v.key) AS keys, array_agg(v.number) AS numbers
FROM input d JOIN judge_verdict v ON v.batch_id = d.batch_id AND v.key = d.key
             JOIN completion c ON c.attempt_id = v.attempt_id
GROUP BY v.batch_id, c.attempt_id
"""

# The batch is always that of the attempt's own job. In key order, so that two groups never wait for each
# other; the lock makes an erasure that is under way see what is noted here, or this see that there is no answer left.
_STORE_VERDICTS = """
INSERT INTO judge_verdict (batch_id, key, attempt_id, number)
SELECT j.batch_id, d.key, c.attempt_id, d.number
FROM unnest(%(attempt_id)b::uuid[], %(key)b::bytea[], %(number)b::int2[]) AS d(attempt_id, key, number)
JOIN completion c ON c.attempt_id = d.attempt_id AND c.purpose = 'judge'
JOIN job j ON j.id = c.job_id
ORDER BY j.batch_id, d.key FOR KEY SHARE OF c
ON CONFLICT DO NOTHING
"""


class PostgresAnswerCache(Store):
    """Stored answers by share key, and verdicts of judges by batch and key."""

    async def share(self, lookups: Sequence[CacheLookup]) -> list[CacheResult]:
        """Give jobs the newest whole answer of an identical call of their tenant, where one is stored; in order.

        The job gets an attempt of its own that is closed as ``ok``, cost nothing and names the call it is from, and a
        copy of the answer; and goes on to its check. Never the answer of another tenant, of a job that is erased, an
        answer older than ``share.within``, a refused one or one that was cut off, nor one that itself was taken: ages
        count from the call. A call under way is reported until it has been so for ``share.wait``, unless its job would
        have passed its deadline by then, or three identical calls failed already: then each makes its own.
        """
        if not lookups:
            return []
        attempts = [lookup.attempt for lookup in lookups]
        rows = await self._db.rows(
            _SHARE,
            {
                "prompt": [lookup.prompt.model_dump_json() for lookup in lookups],
                "snapshot": [orjson.dumps(lookup.snapshot).decode() for lookup in lookups],
                "timing": [orjson.dumps(lookup.timing_ms).decode() for lookup in lookups],
                "then": [lookup.then.value for lookup in lookups],
                "nothing": Usage().model_dump_json(),
                **attempt_columns(attempts),
            },
        )
        return [CacheResult(CacheStatus(row.status), row.open_for or timedelta(0)) for row in rows]

    async def find_verdicts(self, queries: Sequence[VerdictQuery]) -> list[dict[bytes, CachedVerdict]]:
        """Verdicts of judges by key, one mapping per query, in order; keys without a verdict are left out."""
        pairs = [(query.batch_id, key) for query in queries for key in query.keys]
        if not pairs:
            return [{} for _ in queries]
        rows = await self._db.rows(
            _FIND_VERDICTS, {"batch_id": [batch_id for batch_id, _ in pairs], "key": [key for _, key in pairs]}
        )
        # A claim whose verdict can't be read is asked for again.
        read = [(row, read_row(lambda row: reply_text(row.frame), row, row.job_id)) for row in rows]
        replies = [(row, reply) for row, reply in read if not isinstance(reply, UnreadableRow)]
        verdict_of: dict[tuple[UUID, bytes], CachedVerdict] = {
            (row.batch_id, bytes(key)): CachedVerdict(row.attempt_id, row.job_id, number, reply)
            for row, reply in replies
            for key, number in zip(row.keys, row.numbers, strict=True)
        }
        return [
            {key: verdict_of[query.batch_id, key] for key in query.keys if (query.batch_id, key) in verdict_of}
            for query in queries
        ]

    async def store_verdicts(self, verdicts: Sequence[NewVerdicts]) -> None:
        """Keep verdicts for the batches of these attempts; the first verdict of a key stays.

        An attempt without a completion (never answered, erased, pruned) is passed over. A verdict goes with its completion.
        """
        numbers = [(reply.attempt_id, key, number) for reply in verdicts for key, number in reply.numbers]
        if numbers:
            ids, keys, positions = zip(*numbers, strict=True)
            await self._db.rows(
                _STORE_VERDICTS, {"attempt_id": list(ids), "key": list(keys), "number": list(positions)}
            )
