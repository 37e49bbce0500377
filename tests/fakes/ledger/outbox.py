"""The outbox of the in-memory ledger."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from tasks.ports import (
    JobView,
    Outbox,
    RepublishPage,
)
from tests.fakes.ledger.reading import job_view
from tests.fakes.ledger.rules import unpublished_jobs
from tests.fakes.ledger.tables import MemoryTables, Walk

ASIDE_FOR = timedelta(minutes=1)


class MemoryOutbox(Outbox):
    """Results by the end of their jobs."""

    def __init__(self, tables: MemoryTables) -> None:
        self._tables = tables

    async def unpublished(self, limit: int, older_than: timedelta) -> list[JobView]:
        return [job_view(job) for job in unpublished_jobs(self._tables, older_than)[:limit]]

    async def mark_published(self, results: Sequence[tuple[UUID, int]]) -> list[tuple[UUID, int]]:
        stale = []
        for job_id, run in results:
            job = self._tables.jobs.get(job_id)
            if job is None or job.run != run or not job.final:
                stale.append((job_id, run))
            elif job.published_at is None:
                job.published_at = self._tables.now()
        return stale

    async def set_aside(self, job_id: UUID, error: Exception) -> None:
        job = self._tables.jobs[job_id]
        job.published_at, job.aside_until, job.aside_reason = None, self._tables.now() + ASIDE_FOR, str(error)

    async def begin_republishing(self, finished_within: timedelta) -> bool:
        now, again = self._tables.now(), self._tables.hints_lost_at.year > 1
        self._tables.hints_lost_at = now
        self._tables.walk = Walk((now - finished_within, UUID(int=0)), now)
        return again

    async def republish_page(self, limit: int) -> RepublishPage | None:
        if (walk := self._tables.walk) is None:
            return None
        ended = [
            (job.finished_at, job.new.id)
            for job in self._tables.jobs.values()
            if job.published_at is not None and job.finished_at is not None and job.finished_at <= walk.until
        ]
        keys = sorted(key for key in ended if key > walk.after)[:limit]
        if not keys:
            self._tables.walk = None
            return RepublishPage(walk.until, None, (), walk.published)
        views = tuple(job_view(self._tables.jobs[job_id]) for _, job_id in keys)
        return RepublishPage(walk.until, keys[-1], views, walk.published + len(keys))

    async def note_republished(self, page: RepublishPage) -> None:
        walk = self._tables.walk
        if page.through is not None and walk is not None and walk.until == page.until and walk.after < page.through:
            walk.after, walk.published = page.through, page.published
