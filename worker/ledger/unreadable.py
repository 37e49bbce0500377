"""Ends jobs whose rows can't be read."""

import logging
from collections.abc import Iterable
from uuid import UUID

from schemas.failure import FailureKind
from schemas.states import JobState
from tasks.ports import UnreadableRow
from worker.ledger.actions import closing_statement
from worker.ledger.database import Database
from worker.ledger.pages import LEASING, isolate, paged, quarantine_for

log = logging.getLogger(__name__)

_FAIL = closing_statement(
    """
SELECT id FROM job
WHERE id = ANY(%(ids)b::uuid[]) AND state = 'running' AND lease_token = ANY(%(tokens)b::uuid[]) ORDER BY id FOR NO KEY UPDATE""",
    message="(SELECT d.message FROM unnest(%(all_ids)b::uuid[], %(messages)b::text[]) AS d(id, message) WHERE d.id = ended_job.id)",
)


async def fail_unreadable(db: Database, rows: Iterable[UnreadableRow], tokens: Iterable[UUID]) -> None:
    """End the jobs of rows that can't be read, each with its cause; they are leased under one of these tokens."""
    messages = {row.job_id: row.message for row in rows}
    parameters = {
        "state": JobState.FAILED.value,
        "event": FailureKind.UNREADABLE.value,
        "actor": "worker",
        "kind": FailureKind.UNREADABLE.value,
        "tokens": list(tokens),
        "all_ids": list(messages),
        "messages": list(messages.values()),
    }

    async def fail(ids: Iterable[UUID]) -> list[UUID]:
        return [row.id for row in await db.rows(_FAIL, {**parameters, "ids": list(ids)})]

    for page in paged(list(messages)):
        for job_id in await isolate(page, fail, quarantine_for(db, LEASING)):
            log.error("job %s failed: %s", job_id, messages[job_id])
