"""Removes old jobs by itself: first their content, later the jobs altogether, each after a time of its own."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from tasks.errors import NightdeskError
from worker.ledger.postgres import PostgresLedger

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
    leads: Callable[[], bool] = lambda: True
    page_pause: timedelta = PAGE_PAUSE
    every: timedelta = EVERY

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
        return erased, deleted

    async def _remove(self, age: timedelta, *, rows: bool) -> int:
        jobs = 0
        erasure = self.ledger.erasure
        async for batch_id, due in erasure.due_pages(erasure.old_batches(None, age, rows=rows), age, rows=rows):
            if not due:
                await erasure.seal(batch_id)
                continue
            # Redis first: after the ledger, no later round would visit these jobs.
            await self.forget({job.job_id: job.run for job in due})
            ids = [job.job_id for job in due]
            jobs += len((await erasure.delete(ids)).runs if rows else await erasure.erase(ids, ACTOR))
            await asyncio.sleep(self.page_pause.total_seconds())
        return jobs
