"""Remembers, by batch, where a judge's word on a claim with its evidence stands, and finds it again."""

from collections.abc import Sequence
from uuid import UUID

from tasks.ports import CachedVerdict, NewVerdicts, VerdictQuery
from worker.ledger.database import Database

# A reply is sent once, however many of its claims are asked for.
_FIND = """
WITH given AS (
    SELECT DISTINCT * FROM unnest(%(batch_id)b::uuid[], %(key)b::bytea[]) AS d(batch_id, key)
)
SELECT v.batch_id, c.attempt_id, c.job_id, c.parsed ->> 'text' AS reply,
       array_agg(v.key) AS keys, array_agg(v.number) AS numbers
FROM given d JOIN judge_verdict v ON v.batch_id = d.batch_id AND v.key = d.key
             JOIN completion c ON c.attempt_id = v.attempt_id
GROUP BY v.batch_id, c.attempt_id
"""

# The batch is that of the attempt's own job, whoever says what. In key order, so that two groups never wait for each
# other; the lock makes an erasure that is under way see what is noted here, or this see that there is no answer left.
_NOTE = """
INSERT INTO judge_verdict (batch_id, key, attempt_id, number)
SELECT j.batch_id, d.key, c.attempt_id, d.number
FROM unnest(%(attempt_id)b::uuid[], %(key)b::bytea[], %(number)b::int2[]) AS d(attempt_id, key, number)
JOIN completion c ON c.attempt_id = d.attempt_id AND c.purpose = 'judge'
JOIN job j ON j.id = c.job_id
ORDER BY j.batch_id, d.key FOR KEY SHARE OF c
ON CONFLICT DO NOTHING
"""


class VerdictStore:
    """The verbs of the PostgreSQL ledger about what judges said before."""

    _db: Database

    async def find_verdicts(self, queries: Sequence[VerdictQuery]) -> list[dict[bytes, CachedVerdict]]:
        """See ``tasks.ports.Ledger.find_verdicts``."""
        asked = [(query.batch_id, key) for query in queries for key in query.keys]
        if not asked:
            return [{} for _ in queries]
        rows = await self._db.rows(_FIND, {"batch_id": [one for one, _ in asked], "key": [key for _, key in asked]})
        found: dict[tuple[UUID, bytes], CachedVerdict] = {
            (row.batch_id, bytes(key)): CachedVerdict(row.attempt_id, row.job_id, number, row.reply)
            for row in rows
            for key, number in zip(row.keys, row.numbers, strict=True)
        }
        return [
            {key: found[query.batch_id, key] for key in query.keys if (query.batch_id, key) in found}
            for query in queries
        ]

    async def store_verdicts(self, heard: Sequence[NewVerdicts]) -> None:
        """See ``tasks.ports.Ledger.store_verdicts``."""
        numbers = [(one.attempt_id, key, number) for one in heard for key, number in one.numbers]
        if numbers:
            ids, keys, said = zip(*numbers, strict=True)
            await self._db.rows(_NOTE, {"attempt_id": list(ids), "key": list(keys), "number": list(said)})
