"""Removes old jobs by itself: first their content, later the jobs, at last their batches, each after a time of its own."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from tasks.errors import NightdeskError
from worker.ledger.postgres import PostgresLedger
from worker.ledger.removal import Passed

log = logging.getLogger(__name__)

EVERY = timedelta(hours=1)
"""Time between two rounds; a day's jobs are then removed in 24 parts."""

PAGE_PAUSE = timedelta(milliseconds=100)
"""Pause after each page of 500 jobs, so that pruning takes no more than about half of one connection."""

ACTOR = "prune"

Forget = Callable[[Mapping[UUID, int]], Awaitable[None]]
"""Removes results and streams of jobs from Redis, each job with its last run."""


@dataclass(slots=True)
class Pruning:
    """Prunes round after round where this worker leads; two at once are harmless, each job is removed once."""

    ledger: PostgresLedger
    forget: Forget
    content_after: timedelta | None = None
    """Age from the end of a job at which its content is erased; None: never."""
    rows_after: timedelta | None = None
    """Age at which the job is deleted with all its rows; None: never."""
    batches_after: timedelta | None = None
    """Age at which a batch without jobs is deleted, with the sums of days and periods; None: never."""
    leads: Callable[[], bool] = lambda: True
    page_pause: timedelta = PAGE_PAUSE
    every: timedelta = EVERY
    _passed: dict[bool, Passed] = field(default_factory=lambda: {True: Passed(), False: Passed()})
    """Where the walks for jobs and for content go on: an hour's round reads no batch that holds nothing."""

    async def run(self) -> None:
        """Prunes every hour until cancelled. The first round comes at a random time, not with the load of a start."""
        await asyncio.sleep(random.random() * self.every.total_seconds())  # noqa: S311 - no secret
        while True:
            if self.leads():
                await self._round()
            await asyncio.sleep(self.every.total_seconds())

    async def _round(self) -> None:
        try:
            erased, deleted = await self.prune()
        except NightdeskError as error:
            log.warning("pruning stopped and goes on with the next round: %s", error)
        except Exception:
            log.exception("pruning broke and is tried again with the next round")
        else:
            if erased or deleted:
                log.info("pruned: %d jobs erased, %d deleted", erased, deleted)

    async def prune(self) -> tuple[int, int]:
        """Removes all old jobs; returns the numbers of erased and of deleted ones."""
        deleted = await self._remove(self.rows_after, rows=True) if self.rows_after is not None else 0
        erased = await self._remove(self.content_after, rows=False) if self.content_after is not None else 0
        if self.batches_after is not None and (batches := await self.ledger.erasure.delete_batches(self.batches_after)):
            log.info("pruned: %d batches without jobs deleted", batches)
        return erased, deleted

    async def _remove(self, age: timedelta, *, rows: bool) -> int:
        jobs = 0
        erasure = self.ledger.erasure
        batches = erasure.old_batches(None, age, rows=rows, passed=self._passed[rows])
        async for batch_id, due in erasure.due_pages(batches, age, rows=rows):
            if not due:
                await erasure.seal(batch_id)
                continue
            # Redis first: after the ledger, no later round would visit these jobs.
            await self.forget({job.job_id: job.run for job in due})
            ids = [job.job_id for job in due]
            jobs += len((await erasure.delete(ids)).runs if rows else await erasure.erase(ids, ACTOR))
            await asyncio.sleep(self.page_pause.total_seconds())
        return jobs
