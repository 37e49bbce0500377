"""Finds jobs and batches within one tenant, and the versions of jobs; what another tenant has is as if it were not."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from schemas.states import FINAL_STATES, JobState
from tasks.errors import NotFound
from worker.ledger.database import Store

# By the primary key alone: a job of another tenant takes the time of one that does not exist.
_VERSION = """
SELECT id, batch_id, state, run, round, step, outcome, held_reason, finished_at, erased_at, cost_usd FROM job
"""
# What is stored out of line is measured without being read.
_OF_TENANTS = f"""
SELECT d.ord, j.*,
       (SELECT coalesce(pg_column_size(frame), 0) + coalesce(pg_column_size(answer), 0) + coalesce(pg_column_size(citations), 0)
               + coalesce(pg_column_size(grounding), 0) + coalesce(pg_column_size(quality), 0)
        FROM generation_record WHERE job_id = j.id AND run = j.run) AS result_bytes,
       (SELECT coalesce(pg_column_size(frame), 0) + pg_column_size(head) FROM job_request WHERE job_id = j.id) AS request_bytes
FROM unnest(%(ids)b::uuid[], %(tenants)b::text[]) WITH ORDINALITY AS d(id, tenant, ord)
CROSS JOIN LATERAL ({_VERSION} WHERE id = d.id AND tenant = d.tenant LIMIT 1) j
"""
_OF_JOBS = _VERSION + "WHERE id = ANY(%(ids)b::uuid[])"

_BATCH = "SELECT id FROM batch WHERE id = %(id)s AND tenant = %(tenant)s"


@dataclass(frozen=True, slots=True)
class JobVersion:
    """A job at one moment, as far as its result can differ."""

    job_id: UUID
    batch_id: UUID
    state: JobState
    run: int
    outcome: str | None
    held_reason: str | None
    tag: str
    """Changes with the result."""
    result_bytes: int = 0
    """Bytes of the stored result, packed to a hundredth of it at best; 0 where the version was read without a tenant."""
    request_bytes: int = 0

    @property
    def final(self) -> bool:
        """True if the job is in a final state."""
        return self.state in FINAL_STATES


class Tenancy(Store):
    """Looks of a tenant at its own jobs and batches."""

    async def job(self, job_id: UUID, tenant: str) -> JobVersion:
        """The version of a job; raises ``NotFound``."""
        (version,) = await self.jobs([(job_id, tenant)])
        if version is None:
            raise NotFound(f"no job {job_id}")
        return version

    async def jobs(self, owned: Sequence[tuple[UUID, str]]) -> list[JobVersion | None]:
        """The versions of jobs, each of a tenant, in order; None where the tenant has no such job."""
        parameters = {"ids": [job_id for job_id, _ in owned], "tenants": [tenant for _, tenant in owned]}
        versions: list[JobVersion | None] = [None] * len(owned)
        for row in await self._db.rows(_OF_TENANTS, parameters):
            result_bytes, request_bytes = row.result_bytes or 0, row.request_bytes or 0
            versions[row.ord - 1] = replace(_version(row), result_bytes=result_bytes, request_bytes=request_bytes)
        return versions

    async def versions(self, job_ids: Sequence[UUID]) -> list[JobVersion]:
        """The versions of those jobs that exist, of any tenant: for ids that ``job`` returned before."""
        return [_version(row) for row in await self._db.rows(_OF_JOBS, {"ids": list(job_ids)})]

    async def require_batch(self, batch_id: UUID, tenant: str) -> None:
        """Raises ``NotFound`` unless the tenant has this batch."""
        if not await self._db.rows(_BATCH, {"id": batch_id, "tenant": tenant}):
            raise NotFound(f"no batch {batch_id}")


def _version(row: Any) -> JobVersion:
    parts = (row.run, row.round, row.state, row.step, row.outcome, row.held_reason, row.finished_at, row.erased_at)
    tag = hashlib.blake2b(repr((*parts, row.cost_usd)).encode(), digest_size=9).hexdigest()
    return JobVersion(row.id, row.batch_id, JobState(row.state), row.run, row.outcome, row.held_reason, tag)
