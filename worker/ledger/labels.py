"""Stores and reads the labels of people on answers and claims."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from worker.ledger.database import Store, arrays
from worker.ledger.pages import walk


class LabelVerdict(StrEnum):
    """The verdict of a person on an answer (all of its claims) or on one claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNSUPPORTED = "unsupported"
    NOT_CHECKABLE = "not_checkable"


@dataclass(frozen=True, slots=True)
class Label:
    """The label of one person.

    Attributes:
        run: of the job whose answer was read.
        claim: number of the claim, from 1; None: the whole answer.
        actor: the person.
        at: time of the ledger; None before it is stored.
    """

    job_id: UUID
    run: int
    claim: int | None
    verdict: LabelVerdict
    actor: str
    note: str | None = None
    at: datetime | None = None


# A person has one label on a claim: the newer one replaces the older. The job is locked, so that none comes to an erased one.
_STORE = """
WITH labelled_job AS (
    SELECT id, run FROM job WHERE id = ANY(%(job_id)b::uuid[]) AND finished_at IS NOT NULL AND erased_at IS NULL
    ORDER BY id FOR KEY SHARE
)
INSERT INTO label (job_id, run, claim, verdict, note, actor)
SELECT d.job_id, d.run, d.claim, d.verdict, d.note, d.actor
FROM unnest(%(job_id)b::uuid[], %(run)b::int2[], %(claim)b::int2[], %(verdicts)b::text[], %(note)b::text[],
            %(actor)b::text[]) AS d(job_id, run, claim, verdict, note, actor)
JOIN labelled_job j ON j.id = d.job_id AND j.run = d.run
ON CONFLICT (job_id, run, coalesce(claim, 0), actor)
DO UPDATE SET verdict = excluded.verdict, note = excluded.note, at = nightdesk_now()
RETURNING job_id
"""

_COLUMNS = "l.id, l.job_id, l.run, l.claim, l.verdict, l.note, l.actor, l.at"
_OF_JOB = f"SELECT {_COLUMNS} FROM label l WHERE l.job_id = %(id)s ORDER BY l.run, coalesce(l.claim, 0), l.at, l.id"
_ALL = f"SELECT {_COLUMNS} FROM label l WHERE l.id > %(after_id)s ORDER BY l.id LIMIT %(page)s"
_OF_BATCH = f"""
SELECT {_COLUMNS} FROM label l JOIN job j ON j.id = l.job_id
WHERE j.batch_id = %(batch_id)s AND l.id > %(after_id)s ORDER BY l.id LIMIT %(page)s
"""


class Labels(Store):
    """The labels, a page a statement."""

    async def store(self, labels: Sequence[Label]) -> int:
        """Store labels of jobs that are final in this run and not erased; returns the number stored.

        No two of them may be of the same person on the same claim.
        """
        parameters = {
            **arrays(labels, "job_id", "run", "claim", "note", "actor"),
            "verdicts": [label.verdict.value for label in labels],
        }
        return len(await self._db.rows(_STORE, parameters))

    async def of_job(self, job_id: UUID) -> list[Label]:
        """The labels of a job, of all its runs."""
        return [_label(row) for row in await self._db.rows(_OF_JOB, {"id": job_id})]

    async def pages(self, batch_id: UUID | None = None) -> AsyncIterator[list[Label]]:
        """All labels, or those of a batch, in the order in which they were first given."""
        statement = _ALL if batch_id is None else _OF_BATCH
        async for rows in walk(self._db, statement, {"batch_id": batch_id}, {"id": 0}):
            yield [_label(row) for row in rows]


def _label(row: Any) -> Label:
    return Label(row.job_id, row.run, row.claim, LabelVerdict(row.verdict), row.actor, row.note, row.at)
