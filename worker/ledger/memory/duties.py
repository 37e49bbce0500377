"""The duties of dispatch in the in-memory ledger: lead, publish, promote, hint."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

from schemas.states import JobState, Step
from tasks.ports import JobView, Outlook, RepublishPage
from worker.ledger.memory.reading import job_view
from worker.ledger.memory.running import MemoryRunning
from worker.ledger.memory.tables import BatchRow, JobRow

_LATEST = datetime.max.replace(tzinfo=UTC)
_EARLIEST = datetime.min.replace(tzinfo=UTC)
ASIDE_FOR = timedelta(minutes=1)


@dataclass(slots=True)
class Walk:
    """The results that are published again, as far as they are."""

    after: tuple[datetime, UUID]
    until: datetime
    published: int = 0


class MemoryDuties(MemoryRunning):
    """The verbs of whoever leads."""

    _leader: str | None = None
    _leads_until: datetime = _EARLIEST
    _leader_has_broker: bool = True
    _hints_lost_at: datetime = _EARLIEST
    _walk: Walk | None = None

    async def attend(
        self,
        worker: str,
        lead_for: timedelta,
        publish_after: timedelta,
        check_backlog: int,
        *,
        broker: bool | None = None,
    ) -> Outlook:
        """Take or renew the lead, and look for work."""
        now, jobs = self._now(), self._jobs.values()
        better = broker is True and not self._leader_has_broker
        if better or self._leader == worker or not now < self._leads_until <= now + 2 * lead_for:
            self._leader, self._leads_until = worker, now + lead_for
            self._leader_has_broker = broker is not False
        available = [job.step for job in jobs if job.state is JobState.AVAILABLE]
        checks = sum(step in {Step.CHECK, Step.LOCAL} for step in available)
        leads = self._leader == worker
        scheduled = [job for job in jobs if job.state is JobState.SCHEDULED and job.held_reason is None]
        return Outlook(
            leads=leads,
            server_age=now - self._started_at,
            check_behind=checks > check_backlog,
            without_broker=not leads and not self._leader_has_broker,
            available=frozenset(available),
            due=leads and any(job.scheduled_at <= now for job in scheduled),
            unsettled=leads and any(self._is_unsettled(batch) for batch in self._batches.values()),
            late=leads and any(job.active and job.past_deadline(now) for job in jobs),
            lost=leads and any(self._is_lost(job, now) for job in jobs),
            unpublished=leads and bool(self._unpublished(publish_after)),
            republishing=leads and self._walk is not None,
        )

    def _is_unsettled(self, batch: BatchRow) -> bool:
        return batch.least_needed_usd is not None and (batch.hold_from is not None or self._has_room(batch))

    def _is_lost(self, job: JobRow, now: datetime) -> bool:
        ran_out = job.lease_until is not None and job.lease_until < now
        return ran_out or (job.final and any(attempt.closed_at is None for attempt in job.attempts))

    async def resign(self, worker: str) -> None:
        """Let another worker lead at once, if this one does."""
        if self._leader == worker:
            self._leader, self._leads_until = None, _EARLIEST

    # the outbox

    async def unpublished(self, limit: int, older_than: timedelta) -> list[JobView]:
        """Final jobs whose result is not in the result backend, oldest first."""
        return [job_view(job) for job in self._unpublished(older_than)[:limit]]

    def _unpublished(self, older_than: timedelta) -> list[JobRow]:
        now = self._now()
        due = [
            (job.finished_at, job.order, job)
            for job in self._jobs.values()
            if job.published_at is None and job.finished_at is not None and job.finished_at <= now - older_than
            if job.aside_until is None or job.aside_until <= now
        ]
        return [job for _, _, job in sorted(due, key=lambda row: row[:2])]

    async def mark_published(self, results: Sequence[tuple[UUID, int]]) -> list[tuple[UUID, int]]:
        """Note that these results are in the result backend; nothing is ever erased here."""
        stale = []
        for job_id, run in results:
            job = self._jobs.get(job_id)
            if job is None or job.run != run or not job.final:
                stale.append((job_id, run))
            elif job.published_at is None:
                job.published_at = self._now()
        return stale

    async def set_aside(self, job_id: UUID, error: Exception) -> None:
        """Keep a job whose result can't be published out of the others' way for a while."""
        job = self._jobs[job_id]
        job.published_at, job.aside_until, job.aside_reason = None, self._now() + ASIDE_FOR, str(error)

    async def begin_republishing(self, finished_within: timedelta) -> None:
        """Begin to publish recent results again, and forget all hints."""
        now = self._now()
        self._hints_lost_at = now
        self._walk = Walk((now - finished_within, UUID(int=0)), now)

    async def republish_page(self, limit: int) -> RepublishPage | None:
        """The next results to publish again."""
        if (walk := self._walk) is None:
            return None
        ended = [
            (job.finished_at, job.new.id)
            for job in self._jobs.values()
            if job.published_at is not None and job.finished_at is not None and job.finished_at <= walk.until
        ]
        keys = sorted(key for key in ended if key > walk.after)[:limit]
        if not keys:
            self._walk = None
            return RepublishPage(walk.until, None, (), walk.published)
        views = tuple(job_view(self._jobs[job_id]) for _, job_id in keys)
        return RepublishPage(walk.until, keys[-1], views, walk.published + len(keys))

    async def note_republished(self, page: RepublishPage) -> None:
        """Note that a page is in the result backend."""
        walk = self._walk
        if page.through is not None and walk is not None and walk.until == page.until and walk.after < page.through:
            walk.after, walk.published = page.through, page.published

    # dispatch

    async def promote(self, limit: int) -> int:
        """Make due, unheld scheduled jobs available."""
        now = self._now()
        due = [
            job
            for job in self._jobs.values()
            if job.state is JobState.SCHEDULED
            and job.held_reason is None
            and job.scheduled_at <= now
            and not job.batch.paused
        ]
        due = sorted(due, key=lambda job: (job.scheduled_at, job.order))[:limit]
        for job in due:
            self._move(job, JobState.AVAILABLE, "promote")
        return len(due)

    async def take_hints(
        self, step: Step, depth: int, limit: int, again_after: timedelta, *, min_priority: int | None = None
    ) -> list[tuple[UUID, int]]:
        """Choose available jobs to hint: by priority, then tenants in turn, then deadline, then acceptance."""
        now = self._now()
        ready = [job for job in self._jobs.values() if job.state is JobState.AVAILABLE and job.step is step]
        if min_priority is not None:
            ready = [job for job in ready if job.new.priority >= min_priority]
        since = max(now - again_after, self._hints_lost_at)
        fresh = [job for job in ready if job.hinted_at is not None and job.hinted_at > since]
        rest = [job for job in ready if job not in fresh and not job.past_deadline(now)]
        rest.sort(key=_urgency)
        turns: dict[tuple[int, str], count[int]] = {}
        ranked = [
            (
                -job.new.priority,
                next(turns.setdefault((job.new.priority, job.new.tenant), count())),
                *_urgency(job),
                job,
            )
            for job in rest
        ]
        ranked.sort(key=lambda row: row[:-1])
        chosen = [row[-1] for row in ranked[: max(0, min(limit, depth - len(fresh)))]]
        for job in chosen:
            job.hinted_at = now
        return [(job.new.id, job.new.priority) for job in chosen]

    async def reassign(self, step: Step, to: Step, limit: int) -> list[UUID]:
        """Leave available jobs of a step that nobody serves to another one."""
        left = [job for job in self._jobs.values() if job.state is JobState.AVAILABLE and job.step is step][:limit]
        for job in left:
            job.step, job.hinted_at = to, None
            self._note(job, "unserved", "dispatch", step=step, to=to)
        return [job.new.id for job in left]

    async def backlog(self, step: Step, at_most: int) -> int:
        """How many jobs are available for a step, counted up to ``at_most``."""
        ready = sum(job.state is JobState.AVAILABLE and job.step is step for job in self._jobs.values())
        return min(ready, at_most)


def _urgency(job: JobRow) -> tuple[datetime, int]:
    return job.deadline or _LATEST, job.order
