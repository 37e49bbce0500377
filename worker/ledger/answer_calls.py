"""Reads the calls that the answers of records came from, with the hashes of what was sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from schemas.model_call import Correction
from schemas.states import Step
from worker.ledger.database import Store
from worker.ledger.queue import PURPOSES

# The answer with the messages of the record: of a recheck, or of a second round that was given up, an earlier one.
_CALLS = """
SELECT d.id, r.prompt IS NOT NULL AS pinned, j.correction, c.round, a.request_hash
FROM unnest(%(ids)b::uuid[]) AS d(id)
JOIN job j ON j.id = d.id
JOIN job_request r ON r.job_id = j.id
JOIN generation_record g ON g.job_id = j.id AND g.run = j.run
LEFT JOIN LATERAL (
    SELECT attempt_id, round FROM completion
    WHERE attempt_id = g.attempt_id OR g.attempt_id IS NULL AND job_id = d.id AND won AND purpose = ANY(%(purposes)s)
      AND prompt #>> '{snapshot,sha256}' = g.messages_snapshot ->> 'sha256'
    ORDER BY run DESC, round DESC LIMIT 1
) c ON true
LEFT JOIN attempt a ON a.id = c.attempt_id
"""


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """The call of a record's answer.

    Attributes:
        body_sha256: of the body that was sent; None where the call is no more.
        correction: the reason for a second round, for an answer of one.
        pinned: the job is a replay, whose messages were taken from another job.
    """

    body_sha256: bytes | None
    correction: Correction | None
    pinned: bool


class AnswerCalls(Store):
    """The calls of records, a page of jobs a statement."""

    async def read(self, job_ids: Sequence[UUID]) -> dict[UUID, AnswerCall]:
        """The call of each job that has a record."""
        rows = await self._db.rows(_CALLS, {"ids": list(job_ids), "purposes": PURPOSES[Step.GENERATE]})
        return {
            row.id: AnswerCall(
                body_sha256=bytes(row.request_hash) if row.request_hash else None,
                correction=Correction.model_validate(row.correction) if row.round and row.correction else None,
                pinned=row.pinned,
            )
            for row in rows
        }
