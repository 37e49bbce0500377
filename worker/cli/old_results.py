"""Deletes what the result backend holds of jobs that run again."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from tasks.errors import BrokerUnavailable
from worker.cli.messages import warn
from worker.cli.session import Session
from worker.process.notifier import CeleryDoorbell, ring


@dataclass(slots=True)
class OldResults:
    """The results of earlier runs; once Redis is found away the rest stays, with one warning."""

    doorbell: CeleryDoorbell
    redis_away: bool = False

    async def delete(self, job_ids: Sequence[UUID]) -> None:
        """Delete the results of some jobs."""
        if self.redis_away:
            return
        try:
            await self.doorbell.forget(job_ids)
        except BrokerUnavailable as error:
            self.redis_away = True
            warn(f"{error}; until the new run ends the result backend may still answer with the old one")


@asynccontextmanager
async def old_results(session: Session) -> AsyncIterator[OldResults]:
    """Open the result backend for a command."""
    async with ring(session.settings, session.where.redis_url) as doorbell:
        yield OldResults(doorbell)
